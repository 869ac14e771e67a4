"""Random forms against dense matrices that share no code and no assumption with femops.

An example is one number: tests/support/cases/random_forms makes a function, spaces and
coefficients of it, and tests/support/oracles/dense_forms.py integrates the same function with
numbers that carry a bound of round-off.  Every entry of the matrix is compared within that bound,
so a small term that is wrong shows beside a huge one.  Forms are on one field or several, over
elements or the boundary, linear or Jacobians; each fourth is in float32.

``make exhaustive`` tries more examples, each at all levels.
"""

import pytest

from support.cases.form_checks import LEVELS, failures, tried
from support.cuda import guarded

BATCH = 20
device = guarded.small_device


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(100))
def test_random_form(seed):
    """At one level."""
    tried(seed, (LEVELS[seed % len(LEVELS)],))


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(100, 140))
def test_random_form_on_a_device(seed, device):
    tried(seed, (("partial", "matrix-free")[seed % 2],), device=device)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(140, 2140, BATCH))
def test_random_forms_at_all_levels(first):
    found = failures(range(first, first + BATCH))
    assert not found, "\n\n".join(found)
