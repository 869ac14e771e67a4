from dataclasses import replace

import numpy as np
import pytest

from femops_meshes import (
    Mesh,
    MeshArgumentError,
    MeshError,
    MeshFileError,
    MeshGeometryError,
    MeshTopologyError,
    box,
    disc,
    hilbert_order,
    scrambled,
)
from femops_meshes.coordinates.mapping import (
    determinants,
    gauss_lobatto,
    jacobians,
    lagrange_matrix,
    positions,
    tensor_apply,
)
from femops_meshes.generators.boxes import rotations
from support.oracles.partitions import bend

SQUARE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


def test_from_arrays_makes_all_of_it():
    mesh = Mesh.from_arrays(
        [*SQUARE, [9.0, 9.0], [2.0, 0.0], [2.0, 1.0]], [[0, 1, 2, 3], [1, 5, 3, 6]], [3, 4]
    )
    assert (mesh.dim, mesh.num_elements, mesh.num_vertices, mesh.order) == (2, 2, 6, 1)
    assert mesh.volume() == pytest.approx(2.0, rel=1e-15)
    assert mesh.num_boundary == 6
    assert set(mesh.boundary_attributes) == {1}
    assert mesh.element_attributes.tolist() == [3, 4]
    assert mesh.elements.tolist() == [[0, 1, 2, 3], [1, 4, 3, 5]]
    np.testing.assert_allclose(mesh.element_centers(), [[0.5, 0.5], [1.5, 0.5]])
    with pytest.raises(ValueError, match="read-only"):
        mesh.coordinates[0] = 0
    assert "2 quadrilaterals, attributes {3, 4}" in repr(mesh)


