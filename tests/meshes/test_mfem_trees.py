"""MFEM's nonconforming formats. Where MFEM is installed, it reads and writes the same meshes."""

import warnings
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

import femops
from femops_meshes import (
    Mesh,
    MeshArgumentError,
    MeshFormatError,
    MeshGeometryError,
    MeshTopologyError,
    read_mesh,
    read_mfem,
    sample,
    scrambled,
    write_mfem,
)


def wavy(x):
    return x + 0.05 * np.sin(2 * np.pi * x[::-1])


ROOTS = {
    "interval": lambda: femops.box(4),
    "square": lambda: femops.box((3, 2)),
    "box": lambda: femops.box((2, 2, 2)),
    "scrambled": lambda: scrambled(femops.box((2, 2, 2)), 3),
    "disc": lambda: femops.disc(2),
    "ball": lambda: femops.ball(1),
    "torus": lambda: femops.box((3, 3), periodic=True),
    "file": lambda: read_mesh(sample("disc.mesh")),
    "refined": lambda: femops.box((2, 2)).refine(),
}


def tree(name, seed=0):
    rng = np.random.default_rng(seed)
    mesh = ROOTS[name]()
    for _ in range(2):
        mesh = mesh.refined([0, *np.flatnonzero(rng.random(mesh.num_elements) < 0.2)])
    mesh = mesh.with_attributes(1 + np.arange(mesh.num_elements) % 3)
    return mesh.reordered(rng.permutation(mesh.num_elements))


def in_file_order(mesh):
    return mesh.reordered(np.argsort(mesh.file_elements))


def same_mesh(one, other):
    """Assert that two meshes are the same up to the numbers of vertices."""
    assert np.array_equal(one.file_elements, other.file_elements)
    assert np.allclose(one.coordinates, other.coordinates, rtol=1e-14, atol=1e-15)
    assert np.array_equal(one.element_attributes, other.element_attributes)
    rows = [
        sorted(np.column_stack([m.topology.boundary_faces, m.boundary_attributes]).tolist())
        for m in (one, other)
    ]
    assert rows[0] == rows[1]
    joined = {*zip(one.elements.ravel().tolist(), other.elements.ravel().tolist(), strict=True)}
    assert len(joined) == one.num_vertices == other.num_vertices
    assert np.array_equal(one.forest.level, other.forest.level)
    assert np.array_equal(one.forest.path, other.forest.path)
    assert np.array_equal(one.forest.root, other.forest.root)
    assert one.element_names == other.element_names
    assert one.boundary_names == other.boundary_names


@pytest.mark.parametrize("moved", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ROOTS)
def test_meshes_come_back_from_files(tmp_path, name, moved):
    mesh = tree(name)
    if moved:
        mesh = mesh.mapped(wavy, max(moved, mesh.order))
    write_mfem(mesh, tmp_path / "a.mesh")
    again = read_mfem(tmp_path / "a.mesh")
    again.validate()
    same_mesh(again, in_file_order(mesh))
    same_mesh(again.coarsened(), in_file_order(mesh).coarsened())
    write_mfem(again, tmp_path / "b.mesh")
    assert (tmp_path / "b.mesh").read_bytes() == (tmp_path / "a.mesh").read_bytes()
    read = read_mesh(tmp_path / "a.mesh", refine=1)
    assert read.num_elements == mesh.num_elements * 2**mesh.dim
    assert np.isclose(read.volume(), mesh.volume())


def test_straight_meshes_have_the_positions_of_the_roots(tmp_path):
    write_mfem(tree("box"), tmp_path / "a.mesh")
    text = (tmp_path / "a.mesh").read_text()
    assert text.startswith("MFEM NC mesh v1.0\n")
    assert "\ncoordinates\n27\n3\n" in text
    write_mfem(tree("box").mapped(wavy), tmp_path / "b.mesh")  # vertices have moved on their own
    assert (
        "\nnodes\nFiniteElementSpace\nFiniteElementCollection: H1_3D_P1\n"
        in (tmp_path / "b.mesh").read_text()
    )


