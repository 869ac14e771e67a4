"""The plan of a sweep, replayed in plain Python, is the restriction and its transpose."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops_kernels.cpu.plan import equal_chunks, make_nonowned_plan, make_plan
from femops_kernels.errors import KernelError
from femops_kernels.pointwise.qdata import aligned_array, element_values, store_interleaved
from femops_kernels.simd.runs import equal_runs


def first_touch(indices):
    """Renumber so that dofs appear in ascending order."""
    numbers, first = np.unique(indices, return_index=True)
    new = np.empty(len(numbers), np.int64)
    new[np.argsort(first)] = np.arange(len(numbers))
    return new[np.searchsorted(numbers, indices)]


SEGMENTS = equal_runs(1, 3)
MESHES = ("disc.mesh", "ball.mesh")
SINGLE = (
    equal_runs(1, 1),
    equal_runs(1, 2),
    equal_runs(2, 2),
    equal_runs(3, 2),
)  # each node a run of its own


@st.composite
def restrictions(draw):
    """Any numbers that neighbours share, as elements do."""
    ne, runs = draw(st.integers(1, 150)), draw(st.sampled_from(SINGLE))
    nodes = runs.p1d**runs.dim
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    base = np.arange(ne)[:, None] * draw(st.integers(1, nodes))
    return first_touch(base + rng.permuted(np.tile(np.arange(nodes), (ne, 1)), axis=1)), runs


@st.composite
def spaces(draw):
    """Meshes on which faces and edges meet turned in any way."""
    name, order = draw(st.sampled_from(MESHES)), draw(st.integers(1, 4))
    mesh = femops.read_mesh(femops.sample(name))
    if draw(st.booleans()):
        space = femops.L2(mesh, order)
        return space.restriction.indices, equal_runs(mesh.dim, order + 1, broken=True)
    return femops.H1(mesh, order).restriction.indices, equal_runs(mesh.dim, order + 1)


def replay(plan, x, ne):
    """What a kernel that multiplies by one does: gather, scatter, copy out, combine."""
    y = np.full(len(x), np.nan if plan.owned_start[-1] else 0.0)
    buffer = np.full(len(plan.nonowned_dofs), np.nan)
    for c in range(plan.nchunks):
        owned = slice(plan.owned_start[c], plan.owned_start[c + 1])
        nonowned = slice(plan.nonowned_start[c], plan.nonowned_start[c + 1])
        pad = np.zeros(plan.runs.longest)
        local = np.concatenate([x[owned], x[plan.nonowned_dofs[nonowned]], pad])
        sums = np.full(plan.local_size, np.nan)
        sums[owned.stop - owned.start :] = 0.0
        for batch in range(plan.first_batch[c], plan.first_batch[c + 1]):
            met = plan.batch_start[batch : batch + 2] - owned.start
            sums[met[0] : met[1]] = 0.0  # a kernel clears them here
            for k, nodes in enumerate(plan.runs.nodes):
                places = plan.starts[batch, k][:, None] + np.arange(len(nodes))
                np.add.at(sums, places, local[places])
        count = owned.stop - owned.start
        y[owned] = sums[:count]
        buffer[nonowned] = sums[count : count + nonowned.stop - nonowned.start]
    for c in range(plan.nchunks):
        for k in range(plan.combine_start[c], plan.combine_start[c + 1]):
            y[plan.combine_dof[k]] += buffer[plan.combine_slot[k]]
    return y


@given(restrictions() | spaces(), st.sampled_from([2, 4, 8, 16]))
@settings(max_examples=50, deadline=None)
def test_replayed_and_combined_in_ascending_chunks(given, width):
    indices, runs = given
    ndofs = int(indices.max()) + 1
    plan = make_plan(indices, ndofs, width, equal_chunks(len(indices), 16), runs)
    for start, first in zip(plan.owned_start, plan.first_batch, strict=True):
        assert plan.batch_start[first] == start
    x = np.random.default_rng(0).standard_normal(ndofs)
    expected = x * np.bincount(indices.ravel())
    np.testing.assert_allclose(replay(plan, x, len(indices)), expected, rtol=1e-13)
    chunk = np.searchsorted(plan.nonowned_start, plan.combine_slot, side="right") - 1
    same = plan.combine_dof[1:] == plan.combine_dof[:-1]
    assert (plan.combine_slot[1:][same] > plan.combine_slot[:-1][same]).all()
    assert (chunk[1:][same] >= chunk[:-1][same]).all()


@given(restrictions(), st.sampled_from([2, 8]), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_replayed_where_no_chunk_owns(given, width, seed):
    """Any numbers, of a vector with others: each dof is added to by one chunk, in order."""
    indices, runs = given
    rng = np.random.default_rng(seed)
    ndofs = 2 * int(indices.max()) + 5
    indices = rng.permutation(ndofs)[indices]
    plan = make_nonowned_plan(indices, ndofs, width, equal_chunks(len(indices), 16), runs)
    x = rng.standard_normal(ndofs)
    expected = x * np.bincount(indices.ravel(), minlength=ndofs)
    np.testing.assert_allclose(replay(plan, x, len(indices)), expected, rtol=1e-13)
    assert plan.combine_start[0] == 0
    assert plan.combine_start[-1] == len(plan.nonowned_dofs)
    shares = [plan.combine_dof[a:b] for a, b in pairwise(plan.combine_start)]
    assert sum(len(np.unique(share)) for share in shares) == len(np.unique(indices))
    chunk = np.searchsorted(plan.nonowned_start, plan.combine_slot, side="right") - 1
    same = plan.combine_dof[1:] == plan.combine_dof[:-1]
    assert (chunk[1:][same] > chunk[:-1][same]).all()
    dofs = np.unique(rng.integers(0, 2 * ndofs, 9))
    start, positions = plan.local_positions(dofs, 2)
    for c in range(plan.nchunks):
        mine = plan.nonowned_dofs[plan.nonowned_start[c] : plan.nonowned_start[c + 1]]
        local, component = np.divmod(positions[start[c] : start[c + 1]], 2)
        touched = dofs[np.isin(dofs // 2, mine)]
        np.testing.assert_array_equal(np.sort(mine[local] * 2 + component), touched)


def test_positions_of_constrained_dofs():
    """Each copy of a dof is found, in every chunk that has one."""
    indices = first_touch(np.arange(40)[:, None] + np.arange(3))
    plan = make_plan(indices, int(indices.max()) + 1, 8, equal_chunks(len(indices), 16), SEGMENTS)
    assert plan.nchunks == 3
    dofs = np.array([0, 33, 63])  # (0, 0), (16, 1), (31, 1)
    start, positions = plan.local_positions(dofs, 2)
    found = []
    for c in range(plan.nchunks):
        first, end = plan.owned_start[c], plan.owned_start[c + 1]
        copies = [
            *range(first, end),
            *plan.nonowned_dofs[plan.nonowned_start[c] : plan.nonowned_start[c + 1]],
        ]
        for at in positions[start[c] : start[c + 1]]:
            local, component = divmod(at, 2)
            found.append((c, int(copies[local]) * 2 + int(component)))
    touched = [set(indices[16 * c : 16 * c + 16].ravel()) for c in range(3)]
    assert sorted(found) == sorted((c, d) for d in dofs for c in range(3) if d // 2 in touched[c])


def test_any_layout_in_memory():
    """Columns that were chosen stand one after the other in memory."""
    indices = femops.H1(femops.box((5, 4, 3)), 3).restriction.indices
    runs, starts = equal_runs(3, 4), equal_chunks(len(indices), 16)
    plans = [
        make_plan(table, int(indices.max()) + 1, 8, starts, runs)
        for table in (indices, np.asfortranarray(indices))
    ]
    for name in ("starts", "nonowned_dofs", "combine_dof", "combine_slot"):
        np.testing.assert_array_equal(*(getattr(plan, name) for plan in plans))


def test_refuses_other_numberings():
    backwards = first_touch(np.arange(40)[:, None] + np.arange(3))[::-1].copy()
    starts = equal_chunks(40, 16)
    with pytest.raises(KernelError, match="first touch"):
        make_plan(backwards, int(backwards.max()) + 1, 8, starts, SEGMENTS)
    with pytest.raises(KernelError, match="touch 42 dofs, the vector has 50"):
        make_plan(backwards[::-1], 50, 8, starts, SEGMENTS)


def test_runs_that_begin_and_end_alike():
    indices = np.array([[0, 2, 1, 3, 4], [0, 2, 3, 1, 4]])[[0, 1] * 16]
    plan = make_plan(indices, 5, 8, equal_chunks(32, 16), equal_runs(1, 5, broken=True))
    x = np.arange(1.0, 6.0)
    np.testing.assert_allclose(replay(plan, x, 32), 32 * x)


def test_interleaving():
    for ne, width in product((1, 7, 8, 9, 33), (2, 8)):
        values = np.random.default_rng(0).standard_normal((ne, 5, 3))
        data = aligned_array((-(-ne // width), 5, 3, width), np.float64)
        store_interleaved(data, values, 0)
        assert data.ctypes.data % 64 == 0
        np.testing.assert_array_equal(element_values(data, ne), values)
        assert np.abs(data).sum() == pytest.approx(np.abs(values).sum())
        batch, slot = (ne // width, ne % width - 1) if ne % width else (0, 0)
        assert data[batch, 2, 1, slot] != 0.0
