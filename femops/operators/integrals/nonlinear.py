"""Summands of a residual: integrals of functions that may be nonlinear in their fields."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Rule
from femops.errors import OperatorError
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.constraints import product_of_factors
from femops.operators.integrals.history import History
from femops.operators.integrals.integral import STATE, Integral, Made, failing
from femops.operators.integrals.ranges import check_weights, closes_nonlinear
from femops.operators.integrals.state import State
from femops.operators.integrals.term import Term
from femops.pointwise.expressions.graph import Node
from femops.pointwise.expressions.identities import identities
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.qdata_split import NonlinearQFunction
from femops.pointwise.sides import Argument
from femops.pointwise.trace import (
    CoefficientShape,
    FormFunction,
    Trace,
    differentiated,
    linearised,
    name_of,
    trace,
)


@final
@dataclass(frozen=True)
class Functionals:
    """Names of a residual's functionals: integrals, and minima over quadrature points."""

    integrals: tuple[str, ...] = ()
    minima: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of the kernel's components."""
        return (*self.minima, *self.integrals)


NONE = Functionals()
ENERGY, NEXT = "@energy", "@next"


@final
class NonlinearIntegral:
    """A function of fields, integrated with test functions, and its functionals."""

    def __init__(
        self,
        function: FormFunction,
        sides: Arguments,
        functionals: Functionals,
        quadrature: Rule,
        coefficients: Mapping[str, FormCoefficient],
        kind: tuple[np.dtype[Any], int],
        *,
        of_energy: bool = False,
        level: str = "partial",
        symmetric: bool = False,
    ) -> None:
        self._level, self._symmetric = level, symmetric
        self.functionals, self.of_energy, self.factor = functionals, of_energy, 1.0
        self.kind, (self.dtype, self.width) = kind, kind
        self.form = Integral(function, sides, sides, quadrature, coefficients)
        self._read()  # traced now, because globals that the function reads may change later
        check_weights(self.form, self.dtype)
        self._close()
        self._setups: dict[Any, Any] = {}  # setups of Jacobians, see `State`

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without compiled code. Copies read that code from the cache."""
        return {k: v for k, v in self.__dict__.items() if k != "term"}

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.form.name

    @property
    def label(self) -> str:
        return self.form.label

    def _read(self) -> None:
        """Trace the function. Fields on the boundary have derivatives only if it uses any."""
        self._trace = self._traced()
        if self.form.domain.has_normals:
            sides = self.form.fields.with_slopes(self._trace.has_slopes)
            self.form = replace(self.form, fields=sides, tests=sides)
            self._trace = self._trace if sides.have_slopes else self._trace.of_values

    def _close(self) -> None:
        """Close the form if its type needs that, see `Known`. Collective."""
        own = {name: t for name, t in self._trace.tests.items() if not name.startswith(NEXT)}
        traced = NonlinearQFunction(replace(self._trace, tests=own))
        closed = closes_nonlinear(replace(self.form, traced=traced), self.dtype)
        if closed != self.form.closed:
            self.form = replace(self.form, closed=closed)

    @property
    def is_current(self) -> bool:
        """True if a new trace of the function would equal the old one. It may read variables."""
        fresh = self._traced()
        if self.form.domain.has_normals and not self.form.fields.have_slopes:
            fresh = fresh.of_values
        return fresh.has_results_of(self._trace)

    def _traced(self) -> Trace:
        functionals, form = self.functionals, self.form
        fields, shapes = form.fields.components, form.coefficient_shapes()
        dim, domain = form.geometry.dim, form.domain
        call = functools.partial(trace, boundary=domain.has_normals, two_sided=domain.two_sided)
        if self.of_energy:
            return differentiated(call(form.function, dim, fields, {ENERGY: 1}, shapes), ENERGY)
        outputs, function = fields | dict.fromkeys(functionals.names, 1), form.function
        names, next_values = tuple(form.fields.parts.spaces), self._next_values(shapes)
        if len(names) + len(functionals.names) + len(next_values) > 1:
            function = _complete(function, names, functionals.names, next_values)
        plain = {*functionals.minima, *next_values}
        return call(function, dim, fields, outputs | next_values, shapes, unweighted=plain)

    @property
    def histories(self) -> dict[str, History]:
        """Histories among the coefficients, by name."""
        given = self.form.coefficients.items()
        return {name: one.history for name, one in given if one.history is not None}

    def _next_values(self, shapes: Mapping[str, CoefficientShape]) -> dict[str, int]:
        """Outputs of the trace that are the next values of histories, and their components."""
        form = self.form
        for name, one in self.histories.items():
            if not form.domain.on_elements or not one.matches(form.quadrature):
                raise OperatorError(
                    f"the history {name} is at other points than {self.name}: make it by "
                    "femops.numba.history(V, quadrature=...) with V and the rule of the residual, "
                    "which has to be over elements"
                )
        return {f"{NEXT}({name})": math.prod(shapes[name].shape) for name in self.histories}

    def next_values(self, state: State) -> dict[str, NDArray[np.float64]]:
        """Next values (ne, points, ncomp) of histories at a state.

        A `LawError` is raised where a law fails.
        """
        form = self.at(state)
        nodes = {name: self._trace.tests[f"{NEXT}({name})"].flat() for name in self.histories}
        geometry, shapes = form.geometry, form.coefficient_shapes()
        counts = {name: math.prod(shapes[name].shape) for name in nodes}
        size = geometry.num_elements, geometry.num_points
        found = {name: np.empty((*size, ncomp)) for name, ncomp in counts.items()}
        for block in geometry:
            for name, wanted in nodes.items():
                values = form.values(wanted[: counts[name]], block, check=False)
                if not np.isfinite(values).all():
                    form.check_laws(self.calls, [block])
                    raise OperatorError(
                        f"{self.name}: the next values of the history {name} are not finite"
                    )
                found[name][block.start : block.stop] = values
        return found

    @cached_property
    def _tests(self) -> list[str]:
        """Names of the test functions with a factor that is not zero."""
        tests, wanted = self._trace.tests, self.form.tests.spaces
        return [n for n in wanted if not all(o.is_constant(0.0) for o in tests[n].flat())]

    @property
    def is_zero(self) -> bool:
        """True if there are no functionals, and all factors of test functions are zero."""
        return not (self._tests or self.functionals.names)

    @cached_property
    def _scaled(self) -> Trace:
        """Trace with the factor applied."""
        if self.factor == 1.0:
            return self._trace
        tests = {
            name: Argument(self.factor * test.values, self.factor * test.derivatives)
            if name in self.form.tests.spaces
            else test
            for name, test in self._trace.tests.items()
        }
        return replace(self._trace, tests=tests)

    def times(self, factor: float) -> NonlinearIntegral:
        """Copy of the integral times a factor. Functionals are not multiplied.

        The factor goes into the trace. A kernel would scale the fields instead, which is right for
        linear functions only.
        """
        twin = copy(self)
        twin.factor, twin._setups = product_of_factors(factor, self.factor, self.dtype), {}
        for name in ("_scaled", "_swept", "_linearised", "_qfunction", "_derivative"):
            twin.__dict__.pop(name, None)
        return twin

    @cached_property
    def _swept(self) -> NonlinearQFunction:
        """Q-function of the integral and the functionals."""
        names = [*self._tests, *self.functionals.names]
        tests = {name: self._scaled.tests[name] for name in names}
        return NonlinearQFunction(replace(self._scaled, tests=tests))

    @cached_property
    def term(self) -> Term:
        """Term that computes the integral and the functionals in one sweep."""
        form = replace(self.form, tests=self.form.tests.only(self._tests), traced=self._swept)
        counts = len(self.functionals.minima), len(self.functionals.integrals)
        return Term.of_residual(form, self.dtype, self.width, *counts, level=self._level)

    @cached_property
    def calls(self) -> list[Node]:
        """Calls of laws that may fail."""
        return failing(node for test in self._trace.tests.values() for node in test.flat())

    def check_laws(self, state: State) -> None:
        """Raise a `LawError` if a law fails at a point of this rank."""
        if self.calls:
            form = self.at(state)
            form.check_laws(self.calls, form.geometry)

    def check_slopes(self, state: State) -> None:
        """Raise a `LawError` if the derivative of a law fails at a point of this rank."""
        if not self.is_constant:
            form = self.derivative(lambda: state)
            calls = failing(form.qfunction.entries.flat)
            form.check_laws(calls, form.geometry if calls else ())

    def at(self, state: State) -> Integral:
        """The integral at a state, to evaluate nodes of its trace at points."""
        static = dict(self._trace.static)
        for field, name in self.states.items():
            point = self._trace.fields[field]
            static |= {name: point.values, f"d{name}": point.derivatives}
        traced = NonlinearQFunction(replace(self._trace, static=static))
        return replace(self.form, traced=traced, state=state.of(self.states.values(), {}))

    # --- derivative ------------------------------------------------------------------------------

    @property
    def states(self) -> dict[str, str]:
        """For each field, the name of its values among the static inputs of the derivative."""
        return {name: f"{STATE}({name})" for name in self.form.fields.spaces}

    @cached_property
    def _linearised(self) -> Trace:
        tests = {name: self._scaled.tests[name] for name in self.form.tests.spaces}
        scaled = replace(self._scaled, tests=tests)
        return linearised(scaled, self.states, symmetric=self._symmetric)

    @cached_property
    def is_constant(self) -> bool:
        """True if the integral does not depend on any field."""
        outputs = [node for test in self._linearised.tests.values() for node in test.flat()]
        return all(identity.zero for identity in identities(outputs))

    @cached_property
    def _qfunction(self) -> LinearQFunction:
        """Linear q-function of the derivative."""
        return LinearQFunction(self._linearised)

    @cached_property
    def _derivative(self) -> tuple[Integral, list[str]]:
        """Form of the derivative, and names of the state's fields that it uses."""
        form = replace(self.form, traced=self._qfunction).reduced
        used = form.qfunction.used()
        return form, [name for name in self.states.values() if {name, f"d{name}"} & {*used}]

    def derivative(self, state: Callable[[], State]) -> Integral:
        """Form of the derivative at a state. ``state`` is called only if the form uses a field."""
        form, used = self._derivative
        return replace(form, state=state().of(used, self._setups)) if used else form

    def updated(self, values: Mapping[str, Any], made: Made) -> NonlinearIntegral:
        """Copy of the integral with new values of coefficients; see `Integral.replaced`.

        Names of coefficients that the integral does not have are ignored.
        """
        mine = {name: value for name, value in values.items() if name in self.form.coefficients}
        if not mine:
            return self
        twin = copy(self)
        twin.form, twin._setups = self.form.replaced(mine, made), {}
        twin.__dict__.pop("_derivative", None)  # it has the old coefficients
        shapes = twin.form.coefficient_shapes()
        same = twin._next_values(shapes).keys() == self._next_values(shapes).keys()
        if not same or shapes != self.form.coefficient_shapes():
            for name in ("_tests", "_scaled", "_swept", "_linearised", "is_constant", "_qfunction"):
                twin.__dict__.pop(name, None)
            twin._read()
        twin._close()
        return twin