def test_names_come_back_from_comments(tmp_path):
    mesh = tree("square").with_names({"a": 1, "b c": (2, 3)}, {"left": 1})
    write_mfem(mesh, tmp_path / "a.mesh")
    again = read_mfem(tmp_path / "a.mesh")
    same_mesh(again, in_file_order(mesh))
    assert again.element_names == {"a": (1,), "b c": (2, 3)}
    assert again.boundary_names == {"left": (1,)}


def plane_inside():
    """A box with the plane x = 1 listed, seen from the low side, between unlike elements."""
    points = np.array([[x, y, z] for z in range(2) for y in range(3) for x in range(3)], float)
    number = np.arange(18).reshape(2, 3, 3)
    cells = [number[:, y : y + 2, x : x + 2].ravel() for y, x in product(range(2), range(2))]
    outer = Mesh.from_arrays(points, cells)
    plane = [[1, 4, 10, 13], [4, 7, 13, 16]]
    faces = np.concatenate([outer.boundary, plane])
    return Mesh.from_arrays(points, cells, boundary=faces, boundary_attributes=[1] * 16 + [7] * 2)


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1], [0, 3]])
def test_entries_on_divided_faces_keep_their_side(tmp_path, chosen):
    mesh = plane_inside().refined(chosen)
    write_mfem(mesh, tmp_path / "a.mesh")
    same_mesh(read_mfem(tmp_path / "a.mesh"), in_file_order(mesh))
    square = femops.box((2, 2))
    inside = [[square.elements[0, 1], square.elements[0, 3]]]
    square = Mesh.from_arrays(
        None,
        square.elements,
        boundary=np.concatenate([square.boundary, inside]),
        boundary_attributes=[*square.boundary_attributes, 9],
        coordinates=square.coordinates,
    )
    mesh = square.refined(chosen)
    write_mfem(mesh, tmp_path / "b.mesh")
    same_mesh(read_mfem(tmp_path / "b.mesh"), in_file_order(mesh))


NC = """MFEM NC mesh v1.0

# two squares, the right one refined
dimension
2

elements
6
0 1 3 0 0 1 4 3
-1 2 3 3 2 3 4 5
0 2 3 0 1 6 10 9
0 3 3 0 6 2 7 10
0 2 3 0 10 7 5 8
0 2 3 0 9 10 8 4

boundary
8
1 1 0 1
1 1 1 6
1 1 6 2
2 1 2 7
2 1 7 5
3 1 5 8
3 1 8 4
3 1 4 3

vertex_parents
5
6 1 2
7 2 5
8 5 4
9 1 4
10 6 8

root_state
2
0
1

coordinates
6
2
0 0
1 0
2 0
0 1
1 1
2 1

mfem_mesh_end
"""

LEGACY = """MFEM mesh v1.1

dimension
2

elements
5
2 3 10 7 5 8
1 3 0 1 4 3
2 3 1 6 10 9
3 3 6 2 7 10
2 3 9 10 8 4

boundary
2
1 1 1 6
2 1 7 5

vertex_parents
5
6 1 2
7 2 5
8 5 4
9 1 4
10 6 8

coarse_elements
1
3 2 3 0 4

vertices
11
2
0 0
1 0
2 0
0 1
1 1
2 1
1.5 0
2 0.5
1.5 1
1 0.5
1.5 0.5
"""


def test_a_file_by_hand():
    mesh = read_mfem(NC)
    mesh.validate()
    assert (mesh.num_elements, mesh.num_vertices, mesh.num_boundary) == (5, 11, 8)
    # the state 1 of the second root goes through its halves clockwise
    assert mesh.element_attributes.tolist() == [1, 2, 2, 2, 3]
    assert np.allclose(mesh.element_centers()[1:, 0], [1.25, 1.25, 1.75, 1.75])
    assert np.allclose(mesh.element_centers()[1:, 1], [0.25, 0.75, 0.75, 0.25])
    assert mesh.continuous
    assert mesh.coarsened().num_elements == 2
    assert femops.H1(mesh, 1).ndofs == 10


def test_a_file_of_the_older_format_by_hand():
    mesh = read_mfem(LEGACY)
    mesh.validate()
    assert mesh.element_attributes.tolist() == [2, 1, 2, 3, 2]  # in the order of the file
    assert np.allclose(mesh.element_centers()[[0, 3]], [[1.75, 0.75], [1.75, 0.25]])
    assert sorted(mesh.boundary_attributes.tolist()) == [1, 2]
    assert mesh.coarsened().num_elements == 2


