"""Meshes of triangles and tetrahedra: entities, orientations, curved and refined elements."""

import functools
import itertools
import pickle
import sys

import numpy as np
import pytest

import femops
from femops_meshes import MeshArgumentError, MeshExtraError, MeshGeometryError, MeshTopologyError
from femops_meshes.coordinates import simplices
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import SIMPLICES, outward_corners
from support.simplex_meshes import MESHES, curved, graded, renumbered

basix = pytest.importorskip("basix")


def test_an_error_says_what_to_do_without_basix(monkeypatch):
    monkeypatch.setitem(sys.modules, "basix", None)
    with pytest.raises(MeshExtraError, match=r"pip install fenics-basix, or split .*split=True"):
        simplices._basix()


@pytest.mark.parametrize("dim", [2, 3])
def test_entities_and_nodes_are_those_of_basix(dim):
    cell = SIMPLICES[dim]
    kind = getattr(basix.CellType, cell.name)
    theirs = [tuple(corners) for level in basix.topology(kind) for corners in level]
    assert theirs == [corners for _, corners in cell.entities]
    for p in range(1, 7):
        element = basix.create_element(
            basix.ElementFamily.P, kind, p, basix.LagrangeVariant.gll_isaac
        )
        flat = [dofs for level in element.entity_dofs for dofs in level]
        assert [cell.lattice(code, p).tolist() for code in range(len(flat))] == flat
        for code in cell.face_codes:  # nodes of a face are those of a cell of its shape
            nodes = simplices.nodes(cell, p)[cell.closed_lattice(code, p)]
            if dim == 3:
                there = cell.on_face(code, simplices.nodes(SIMPLICES[2], p))
                np.testing.assert_allclose(nodes, there, atol=1e-13)
            else:
                line = cell.on_face(code, femops.basis.lobatto(p + 1).points[:, None])
                np.testing.assert_allclose(nodes, line, atol=1e-13)


@pytest.mark.parametrize("numbers", [*itertools.permutations(range(5), 3)])
def test_all_orientations_of_a_common_face(numbers):
    """Two tetrahedra see their face in the same way, whichever numbers its vertices have."""
    corners = [[0, 0, 0], [1, 0, 0.2], [0.1, 1, 0], [0.3, 0.2, 1], [0.4, 0.3, -1]]
    rest = [k for k in range(5) if k not in numbers]
    place = np.array([*numbers, *rest])  # number of each vertex: those of the face first
    points = np.empty((5, 3))
    points[place] = corners
    tets = place[np.array([[0, 1, 2, 3], [2, 0, 1, 4]])]
    mesh = Mesh.from_arrays(points, tets, cell="tetrahedron")
    assert mesh.topology.num_entities == (5, 9, 7, 2)
    for p in (1, 2, 3, 4, 5):
        V = femops.H1(mesh, p)
        assert V.ndofs == 2 * SIMPLICES[3].size(p) - SIMPLICES[2].size(p)
        nodes = mesh.coordinates[:, 0, None] + simplices.nodes(mesh.cell, p) @ (
            mesh.coordinates[:, 1:] - mesh.coordinates[:, :1]
        )
        x = V.dof_coordinates()
        np.testing.assert_allclose(x[V.restriction.indices], nodes, atol=1e-13)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("name", MESHES)
def test_refinement_keeps_geometry(name, dim):
    mesh = MESHES[name](dim)
    fine = mesh.refine(2)
    assert fine.num_elements == mesh.num_elements * 4**dim
    assert fine.volume() == pytest.approx(mesh.volume(), rel=1e-12)
    assert fine.continuous == mesh.continuous == (name != "periodic")
    assert fine.num_boundary == mesh.num_boundary * 4 ** (dim - 1)
    area, fine_area = (
        femops.integrate(femops.L2(one, 0), lambda x: 1 + x[0] ** 2, boundary="all", quadrature=9)
        for one in (mesh, fine)
    )
    assert fine_area == pytest.approx(area, rel=1e-6 if name == "curved" else 1e-12)
    assert set(fine.boundary_attributes) == set(mesh.boundary_attributes)
    first = femops.box((1,) * dim).simplices()
    sizes = [
        np.abs(np.linalg.det(np.diff(one.coordinates, axis=1)))
        for one in (first.refine(1), first.refine(4))
    ]
    assert sizes[1].min() == pytest.approx(sizes[0].min() / 2 ** (3 * dim))


