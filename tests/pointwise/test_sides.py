"""Symbols with two sides."""

import numpy as np
import pytest

from femops.errors import TraceError
from femops.pointwise.expressions.graph import Graph
from femops.pointwise.sides import TwoSided, base_name, factors_by_side, shown_name, sided
from femops.pointwise.trace import symbols


def test_a_value_without_sides():
    """A coefficient that is the same on both sides stands for its value, with its shape."""
    matrix = symbols(Graph(), "k", (2, 2))
    both = TwoSided.of_values("k", matrix, matrix)
    assert both.shape == np.shape(both) == (2, 2)
    assert both.T[0, 1] is matrix[1, 0]
    assert both[1, 0] is matrix[1, 0]
    other = TwoSided.of_values("k", matrix, matrix.T)
    for use in (lambda: other.T, lambda: other + 1.0, lambda: other[0]):
        with pytest.raises(TraceError, match=r"write k\.minus"):
            use()


def test_parts_of_a_test_function():
    """Factors of jump, mean and sides add up on each side. Those that are None are zero."""
    given = {"jump": 4.0, "mean": {"value": 2.0, "grad": [6.0, 8.0]}, "plus": 1.0, "minus": None}
    minus, plus = factors_by_side(given, "u", "f", lambda factor, _: np.asarray(factor))
    assert (minus["value"], plus["value"]) == (5.0, -2.0)
    assert minus["grad"].tolist() == plus["grad"].tolist() == [3.0, 4.0]


def test_names():
    """Names of sides inside a trace, and in messages."""
    assert [base_name(side) for side in sided("u")] == ["u", "u"]
    assert [shown_name(name) for name in ("u-", "u+", "u")] == ["u.minus", "u.plus", "u"]
