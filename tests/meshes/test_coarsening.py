"""What a mesh was refined from, or a grid of half as many cells."""

import numpy as np
import pytest

import femops
import femops_meshes
from femops_meshes import part_of
from femops_meshes.parents import parents_of
from femops_meshes.topology.topology import Topology
from support.refined import tree

MESHES = {
    "odd box": (lambda: femops.box((5, 4, 3)), 3),
    "interval": (lambda: femops.box(9), 4),
    "ring of six": (lambda: femops.box((6, 7), periodic=(True, False)), 3),
    "disc": (lambda: femops.disc(4), 2),
    "ball": (lambda: femops.ball(2), 1),
    "L-shape": (lambda: femops.l_shape(4), 2),
    "odd corner": (lambda: femops.l_shape(3, dim=3), 2),
    "cylinder": (lambda: femops.cylinder(4, 5), 2),
    "flat cylinder": (lambda: femops.cylinder(2, 1), 1),
    "shell": (lambda: femops.shell(2, 3), 1),
    "ring": (lambda: femops.shell(4, 3, dim=2), 2),
    "refined cylinder": (lambda: femops.cylinder(2, 2).refine(), 2),
    "refined file": (lambda: femops.read_mesh(femops.sample("disc.mesh"), refine=2), 2),
    "moved": (lambda: femops.box((2, 2)).refine().mapped(lambda x: x + 0.1 * x[::-1] ** 2), 2),
}


def every(coarser):
    """Weights (ne, corners, corners) of all corners of all elements."""
    shape = len(coarser.parent), coarser.elements.shape[1]
    places = (part.ravel() for part in np.indices(shape))
    return coarser.weights(*places).reshape(*shape, -1)


@pytest.mark.parametrize("name", MESHES)
def test_coarse_linear_functions_are_continuous_on_the_mesh(name):
    """Elements that share a vertex have the same combination of coarse vertices there."""
    make, depth = MESHES[name]
    mesh = make()
    elements, number, coarser = mesh.elements, mesh.num_vertices, mesh.coarser
    for _ in range(depth):
        weights = every(coarser)
        assert np.allclose(weights.sum(axis=2), 1.0)
        full = np.zeros((*elements.shape, coarser.num_vertices))
        columns = coarser.elements[coarser.parent]
        element, corner, _of = np.indices(weights.shape)
        np.add.at(full, (element, corner, columns[:, None, :].repeat(len(weights[0]), 1)), weights)
        at_vertex = np.full((number, coarser.num_vertices), np.nan)
        at_vertex[elements] = full
        assert np.array_equal(at_vertex[elements], full)
        Topology.build(coarser.elements, coarser.num_vertices)  # they fit together
        elements, number, coarser = coarser.elements, coarser.num_vertices, coarser.coarser
    assert coarser is None


def test_parts_lie_where_their_corners_are():
    mesh = femops.box((3, 4), upper=(3.0, 4.0))
    coarser = mesh.coarser
    place = np.full((coarser.num_vertices, 2), np.nan)
    for c, corner in enumerate(([0, 0], [1, 0], [0, 1], [1, 1])):
        mine = (np.where(corner, coarser.high == 2, coarser.low == 0)).all(axis=1)
        place[coarser.elements[coarser.parent[mine], c]] = mesh.coordinates[mine, c]
    assert np.isfinite(place).all()
    expected = np.einsum("ekc,ecd->ekd", every(coarser), place[coarser.elements][coarser.parent])
    assert np.allclose(expected, mesh.coordinates)


@pytest.mark.parametrize("name", ["squares", "periodic", "line", "random cubes"])
def test_the_coarser_mesh_is_that_of_coarsened(name):
    """Elements lie in its elements as they do where these are a mesh."""
    mesh = tree(name)
    while mesh.coarser is not None:
        coarse, coarser = mesh.coarsened(), mesh.coarser
        assert np.array_equal(coarser.elements, coarse.elements)
        assert coarser.num_vertices == coarse.num_vertices
        assert coarse.num_elements < mesh.num_elements
        parents = parents_of(mesh, coarse)
        assert np.array_equal(coarser.parent, parents.elements)
        assert np.array_equal(coarser.low, 2 * parents.low)
        assert np.array_equal(coarser.high, 2 * (parents.low + parents.width))
        order = np.arange(mesh.num_elements)[::-1]
        assert np.array_equal(mesh.reordered(order).coarser.low, coarser.low[order])
        mesh = coarse
    assert mesh.forest.depth == 0
    assert mesh.refined([0]).with_coarser(None).coarser is not None  # the trees determine it


def test_meshes_without_a_coarser_one():
    assert femops.read_mesh(femops.sample("disc.mesh")).coarser is None
    assert femops.box((3, 5), periodic=True).coarser is None  # neither pairs
    assert femops.disc(3).coarser is femops.cylinder(3).coarser is femops.shell(3).coarser is None
    # it goes with the part
    assert femops_meshes.box_part(0, 33, (5, 8)).mesh.coarser is None


def test_parts_know_where_their_elements_lie_in_the_whole():
    box = femops.box((5, 4))
    for mesh in (box, femops.shell(4, 3)):
        whole, shares = mesh.coarser, femops.partition(mesh, 5)
        for rank in range(5):
            parts = [part_of(mesh, shares, rank)]
            parts += [femops_meshes.box_part(rank, 5, (5, 4))] if mesh is box else []
            for part in parts:
                found = part.mesh.coarser
                for name in ("parent", "low", "high"):
                    expected = getattr(whole, name)[part.elements]
                    np.testing.assert_array_equal(getattr(found, name), expected)
                np.testing.assert_array_equal(found.elements, whole.elements)
                np.testing.assert_array_equal(found.coarser.elements, whole.coarser.elements)
