"""Marks of elements, against all subsets of a few elements."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import femops
from femops.errors import OperatorError

ESTIMATES = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=7)


@given(ESTIMATES, st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]))
def test_bulk_is_the_smallest_set(eta, fraction):
    marked = femops.adapt.mark(eta, fraction=fraction)
    squares, total = np.square(eta), np.square(eta).sum()
    if not total:
        assert not len(marked)
        return
    assert squares[marked].sum() >= fraction * total - 1e-9
    smaller = combinations(range(len(eta)), len(marked) - 1)
    assert all(squares[list(some)].sum() < fraction * total + 1e-9 for some in smaller)
    rest = np.setdiff1d(np.arange(len(eta)), marked)
    least = min(eta[k] for k in marked)
    assert all(eta[k] <= least for k in rest)
    ties = [k for k in marked if eta[k] == least]  # of equal ones the first are marked
    assert all(k > max(ties) for k in rest if eta[k] == least)


@given(ESTIMATES)
def test_maximum(eta):
    marked = femops.adapt.mark(eta, fraction=0.5, rule="maximum")
    assert marked.tolist() == [k for k, e in enumerate(eta) if e > 0.0 and e >= 0.5 * max(eta)]


def test_several_estimates_and_extreme_ones():
    assert femops.adapt.mark([3.0, 0.0, 1.0], [0.0, 5.0, 1.0]).tolist() == [0, 1]
    assert femops.adapt.mark([1e-200, 3e-200, 0.0]).tolist() == [1]
    assert femops.adapt.mark([1e200, 3e200]).tolist() == [1]
    assert femops.adapt.mark([1.0, 1.0, 1.0, 0.0], fraction=1.0).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([1.0, -1.0], r"eta\[1\] = -1: give errors"),
        ([np.nan, 1.0], r"eta\[0\] = nan"),
        ([], "one estimate for each element"),
        ([[1.0]], "one estimate for each element"),
        (["a"], "eta"),
    ],
)
def test_bad_estimates(bad, words):
    with pytest.raises(OperatorError, match=words):
        femops.adapt.mark(bad)


def test_other_lengths_and_fractions():
    with pytest.raises(OperatorError, match=r"lengths \[1, 2\]"):
        femops.adapt.mark([1.0], [1.0, 2.0])
    with pytest.raises(OperatorError, match="fraction"):
        femops.adapt.mark([1.0], fraction=1.5)
    with pytest.raises(OperatorError, match="rule"):
        femops.adapt.mark([1.0], rule="best")
