"""Symbols of fields and coefficients, which have two sides on faces between elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from femops.errors import NoAttributeError, TraceError
from femops.pointwise.expressions.complex_symbols import called
from femops.pointwise.expressions.graph import Node, Symbolic, symbol_array
from femops.pointwise.expressions.tensors import maximum, minimum
from femops_common.hints import OF_FIELDS, did_you_mean

Objects = np.ndarray[Any, np.dtype[Any]]
_OF_FIELDS = ("value", "grad", "div", "sym_grad", "reference_grad")


@final
@dataclass(frozen=True)
class Argument:
    """Nodes of a field (input of a q-function), or of a test function's factors (output)."""

    values: Objects  # (ncomp,)
    # (ncomp, dim): derivatives along reference directions, or the factors of these derivatives
    derivatives: Objects

    def flat(self) -> list[Node]:
        """All nodes: by slot (value, then x-, y-, z-derivative), then by component."""
        return [*self.values.flat, *self.derivatives.T.flat]

    @staticmethod
    def joined(parts: Sequence[Argument]) -> Argument:
        """Argument with the components of several arguments, concatenated."""
        values = np.concatenate([part.values for part in parts])
        return Argument(values, np.concatenate([part.derivatives for part in parts]))

    @staticmethod
    def of_flat(nodes: list[Node], ncomp: int) -> Argument:
        """Argument from the nodes that `flat` returns."""
        values, slopes = (np.array(part, dtype=object) for part in (nodes[:ncomp], nodes[ncomp:]))
        return Argument(values, slopes.reshape(-1, ncomp).T)


