"""Functionals: integrals of functions of fields, with their derivatives."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from copy import copy
from typing import Any, final

from numpy.typing import DTypeLike, NDArray

from femops.basis import Quadrature1D
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.residual import ENERGY, NONE, Functionals, Residual
from femops.pointwise.diagnostics import definition
from femops.pointwise.errors import TraceError
from femops.pointwise.trace import FormFunction, name_of


@final
class Functional:
    r"""An integral of a function of fields: ``J(u)`` is a number.

    `femops.functional` makes it.

    Attributes
    ----------
    space : Space or Product
        Of the fields.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    derivative : Residual
        :math:`R(u; v)`, the derivative of the functional at u in the direction v. Its
        ``residual(u)`` is a vector, its ``jacobian(u)`` the symmetric second derivative, so
        ``femops.newton(J.derivative, u0)`` looks for a stationary point.
    """

    def __init__(
        self,
        function: FormFunction,
        sides: Arguments,
        quadrature: Quadrature1D,
        coefficients: Mapping[str, FormCoefficient],
        dtype: DTypeLike,
        lanes: int | None,
    ) -> None:
        given = quadrature, coefficients, dtype, lanes
        one, another = (_Integrand(function, key) for key in (ENERGY, "value"))
        self._value = Residual(one, sides, Functionals((ENERGY,)), *given)
        self.derivative = Residual(another, sides, NONE, *given, of_energy=True)
        self.space, self.dtype = self._value.space, self._value.dtype

    def __call__(self, u: NDArray[Any]) -> float:
        """Value of the functional. Collective where ranks share the space.

        Parameters
        ----------
        u : (size,) array
            A vector of the space, or of the product.

        Raises
        ------
        VectorError
            A vector of another shape, type or memory layout.
        """
        return self._value.evaluate(u)[1][ENERGY]

    def update(self, **coefficients: Any) -> Functional:
        """The functional with other values of some coefficients; see `Residual.update`."""
        twin = copy(self)
        twin._value = self._value.update(**coefficients)
        twin.derivative = self.derivative.update(**coefficients)
        return twin

    def __repr__(self) -> str:
        return f"Functional({self._value.name}: {self.space!r}, {self.dtype})"


@final
class _Integrand:
    """A function that returns a number, as tracing wants it: with the number under a key."""

    def __init__(self, function: FormFunction, key: str) -> None:
        functools.update_wrapper(self, function)
        self._function, self._key = function, key

    def __call__(self, *args: Any, **options: Any) -> dict[str, Any]:
        found = self._function(*args, **options)
        if isinstance(found, dict):
            name = f"{definition(self._function)}{name_of(self._function)}"
            raise TraceError(
                f"{name} returned a dictionary: the function of a functional returns a number, the "
                "integrand"
            )
        return {self._key: found}
