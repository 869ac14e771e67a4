"""What ranks hold of a mesh: together the whole, and each no more than its own."""

import pickle
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import femops
from femops_meshes import (
    MeshArgumentError,
    MeshGeometryError,
    Partition,
    box,
    box_part,
    part_of,
    partition,
)
from femops_meshes.partitioning.parts import first_elements
from femops_meshes.topology.entities import entity_corners
from support.cases.kernels import make_mesh, turned
from support.oracles.partitions import MESHES, bend, entities

ARRAYS = "elements coordinates element_attributes boundary boundary_attributes file_elements"


def face_vertices(part, faces):
    """Whole-mesh vertex numbers of faces given as element and code, as frozensets."""
    dim = part.mesh.dim
    return [
        frozenset(part.vertices[part.mesh.elements[e, list(entity_corners(dim, code))]].tolist())
        for e, code in faces.tolist()
    ]


def check_part(mesh, owner, part, rank, faces):
    """A part holds its own elements as the whole mesh has them; `faces` are all of the mesh's."""
    own = [e for e in range(mesh.num_elements) if owner[e] == rank]
    assert part.elements.tolist() == own
    assert part.vertices.tolist() == sorted(set(mesh.elements[own].ravel().tolist()))
    assert (part.num_elements, part.num_vertices) == (mesh.num_elements, mesh.num_vertices)
    np.testing.assert_array_equal(part.vertices[part.mesh.elements], mesh.elements[own])
    for name in ("coordinates", "element_attributes", "file_elements"):
        np.testing.assert_array_equal(getattr(part.mesh, name), getattr(mesh, name)[own])
    assert (part.mesh.dim, part.mesh.order) == (mesh.dim, mesh.order)
    assert part.mesh.element_names == mesh.element_names
    assert part.mesh.boundary_names == mesh.boundary_names
    part.mesh.validate()
    # entities are directed as in the whole mesh
    np.testing.assert_array_equal(part.mesh.topology.orientation, mesh.topology.orientation[own])
    cut = {
        face
        for face, elements in faces.items()
        if len(elements) == 2 and len({owner[e] == rank for e in elements}) == 2
    }
    assert Counter(face_vertices(part, part.interface)) == Counter(cut)
    interface, topology = part.interface.tolist(), part.mesh.topology
    assert interface == sorted(interface)
    exterior = topology.faces[:, 1] < 0
    outside = np.stack([topology.faces[exterior, 0], topology.face_codes[exterior, 0]], axis=1)
    assert all(face in outside.tolist() for face in interface)


def check_boundary(mesh, parts):
    """Each entry of the boundary is on one part, with its attribute, on the same element."""

    def entries(mesh, vertices, elements):
        rows = zip(
            vertices[mesh.boundary].tolist(),
            mesh.boundary_attributes.tolist(),
            elements[mesh.topology.boundary_faces[:, 0]].tolist(),
            mesh.topology.boundary_faces[:, 1].tolist(),
            strict=True,
        )
        return Counter((tuple(corners), *rest) for corners, *rest in rows)

    whole = entries(mesh, np.arange(mesh.num_vertices), np.arange(mesh.num_elements))
    found = Counter()
    for part in parts:
        found += entries(part.mesh, part.vertices, part.elements)
    assert found == whole


@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("kind", MESHES)
def test_parts_are_the_whole(kind, size):
    mesh = MESHES[kind]()
    faces = entities(mesh, mesh.dim - 1)
    rng = np.random.default_rng(size)
    for cut in (
        partition(mesh, size),
        Partition.of(mesh, rng.integers(size, size=mesh.num_elements), size),
    ):
        parts = [part_of(mesh, cut, rank) for rank in range(size)]
        for rank, part in enumerate(parts):
            assert (part.rank, part.size) == (rank, size)
            check_part(mesh, cut.owner, part, rank, faces)
        check_boundary(mesh, parts)
        assert sum(part.mesh.volume() for part in parts) == pytest.approx(mesh.volume())
        surfaces = [len(part.interface) for part in parts]
        assert surfaces == cut.shared[:, -1].tolist()


