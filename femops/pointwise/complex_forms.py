"""Complex forms as real forms of twice as many components.

A complex vector in memory is a real vector with real and imaginary part of each component one after
the other. A form that is linear over complex numbers becomes a real form on such vectors: its
function is called with complex symbols, made of pairs of real ones.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from inspect import signature
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import TraceError
from femops.pointwise.expressions.complex_symbols import ComplexSymbol, each
from femops.pointwise.expressions.graph import Graph, Node
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.sides import Argument, FieldSymbol, Objects, TwoSided
from femops.pointwise.trace import FormFunction, definition, name_of


@final
class RealFunction:
    """Function of a real form that calls the function of a complex form.

    It has the name and the signature of that function.
    """

    def __init__(
        self, function: FormFunction, tests: Mapping[str, int], dim: int, paired: frozenset[str]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._tests, self._dim, self._paired = function, tests, dim, paired

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function with complex symbols. Return its results as arrays of real symbols."""
        names = signature(self._function).parameters
        given = map(_complex_field, names, arguments)
        known = {name: _complex_known(name, v, name in self._paired) for name, v in named.items()}
        results = self._function(*given, **known)
        graph = _graph_of(arguments[0])
        if not isinstance(results, Mapping):
            return results  # the tracer names the error
        if len(self._tests) == 1:
            return self._real_parts(results, next(iter(self._tests.values())), graph)
        return {
            name: self._real_parts(part, self._tests[name], graph) if name in self._tests else part
            for name, part in results.items()
        }

    def _real_parts(self, part: Any, ncomp: int, graph: Graph, kind: str = "value") -> Any:
        """Result for one test function, as that of the real form.

        Dictionaries keep their keys. An array (ncomp, ...) becomes (2 ncomp, ...), with real and
        imaginary part of each component one after the other.
        """
        if part is None:
            return None  # zero
        if isinstance(part, Mapping):
            kinds = {key: key if key == "grad" else "value" for key in part}
            return {k: self._real_parts(one, ncomp, graph, kinds[k]) for k, one in part.items()}
        plain = (ncomp,) * (ncomp > 1) + (self._dim,) * (kind == "grad")
        array = np.asarray(part.value if isinstance(part, FieldSymbol) else part, dtype=object)
        where = f"{definition(self._function)}{name_of(self._function)}"
        if array.shape not in (plain, (1, *plain)[ncomp > 1 :]):
            raise TraceError(
                f'{where} returned a "{kind}" of shape {array.shape}: the test function needs '
                f"{plain}"
            )
        try:
            return _interleaved(array.reshape(ncomp, *plain[ncomp > 1 :]), graph)
        except TraceError as error:
            raise TraceError(f'{where}: in the "{kind}": {error}') from error


def check_complex_linear(step: LinearQFunction, function: FormFunction) -> None:
    """Raise unless the real form of a complex form's function commutes with multiplication by i."""
    table = _by_pairs(step)
    same = np.array_equal(table[:, 0, :, 0], table[:, 1, :, 1])
    if not same or not np.array_equal(table[:, 0, :, 1], -table[:, 1, :, 0]):
        raise TraceError(
            f"{definition(function)}the form is not linear over complex numbers: it has the "
            "conjugate, the real or imaginary part or the absolute value of a field. Write a real "
            "form on a Product of two spaces instead"
        )


def is_symmetric(step: LinearQFunction) -> bool:
    """True if the matrix D of a complex form equals its transpose, which is not conjugated."""
    table = _by_pairs(step)
    parts = table[:, 0, :, 0], table[:, 1, :, 0]
    return all(np.array_equal(part, part.T) for part in parts)


def _by_pairs(step: LinearQFunction) -> NDArray[np.int64]:
    """Structure of D, (outputs, 2, inputs, 2), by complex numbers and their two parts."""
    rows, columns = step.structure.shape
    return step.structure.reshape(rows // 2, 2, columns // 2, 2)


def _graph_of(field: Any) -> Graph:
    """Graph of the symbols of a real field."""
    one = field.minus if isinstance(field, TwoSided) else field
    node: Node = one.value[0]
    return node.graph


def _complex_known(name: str, value: Any, paired: bool) -> Any:
    """Complex symbols of a coefficient, a position, a normal or a length."""
    if isinstance(value, TwoSided):
        minus = _complex_known(name, value.minus, paired)
        same = np.array_equal(*(np.vectorize(id)(side) for side in (value.minus, value.plus)))
        return TwoSided.of_values(
            name, minus, minus if same else _complex_known(name, value.plus, paired)
        )
    array = np.asarray(value, dtype=object)
    if paired:
        return each(ComplexSymbol, array[..., 0], array[..., 1])
    return each(lambda node: ComplexSymbol.of(node.graph, node), array)


def _complex_field(name: str, field: Any) -> Any:
    """Complex field of half as many components as a real FieldSymbol or TwoSided field."""
    if isinstance(field, TwoSided):
        parts = ("minus", "plus", "jump", "mean")
        return TwoSided(
            name, *(_complex_field(f"{name}.{part}", getattr(field, part)) for part in parts)
        )
    values, slopes, grad = (
        each(ComplexSymbol, array[::2], array[1::2])
        for array in (field.value, field.reference_grad, field.grad)
    )
    return FieldSymbol(name, Argument(values, slopes), grad)


def _interleaved(table: Objects, graph: Graph) -> Objects:
    """Real and imaginary parts (2 ncomp, ...) of an array (ncomp, ...) of numbers and symbols."""
    out = np.empty((len(table), 2, *table.shape[1:]), dtype=object)
    for index in np.ndindex(table.shape):
        given: Any = table[index]
        entry = ComplexSymbol.of(graph, given.value if isinstance(given, FieldSymbol) else given)
        out[(index[0], 0, *index[1:])], out[(index[0], 1, *index[1:])] = entry.re, entry.im
    return out.reshape(-1, *table.shape[1:])