def _complete(
    function: FormFunction,
    fields: tuple[str, ...],
    functionals: Sequence[str],
    next_values: Mapping[str, int],
) -> Callable[..., Any]:
    """Wrap a function so that it returns an entry for each field, functional and history."""

    @functools.wraps(function)
    def complete(*args: Any, **options: Any) -> Any:
        results = function(*args, **options)
        if not isinstance(results, dict):
            return results
        missing = [name for name in functionals if name not in results]
        if missing:
            raise OperatorError(f"{name_of(function)} returned no {missing[0]!r}: return it too")
        found = {name: {"value": results[name]} for name in functionals}
        found |= _of_histories(function, results.get("history", {}), next_values)
        results = {k: v for k, v in results.items() if k != "history" or not next_values}
        if len(fields) == 1:  # factors of its test function stand beside the functionals
            results = {fields[0]: {k: v for k, v in results.items() if k not in found}}
        return {key: {} for key in fields} | results | found

    return complete


def _of_histories(
    function: FormFunction, results: Any, next_values: Mapping[str, int]
) -> dict[str, Any]:
    """Entries of the next values of histories in the result of a function."""
    found, names = {}, [output[len(NEXT) + 1 : -1] for output in next_values]
    unknown = [one for one in results if one not in names] if isinstance(results, Mapping) else []
    if unknown and names:
        raise OperatorError(
            f"{name_of(function)} returned next values of {unknown[0]!r}, which is no history: its "
            f"histories are {', '.join(names)}"
        )
    for name, (output, ncomp) in zip(names, next_values.items(), strict=True):
        value = results.get(name) if isinstance(results, Mapping) else None
        flat = np.asarray(value, dtype=object).reshape(-1)
        if value is None or len(flat) != ncomp:
            raise OperatorError(
                f"{name_of(function)} takes the history {name!r}: return its next values too, "
                f'{{..., "history": {{"{name}": ...}}}}, an array of {ncomp} entries'
            )
        found[output] = {"value": flat if ncomp > 1 else flat[0]}
    return found