def test_what_is_cut_is_no_boundary():
    part = part_of(box((4, 4)), partition(box((4, 4)), 4), 1)
    assert part.mesh.num_boundary == 4
    assert len(part.interface) == 4
    V = femops.H1(part.mesh, order=2)
    sides = np.unique(part.mesh.boundary_attributes)
    assert len(V.boundary_dofs(sides)) == 9  # two sides; all four have 16
    geometry = femops.geometry.BoundaryGeometry(part.mesh, femops.basis.gauss(2), sides)
    assert geometry.num_elements == 4
    assert "Part(1 of 4: 4 of 16 elements, cut at 4 faces)" in repr(part)


def test_parts_can_be_sent():
    mesh = MESHES["ball"]()
    part = part_of(mesh, partition(mesh, 3), 1)
    check_same(pickle.loads(pickle.dumps(part)), part)


def test_a_part_without_elements():
    mesh = MESHES["cube"]()
    part = part_of(mesh, partition(mesh, 40), 39)
    empty = part.mesh
    assert (empty.num_elements, empty.num_boundary, empty.num_vertices) == (0, 0, 0)
    assert (empty.dim, empty.order, empty.volume(), empty.continuous) == (3, 2, 0.0, True)
    lower, upper = empty.bounding_box()
    assert (lower == np.inf).all()
    assert (upper == -np.inf).all()
    assert (empty.refine().num_elements, empty.curved(4).order) == (0, 4)
    assert empty.mapped(bend).num_elements == 0
    assert "0 hexahedra" in repr(empty)
    assert part.interface.shape == (0, 2)


def test_parts_that_do_not_exist():
    for mesh, rank, message in (
        ((3, 2), 2, "rank is 2, but there are 2 parts: 0 to 1"),
        ((3, 2), -1, "rank is a whole number >= 0, got -1"),
        ((3, 3), 0, "the partition is one of 6 elements, the mesh has 9"),
    ):
        with pytest.raises(MeshArgumentError, match=message):
            part_of(box(mesh), partition(box((3, 2)), 2), rank)


# --- parts of boxes -------------------------------------------------------------------------------


def check_same(part, expected):
    for name in ("elements", "vertices", "interface"):
        np.testing.assert_array_equal(getattr(part, name), getattr(expected, name), err_msg=name)
    for name in ARRAYS.split():
        got, wanted = getattr(part.mesh, name), getattr(expected.mesh, name)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    got, wanted = part.mesh.topology, expected.mesh.topology
    np.testing.assert_array_equal(got.boundary_faces, wanted.boundary_faces)
    np.testing.assert_array_equal(got.entity, wanted.entity)
    for name in ("rank", "size", "num_elements", "num_vertices"):
        assert getattr(part, name) == getattr(expected, name)


def stretch(x):
    return x * (1 + x)


@st.composite
def boxes(draw):
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    lower = [draw(st.floats(-2, 2)) for _ in counts]
    return {
        "counts": counts,
        "lower": lower,
        "upper": [low + draw(st.floats(0.1, 3)) for low in lower],
        "periodic": [draw(st.booleans()) and n >= 3 for n in counts],
        "mapping": draw(st.sampled_from([None, lambda x: 2 * x - 1])),
        "order": draw(st.integers(1, 5 - len(counts))),
    }


def of(counts):
    return {"counts": counts, "mapping": stretch, "order": 2}


@settings(max_examples=25)
@given(boxes(), st.integers(1, 9), st.floats(0, 1))
@example(of((100,)), 8, 0.5)
@example(of((40, 7)), 1000, 0.0)
@example(of((9, 8, 7)), 8, 1.0)
@example(of((17, 2, 3)), 3, 0.5)
@example(of((1, 1, 50)), 3, 1.0)
def test_parts_of_boxes_are_those_of_the_whole(arguments, size, place):
    mesh, rank = box(**arguments), round(place * (size - 1))
    check_same(box_part(rank, size, **arguments), part_of(mesh, partition(mesh, size), rank))


