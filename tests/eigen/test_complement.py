"""Plans of filters that search for missed eigenvectors."""

from types import SimpleNamespace

import numpy as np
import pytest

from femops.eigen.complement import Search
from femops.eigen.filters import Interval

INTERVAL = Interval(lowest=1.0, cut=4.0, upper=1000.0)
VALUES = np.array([1.0, 2.5, 3.0, 3.9, 4.5])  # the last is damped


def plan(norms, dtype="float64"):
    pencil = SimpleNamespace(A=SimpleNamespace(dtype=np.dtype(dtype)), count=10_000)
    return Search.planned(INTERVAL, VALUES, np.asarray(norms), 3, pencil)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-8, 1e-13, 0.0])
def test_known_eigenvectors_do_not_take_over(size, dtype):
    """What is left of them after a filter and a projection is below 1, and digits are left."""
    search, limits = plan(np.full(5, size), dtype), np.finfo(dtype)
    assert search.step > 1
    below = VALUES[:4]
    grown = np.exp(search.step * INTERVAL.growth(below))
    part = np.maximum(size / (INTERVAL.cut - below), limits.eps)
    assert (part**2 * grown).max() <= 1.0 + 1e-12
    assert (limits.eps * part * grown).max() <= 1e-4 * (1.0 + 1e-12)
    if search.filters > 1:  # a degree more would be too much
        more = np.exp(np.minimum((search.step + 1) * INTERVAL.growth(below), 700.0))
        assert (part**2 * more).max() > 1.0 or (limits.eps * part * more).max() > 1e-4


def test_the_filters_together_lift_what_is_missing_over_the_rest():
    """(c p(value))^2 (cut - value) > n (upper - cut) for a coefficient c of 1e-5."""
    search = plan(np.full(5, 1e-4))
    assert search.filters > 1
    amplified = np.cosh(search.step * INTERVAL.growth(search.value)) ** search.filters
    cut, upper = INTERVAL.cut, INTERVAL.upper
    assert (1e-5 * amplified) ** 2 * (cut - search.value) > 10_000 * (upper - cut)
    fewer = np.cosh(search.step * INTERVAL.growth(search.value)) ** (search.filters - 1)
    assert (1e-5 * fewer) ** 2 * (cut - search.value) < 10_000 * (upper - cut)
