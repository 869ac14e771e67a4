"""Operators of complex forms, from real forms on spaces of twice as many components."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal, TypeVar

import numpy as np

from femops.operators.complex_operator import ComplexOperator
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.complex_coefficients import paired
from femops.operators.operator import Operator
from femops.pointwise.complex_forms import RealFunction, check_complex_linear, is_symmetric
from femops.pointwise.trace import FormFunction
from femops.spaces.base import Space
from femops.spaces.functions import parts_of
from femops.spaces.product import Product
from femops.spaces.vectors import is_complex

ComplexType = Literal["complex128", "complex64"] | type[complex] | type[np.complexfloating[Any]]
"""Types of complex numbers, for type checkers."""
Maker = Callable[..., Operator]
Load = TypeVar("Load", bound=Callable[..., Any])


def complex_form(
    make: Maker,
    function: FormFunction,
    trial: Space | Product,
    test: Space | None,
    coefficients: Mapping[str, Any],
    options: Mapping[str, Any],
) -> ComplexOperator:
    """Build the operator of a complex form by the maker of real forms."""
    mesh, comm, target = trial.mesh, trial.comm, trial if test is None else test
    real = np.empty(0, options["dtype"]).real.dtype
    pairs = {name: paired(name, value, mesh, comm) for name, value in coefficients.items()}
    names = frozenset(name for name, (_, is_complex) in pairs.items() if is_complex)
    parts = target.spaces if isinstance(target, Product) else {"": target}
    tests = {name: space.ncomp for name, space in parts.items()}
    operator = make(
        RealFunction(function, tests, trial.dim, names) if callable(function) else function,
        trial.doubled,
        None if test is None else test.doubled,
        **{**options, "dtype": real},
        **{name: FormCoefficient(name, v, paired=is_pair) for name, (v, is_pair) in pairs.items()},
    )
    steps = [term.source.qfunction for _, term in operator.summands]
    for step in steps:
        check_complex_linear(step, function)
    symmetric = trial is target and all(map(is_symmetric, steps))
    return ComplexOperator(operator, (trial, target), names, symmetric=symmetric)


def complex_load(*names: str) -> Callable[[Load], Load]:
    """Decorate a load vector: with a complex ``dtype`` it takes complex values.

    The load vectors of real and imaginary parts are computed one after the other.
    """

    def decorated(load: Load) -> Load:
        @functools.wraps(load)
        def of_any(*given: Any, **named: Any) -> Any:
            if not is_complex(named.get("dtype", np.float64)):
                return load(*given, **named)
            arguments = signature(load).bind(*given, **named).arguments
            real = np.empty(0, named["dtype"]).real.dtype
            parts = []
            for part in (0, 1):
                values = {n: parts_of(arguments[n])[part] for n in names if _given(arguments, n)}
                parts.append(load(**{**arguments, **values, "dtype": real}))
            return parts[0] + 1j * parts[1]

        return of_any  # type: ignore[return-value]

    return decorated


def _given(arguments: Mapping[str, Any], name: str) -> bool:
    """True if an optional argument is there."""
    return arguments.get(name) is not None
