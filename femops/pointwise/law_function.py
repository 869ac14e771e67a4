"""Laws as functions that forms call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np

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
        functools.update_wrapper(self, function, updated=())  # without attributes of Numba
        self.law, self.function, self._several = law, function, several
        _made[law.name] = self

    def __call__(self, *arguments: Any) -> Any:
        law = self.law
        if len(arguments) != law.inputs:
            raise TraceError(f"{law.title} takes {law.inputs} numbers, {len(arguments)} are given")
        if not any(_is_symbol(one) for one in arguments):
            found: Sequence[Any] = [one[()] for one in evaluated(law, *arguments)]
        else:
            values = [self._value(k, one) for k, one in enumerate(arguments)]
            graph = next(one.graph for one in values if isinstance(one, Node))
            found = graph.results(law, [graph.node(one) for one in values])
        return tuple(found) if self._several else found[0]

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


def raised(law: Law, numbers: Sequence[float]) -> Exception | None:
    """The error that a law raises for some numbers; None if it raises none or is gone."""
    made = _made.get(law.name)
    if made is None:
        return None
    # a function that the user's function calls may have no checks of indices of its own
    if np.isnan(evaluated(law.places, *numbers)).any():
        return IndexError("an index is outside of a table")
    try:
        made.function(*numbers)
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return error
    return None


def _is_symbol(given: Any) -> bool:
    array = isinstance(given, np.ndarray) and given.dtype == object
    return array or isinstance(given, Symbolic | ComplexSymbol)
