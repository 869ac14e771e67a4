"""Errors of forms that can't be traced: the line, and how to mend it."""

from pathlib import Path

import numpy as np
import pytest

import femops
from femops.errors import FemopsError, TraceError
from femops.pointwise import CoefficientShape, LinearQFunction, trace

SCALAR, MATRIX = {"k": CoefficientShape(())}, {"c": CoefficientShape((2, 2))}

REFUSED = [
    (lambda u: {"value": np.arcsinh(u)}, {}, "numpy.arcsinh has no meaning"),
    (lambda u: {"value": u, "grad": np.cbrt(u.grad)}, {}, "numpy.cbrt has no meaning"),
    (lambda u, c: {"grad": np.linalg.inv(c) @ u.grad}, MATRIX, "femops.inv"),
    (lambda u: {"value": u.div}, {}, "ncomp = dim"),
    (lambda u: {"grad": u.sym_grad}, {}, "ncomp = dim"),
    (
        lambda u: {"value": u.laplacian},
        {},
        "`: u has no laplacian: a form has no second derivatives: make the gradient a field",
    ),
    (
        lambda u: {"value": u.nothing},
        {},
        "`: u has no nothing: a field has value, grad, div, sym_grad, reference_grad",
    ),
    (lambda u: {"value": u.dx(0)}, {}, r"`: u has no dx: write u.grad\[0\], or u.grad\[i, 0\] of"),
    (lambda u: {"value": u.gradient}, {}, "`: u has no gradient: did you mean grad?"),
    (lambda u: {"value": u[0] * 1.0}, {}, "u has one component: write u without an index"),
    (lambda u: {"value": u.grad[0][0]}, {}, "a scalar is indexed: leave out the index"),
    (lambda u, k: {"value": k[0] * u}, SCALAR, "k is a scalar, of shape (): write k without an"),
    (lambda u, k: {"grad": [e * u for e in k]}, SCALAR, "k is a scalar, of shape (): write k"),
    (lambda u, k: {"grad": k.T * u.grad}, SCALAR, "k is a scalar, which has no T: use"),
    (lambda u, k: {"grad": k.grad * u}, SCALAR, "k is a scalar, which has no grad: give it as a"),
    (lambda u, k: {"value": k.value * u}, SCALAR, "k is a scalar, which has no value: leave out"),
    (lambda u, c: {"grad": c.value @ u.grad}, MATRIX, "only a field has .value, a coefficient"),
    (lambda u, k: {"grad": k @ u.grad}, SCALAR, "one of these is a scalar: use *"),
    (lambda u: {"value": len(u) * u}, {}, "u has one component"),
    (lambda u: {"value": u()}, {}, "`: a symbol is not callable: it stands for a number"),
    (lambda u, k: {"value": len(k) * u}, SCALAR, "`: a symbol has no len(): it stands for"),
    (lambda u, x: {"value": x[7] * u}, {}, "IndexError"),
    (lambda u, c: {"grad": c @ np.ones(5) * u.grad}, MATRIX, "ValueError"),
    (lambda u: {"value": u + "one"}, {}, "Error"),
    (lambda: {"value": 0.0}, {}, "takes 0 arguments: give it one for each field, 1"),
    (lambda u, k: {"value": k * u}, {}, "no coefficient 'k' is given: pass k=..."),
    (lambda u, v: {"value": u * v}, {}, "there is no test function: return what multiplies it"),
    (lambda u, n: {"value": u * n[0]}, {}, "there is one over faces: boundary=... or faces=..."),
    (lambda u: {"value": u}, MATRIX, "takes no coefficient 'c'"),
    (lambda u: [u], {}, "returned list"),
    (lambda u: {"flux": u}, {}, "returned ['flux']"),
    (lambda u: {}, {}, "returned []"),
    (lambda u: {"value": u.grad}, {}, '"value" of shape (2,)'),
    (lambda u: {"grad": u}, {}, '"grad" of shape ()'),
    (lambda u: {"value": "one"}, {}, "a symbol is combined with a str"),
]
"""Functions, shapes of their coefficients, and what is said of them."""


def refusal(function, coefficients):
    with pytest.raises(TraceError) as caught:
        trace(function, 2, {"u": 1}, {"u": 1}, coefficients)
    assert isinstance(caught.value, FemopsError)
    return str(caught.value)


def place(number):
    """A line of this file, as messages name it."""
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[number - 1]
    return f"{Path(__file__).name}, line {number}, `{line.strip()}`"


@pytest.mark.parametrize(("function", "coefficients", "message"), REFUSED)
def test_errors_name_the_line(function, coefficients, message):
    text = refusal(function, coefficients)
    assert message in text
    assert place(function.__code__.co_firstlineno) in text


def asks(u, x):
    scale = 1.0 if x[0] > 0.5 else 2.0
    return {"value": scale * u}


def calls(u):
    return {"value": helper(u.grad[0])}


def helper(v):
    return float(v)


def test_errors_name_the_innermost_line():
    for function, inner, message in (
        (asks, asks, "femops.where"),
        (calls, helper, "numpy's functions, not math's"),
    ):
        text = refusal(function, {})
        assert message in text
        assert place(inner.__code__.co_firstlineno + 1) in text


def two_tests(u, p):
    return {"u": {"grad": p * np.eye(2)}, "p": {"value": u.div}}


def one_of_two(u, p) : return {"value": p}  # fmt: skip


def test_several_fields_and_tests():
    components = {"u": 2, "p": 1}
    traced = trace(two_tests, 2, components, components, {})
    assert [len(traced.tests[name].flat()) for name in components] == [6, 3]
    with pytest.raises(TraceError, match="dictionary with the keys u, p") as caught:
        trace(one_of_two, 2, components, components, {})
    assert "def one_of_two(u" in str(caught.value)


NOT_LINEAR = (
    lambda u: {"value": u * u},
    lambda u: {"value": abs(u)},
    lambda u: {"value": femops.maximum(u, 0.0)},
    lambda u: {"grad": u * u.grad},
    lambda u: {"value": u / (1.0 + u.grad[0])},
    lambda u: {"value": femops.where(u > 0.0, u, 2 * u)},
    lambda u: {"value": np.sin(u)},
    lambda u: {"value": u + femops.where(u > 0, 1.0, 0.0)},
)


def test_what_is_not_linear():
    affine = lambda u: {"value": u + 1.0}  # noqa: E731
    refused = [*((one, "not linear in u") for one in NOT_LINEAR), (affine, "does not depend on")]
    for function, message in refused:
        traced = trace(function, 2, {"u": 1}, {"u": 1}, {})
        with pytest.raises(TraceError, match=message):
            LinearQFunction(traced)
