"""The numbering of H1 and L2: continuous, by first touch, right for every orientation."""

import numpy as np
import pytest

import femops
from femops import H1, L2, Mesh
from femops.numbering import distinct, local_nodes, ternary_codes
from support.cases.kernels import turned
from support.cases.meshes import MESHES, PERIODIC, corner_rotations, same_place, scrambled_box
from support.counted_lines import lines
from support.oracles import connectivity


def check_numbering(space, period=None):
    """Nodes share a number if and only if they are at one place."""
    indices = space.restriction.indices
    positions = connectivity.node_positions(space.mesh.coordinates, space.order)
    assert (
        connectivity.faults(positions, indices, None if period is None else np.array(period)) == []
    )
    assert space.ndofs == indices.max() + 1
    if period is None:
        np.testing.assert_allclose(space.dof_coordinates()[indices], positions, atol=1e-13)
    check_first_touch(space)


def check_first_touch(space):
    """Follow the contract by a plain loop: new dofs are next, in the order of the element."""
    count, starts = 0, [0]
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


@pytest.mark.parametrize("name", MESHES)
def test_nodes_share_a_number_if_and_only_if_they_are_at_one_place(name):
    mesh = MESHES[name]()
    for p in (1, 2, 3, *([] if name == "ball" else [4]), *([9] if mesh.dim < 3 else [])):
        check_numbering(H1(mesh, p))


TURNED = {
    "turned torus": (lambda: turned(femops.box((3, 4), periodic=True)), [1.0, 1.0]),
    "turned 3-torus": (lambda: turned(femops.box((3, 4, 3), periodic=True)), [1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("name", [*PERIODIC, *TURNED])
def test_nodes_a_period_apart_share_a_number(name):
    make, periods = (PERIODIC | TURNED)[name]
    mesh = make()
    for p in (1, 2, 4):
        check_numbering(H1(mesh, p), periods)


@pytest.mark.parametrize("family", ["gll", "bernstein"])
@pytest.mark.parametrize(
    ("make", "periods"),
    [(MESHES["disc"], None), (MESHES["curved scrambled cube"], None), PERIODIC["torus"]],
    ids=["disc", "cube", "torus"],
)
def test_functions_are_continuous(make, periods, family):
    """A random function of the space takes one value at each place of a grid in the elements."""
    space = H1(make(), 4, family=family)
    u = np.random.default_rng(0).normal(size=space.shape)
    where, values = space.sample(u, 5)
    pairs, _ = same_place(where.reshape(-1, space.dim), periods)
    values = values.ravel()
    assert len(pairs) > 0
    assert np.abs(values[pairs[:, 0]] - values[pairs[:, 1]]).max() < 1e-11


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
        check_numbering(space)
        faces = [code for code, digits in ternary_codes(dim) if digits.count(1) == dim - 1]
        seen.update(space.mesh.topology.orientation[:, faces].ravel().tolist())
    assert seen == set(range(2 if dim == 2 else 8))


@pytest.mark.parametrize("name", ["segment", "disc", "ball"])
def test_l2_nodes_are_each_their_own(name):
    indices = L2(MESHES[name](), 2).restriction.indices
    np.testing.assert_array_equal(np.sort(indices, axis=None), np.arange(indices.size))
    assert connectivity.first_touch_faults(indices) == []


def test_entities_share_out_the_nodes_of_an_element():
    for dim in (1, 2, 3):
        for p in range(1, 7):
            parts = [local_nodes(digits, p) for _, digits in ternary_codes(dim)]
            assert sorted(np.concatenate(parts).tolist()) == list(range((p + 1) ** dim))
        for code, digits in ternary_codes(dim):
            assert code == sum(t * 3**d for d, t in enumerate(digits))


def test_millions_of_dofs_are_no_loop_in_python():
    meshes = [femops.box((n,) * 3) for n in (4, 12)]
    few, many = (lines(lambda mesh=mesh: H1(mesh, 4)) for mesh in meshes)
    assert many < 2 * few  # of 27 times the elements


@pytest.mark.parametrize(("count", "span"), [(0, 1), (300, 200), (30, 10**7)])
def test_distinct_numbers(count, span):
    """A table of flags and a sort, for few numbers in a wide range, find the same."""
    numbers = np.random.default_rng(0).integers(0, span, count)
    found = distinct(numbers)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.unique(numbers))


def test_blocks_of_elements_are_numbered_alike(monkeypatch):
    mesh = scrambled_box((3, 2, 2), 0)
    whole = H1(mesh, 3).restriction.indices
    monkeypatch.setattr("femops.numbering._TOGETHER", 1)
    np.testing.assert_array_equal(H1(mesh, 3).restriction.indices, whole)
