"""Ghosts get what owners have, and owners what ghosts have: as few numbers as can be."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from femops import H1
from femops.errors import VectorError
from femops.parallel.halo import Halo
from femops.parallel.numbering import h1_rank_numbering, l2_rank_numbering
from femops_meshes import Partition, box_part, partition
from support.cases.parts import ALL, holders, parts_of, shared_meshes
from support.simulated_ranks import on_ranks

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def random(shape, dtype, seed):
    """Small whole numbers, whose sums and products have no round-off."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 10, (2, *shape)).astype(dtype)
    return values[0] + 1j * values[1] if np.issubdtype(dtype, np.complexfloating) else values[0]


def on_halos(mesh, cut, p, program):
    """``program(halo, numbering, comm)`` on each rank."""
    parts = parts_of(mesh, cut)

    def all_of_it(comm):
        numbering = h1_rank_numbering(parts[comm.rank], p, comm)
        return program(Halo(numbering, comm), numbering, comm)

    return on_ranks(cut.size, all_of_it)[0]


shapes = st.sampled_from([(), (3,), (2, 0), (3, 2)])


@settings(max_examples=12, deadline=None)
@given(shared_meshes(), st.integers(1, 4), shapes, st.sampled_from(DTYPES))
def test_ghosts_are_what_their_owners_have(case, p, shape, dtype):
    mesh, cut = case
    whole = random((H1(mesh, p).ndofs, *shape), dtype, 0)

    def program(halo, numbering, comm):
        values = whole[numbering.whole]
        ghosts = halo.forward(values[: halo.owned])
        assert ghosts.dtype == dtype
        np.testing.assert_array_equal(ghosts, values[halo.owned :])

    on_halos(mesh, cut, p, program)


@settings(max_examples=12, deadline=None)
@given(shared_meshes(), st.integers(1, 4), shapes, st.sampled_from(DTYPES))
def test_owners_get_the_sum(case, p, shape, dtype):
    """Every rank adds its own to all dofs it touches; the sum goes through the whole mesh."""
    mesh, cut = case

    def program(halo, numbering, comm):
        mine = random((numbering.ndofs, *shape), dtype, 1 + comm.rank)
        values = mine[: halo.owned].copy()
        assert halo.reverse_add(mine[halo.owned :], values) is None
        return values, mine, numbering.whole

    results = on_halos(mesh, cut, p, program)
    expected = np.zeros((H1(mesh, p).ndofs, *shape), dtype)
    for _, mine, whole in results:
        expected[whole] += mine
    np.testing.assert_array_equal(np.concatenate([values for values, *_ in results]), expected)


@settings(max_examples=12, deadline=None)
@given(shared_meshes(), st.integers(1, 4))
def test_no_message_and_no_number_too_many(case, p):
    mesh, cut = case
    held = holders(mesh, cut, p)

    def program(halo, numbering, comm):
        before = len(comm.sent)
        halo.forward(np.zeros(halo.owned))
        halo.reverse_add(np.zeros(halo.ghosts), np.zeros(halo.owned))
        there, back = comm.sent[before:]
        assert there == {rank: 8 * len(dofs) for rank, dofs in halo.send.items()}
        assert back == {rank: 8 * (end - first) for rank, (first, end) in halo.receive.items()}
        assert (len(there), sum(there.values())) == (halo.messages, 8 * halo.numbers)
        return halo

    halos = on_halos(mesh, cut, p, program)
    sums = sum(halo.messages for halo in halos), sum(halo.numbers for halo in halos)
    assert sums == cut.exchange(p)
    for rank, halo in enumerate(halos):
        mine = [ranks[1:] for ranks in held.values() if ranks[0] == rank]
        assert list(halo.send) == sorted({other for others in mine for other in others})
        ends = [0, *itertools.chain(*halo.receive.values()), halo.ghosts]
        assert ends[::2] == ends[1::2]
        assert halo.numbers == sum(map(len, mine))
        for other, dofs in halo.send.items():
            first, end = halos[other].receive[rank]
            assert len(dofs) == end - first
            assert (np.diff(dofs) > 0).all()


def test_what_is_exchanged_falls_with_the_part():
    """Of a box, by the surface of the part: by 4 where its volume falls by 8."""

    def program(comm):
        return Halo(h1_rank_numbering(box_part(comm.rank, comm.size, (16, 16, 16)), 3, comm), comm)

    most = {
        size: max(max(h.numbers, h.ghosts) for h in on_ranks(size, program)[0]) for size in (8, 64)
    }
    assert most[64] < most[8] / 2


def test_ranks_that_share_nothing_send_nothing():
    mesh = ALL["square"]()
    parts = parts_of(mesh, partition(mesh, 3))

    def program(comm):
        halo = Halo(l2_rank_numbering(parts[comm.rank], 2, comm), comm)
        assert halo.forward(np.ones((halo.owned, 2))).shape == (0, 2)
        return halo

    for halo in on_ranks(3, program)[0]:
        assert (halo.messages, halo.numbers, halo.send, halo.receive) == (0, 0, {}, {})


def test_a_halo_says_what_it_is():
    mesh = ALL["square"]()
    cut = Partition.of(mesh, np.arange(12) // 6, 2)
    first, second = on_halos(mesh, cut, 2, lambda halo, *_: repr(halo))
    n = int(cut.exchange(2)[1])
    assert f"0 ghosts, sends {n} to 1 ranks, receives from 0" in first
    assert f"{n} ghosts, sends 0 to 0 ranks, receives from 1" in second


@pytest.mark.parametrize(
    ("ghosts", "values", "message"),
    [
        ((1,), (0,), r"values have shape \(\d+,\), there are \d+ ghosts: the first axis must"),
        ((0,), (1,), r"values have shape \(\d+,\), there are \d+ owned dofs"),
        ((0, 2), (0,), r"ghosts are float64 of shape .*, values float64 of shape"),
    ],
)
def test_arrays_that_do_not_fit(ghosts, values, message):
    mesh = ALL["square"]()

    def program(halo, numbering, comm):
        given = np.zeros((halo.ghosts + ghosts[0], *ghosts[1:]))
        with pytest.raises(VectorError, match=message):
            halo.reverse_add(given, np.zeros((halo.owned + values[0], *values[1:])))
        with pytest.raises(VectorError, match="owned dofs"):
            halo.forward(np.zeros(halo.owned + 1))
        with pytest.raises(VectorError, match=r"complex64 .* float32"):
            halo.reverse_add(np.zeros(halo.ghosts, "c8"), np.zeros(halo.owned, "f4"))

    on_halos(mesh, partition(mesh, 3), 2, program)