def test_faces_that_mfem_lists_for_both_elements_count_once():
    """MFEM writes a face inside for each element that has it, and a divided one with its parts."""
    more = "8\n1 1 0 1", "12\n5 1 1 4\n5 1 9 1\n5 1 4 9\n6 1 10 6\n1 1 0 1"
    mesh = read_mfem(NC.replace(*more))
    inside = np.flatnonzero(mesh.boundary_attributes == 5)
    assert len(inside) == 2
    assert (mesh.forest.level[mesh.topology.boundary_faces[inside, 0]] == 1).all()
    twice = read_mfem(NC.replace("8\n1 1 0 1", "10\n6 1 10 6\n6 1 6 10\n1 1 0 1"))
    assert (twice.boundary_attributes == 6).sum() == 1
    alone = read_mfem(NC.replace("8\n1 1 0 1", "9\n5 1 1 4\n1 1 0 1"))
    at = alone.topology.boundary_faces[alone.boundary_attributes == 5]
    assert at.tolist() == [[0, 5]]


def test_elements_two_levels_apart_are_refined_with_a_warning():
    """MFEM lets any number of small elements meet at a face of a large one."""
    text = NC.replace("elements\n6", "elements\n10").replace("0 2 3 0 1 6 10 9", "-1 2 3 3 6 7 8 9")
    text = text.replace(
        "0 2 3 0 9 10 8 4\n",
        "0 2 3 0 9 10 8 4\n0 2 3 0 1 11 15 14\n0 2 3 0 11 6 12 15\n0 2 3 0 15 12 10 13\n"
        "0 2 3 0 14 15 13 9\n",
    )
    text = text.replace("vertex_parents\n5", "vertex_parents\n10")
    text = text.replace("10 6 8\n", "10 6 8\n11 1 6\n12 6 10\n13 10 9\n14 9 1\n15 11 13\n")
    text = text.replace("9\n1 1 0 1", "9\n1 1 0 1").replace(
        "8\n1 1 0 1\n1 1 1 6", "9\n1 1 0 1\n1 1 1 11\n1 1 11 6"
    )
    with pytest.warns(UserWarning, match=r"two levels.*the mesh has 3 elements more than the file"):
        mesh = read_mfem(text)
    assert mesh.num_elements == 8 + 3
    mesh.validate()
    assert np.isclose(mesh.volume(), 2.0)


STRIPS = """MFEM NC mesh v1.0

dimension
2

elements
8
-1 1 3 2 2 3
0 1 3 0 1 2 5 4
-1 1 3 2 4 5
-1 1 3 2 6 7
0 1 3 0 0 1 6 9
0 1 3 0 9 6 7 10
0 1 3 0 10 7 8 11
0 1 3 0 11 8 4 3

boundary
5
9 1 1 4
9 1 1 6
9 1 6 7
9 1 7 8
9 1 8 4

coordinates
6
2
0 0
1 0
2 0
0 1
1 1
2 1

mfem_mesh_end
"""