def test_vtk_corner_order():
    cube = [[x, y, z] for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
    mesh = Mesh.from_arrays(cube, [range(8)], boundary=[[0, 3, 2, 1]], corner_order="vtk")
    assert mesh.volume() == pytest.approx(1)
    assert mesh.boundary.tolist() == [[0, 3, 1, 2]]
    assert mesh.topology.boundary_faces.tolist() == [[0, 1 + 3 + 0]]


@pytest.mark.parametrize("dim", [2, 3])
def test_boundary_faces_outwards(dim):
    mesh = box((2, 3, 2)[:dim])
    corner = np.empty((mesh.num_vertices, dim))
    corner[mesh.elements] = mesh.coordinates
    faces = corner[mesh.boundary]
    edges = faces[:, 1:dim] - faces[:, :1]
    outwards = faces.mean(axis=1, keepdims=True) - 0.5
    turn = np.linalg.det(np.concatenate([outwards, edges], axis=1))
    assert (turn > 0).all()


def test_bad_arrays_are_refused():
    for change, error, message in (
        ({"elements": [[0, 1, 2, 3, 4]]}, MeshTopologyError, "shape"),
        ({"elements": [[0.0, 1, 2, 3]]}, MeshTopologyError, "integers"),
        ({"elements": np.zeros((0, 4), int)}, MeshTopologyError, "shape"),
        ({"elements": [[0, 2, 1, 3]]}, MeshGeometryError, "inverted"),
        ({"vertices": [*SQUARE[:3], [np.nan, 1]]}, MeshGeometryError, "not finite"),
        ({"vertices": [*SQUARE[:3], [1e200, 1]]}, MeshGeometryError, "beyond"),
        ({"vertices": np.zeros((4, 3))}, MeshGeometryError, "surfaces"),
        ({"vertices": None}, MeshArgumentError, "neither"),
        ({"element_attributes": [0]}, MeshTopologyError, "from 1"),
        ({"element_attributes": [1, 2]}, MeshTopologyError, "one each"),
        ({"boundary": [[0, 9]]}, MeshTopologyError, "no element"),
        ({"boundary": [[0, 1, 2]]}, MeshTopologyError, "shape"),
        ({"coordinates": np.zeros((1, 5, 2))}, MeshGeometryError, "5 nodes"),
        ({"coordinates": np.zeros((2, 4, 2))}, MeshGeometryError, "shape"),
        ({"elements": [[0, 1, 2, 3], [0, 1]]}, MeshArgumentError, "elements .* equal length"),
        ({"vertices": [*SQUARE[:3], [1]]}, MeshArgumentError, "vertices .* equal length"),
        ({"vertices": [["a", "b"]] * 4}, MeshArgumentError, "array of numbers"),
        ({"elements": [[0, 1, 2, 2**63]]}, MeshTopologyError, "don't exist|integers"),
        ({"elements": [[0, 1, 2, 2**70]]}, MeshTopologyError, "integers"),
        ({"corner_order": "gmsh"}, MeshArgumentError, "gmsh"),
    ):
        with pytest.raises(error, match=message):
            Mesh.from_arrays(**({"vertices": SQUARE, "elements": [[0, 1, 2, 3]]} | change))


def test_a_mesh_whose_elements_do_not_fit_is_not_valid():
    mesh = box((2, 2))
    elements = mesh.elements.copy()
    elements[1] = elements[0]
    with pytest.raises(MeshTopologyError, match="elements 0 and 1"):
        replace(mesh, elements=elements).validate()


def test_inverted_elements_are_counted_and_named():
    mesh = box((4, 5))
    coordinates = mesh.coordinates.copy()
    coordinates[[3, 11]] = coordinates[[3, 11]][:, [1, 0, 3, 2]]
    with pytest.raises(MeshGeometryError, match=r"2 of 20 element\(s\) .* number\(s\) 3, 11 "):
        Mesh.from_arrays(None, mesh.elements, coordinates=coordinates)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_refinement_keeps_geometry_and_attributes(dim):
    mesh = scrambled(box((3, 2, 2)[:dim], mapping=bend, order=3), seed=4)
    mesh = mesh.with_attributes(np.arange(1, mesh.num_elements + 1))
    fine = mesh.refine(2)
    fine.validate()
    assert fine.continuous
    assert fine.num_elements == mesh.num_elements * 4**dim
    assert fine.num_boundary == mesh.num_boundary * 4 ** (dim - 1)
    assert fine.volume() == pytest.approx(mesh.volume(), rel=1e-13)
    np.testing.assert_array_equal(
        fine.element_attributes.reshape(-1, 4**dim).min(axis=1), mesh.element_attributes
    )
    # a fine node is where the coarse map takes it: children of children by their corner 0
    first = fine.coordinates.reshape(mesh.num_elements, 4**dim, -1, dim)[:, 0]
    np.testing.assert_allclose(first[:, 0], mesh.coordinates[:, 0], atol=1e-14)
    quarter = positions(mesh.coordinates, np.array([0.25]))[:, 0]
    np.testing.assert_allclose(first[:, -1], quarter, atol=1e-14)


def test_refining_and_reordering_know_the_file_s_order():
    mesh = box((3, 3))
    order = np.random.default_rng(0).permutation(9)
    one = mesh.refine()
    two = mesh.reordered(order).refine()
    np.testing.assert_array_equal(one.coordinates[two.file_elements], two.coordinates)


def test_wrong_arguments_of_methods():
    mesh = box((3, 3), order=2)
    for call, error, message in (
        (lambda: mesh.refine(-1), MeshArgumentError, None),
        (lambda: mesh.refine(1.5), MeshArgumentError, None),
        (lambda: mesh.refine(30), MeshError, "GiB of memory"),
        (lambda: mesh.refine(10**12), MeshError, "GiB of memory"),
        (lambda: mesh.curved(1), MeshArgumentError, None),
        (lambda: mesh.reordered([0, 1, 2]), MeshArgumentError, None),
        (lambda: mesh.reordered(np.zeros(9, int)), MeshArgumentError, None),
        (lambda: mesh.mapped(lambda x: x[0]), MeshGeometryError, "shape"),
        (
            lambda: mesh.mapped(lambda x: x if x[0] > 0.5 else 2 * x),
            MeshArgumentError,
            r"all nodes at once.*np\.where",
        ),
        (lambda: mesh.mapped(lambda x: x[::-1]), MeshGeometryError, "inverted"),
        (lambda: hilbert_order([[np.nan, 1.0]]), MeshArgumentError, None),
    ):
        with pytest.raises(error, match=message):
            call()


def test_a_function_may_move_points_in_place():
    def stretch(x):
        x *= 2
        return x

    mesh = box((2, 2))
    assert mesh.mapped(stretch).volume() == pytest.approx(4)
    assert mesh.volume() == pytest.approx(1)


def test_arrays_that_do_not_fit_each_other_make_no_mesh():
    fields = {name: value for name, value in vars(box((2, 2))).items() if name != "topology"}
    for name in ("coordinates", "element_attributes", "boundary_attributes", "file_elements"):
        with pytest.raises(MeshTopologyError, match=f"{name} has shape"):
            Mesh(**fields | {name: fields[name][1:]})


def test_errors_are_python_s_own_too():
    for error in (MeshTopologyError, MeshGeometryError, MeshArgumentError):
        assert issubclass(error, ValueError)
        assert issubclass(error, MeshError)
    assert issubclass(MeshFileError, OSError)


def test_raising_the_degree_changes_nothing():
    mesh = disc(2, order=2)
    high = mesh.curved(5)
    points = np.linspace(0, 1, 4)
    np.testing.assert_allclose(
        positions(high.coordinates, points), positions(mesh.coordinates, points), atol=1e-14
    )
    assert high.order == 5


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_jacobians_are_the_derivatives_of_positions(dim):
    mesh = box((2, 2, 2)[:dim], mapping=bend, order=3)
    x, h = np.array([0.3, 0.7]), 1e-5
    J = jacobians(mesh.coordinates, x)
    for j in range(dim):
        plus, minus = (
            sample(mesh, [x + step if d == j else x for d in range(dim)]) for step in (h, -h)
        )
        np.testing.assert_allclose(J[..., j], (plus - minus) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(determinants(J), np.linalg.det(J), rtol=1e-12)


def sample(mesh, points):
    """Positions on a grid with points of its own in each direction."""
    nodes = gauss_lobatto(mesh.order + 1)[0]
    return tensor_apply([lagrange_matrix(nodes, x) for x in points], mesh.coordinates)


def test_there_are_as_many_rotations_as_of_a_cube():
    assert [len(rotations(dim)) for dim in (1, 2, 3)] == [1, 4, 24]


def test_a_short_period_beside_long_sides_is_one():
    """The jump of a period is judged by the elements, not by the whole mesh."""
    for shape in ((1e3, 1e-8), (1e-8, 1e3)):
        short = shape[0] < 1.0, shape[1] < 1.0
        assert not box((3, 3), upper=shape, periodic=short).continuous
        assert box((3, 3), lower=(1e6, 1e6), upper=(1e6 + shape[0], 1e6 + 1.0), order=3).continuous


def test_with_nodes_copies_the_coordinates():
    mesh = box((3, 4))
    nodes = mesh.coordinates.copy()
    moved = mesh.with_nodes(nodes.reshape(mesh.coordinates.shape))
    nodes *= 2.0
    assert moved.volume() == pytest.approx(1.0)
    np.testing.assert_array_equal(mesh.with_nodes(nodes.tolist()).coordinates, nodes)
    with pytest.raises(MeshArgumentError, match="give real numbers"):
        mesh.with_nodes(nodes * 1j)
