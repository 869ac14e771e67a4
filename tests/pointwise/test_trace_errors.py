"""Errors of forms that can't be traced: the line, and how to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import FemopsError, TraceError
from femops.pointwise import CoefficientShape, LinearQFunction, trace


def asks(u: Any, x: Any) -> dict[str, Any]:
    scale = 1.0 if x[0] > 0.5 else 2.0
    return {"value": scale * u}


def no_numpy(u: Any) -> dict[str, Any]:
    return {"value": np.arcsinh(u)}


def no_numpy_of_array(u: Any) -> dict[str, Any]:
    return {"value": u, "grad": np.cbrt(u.grad)}


def no_linalg(u: Any, c: Any) -> dict[str, Any]:
    return {"grad": np.linalg.inv(c) @ u.grad}


def no_div(u: Any) -> dict[str, Any]:
    return {"value": u.div}


def no_strain(u: Any) -> dict[str, Any]:
    return {"grad": u.sym_grad}


def no_attribute(u: Any) -> dict[str, Any]:
    return {"value": u.laplacian}


def no_like_it(u: Any) -> dict[str, Any]:
    return {"value": u.gradient}


def no_entry_of_a_field(u: Any) -> dict[str, Any]:
    return {"value": u[0] * 1.0}


def no_entry_of_a_value(u: Any) -> dict[str, Any]:
    return {"value": u.grad[0][0]}


def no_entry_of_a_scalar(u: Any, k: Any) -> dict[str, Any]:
    return {"value": k[0] * u}


def no_entries_of_a_scalar(u: Any, k: Any) -> dict[str, Any]:
    return {"grad": [entry * u for entry in k]}


def no_attribute_of_a_scalar(u: Any, k: Any) -> dict[str, Any]:
    return {"grad": k.T * u.grad}


def no_matrix(u: Any, k: Any) -> dict[str, Any]:
    return {"grad": k @ u.grad}


def no_components(u: Any) -> dict[str, Any]:
    return {"value": len(u) * u}


def no_call(u: Any) -> dict[str, Any]:
    return {"value": u()}


def no_length(u: Any, k: Any) -> dict[str, Any]:
    return {"value": len(k) * u}


def no_entry(u: Any, x: Any) -> dict[str, Any]:
    return {"value": x[7] * u}


def no_product(u: Any, c: Any) -> dict[str, Any]:
    return {"grad": c @ np.ones(5) * u.grad}


def no_text(u: Any) -> dict[str, Any]:
    return {"value": u + "one"}


def inner_call(u: Any) -> dict[str, Any]:
    return {"value": helper(u.grad[0])}


def helper(v: Any) -> float:
    return float(v)


def no_fields() -> dict[str, Any]: return {}  # fmt: skip


def wants_more(u: Any, other: Any) -> dict[str, Any]: return {"value": other * u}  # fmt: skip


def takes_none(u: Any) -> dict[str, Any]: return {"value": u}  # fmt: skip


def returns_list(u: Any) -> Any: return [u]  # fmt: skip


def returns_wrong_key(u: Any) -> Any: return {"flux": u}  # fmt: skip


def returns_nothing(u: Any) -> Any: return {}  # fmt: skip


def returns_wrong_value(u: Any) -> Any: return {"value": u.grad}  # fmt: skip


def returns_wrong_grad(u: Any) -> Any: return {"grad": u}  # fmt: skip


def returns_text(u: Any) -> Any: return {"value": "one"}  # fmt: skip


SCALAR = {"k": CoefficientShape(())}
MATRIX = {"c": CoefficientShape((2, 2))}


@pytest.mark.parametrize(
    ("function", "coefficients", "source", "message"),
    [
        (asks, {}, "scale = 1.0 if x[0] > 0.5 else 2.0", "femops.where"),
        (no_numpy, {}, 'return {"value": np.arcsinh(u)}', "numpy.arcsinh has no meaning"),
        (no_numpy_of_array, {}, "np.cbrt(u.grad)", "numpy.cbrt has no meaning"),
        (no_linalg, MATRIX, "np.linalg.inv(c) @ u.grad", "femops.inv"),
        (no_div, {}, 'return {"value": u.div}', "ncomp = dim"),
        (no_strain, {}, 'return {"grad": u.sym_grad}', "ncomp = dim"),
        (
            no_attribute,
            {},
            'return {"value": u.laplacian}',
            "`: u has no laplacian: a field has value, grad, div, sym_grad, reference_grad",
        ),
        (no_like_it, {}, "u.gradient", "`: u has no gradient: did you mean grad?"),
        (no_entry_of_a_field, {}, "u[0]", "u has one component: write u without an index"),
        (no_entry_of_a_value, {}, "u.grad[0][0]", "a scalar is indexed: leave out the index"),
        (no_entry_of_a_scalar, SCALAR, "k[0]", "k is a scalar, of shape (): write k without an"),
        (no_entries_of_a_scalar, SCALAR, "in k", "k is a scalar, of shape (): write k without an"),
        (no_attribute_of_a_scalar, SCALAR, "k.T * u.grad", "k is a scalar, which has no T: use"),
        (no_matrix, SCALAR, "k @ u.grad", "one of these is a scalar: use *"),
        (no_components, {}, "len(u)", "u has one component"),
        (no_call, {}, "u()", "`: a symbol is not callable: it stands for a number"),
        (no_length, SCALAR, "len(k)", "`: a symbol has no len(): it stands for a number"),
        (no_entry, {}, 'return {"value": x[7] * u}', "IndexError"),
        (no_product, MATRIX, "c @ np.ones(5) * u.grad", "ValueError"),
        (no_text, {}, 'return {"value": u + "one"}', "Error"),
        (inner_call, {}, "return float(v)", "numpy's functions, not math's"),
        (no_fields, {}, "def no_fields()", "takes 0 arguments, there are 1 fields"),
        (wants_more, {}, "def wants_more(u", "no coefficient 'other' is given: pass other=..."),
        (takes_none, MATRIX, "def takes_none(u", "takes no coefficient 'c'"),
        (returns_list, {}, "return [u]", "returned list"),
        (returns_wrong_key, {}, 'return {"flux": u}', "returned ['flux']"),
        (returns_nothing, {}, "return {}", "returned []"),
        (returns_wrong_value, {}, 'return {"value": u.grad}', '"value" of shape (2,)'),
        (returns_wrong_grad, {}, 'return {"grad": u}', '"grad" of shape ()'),
        (returns_text, {}, 'return {"value": "one"}', "a symbol is combined with a str"),
    ],
    ids=lambda v: v.__name__ if callable(v) else None,
)
def test_errors_name_the_line(
    function: Any, coefficients: dict[str, CoefficientShape], source: str, message: str
) -> None:
    with pytest.raises(TraceError) as caught:
        trace(function, 2, {"u": 1}, {"u": 1}, coefficients)
    text = str(caught.value)
    assert isinstance(caught.value, FemopsError)
    assert source in text
    assert message in text
    number = int(text.split("line ", 1)[1].split(",", 1)[0])
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert f"{Path(__file__).name}, line {number}, `{lines[number - 1].strip()}`" in text


def two_tests(u: Any, p: Any) -> Any:
    return {"u": {"grad": p * np.eye(2)}, "p": {"value": u.div}}


def one_of_two(u: Any, p: Any) -> Any: return {"value": p}  # fmt: skip


def test_several_fields_and_tests() -> None:
    components = {"u": 2, "p": 1}
    traced = trace(two_tests, 2, components, components, {})
    assert [len(traced.tests[name].flat()) for name in components] == [6, 3]
    with pytest.raises(TraceError, match="dictionary with the keys u, p") as caught:
        trace(one_of_two, 2, components, components, {})
    assert "def one_of_two(u" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda u: {"value": u * u}, "not linear in u"),
        (lambda u: {"value": abs(u)}, "not linear in u"),
        (lambda u: {"value": femops.maximum(u, 0.0)}, "not linear in u"),
        (lambda u: {"grad": u * u.grad}, "not linear in u"),
        (lambda u: {"value": u / (1.0 + u.grad[0])}, "not linear in u"),
        (lambda u: {"value": femops.where(u > 0.0, u, 2 * u)}, "not linear in u"),
        (lambda u: {"value": np.sin(u)}, "not linear in u"),
        (lambda u: {"value": u + femops.where(u > 0, 1.0, 0.0)}, "not linear in u"),
        (lambda u: {"value": u + 1.0}, "does not depend on the field"),
    ],
)
def test_what_is_not_linear(function: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        LinearQFunction(trace(function, 2, {"u": 1}, {"u": 1}, {}))