def test_inner_entries_between_elements_two_levels_apart_count_once():
    """MFEM lists the side of the larger element beside those of the smaller ones."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mesh = read_mfem(STRIPS)
    assert "two levels or more" in str(told[-1].message)
    mesh.validate()
    assert mesh.num_boundary == 4
    V = femops.H1(mesh, 1)
    assert np.isclose(femops.integrate(V, np.ones(V.size), boundary=9), 1.0)


# children of an element that is halved along the first directions of a key, in MFEM's order
AROUND = [(0, 0), (1, 0), (1, 1), (0, 1)]
CHILDREN = {
    (0, 1): AROUND,
    (0, 2): AROUND,
    (1, 2): [(0, 0), (1, 0), (0, 1), (1, 1)],
    (0, 1, 2): [(*xy, z) for z in (0, 1) for xy in AROUND],
}
CORNERS = {1: [(0,), (1,)], 2: AROUND, 3: CHILDREN[0, 1, 2]}


class Boxes:
    """A file of a box whose elements are halved in some directions only."""

    def __init__(self, dim, halved):
        """``halved`` has for elements, in the order of the file, the directions to halve in."""
        self.dim, self.rows, self.boxes = dim, [], [(np.zeros(dim), np.ones(dim))]
        self.points = {}
        for corner in CORNERS[dim]:
            self.vertex(np.array(corner, dtype=float))
        sides = []
        for number, directions in enumerate(halved):
            low, high = self.boxes[number]
            if directions:
                first = len(self.boxes)
                for place in CHILDREN.get(directions, [(0,), (1,)]):
                    a, b = low.copy(), high.copy()
                    for d, half in zip(directions, place, strict=True):
                        (a if half else b)[d] = (low[d] + high[d]) / 2
                    self.boxes.append((a, b))
                kind = sum(2**d for d in directions)
                below = " ".join(map(str, range(first, len(self.boxes))))
                self.rows.append(f"-1 1 {dim * 2 - 1} {kind} {below}")
                continue
            corners = [self.vertex(np.where(c, high, low)) for c in CORNERS[dim]]
            self.rows.append(f"0 {number + 1} {dim * 2 - 1} 0 {' '.join(map(str, corners))}")
            for d, end in product(range(dim), (0, 1)):
                if (low, high)[end][d] == end:
                    of = [v for v, c in zip(corners, CORNERS[dim], strict=True) if c[d] == end]
                    flat = of if dim < 3 or d == 2 else [of[k] for k in (0, 1, 3, 2)]
                    sides.append(
                        f"{2 * d + end + 1} {[0, 1, 3][dim - 1]} {' '.join(map(str, flat))}"
                    )
        self.leaves = [k for k, directions in enumerate(halved) if not directions]
        places = [" ".join(map(str, c)) for c in CORNERS[dim]]
        head = ["MFEM NC mesh v1.0", "", "dimension", str(dim), "", "elements"]
        tail = ["coordinates", str(2**dim), str(dim), *places, "", "mfem_mesh_end", ""]
        edge = ["", "boundary", str(len(sides)), *sides, ""]
        self.text = "\n".join([*head, str(len(self.rows)), *self.rows, *edge, *tail])

    def vertex(self, x):
        return self.points.setdefault(tuple(x), len(self.points))


UNEVEN = {
    "x, then y": Boxes(2, [(0,), (), (1,), (), ()]),
    "y three times": Boxes(2, [(1,), (), (1,), (1,), (), (), ()]),
    "both, then x": Boxes(2, [(0, 1), (), (0,), (), (), (), ()]),
    "x and y": Boxes(3, [(0, 1), (), (2,), (), (), (), ()]),
    "x and z": Boxes(3, [(0, 2), (), (1,), (), (), (), ()]),
    "y and z": Boxes(3, [(1, 2), (), (0, 1), (), (), *[()] * 4]),
    "all, then some": Boxes(3, [(0, 1, 2), (1, 2), *[()] * 7, (0,), *[()] * 5]),
    "z": Boxes(3, [(2,), (2,), (), (), ()]),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_elements_that_are_halved_in_some_directions_are_halved_in_the_others(name):
    file = UNEVEN[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mesh = read_mfem(file.text)
    assert "halved in some directions only" in str(told[0].message)
    mesh.validate()
    assert np.isclose(mesh.volume(), 1.0)
    volumes = np.zeros(len(file.boxes))
    centers = mesh.coordinates.mean(axis=1)
    sizes = np.prod(np.ptp(mesh.coordinates, axis=1), axis=1)
    for center, size, attribute in zip(centers, sizes, mesh.element_attributes, strict=True):
        low, high = file.boxes[attribute - 1]
        assert ((low < center) & (center < high)).all()
        volumes[attribute - 1] += size
    due = [np.prod(b - a) if k in file.leaves else 0 for k, (a, b) in enumerate(file.boxes)]
    assert np.allclose(volumes, due)
    V = femops.H1(mesh, 1)
    for side in range(2 * file.dim):
        at = V.dof_coordinates()[V.boundary_dofs(side + 1)]
        assert np.allclose(at[:, side // 2], side % 2)
        ones = np.ones(V.size)
        assert np.isclose(femops.integrate(V, ones, boundary=side + 1), 1.0)


def test_nodes_of_elements_that_are_halved_in_some_directions_are_refused():
    file = UNEVEN["x, then y"]
    kind = "FiniteElementSpace\nFiniteElementCollection: L2_T1_2D_P1\nVDim: 2\nOrdering: 1"
    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    rows = [np.where(c, *file.boxes[k][::-1]) for k in file.leaves for c in places]
    body = "\n".join(" ".join(map(str, row)) for row in rows)
    text = file.text[: file.text.index("coordinates")]
    with (
        pytest.warns(UserWarning, match="some directions"),
        pytest.raises(MeshFormatError, match="save the mesh without nodes"),
    ):
        read_mfem(f"{text}nodes\n{kind}\n\n{body}\n\nmfem_mesh_end\n")


def test_elements_that_would_become_too_many_are_refused():
    halved = [(0,)]
    for _ in range(9):
        halved += [(), (0,)]
    with pytest.raises(MeshFormatError, match=r"more than \d+ that are halved in all directions"):
        read_mfem(Boxes(3, [*halved, (), ()]).text)


DAMAGED = {
    "version": ("MFEM NC mesh v1.0", "MFEM NC mesh v1.1", "halved unevenly"),
    "no direction": ("-1 2 3 3 2 3 4 5", "-1 2 3 4 2 3 4 5", "refined by type 4: types are 1 to 3"),
    "few children": ("-1 2 3 3 2 3 4 5", "-1 2 3 1 2 3 4 5", "there should be 6"),
    "triangles": ("0 1 3 0 0 1 4 3", "0 1 2 0 0 1 4", "geometry 2: in this mesh it must be 3"),
    "another rank": ("0 1 3 0 0 1 4 3", "1 1 3 0 0 1 4 3", "belongs to rank 1"),
    "rank": ("elements\n6", "rank\n1\nelements\n6", "a part of a mesh of several ranks"),
    "short": ("0 1 3 0 0 1 4 3", "0 1 3 0 0 1 4", "element of 7 numbers: there should be 8"),
    "child": ("-1 2 3 3 2 3 4 5", "-1 2 3 3 2 3 4 9", "element 9 is a child, but elements are 0"),
    "twice": ("-1 2 3 3 2 3 4 5", "-1 2 3 3 2 3 4 4", "child of one other at most"),
    "own child": ("-1 2 3 3 2 3 4 5", "-1 2 3 3 2 3 4 1", "child of one other at most"),
    "vertices": ("0 2 3 0 1 6 10 9", "0 2 3 0 1 6 10 8", "do not have the vertices"),
    "order": ("-1 2 3 3 2 3 4 5", "-1 2 3 3 3 2 4 5", "same vertex at two corners"),
    "boundary": ("1 1 0 1", "1 1 0 77", "boundary element 0 (counted from 0) has vertices [0, 77]"),
    "no face": ("1 1 0 1", "1 1 0 4", "are not faces of any element"),
    "parents": ("10 6 8", "10 6 99", "vertex 99 of vertex_parents"),
    "states": ("root_state\n2\n0\n1", "root_state\n2\n0\n8", "states are 0 to 7"),
    "many states": ("root_state\n2\n0", "root_state\n3\n0\n0", "3 root states"),
    "positions": ("coordinates\n6\n2\n0 0\n", "coordinates\n5\n2\n", "the roots have vertex 5"),
    "space": ("coordinates\n6\n2", "coordinates\n6\n3", "surfaces in a higher dimension"),
    "end": ("2 1\n\nmfem", "2 1\n3 3\n\nmfem", "the file should end here"),
    "cut": ("1 1\n2 1\n\nmfem_mesh_end\n", "1 1\n2 1\n", 'the last line "mfem_mesh_end"'),
    "attribute": ("0 1 3 0", "0 0 3 0", "element_attributes must be integers from 1"),
    "knots": ("root_state", "vertex_to_knotspan", "NURBS"),
    "sfc": ("elements\n6", "sfc_version\n3\nelements\n6", "sfc_version 3"),
    "no number": ("0 2 3 0 9 10 8 4", "0 2 3 0 9 10 8 x", "whole numbers"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_one_clear_error(name):
    old, new, text = DAMAGED[name]
    assert NC.count(old) >= 1
    errors = MeshFormatError, MeshTopologyError, MeshGeometryError
    with pytest.raises(errors) as error:
        read_mfem(NC.replace(old, new, 1))
    assert text in str(error.value)
    assert "mesh text" in str(error.value)


LEGACY_DAMAGED = {
    "no direction": ("3 2 3 0 4", "0 2 3 0 4", "refined by type 0: types are 1 to 3"),
    "children": ("3 2 3 0 4", "3 2 3 0", "coarse element of 4 numbers"),
    "child": ("3 2 3 0 4", "3 2 3 0 7", "element 7 is a child"),
    "positions": ("vertices\n11", "vertices\n-1", "the number of vertices must be >= 0"),
    "triangle": ("1 3 0 1 4 3", "1 2 0 1 4 3", "geometry 2"),
}


@pytest.mark.parametrize("name", LEGACY_DAMAGED)
def test_damaged_files_of_the_older_format(name):
    old, new, text = LEGACY_DAMAGED[name]
    with pytest.raises(MeshFormatError) as error:
        read_mfem(LEGACY.replace(old, new, 1))
    assert text in str(error.value)


def test_inverted_roots_are_refused():
    with pytest.raises(MeshGeometryError, match="inverted"):
        read_mfem(NC.replace("6\n2\n0 0\n1 0\n2 0\n0 1", "6\n2\n0 0\n1 0\n2 0\n0 -1"))


def volume_of(mfem, mesh):
    total = 0.0
    for element in range(mesh.GetNE()):
        rule = mfem.IntRules.Get(mesh.GetElementBaseGeometry(element), 12)
        transform = mesh.GetElementTransformation(element)
        for k in range(rule.GetNPoints()):
            transform.SetIntPoint(rule.IntPoint(k))
            total += rule.IntPoint(k).weight * transform.Weight()
    return total


def centers_of(mfem, mesh):
    x, found = mfem.Vector(mesh.Dimension()), []
    for element in range(mesh.GetNE()):
        mesh.GetElementCenter(element, x)
        found.append(x.GetDataArray().copy())
    return np.array(found)


def true_dofs(mfem, mesh):
    dim = mesh.Dimension()
    return [
        mfem.FiniteElementSpace(mesh, mfem.H1_FECollection(p, dim)).GetTrueVSize()
        for p in (1, 2, 3)
    ]


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ROOTS)
def test_mfem_reads_the_same_mesh(tmp_path, name, order):
    mfem = pytest.importorskip("mfem.ser", reason="needs the extra peers")
    mesh = tree(name)
    if order >= mesh.order:
        mesh = mesh.mapped(wavy, order)
    write_mfem(mesh, tmp_path / "a.mesh")
    theirs = mfem.Mesh(str(tmp_path / "a.mesh"))
    assert (theirs.GetNE(), theirs.GetNV()) == (mesh.num_elements, mesh.num_vertices)
    assert np.isclose(volume_of(mfem, theirs), mesh.volume(), rtol=1e-12)
    assert np.allclose(centers_of(mfem, theirs), in_file_order(mesh).element_centers())
    assert true_dofs(mfem, theirs) == [femops.H1(mesh, p).ndofs for p in (1, 2, 3)]
    assert theirs.GetNBE() == mesh.num_boundary
    theirs.Save(str(tmp_path / "b.mesh"))
    again = read_mfem(tmp_path / "b.mesh")
    assert np.allclose(again.element_centers(), in_file_order(mesh).element_centers())
    assert np.allclose(again.volume(), mesh.volume())


@pytest.mark.parametrize("curved", [0, 2])
@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("shape", ["SEGMENT", "QUADRILATERAL", "HEXAHEDRON"])
def test_meshes_of_mfem_are_read(tmp_path, shape, limit, curved):
    mfem = pytest.importorskip("mfem.ser", reason="needs the extra peers")
    dim = ("SEGMENT", "QUADRILATERAL", "HEXAHEDRON").index(shape) + 1
    theirs = mfem.Mesh(3) if dim == 1 else mfem.Mesh(*(3, 2, 2)[:dim], shape)
    theirs.EnsureNCMesh()
    if curved:
        theirs.SetCurvature(curved)
    rng = np.random.default_rng(dim)
    for _ in range(3 if dim < 3 else 2):
        some = np.flatnonzero(rng.random(theirs.GetNE()) < (0.3 if dim < 3 else 0.1))
        theirs.GeneralRefinement(mfem.intArray(np.union1d([0], some).tolist()), 1, limit)
    theirs.Save(str(tmp_path / "a.mesh"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mesh = read_mfem(tmp_path / "a.mesh")
    mesh.validate()
    assert mesh.continuous
    assert np.isclose(mesh.volume(), volume_of(mfem, theirs), rtol=1e-12)
    assert bool(told) == (mesh.num_elements > theirs.GetNE())
    if not told:
        assert np.allclose(mesh.element_centers(), centers_of(mfem, theirs))
        assert [femops.H1(mesh, p).ndofs for p in (1, 2, 3)] == true_dofs(mfem, theirs)
        assert mesh.num_boundary == theirs.GetNBE()


def nonconforming(rows):
    """Text of a file with these rows of elements and the unit square's vertices."""
    lines = "\n".join(rows)
    return (
        f"MFEM NC mesh v1.0\n\ndimension\n2\n\nelements\n{len(rows)}\n{lines}\n\n"
        "coordinates\n4\n2\n0 0\n1 0\n0 1\n1 1\n\nmfem_mesh_end\n"
    )


