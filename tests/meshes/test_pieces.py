"""Contiguous pieces, judged by trying all of them."""

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from femops_meshes import MeshArgumentError
from femops_meshes.partitioning.pieces import (
    checked_rank,
    equal_piece,
    equal_pieces,
    weighted_pieces,
)


@settings(max_examples=50)
@given(st.integers(0, 200), st.integers(1, 40))
def test_equal_pieces(count, size):
    expected = [piece.tolist() for piece in np.array_split(np.arange(count), size)]
    assert [list(range(*equal_piece(count, size, rank))) for rank in range(size)] == expected
    assert [list(range(*cuts)) for cuts in pairwise(equal_pieces(count, size))] == expected


def heaviest(weights, cuts):
    return max(weights[a:b].sum() for a, b in pairwise(cuts))


def least_possible(weights, size):
    count = len(weights)
    inner = combinations_with_replacement(range(count + 1), size - 1)
    return min(heaviest(weights, [0, *cuts, count]) for cuts in inner)


WEIGHTS = st.one_of(
    st.lists(st.integers(1, 9).map(float), min_size=1, max_size=9),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9),
)


@settings(max_examples=60)
@given(WEIGHTS, st.integers(1, 5))
def test_no_other_cuts_have_a_lighter_heaviest_piece(weights, size):
    weights = np.array(weights)
    cuts = weighted_pieces(weights, size)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(weights), size + 1)
    assert heaviest(weights, cuts) <= least_possible(weights, size) * (1 + 1e-11)
    lengths = np.diff(cuts)
    assert (lengths >= 0).all()
    assert np.count_nonzero(lengths) == min(size, len(weights))


def test_cuts_by_hand():
    for weights, size, cuts in (
        ([1, 1, 1, 1, 1, 1], 3, [0, 2, 4, 6]),
        ([5, 1, 1, 1, 1, 1], 2, [0, 1, 6]),
        ([100, 1, 1, 1], 4, [0, 1, 2, 3, 4]),
        ([4, 1, 1, 1, 1], 3, [0, 1, 3, 5]),  # 4, 1, 3 is no heavier
        ([1, 1, 1, 1, 9, 1, 1], 3, [0, 4, 5, 7]),
        ([1, 2], 4, [0, 1, 2, 2, 2]),
        ([3], 1, [0, 1]),
    ):
        assert weighted_pieces(np.array(weights, dtype=float), size).tolist() == cuts


def test_many_pieces_of_many_things():
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.5, 2.0, 3000)
    for size in (2, 7, 500, 2999):
        loads = np.add.reduceat(weights, weighted_pieces(weights, size)[:-1])
        assert loads.max() <= max(weights.sum() / size + weights.max(), weights.max())
        assert loads.min() > 0


def test_ranks_that_do_not_exist():
    for rank, size, message in (
        (3, 3, "rank is 3, but there are 3 parts: 0 to 2"),
        (-1, 3, "rank is a whole number >= 0, got -1"),
        (0, 0, "size is a whole number >= 1, got 0"),
        (0.0, 2, "rank is a whole number"),
        (0, True, "size is a whole number"),
    ):
        with pytest.raises(MeshArgumentError, match=message):
            checked_rank(rank, size)
