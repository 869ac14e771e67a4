"""Laws as functions that forms call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from femops.errors import TraceError
from femops.pointwise.expressions.complex_symbols import ComplexSymbol
from femops.pointwise.expressions.graph import REAL, Node, Symbolic
from femops_common.arguments import type_name
from femops_kernels.cpu.laws import evaluated
from femops_kernels.laws.law import Law

_made: WeakValueDictionary[str, LawFunction] = WeakValueDictionary()


@final
class LawFunction:
    """A law as a function: of symbols in a form, and of numbers or arrays elsewhere.

    It returns a number, or a tuple of them if the user's function returns a tuple.
    """

    def __init__(self, law: Law, function: Callable[..., Any], *, several: bool) -> None:
        functools.update_wrapper(self, getattr(function, "py_func", function))
        self.law, self.function, self._several = law, function, several
        _made[law.name] = self

    def __call__(self, *arguments: Any) -> Any:
        law = self.law
        if len(arguments) != law.inputs:
            raise TraceError(f"{law.title} takes {law.inputs} numbers, {len(arguments)} are given")
        if not any(_is_symbol(one) for one in arguments):
            numbers = [self._array(k, one) for k, one in enumerate(arguments)]
            try:
                np.broadcast_shapes(*map(np.shape, numbers))
            except ValueError as error:
                raise TraceError(f"arguments of {law.title} do not fit: {error}") from error
            found: Sequence[Any] = [one[()] for one in evaluated(law, *numbers)]
        else:
            values = [self._value(k, one) for k, one in enumerate(arguments)]
            graph = next(one.graph for one in values if isinstance(one, Node))
            found = graph.results(law, [graph.node(one) for one in values])
        return tuple(found) if self._several else found[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.law, self.function, self._several)

    def __deepcopy__(self, known: Any) -> LawFunction:
        return self  # nothing of it changes

    def _array(self, k: int, given: Any) -> Any:
        """An argument as an array of real numbers."""
        try:
            array = np.asanyarray(given)
        except ValueError:  # of lists with several lengths
            array = np.array(None)
        if array.dtype.kind in "biuf":
            return array
        what = array.dtype if isinstance(given, np.ndarray) else type_name(type(given))
        raise TraceError(f"argument {k + 1} of {self.law.title} is {what}: give real numbers")

    def _value(self, k: int, given: Any) -> Any:
        """An argument as a symbol or a number."""
        value = np.positive(given) if isinstance(given, Symbolic) else given
        if isinstance(value, np.ndarray) and value.size == 1:
            value = value.item()
        if isinstance(value, (Node, *REAL)) and not isinstance(value, bool):
            return value
        if isinstance(value, np.ndarray):
            what = f"an array of shape {value.shape}: give its entries one by one"
        elif isinstance(value, ComplexSymbol):
            what = "a complex number: give its real and its imaginary part"
        else:
            what = f"{type_name(type(value))}: give a number"
        raise TraceError(f"argument {k + 1} of {self.law.title} is {what}")


def _again(law: Law, function: Callable[..., Any], several: bool) -> LawFunction:
    """Make a law function from a copy of its parts, as from another process."""
    return LawFunction(law, function, several=several)


def failures(law: Law, *numbers: Any) -> NDArray[np.bool_]:
    """Where a law fails for arrays of numbers."""
    return np.isnan(evaluated(law.failure(), *numbers)[0])


def raised(law: Law, numbers: Sequence[float]) -> Exception:
    """The error with which a law fails for some numbers."""
    if np.isnan(evaluated(law.failure(of_tables=True), *numbers)[0]):
        # the function itself would read memory that is no table, or never end
        return IndexError("an index is outside of a table, or a loop does not end")
    made = _made.get(law.name)
    try:
        if made is not None:
            made.function(*numbers)
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return error
    return RuntimeError("it raises an error")  # of a function that is gone, or of derivatives


def _is_symbol(given: Any) -> bool:
    array = isinstance(given, np.ndarray) and given.dtype == object
    return array or isinstance(given, Symbolic | ComplexSymbol)