@pytest.mark.parametrize("dim", [2, 3])
def test_splitting_boxes(dim):
    box = femops.box((2, 3, 2)[:dim]).curved(2).mapped(lambda x: x + 0.1 * x**2)
    mesh = box.simplices()
    assert mesh.num_elements == box.num_elements * (2 if dim == 2 else 6)
    assert mesh.volume() == pytest.approx(box.volume(), rel=1e-14)
    assert mesh.num_boundary == box.num_boundary * (dim - 1)
    for number in range(1, 2 * dim + 1):
        sides = [
            femops.integrate(femops.L2(one, 0), 1.0, boundary=number, quadrature=5)
            for one in (mesh, box)
        ]
        assert sides[0] == pytest.approx(sides[1], rel=1e-13)
    assert mesh.continuous
    assert f"{mesh.num_elements} {mesh.cell.plural}" in repr(mesh)


def test_coordinates_are_kept_in_any_order_of_corners():
    mesh = curved(3)
    order = np.random.default_rng(0).permutation(mesh.num_vertices)
    other = renumbered(mesh, seed=5)
    assert other.volume() == pytest.approx(mesh.volume(), rel=1e-13)
    assert other.continuous
    assert len(order) == other.num_vertices
    np.testing.assert_allclose(other.element_centers(), mesh.element_centers(), atol=1e-14)
    assert (np.diff(other.elements) > 0).all()


@pytest.mark.parametrize("dim", [2, 3])
def test_entries_between_elements_tell_their_side(dim):
    """Normals of a plane inside point to the side that the entries name, whatever was done."""
    box = femops.box((4,) * dim)
    top, x = box.topology, box.element_centers()
    faces = top.faces[top.pairs], top.face_codes[top.pairs]
    across = np.abs(x[faces[0], 0].mean(axis=1) - 0.5) + (np.ptp(x[faces[0], 0], axis=1) < 0.1)
    plane = np.flatnonzero(across < 1e-9)
    sides = [
        outward_corners(box.elements, np.stack([each[plane, k] for each in faces], axis=1))
        for k in (0, 1)
    ]
    left = x[faces[0][plane, 0], 0] < 0.5
    rows = np.where(left[:, None], sides[0], sides[1]), np.where(left[:, None], sides[1], sides[0])
    numbers = [*box.boundary_attributes, *[9] * len(plane), *[10] * len(plane)]
    both = np.concatenate([box.boundary, *rows])
    mesh = Mesh.from_arrays(None, box.elements, None, both, numbers, box.coordinates).simplices()

    def flux(mesh):
        V = femops.L2(mesh, 0)
        return [femops.integrate(V, lambda x, n: n[0], boundary=number) for number in (9, 10)]

    order = np.random.default_rng(0).permutation(mesh.num_elements)
    for one in (
        mesh,
        mesh.refine(2),
        mesh.reordered(order),
        renumbered(mesh),
        renumbered(mesh).refine(),
        mesh.curved(3),
        pickle.loads(pickle.dumps(renumbered(mesh))),
    ):
        assert flux(one) == pytest.approx([1.0, -1.0], abs=1e-13)
    mirrored = mesh.mapped(lambda x: np.concatenate([-x[:1], x[1:]]))
    assert flux(mirrored) == pytest.approx([-1.0, 1.0], abs=1e-13)
    assert flux(pickle.loads(pickle.dumps(mirrored)).refine()) == pytest.approx([-1, 1], abs=1e-13)
    with pytest.raises(MeshGeometryError, match="inverted by the move"):
        mesh.mapped(lambda x: np.concatenate([np.where(x[:1] > 0.7, 0.3, x[:1]), x[1:]]) + 1e-9 * x)