def test_a_box_is_never_whole():
    """One rank's part of a billion elements takes the memory of a box as large as the part."""

    def peak(make, *arguments):
        make(*arguments)  # what is imported and cached once
        tracemalloc.start()
        try:
            made = make(*arguments)
            return tracemalloc.get_traced_memory()[1], made
        finally:
            tracemalloc.stop()

    alone = peak(box, (16, 16, 16))[0]
    for counts in ((1000, 1000, 1000), (8 * 10**8, 1, 1)):
        size = int(np.prod(counts)) // 4096
        used, part = peak(box_part, size // 3, size, counts)
        assert part.num_elements == np.prod(counts)
        assert 4096 <= len(part.elements) <= 4097
        assert used < 2.1 * alone
        part.mesh.validate()
    line = box_part(10**5, 10**6, 10**9).mesh
    assert line.num_elements == 1000
    assert line.volume() == pytest.approx(1e-6)


def test_bad_arguments_of_boxes():
    for arguments, error, message in (
        ((2, 2, (3, 3)), MeshArgumentError, "rank is 2, but there are 2 parts"),
        ((0, 0, (3, 3)), MeshArgumentError, "size is a whole number >= 1"),
        ((0, 2, (3, 0)), MeshArgumentError, "each of counts"),
        ((0, 2, (3, 3), 1.0, 0.0), MeshArgumentError, "lower must be below upper"),
        ((0, 2, (3, 2), 0.0, 1.0, True), MeshArgumentError, "at least 3 elements"),
        ((0, 2, (3, 3), 0.0, 1.0, False, None, 0), MeshArgumentError, "order"),
        ((0, 2, (10**7,) * 3), MeshArgumentError, "vertices could not be numbered"),
        ((0, 2, (10**5,) * 3), MeshArgumentError, "making 5.*elements needs at least .* GiB"),
        ((1, 2, 3, 0.0, 1.0, False, np.negative), MeshGeometryError, "inverted"),
    ):
        with pytest.raises(error, match=message):
            box_part(*arguments)


def test_pieces_of_a_box():
    part = box_part(1, 3, (4, 4), piece=(3, 5))
    assert part.elements.tolist() == [3, 4]
    assert (part.rank, part.size) == (1, 3)
    for piece, message in [
        ((5, 3), "the piece is from 5 to 3: start and stop ascend from 0 to 16"),
        ((3, 17), "the piece is from 3 to 17"),
        ((-1, 3), "start of the piece is a whole number >= 0, got -1"),
        ((0, 1.5), "stop of the piece is a whole number >= 0, got 1.5"),
    ]:
        with pytest.raises(MeshArgumentError, match=message):
            box_part(1, 3, (4, 4), piece=piece)


# --- the first elements ---------------------------------------------------------------------------

FIRST_OF = {
    "line": lambda: turned(femops.box((7,), order=2)),
    "ball": lambda: make_mesh("unstructured", 3, "many"),
    "ring": lambda: femops.box((5, 4), order=2, periodic=(True, False)),
}


@pytest.mark.parametrize("kind", FIRST_OF)
@pytest.mark.parametrize("count", [1, 3, -1])
def test_the_first_dofs_of_the_part_are_the_wholes(kind, count):
    mesh = FIRST_OF[kind]()
    count = count % mesh.num_elements
    part = first_elements(mesh, count)
    assert part.num_elements == count
    np.testing.assert_array_equal(part.coordinates, mesh.coordinates[:count])
    for make in (
        lambda m: femops.H1(m, 4, ncomp=2),
        lambda m: femops.L2(m, 2),
    ):
        whole, piece = make(mesh), make(part)
        expected = whole.restriction.indices[:count]
        np.testing.assert_array_equal(piece.restriction.indices, expected)
        assert piece.ndofs == expected.max() + 1 == len(np.unique(expected))


def test_attributes_and_the_boundary():
    mesh = femops.box((3, 1))
    plain = np.array(mesh.elements)
    mesh = femops.Mesh.from_arrays(
        None, plain, element_attributes=[3, 5, 7], coordinates=np.array(mesh.coordinates)
    )
    part = first_elements(mesh, 2)
    np.testing.assert_array_equal(part.element_attributes, [3, 5])
    assert part.num_boundary == 6  # the face where it was cut off among them
    assert set(part.boundary_attributes) == {1}
    assert part.volume() == pytest.approx(2 / 3)
    part.validate()


def test_counts_of_all_elements_and_of_too_few_or_many():
    mesh = femops.box((3, 2))
    assert first_elements(mesh, 6) is mesh
    for count in (0, -1, 7):
        with pytest.raises(MeshArgumentError, match=f"count is {count}: the mesh has 6 elements"):
            first_elements(mesh, count)