@final
class FieldSymbol(Symbolic):
    """A field at a point, with its derivatives. In arithmetic it stands for its value.

    `grad` (dim,): ``grad[i, j]`` is the derivative of component i along j. `reference_grad` (dim,):
    derivatives along the directions of the reference element.  On a boundary the directions in the
    face come first, and the inward direction is last.

    Shapes: `value` (ncomp,).
    """

    def __init__(self, name: str, argument: Argument, grad: Objects) -> None:
        self._name = name
        self._grad: Objects = symbol_array(grad)
        value, slopes = map(symbol_array, (argument.values, argument.derivatives))
        self.value: Any = value[0] if len(value) == 1 else value
        self.reference_grad: Any = slopes[0] if len(slopes) == 1 else slopes

    @property
    def grad(self) -> Objects:
        """Gradient (dim,) or (ncomp, dim) in space."""
        return self._grad[0] if len(self._grad) == 1 else self._grad

    @property
    def div(self) -> Any:
        """Divergence. The field must have as many components as dimensions."""
        return np.trace(self._square())

    @property
    def sym_grad(self) -> Objects:
        """Symmetric part (dim, dim) of the gradient (strain). ncomp must be dim."""
        matrix = self._square()
        return np.asanyarray(0.5 * (matrix + matrix.T))

    def _square(self) -> Objects:
        matrix = np.atleast_2d(self.grad)  # in 1-D the gradient of a scalar is a matrix too
        if matrix.shape[0] != matrix.shape[1]:
            raise TraceError(
                f"{self._name} does not have as many components as dimensions (its gradient has "
                f"shape {self.grad.shape}): make the space with ncomp = dim"
            )
        return matrix

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i.value if isinstance(i, FieldSymbol) else i for i in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(function, args, kwargs)

    def clip(self, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:  # noqa: ARG002
        """See `numpy.clip`, which calls this."""
        low = self.value if a_min is None else maximum(self.value, a_min)
        return low if a_max is None else minimum(low, a_max)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Objects:
        return np.asarray(self.value, dtype=object)

    if not TYPE_CHECKING:  # type checkers must see that there are no other attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error that lists the attributes of a field."""
            if name.startswith("_"):  # NumPy's names, and attributes that a new copy lacks
                raise AttributeError(name)
            known = OF_FIELDS.get(name, f"a field has {', '.join(_OF_FIELDS)}")
            hint = did_you_mean(name, _OF_FIELDS) or f": {known}"
            raise NoAttributeError(f"{self._name} has no {name}{hint}")

    def __getitem__(self, index: Any) -> Any:
        return self._components()[index]

    def __len__(self) -> int:
        return len(self._components())

    def _components(self) -> Objects:
        if not isinstance(self.value, np.ndarray):
            raise TraceError(f"{self._name} has one component: write {self._name} without an index")
        return np.asanyarray(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)


SIDES = ("-", "+")
"""Ends of the names of a field's sides in a trace: the minus side, the plus side."""

PARTS = ("minus", "plus", "jump", "mean")
"""Parts of a field or test function on a face between elements."""

_OF_ARRAYS = ("T", "ndim", "shape", "size")
_WEIGHTS = {"minus": (1.0, 0.0), "plus": (0.0, 1.0), "jump": (1.0, -1.0), "mean": (0.5, 0.5)}
"""Factors of both sides in each part."""


def sided(name: str) -> tuple[str, str]:
    """Names of both sides of a field or test function."""
    return name + SIDES[0], name + SIDES[1]


def base_name(name: str) -> str:
    """Name of the field that a name of a side belongs to. Other names are returned unchanged."""
    return name[:-1] if name.endswith(SIDES) else name


def shown_name(name: str) -> str:
    """Name of a field as a form's function writes it: ``u.minus`` for ``u-``."""
    base = base_name(name)
    return name if base == name else f"{base}.{PARTS[is_plus(name)]}"


def is_plus(name: str) -> bool:
    """True if a name of a field, or of a state's field, is that of the plus side."""
    return name.rstrip(")").endswith(SIDES[1])


def is_side(name: str) -> bool:
    """True if a name of a field, or of a state's field, is that of one side."""
    return name.rstrip(")").endswith(SIDES)


@final
class TwoSided(Symbolic):
    """A field, coefficient or length on a face between elements.

    In arithmetic it stands for its value if that is the same on both sides.
    """

    __slots__ = ("_name", "jump", "mean", "minus", "plus")

    def __init__(self, name: str, minus: Any, plus: Any, jump: Any, mean: Any) -> None:
        self._name = name
        self.minus, self.plus, self.jump, self.mean = minus, plus, jump, mean

    @staticmethod
    def of_values(name: str, minus: Any, plus: Any) -> TwoSided:
        """Make a coefficient or length from its values on both sides."""
        return TwoSided(name, minus, plus, minus - plus, 0.5 * (minus + plus))

    @property
    def _single(self) -> Any:
        """The value, if it is the same on both sides."""
        a, b = (np.asarray(side, dtype=object) for side in (self.minus, self.plus))
        if not all(x is y for x, y in zip(a.flat, b.flat, strict=True)):
            raise TraceError(
                f"{self._name} has two sides here: write {self._name}.minus, .plus, .jump or .mean"
            )
        return self.minus

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i._single if isinstance(i, TwoSided) else i for i in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(function, args, kwargs)

    def clip(self, *limits: Any, **options: Any) -> Any:
        """See `numpy.clip`, which calls this."""
        return np.clip(self._single, *limits, **options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._single, dtype=object)

    def __getitem__(self, index: Any) -> Any:
        return self._single[index]

    def __len__(self) -> int:
        return len(self._single)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # NumPy's names
            raise AttributeError(name)
        if name in _OF_ARRAYS and isinstance(self.minus, np.ndarray):
            return getattr(self._single, name)
        if name in ("value", "grad", "div", "sym_grad", "reference_grad"):
            hint = f": it has two sides here, write {self._name}.minus.{name}, .plus, .jump, .mean"
        else:
            hint = did_you_mean(name, PARTS) or f": on a face it has {', '.join(PARTS)}"
        raise NoAttributeError(f"{self._name} has no {name}{hint}")


def combined(part: str, minus: Any, plus: Any) -> Any:
    """The jump or mean of two values or arrays of symbols."""
    a, b = _WEIGHTS[part]
    return a * minus + b * plus


def factors_by_side(
    results: Mapping[str, Any], name: str, explain: str, shaped: Callable[[Any, str], Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Factors of a test function on both sides, from those of its parts."""
    if not isinstance(results, Mapping) or not results.keys() <= {*PARTS}:
        got = sorted(map(str, results)) if isinstance(results, Mapping) else type(results).__name__
        raise TraceError(
            f'{explain} returned {got} for {name}: return {{"jump": ...}}, "mean", "minus", "plus" '
            "or several of them, what multiplies these parts of the test function. Each is a "
            'value or a dict of "value" and "grad"'
        )
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for part, given in results.items():
        factors = given if isinstance(given, Mapping) else {"value": given}
        if not factors.keys() <= {"value", "grad"}:
            raise TraceError(
                f'{explain} returned {sorted(map(str, factors))} for "{part}" of {name}: give a '
                'value, or a dict of "value" and "grad"'
            )
        for side, weight in zip(sides, _WEIGHTS[part], strict=True):
            for kind, factor in factors.items():
                if weight and factor is not None:
                    more = weight * shaped(factor, kind)
                    side[kind] = side[kind] + more if kind in side else more
    return sides


def plain_entry(entry: Any) -> Any:
    """Convert an entry of a form's result to a symbol or number. Others are returned unchanged."""
    if isinstance(entry, TwoSided):  # the same on both sides, or an error
        entry = np.asarray(entry, dtype=object)[()]
    return entry.value if isinstance(entry, FieldSymbol) else entry
