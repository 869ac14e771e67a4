"""The numbering of H1: continuous, by first touch, right for every orientation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops import H1, Mesh
from femops.numbering import local_nodes, ternary_codes
from femops_meshes.coordinates.mapping import positions
from support.cases.meshes import MESHES, PERIODIC, corner_rotations, same_place, scrambled_box
from support.counted_lines import lines


def is_continuous(space, periods=None):
    """A random function of the space takes one value at each place of a grid in the elements."""
    u = np.random.default_rng(0).normal(size=space.shape)
    where, values = space.sample(u, space.order + 3)
    pairs, _ = same_place(where.reshape(-1, space.dim), periods)
    values = values.reshape(where.shape[0] * where.shape[1], -1)
    assert len(pairs) > 0
    return np.abs(values[pairs[:, 0]] - values[pairs[:, 1]]).max() < 1e-11


def distinct_nodes(space, periods=None):
    """How many places the nodes of the elements take, by their coordinates alone."""
    nodes = positions(space.mesh.coordinates, space.basis.nodes).reshape(-1, space.dim)
    return same_place(nodes, periods)[1]


def check_first_touch(space):
    """Follow the contract by a plain loop: new dofs are next, in the order of the element."""
    count = 0
    starts = [0]
    layout = [local_nodes(digits, space.order) for _, digits in ternary_codes(space.dim)]
    for row in space.restriction.indices:
        for nodes in layout:
            new = sorted(set(row[nodes].tolist()))
            if new and new[0] >= count:
                assert row[nodes].tolist() == list(range(count, count + len(new)))
                count += len(new)
            else:
                assert all(dof < count for dof in new)
        starts.append(count)
    assert count == space.ndofs
    np.testing.assert_array_equal(space.restriction.first_touch, starts)


CASES = [
    (name, p, family)
    for name in MESHES
    for family, orders in (("gll", (1, 2, 3, 4, 5)), ("bernstein", (1, 4)))
    for p in orders
    if name != "ball" or p <= 3
]


@pytest.mark.parametrize(("name", "p", "family"), CASES)
def test_continuous_and_no_dof_too_many(name, p, family):
    space = H1(MESHES[name](), p, family=family)
    assert is_continuous(space)
    assert space.ndofs == distinct_nodes(space)
    check_first_touch(space)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PERIODIC)
def test_continuous_across_periods(name, p):
    make, periods = PERIODIC[name]
    space = H1(make(), p)
    assert is_continuous(space, periods)
    assert space.ndofs == distinct_nodes(space, periods)
    check_first_touch(space)


@pytest.mark.parametrize("dim", [2, 3])
def test_two_elements_in_every_relative_orientation(dim):
    """Two elements share a face in all the ways there are, from both sides."""
    base = scrambled_box((2,) + (1,) * (dim - 1), 5)
    seen = set()
    rng = np.random.default_rng(7)
    for rotation in corner_rotations(dim):
        relabel = rng.permutation(base.num_vertices)
        first, second = base.elements
        elements = relabel[np.array([first, second[rotation]])]
        vertices = np.empty((base.num_vertices, dim))
        vertices[elements[0]] = base.coordinates[0]
        vertices[elements[1]] = base.coordinates[1][rotation]
        space = H1(Mesh.from_arrays(vertices, elements), 4)
        assert space.ndofs == 9 * 5 ** (dim - 1)
        assert is_continuous(space)
        faces = [code for code, digits in ternary_codes(dim) if digits.count(1) == dim - 1]
        seen.update(space.mesh.topology.orientation[:, faces].ravel().tolist())
    assert seen == set(range(2 if dim == 2 else 8))


def test_the_ball_has_every_orientation():
    """So that the continuity above means something on it."""
    topology = MESHES["ball"]().topology
    for kind, count in ((1, 2), (2, 8)):
        codes = [code for code, digits in ternary_codes(3) if digits.count(1) == kind]
        assert set(topology.orientation[:, codes].ravel().tolist()) == set(range(count))


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    p=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
def test_scrambled_boxes(counts, p, seed):
    space = H1(scrambled_box(tuple(counts), seed), p)
    assert space.ndofs == np.prod([n * p + 1 for n in counts])
    nodes = positions(space.mesh.coordinates, space.basis.nodes)
    x = space.dof_coordinates()
    np.testing.assert_allclose(x[space.restriction.indices], nodes, atol=1e-13)
    check_first_touch(space)


@given(p=st.integers(1, 6), dim=st.integers(1, 3))
def test_entities_share_out_the_nodes_of_an_element(p, dim):
    parts = [local_nodes(digits, p) for _, digits in ternary_codes(dim)]
    assert sorted(np.concatenate(parts).tolist()) == list(range((p + 1) ** dim))
    for code, digits in ternary_codes(dim):
        assert code == sum(t * 3**d for d, t in enumerate(digits))


def test_millions_of_dofs_are_no_loop_in_python():
    assert H1(femops.box((30, 30, 30)), 4).ndofs == 121**3
    meshes = [femops.box((n,) * 3) for n in (4, 12)]
    few, many = (lines(lambda mesh=mesh: H1(mesh, 4)) for mesh in meshes)
    assert many < 2 * few  # of 27 times the elements
