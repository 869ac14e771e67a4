"""Arithmetic of complex symbols against Python's complex numbers."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import femops
from femops.errors import TraceError
from femops.pointwise.expressions.complex_symbols import ComplexSymbol, each
from femops.pointwise.expressions.graph import Graph, substitute

PARTS = st.floats(0.25, 4.0) | st.floats(-4.0, -0.25)
NUMBERS = st.builds(complex, PARTS, PARTS)
UNARY = (np.conj, np.negative, np.exp, np.square, np.absolute, np.real, np.imag, np.positive)
BINARY = (np.add, np.subtract, np.multiply, np.divide)


def symbols(*values):
    graph = Graph()
    nodes = ((graph.constant(value.real), graph.constant(value.imag)) for value in values)
    return [ComplexSymbol(*pair) for pair in nodes]


def number(symbol):
    re, im = substitute([symbol.re, symbol.im], {})
    return complex(re.value, im.value)


def close(symbol, value):
    return abs(number(symbol) - value) <= 1e-12 * max(abs(value), 1e-3)


@settings(max_examples=20)
@given(NUMBERS, NUMBERS, st.integers(-4, 5))
def test_functions(a, b, exponent):
    x, y = symbols(a, b)
    for one in UNARY:
        assert close(one(x), one(a))
    for two in BINARY:
        assert close(two(x, y), two(a, b))
        assert close(two(x, b), two(a, b))
        assert close(two(a, y), two(a, b))
        assert close(two(2.5, y), two(2.5, b))
    assert close(x**exponent, a**exponent)


@settings(max_examples=20)
@given(st.lists(NUMBERS, min_size=4, max_size=4))
def test_arrays(values):
    array = each(lambda one: one, np.array(symbols(*values), dtype=object).reshape(2, 2))
    plain = np.array(values).reshape(2, 2)
    results = {
        "product": (array @ array, plain @ plain),
        "real": (np.real(array), plain.real),
        "imaginary": ((2j * array.T).imag, (2j * plain.T).imag),
        "conjugate": (np.conj(array[0]), plain[0].conj()),
        "exp": (np.exp(array), np.exp(plain)),
        "inner": (femops.inner(array, array), np.sum(plain * plain)),
        "determinant": (femops.det(array), np.linalg.det(plain)),
        "trace": (np.trace(array), np.trace(plain)),
    }
    for name, (found, expected) in results.items():
        for symbol, value in zip(np.ravel(found), np.ravel(expected), strict=True):
            assert abs(number(symbol) - value) < 1e-11 * (1 + abs(plain).max()) ** 2, name


@settings(max_examples=20)
@given(NUMBERS, NUMBERS, PARTS)
def test_choices(a, b, c):
    x, y = symbols(a, b)
    z = ComplexSymbol.of(x.graph, c)
    assert number(femops.where(z > 0.5, x, y)) == (a if c > 0.5 else b)
    assert number(femops.where(z > 0.5, x, 1j)) == (a if c > 0.5 else 1j)
    assert number(femops.where(True, y, x)) == b
    assert number(femops.maximum(z, 0.5)) == max(c, 0.5)
    assert number(np.minimum(z, 0.5)) == min(c, 0.5)
    assert close(np.sqrt(z * z), abs(c))


@pytest.mark.parametrize(
    "wrong",
    [
        np.sqrt,
        lambda x: x > 1.0,
        lambda x: femops.maximum(x, 1.0),
        lambda x: x ** (1 + 1j),
        np.floor,
        lambda x: np.sin(np.array([x])),
        lambda x: 1.0 if x else 2.0,
        float,
        lambda x: x[0],
        lambda x: femops.where(x, 1.0, 2.0),
    ],
)
def test_what_complex_numbers_do_not_have(wrong):
    with pytest.raises(TraceError):
        wrong(symbols(1.0 + 2.0j)[0])
