"""Which expressions are the same: exactly, and no more than rounding allows."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from femops.pointwise.expressions import tensors
from femops.pointwise.expressions.graph import Graph, ancestors
from femops.pointwise.expressions.identities import identities

LITERALS = [1.0, -1.0, 0.5, 3.0, 1e-19, 1.6e-19, -1.6e-19, 1e20, 0.1, 2.0**127, 5e-324]


@pytest.fixture
def graph():
    return Graph()


def letters(graph):
    return [graph.input(name) for name in "abc"]


@pytest.mark.parametrize(
    "pair",
    [
        lambda a, b, c: (a * (b * c), (c * a) * b),
        lambda a, b, c: (a * (b + c), c * a + b * a),
        lambda a, b, c: (a - (b - c), (c + a) - b),
        lambda a, b, c: (a / b * c, c * a / b),
        lambda a, b, c: (a / (b * c), a / b / c),
        lambda a, b, c: (a * (1.0 / b), a / b),
        lambda a, b, c: (1.0 / (1.0 / a), a),
        lambda a, b, c: (0.5 * a + 0.5 * a, a),
        lambda a, b, c: (a**3, a * a * a),
        lambda a, b, c: (a**-2, 1.0 / a / a),
        lambda a, b, c: (a**30, (a**15) ** 2),
        lambda a, b, c: (np.sqrt(a * b) * c, c * np.sqrt(b * a)),
        lambda a, b, c: (np.sin(a * (b + c)), np.sin(a * c + b * a)),
        lambda a, b, c: (np.minimum(a, b * c), np.minimum(c * b, a)),
        lambda a, b, c: (tensors.where(a > b, c, 2 * c), c * tensors.where(a > b, 1.0, 2.0)),
        lambda a, b, c: (tensors.where(a > b, c, c * 1.0), c),
    ],
)
def test_the_same_written_differently(graph, pair):
    one, other = identities(pair(*letters(graph)))
    assert one == other
    assert not one.zero


@pytest.mark.parametrize(
    "pair",
    [
        lambda a, b, c: (a, b),
        lambda a, b, c: (a, -a),
        lambda a, b, c: (a + 1e-300, a),
        lambda a, b, c: (a - 1.6e-19 * b, a + 1.6e-19 * b),
        lambda a, b, c: (a * 2.0**127, a),
        lambda a, b, c: (0.1 * a + 0.2 * a, 0.3 * a),  # as they are: binary fractions
        lambda a, b, c: (np.sqrt(a), np.exp(a)),
        lambda a, b, c: (np.sqrt(a), np.sqrt(b)),
        lambda a, b, c: (np.arctan2(a, b), np.arctan2(b, a)),
        lambda a, b, c: (tensors.where(a > b, c, 1.0), tensors.where(a >= b, c, 1.0)),
        lambda a, b, c: (tensors.where(a > b, c, 1.0), tensors.where(a > b, 1.0, c)),
        lambda a, b, c: (np.fmin(a, b), np.fmax(a, b)),
        # equal, but not after rounding: b is lost beside a large a
        lambda a, b, c: ((a + b) - a, b),
        lambda a, b, c: ((a + b) * (a - b), a * a - b * b),
        lambda a, b, c: (c / ((a + b) - a), c / b),
        lambda a, b, c: (np.sin((a + b) - a), np.sin(b)),
    ],
)
def test_different(graph, pair):
    one, other = identities(pair(*letters(graph)))
    assert one != other


def test_opposite_and_zero(graph):
    a, b, c = letters(graph)
    one, other = identities([a * (b - c), c * a - b * a])
    assert one.opposite == other
    assert one.opposite.opposite == one
    zeros = [a * b - b * a, (a + b) - a - b, a / b - a * (1.0 / b), c * (a - a), graph.constant(0)]
    assert all(identity.zero for identity in identities(zeros))
    assert not any(i.zero for i in identities([a - b, 1e-300 * a, 1e-200 * (1e-200 * b), 1 - a]))
    (broken,) = identities([a / (b - b)])  # of no number, but of a symbol like any other
    assert not broken.zero


def test_a_factor_of_some_inputs(graph):
    a, b, c = letters(graph)
    twice = {a.number: identities([a])[0].scaled(2)}
    forms = [a * b, a * a / c, b + c, np.sin(b) * a, np.sin(a), a + 1.0]
    plain, scaled = identities(forms), identities(forms, twice)
    powers = [
        next((k for k in range(3) if new == old.scaled(2**k)), None)
        for old, new in zip(plain, scaled, strict=True)
    ]
    assert powers == [1, 2, 0, 1, None, None]


@st.composite
def polynomials(draw, depth=4):
    """A function of three numbers, and of its magnitude if it is told how to subtract."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        kind = draw(st.integers(0, 3))
        literal = draw(st.sampled_from(LITERALS))
        return (lambda v, _: v[kind]) if kind < 3 else (lambda v, number: number(literal))
    op = draw(st.sampled_from("+-*"))
    a, b = draw(polynomials(depth - 1)), draw(polynomials(depth - 1))
    if op == "+":
        return lambda v, n: a(v, n) + b(v, n)
    if op == "-":
        return lambda v, n: a(v, n) - b(v, n)
    return lambda v, n: a(v, n) * b(v, n)


@given(polynomials(), polynomials(), st.booleans())
@settings(max_examples=25)
def test_against_exact_fractions(p, q, twisted):
    """Zero and equal if and only if they are so for fractions, at points that tell polynomials."""
    graph = Graph()
    inputs = letters(graph)
    q = (lambda v, n, p=p: n(-1.0) * p(v, n)) if twisted else q
    one, other = identities([graph.node(f(inputs, graph.constant)) for f in (p, q)])
    # a polynomial of degree 16 at most is zero if it is zero at four random points
    points = np.random.default_rng(1).integers(1, 2**62, (4, 3)).tolist()
    exact = [[f([Fraction(x) for x in row], Fraction) for row in points] for f in (p, q)]
    assert one.zero == (not any(exact[0]))
    assert (one.value == other.value) == (exact[0] == exact[1])
    assert (one.opposite.value == other.value) == ([-x for x in exact[0]] == exact[1])


def test_every_pass_over_a_graph_is_linear():
    """Sixty doublings: whoever follows paths instead of nodes never returns."""
    graph = Graph()
    a, b, _ = letters(graph)
    for _ in range(60):
        a = a * a * 0.5 + 0.1 * a
        b = tensors.where(b > a, b * b, a)
    assert len(ancestors([b])) < 500
    assert not any(identity.zero for identity in identities([a, b]))
    assert len(repr(b)) < 100
