"""Launches that go through the chunks together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.meshes import bend, scrambled_box
from support.teams import each_team

MANY = scrambled_box((16, 12, 12), 3, bend)  # enough elements for chunks that have their faces too


def penalty(family: str, **options: Any) -> Any:
    return femops.interior_penalty(femops.L2(MANY, 1, family=family), **options)


@pytest.mark.parametrize("family", ["gauss", "gll"])
def test_beside_a_matrix(family):
    """Cells, faces inside and those of the boundary are one round, with the matrix's result."""
    A = penalty(family)
    assert A.compiled.rounds == [range(3)]
    u = np.random.default_rng(1).standard_normal(A.shape[1])
    expected = penalty(family, level="full") @ u
    np.testing.assert_allclose(A @ u, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


def test_the_bits_of_any_number_of_threads():
    A = penalty("gauss")
    u = np.random.default_rng(2).standard_normal(A.shape[1])
    expected = A @ u
    for _ in each_team(1, 2):
        np.testing.assert_array_equal(A @ u, expected)


def test_factors_and_constrained_entries():
    """A factor and pinned dofs hold for each launch of a round."""
    A = penalty("gauss")
    u = np.random.default_rng(3).standard_normal(A.shape[1])
    pinned = np.arange(0, A.shape[1], 7)
    held = u.copy()
    held[pinned] = 0.0
    expected = -3.0 * (A @ held)
    expected[pinned] = u[pinned]
    made = (-3.0 * A).constrained(pinned)
    assert made.compiled.rounds[0] == range(3)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(made @ u, expected, rtol=0, atol=1e-14 * scale)


def test_other_dofs_other_rounds():
    """Elements that share dofs, and few elements, have chunks of their own for faces."""
    V = femops.H1(MANY, 1)
    shared = femops.form(lambda u: {"jump": {"grad": u.jump.grad}}, V, faces="interior")
    both = femops.diffusion(V) + shared
    assert both.compiled.rounds == [range(1), range(1, 2)]
    few = femops.interior_penalty(femops.L2(femops.box((3, 3, 3)), 1))
    assert few.compiled.rounds[0] == range(1)