SQUARE, HOLE = "0 1 3 0 0 1 3 2", "-1 1 -1"
CYCLE = ["-1 1 3 3 11 12 13 14", "-1 1 3 3 10 15 16 17", *[SQUARE] * 6]
DAMAGED_TREES = {
    "child of itself, four times": (["-1 1 3 3 1 1 1 1"] * 2, "the child of one other at most"),
    "same children at all levels": (
        [f"-1 1 3 3 {i} {i} {i} {i}" for i in range(1, 15)] + [SQUARE],
        "the child of one other at most",
    ),
    "cycle beside children that are holes": (
        ["-1 1 3 3 1 2 3 4", *[HOLE] * 4, "-1 1 3 3 6 7 8 9", *[HOLE] * 4, *CYCLE],
        "element 1 is a child, but has no vertices",
    ),
    "cycle": (
        [SQUARE, "-1 1 3 3 2 3 4 5", "-1 1 3 3 1 6 7 8", *[SQUARE] * 6],
        "no element its own parent",
    ),
    "negative vertex": ([SQUARE, "0 1 3 0 -7 1 3 2"], "line 9: number -7 of a vertex or child"),
    "vertex from the end": (["0 1 3 0 0 1 -1 2"], "number -1 of a vertex or child"),
    "negative child": (["-1 1 3 3 -2 1 2 3", SQUARE], "number -2 of a vertex or child"),
    "child beyond": (["-1 1 3 3 1 2 3 4", SQUARE], "element 2 is a child"),
    "holes alone": ([HOLE], "no element has vertices"),
}


