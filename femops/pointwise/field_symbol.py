"""Symbols of fields at a point, and the nodes of the graph that they consist of."""

from __future__ import annotations

from collections.abc import Sequence
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