@pytest.mark.parametrize("dim", [2, 3])
def test_two_simplices_on_one_side_of_their_face_are_refused(dim):
    """Reference: the sign of the volume that each vertex spans with the face."""
    rng, refused = np.random.default_rng(dim), 0
    for _ in range(50):
        points = rng.normal(size=(dim + 2, dim))
        edges = points[1:] - points[0]
        ends = [np.linalg.det(np.delete(edges, k, axis=0)) for k in (dim, dim - 1)]
        number = rng.permutation(dim + 2)
        vertices = np.empty_like(points)
        vertices[number] = points
        elements = [rng.permutation(np.delete(number, k)) for k in (dim + 1, dim)]
        make = functools.partial(Mesh.from_arrays, vertices, elements, cell=CELLS[dim])
        if ends[0] * ends[1] < 0:
            assert make().num_elements == 2
            continue
        refused += 1
        with pytest.raises(MeshGeometryError, match="elements 0 and 1 the first"):
            make()
    assert 10 < refused < 40


CELLS = {2: None, 3: "tetrahedron"}
SQUARE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


def test_bad_input_is_refused():
    def made(elements, vertices=SQUARE, **given):
        return Mesh.from_arrays(vertices, elements, **given)

    assert made([[0, 1, 2], [3, 2, 1]]).volume() == 1.0
    tets = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    for call, error, message in (
        (lambda: made([[0, 1, 1]]), MeshTopologyError, "same vertex"),
        (lambda: made([[0, 1, 2], [2, 0, 1]]), MeshTopologyError, "same vertices"),
        (lambda: made([[0, 1, 2], [1, 2, 0 + 3], [1, 2, 3]]), MeshTopologyError, "same vertices"),
        (lambda: made([[0, 1, 2]], [[0, 0], [1, 1], [2, 2]]), MeshGeometryError, "inverted"),
        (lambda: made([[0, 1, 2], [0, 1, 3]]), MeshGeometryError, "same side"),
        (lambda: made([[0, 1, 2, 3]], tets), MeshGeometryError, "cell='tetrahedron'"),
        (lambda: made([[0, 1, 2]], cell="tetrahedron"), MeshArgumentError, "four corners"),
        (lambda: made([[0, 1, 2]], coordinates=np.zeros((1, 4, 2))), MeshGeometryError, "nodes"),
        (lambda: graded(2).curved(7), MeshArgumentError, "degree 6"),
        (lambda: graded(2).refined([0]), MeshArgumentError, "triangles are not refined locally"),
        (lambda: graded(3).coarsened([0]), MeshArgumentError, "tetrahedra"),
        (lambda: graded(3).simplices(), MeshArgumentError, "hexahedra"),
        (lambda: femops.box((3,)).simplices(), MeshArgumentError, "hexahedra"),
        (
            lambda: graded(2).mapped(lambda x: np.stack([x[0], 0 * x[1]])),
            MeshGeometryError,
            "inverted",
        ),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(
    "points", [[[0.1, 0.3], [0.2, 0.6], [0.7, 2.1]], [[0, 0], [1, 3], [0.1, 0.3]]]
)
def test_a_flat_triangle_has_no_area_but_round_off(points):
    """Its determinant is 3e-17, not zero. A thin one, of height 1e-12, is taken."""
    with pytest.raises(MeshGeometryError, match=r"flat, or inverted somewhere.*number\(s\) 0"):
        Mesh.from_arrays(points, [[0, 1, 2]])
    thin = Mesh.from_arrays([[0, 0], [1, 0], [0.5, 1e-12]], [[0, 1, 2]])
    assert thin.volume() == pytest.approx(5e-13)


def test_without_memory_basix_does_not_end_the_process(monkeypatch):
    """Its BLAS would, so that an error comes before it is called."""
    monkeypatch.setattr(simplices, "_ROOM", 1 << 60)
    simplices._element.cache_clear()
    with pytest.raises(MemoryError):
        simplices.nodes(SIMPLICES[2], 2)