@pytest.mark.parametrize("case", DAMAGED_TREES)
def test_damaged_trees_are_refused_at_once(case):
    rows, message = DAMAGED_TREES[case]
    with pytest.raises(MeshFormatError, match=message):
        read_mfem(nonconforming(rows))


@pytest.mark.parametrize(
    ("old", "new"), [("\n2 3 10 7 5 8", "\n2 3 10 7 -5 8"), ("\n3 2 3 0 4", "\n3 2 3 -1 4")]
)
def test_negative_numbers_of_the_older_format_are_refused(old, new):
    assert old in LEGACY
    with pytest.raises(MeshFormatError, match="of a vertex or child: numbers begin at 0"):
        read_mfem(LEGACY.replace(old, new))


def fan_around_a_deep_tree(number, levels):
    """A file of cubes around an axis, one of which is halved along the axis again and again."""
    columns = {"axis": (0.0, 0.0)}
    for i in range(number):
        for name, radius, turn in (("ring", 1, i), ("outer", 1.1, i + 0.5)):
            angle = 2 * np.pi * turn / number
            columns[name, i] = (radius * np.cos(angle), radius * np.sin(angle))
    place = {name: at for at, name in enumerate(columns)}
    roots = []
    for i in range(number):
        names = "axis", ("ring", i), ("ring", (i + 1) % number), ("outer", i)
        low = [place[name] for name in names]
        roots.append(low + [at + len(columns) for at in low])
    vtk = [0, 1, 3, 2, 4, 5, 7, 6]
    corners = list(product(range(2), repeat=3))  # z, y, x
    lattice = {
        (z << levels, y << levels, x << levels): vertex
        for (z, y, x), vertex in zip(corners, roots[0], strict=True)
    }
    rows = ["", *("0 1 5 0 " + " ".join(str(root[c]) for c in vtk) for root in roots[1:])]
    queue = [(0, (0, 0, 0), 1 << levels)]
    for row, (z, y, x), size in queue:
        half = size // 2
        if y == x == 0 and half:
            known = [len(rows) + c for c in range(8)]
            queue += [
                (row, (z + half * c, y + half * b, x + half * a), half)
                for row, (c, b, a) in zip(known, corners, strict=True)
            ]
            rows += [""] * 8
        else:
            ends = [(z + size * c, y + size * b, x + size * a) for c, b, a in corners]
            known = [lattice.setdefault(end, 2 * len(columns) - 8 + len(lattice)) for end in ends]
        head = "-1 1 5 7 " if y == x == 0 and half else "0 1 5 0 "
        rows[row] = head + " ".join(str(known[c]) for c in vtk)
    positions = [f"{x:.17g} {y:.17g} {z}" for z in (0, 1) for x, y in columns.values()]
    head = ["MFEM NC mesh v1.0", "dimension", "3", "elements", str(len(rows))]
    tail = ["coordinates", str(len(positions)), "3", *positions, "mfem_mesh_end"]
    return "\n".join([*head, *rows, *tail, ""])


