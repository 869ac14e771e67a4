"""The numbering of the spaces, judged by where the nodes are in space and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from support.cases.kernels import COUNTS, make_mesh, turned
from support.oracles import connectivity

KINDS = ["box", "sheared", "multilinear", "curved", "unstructured"]


def size_of(dim: int, p: int) -> str:
    """High degrees in 3-D need few elements to meet every case of a shared face."""
    return "many" if dim < 3 or p <= 4 else "few"


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_share_a_number_if_and_only_if_they_are_at_one_place(
    kind: str, dim: int, p: int
) -> None:
    mesh = make_mesh(kind, dim, size_of(dim, p))
    space = femops.H1(mesh, p)
    positions = connectivity.node_positions(mesh.coordinates, p)
    assert connectivity.faults(positions, space.restriction.indices) == []
    assert connectivity.first_touch_faults(space.restriction.indices) == []
    assert space.ndofs == space.restriction.indices.max() + 1


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("shuffled", [False, True])
def test_periodic_nodes_share_a_number_if_they_are_a_period_apart(
    shuffled: bool, dim: int, p: int
) -> None:
    counts = COUNTS["many"][dim - 1]
    mesh = femops.box(counts, upper=(2.0, 1.0, 0.5)[:dim], periodic=True)
    mesh = turned(mesh) if shuffled else mesh
    indices = femops.H1(mesh, p).restriction.indices
    positions = connectivity.node_positions(mesh.coordinates, p)
    assert connectivity.faults(positions, indices, np.array([2.0, 1.0, 0.5][:dim])) == []
    assert connectivity.faults(positions, indices) != []
    assert connectivity.first_touch_faults(indices) == []
    assert indices.max() + 1 == np.prod(counts) * p**dim


def test_periodic_in_one_direction_only() -> None:
    mesh = femops.box((3, 4), periodic=(True, False))
    indices = femops.H1(mesh, 3).restriction.indices
    positions = connectivity.node_positions(mesh.coordinates, 3)
    assert connectivity.faults(positions, indices, np.array([1.0, 0.0])) == []
    assert connectivity.faults(positions, indices, np.array([1.0, 1.0])) != []


@pytest.mark.parametrize("p", [1, 3, 4])
def test_every_orientation_of_faces_and_edges_is_met(p: int) -> None:
    """A box whose elements are turned at random, many times over: all 8 ways two faces can meet."""
    met_faces, met_edges = set(), set()
    for seed in range(6):
        mesh = turned(femops.box((3, 2, 2)), seed)
        indices = femops.H1(mesh, p).restriction.indices
        positions = connectivity.node_positions(mesh.coordinates, p)
        assert connectivity.faults(positions, indices) == []
        codes = np.array([sum(c == 1 for c in np.unravel_index(t, (3, 3, 3))) for t in range(27)])
        met_faces |= set(np.unique(mesh.topology.orientation[:, codes == 2]).tolist())
        met_edges |= set(np.unique(mesh.topology.orientation[:, codes == 1]).tolist())
    assert met_faces == set(range(8))
    assert met_edges == {0, 1}


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_l2_nodes_are_each_their_own(dim: int) -> None:
    mesh = make_mesh("unstructured", dim, "few")
    indices = femops.L2(mesh, 2).restriction.indices
    assert np.array_equal(np.sort(indices, axis=None), np.arange(indices.size))
    assert connectivity.first_touch_faults(indices) == []


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_boundary_dofs_are_those_on_the_surface(dim: int) -> None:
    counts, p = COUNTS["many"][dim - 1], 3
    mesh = turned(femops.box(counts))
    space = femops.H1(mesh, p, ncomp=2)
    positions = connectivity.node_positions(mesh.coordinates, p)
    outside = np.any((np.abs(positions) < 1e-12) | (np.abs(positions - 1) < 1e-12), axis=2)
    nodes = np.unique(space.restriction.indices[outside])
    expected = np.sort(np.concatenate([2 * nodes, 2 * nodes + 1]))
    np.testing.assert_array_equal(space.boundary_dofs(), expected)
