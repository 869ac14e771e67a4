"""Random forms against dense matrices that share no code and no assumption with femops.

An example is one number: tests/support/cases/random_forms makes a function, spaces and
coefficients of it, and tests/support/oracles/dense_forms.py integrates the same function with
numbers that carry a bound of round-off.  Every entry of the matrix is compared within that bound,
so a small term that is wrong shows beside a huge one.

``make exhaustive`` tries more examples, each at all levels.
"""

from __future__ import annotations

import pytest

from support.cases.form_checks import LEVELS, failures, tried

BATCH = 20


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(100))
def test_random_form(seed):
    """At one level."""
    tried(seed, (LEVELS[seed % len(LEVELS)],))


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(100, 2100, BATCH))
def test_random_forms_at_all_levels(first):
    found = failures(range(first, first + BATCH))
    assert not found, "\n\n".join(found)