def test_balance_takes_a_multiple_of_the_file_at_most():
    with pytest.warns(UserWarning, match="399 elements more"):
        assert read_mfem(fan_around_a_deep_tree(20, 3)).num_elements == 468
    with pytest.raises(MeshArgumentError, match="more than 41024 elements"):
        read_mfem(fan_around_a_deep_tree(200, 6))


def assembled_by(mfem, path, p):
    """MFEM's P^T A P of diffusion and mass with femops' default points, and its dofs' positions."""

    def array(matrix):
        parts = matrix.GetDataArray(), matrix.GetJArray(), matrix.GetIArray()
        return csr_array(
            tuple(np.array(part) for part in parts), shape=(matrix.Height(), matrix.Width())
        )

    mesh = mfem.Mesh(str(path))
    elements = mfem.H1_FECollection(p, mesh.Dimension())
    space = mfem.FiniteElementSpace(mesh, elements)
    form, one = mfem.BilinearForm(space), mfem.ConstantCoefficient(1.0)
    rule = mfem.IntRules.Get(mesh.GetElementBaseGeometry(0), 2 * p + 3)
    for integrator in (mfem.DiffusionIntegrator(one), mfem.MassIntegrator(one)):
        integrator.SetIntRule(rule)
        form.AddDomainIntegrator(integrator)
    form.Assemble()
    form.Finalize()
    A, restriction = mfem.SparseMatrix(), space.GetConformingRestriction()
    form.FormSystemMatrix(mfem.intArray(), A)

    class Coordinate(mfem.PyCoefficient):
        def EvalValue(self, at):
            return at[self.direction]

    x = []
    for d in range(mesh.Dimension()):
        field, coordinate = mfem.GridFunction(space), Coordinate()
        coordinate.direction = d
        field.ProjectCoefficient(coordinate)
        values = np.array(field.GetDataArray())
        x.append(values if restriction is None else array(restriction) @ values)
    return array(A), np.stack(x, axis=1)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [name for name in ROOTS if name != "torus"])
def test_mfem_assembles_the_same_matrix(tmp_path, name, p):
    mfem = pytest.importorskip("mfem.ser", reason="needs the extra peers")
    mesh = tree(name)
    if name in ("square", "box"):
        mesh = mesh.mapped(wavy, 2)
    write_mfem(mesh, tmp_path / "a.mesh")
    A, x = assembled_by(mfem, tmp_path / "a.mesh", p)
    V = femops.H1(mesh, p)
    gap, number = cKDTree(x).query(V.dof_coordinates())
    assert gap.max() < 1e-7
    assert np.array_equal(np.sort(number), np.arange(V.ndofs))
    B = (femops.diffusion(V) + femops.mass(V)).assemble()
    assert abs(A[number][:, number] - B).max() < 1e-12 * abs(B).max()
