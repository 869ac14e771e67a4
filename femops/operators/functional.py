"""Functionals: integrals of functions of fields, and their derivatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D
from femops.errors import OperatorError, TraceError
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.constraints import product_of_factors
from femops.operators.integrals.nonlinear import ENERGY, NONE, Functionals, NonlinearIntegral
from femops.operators.residual import Residual
from femops.operators.sums import Summable
from femops.pointwise.trace import FormFunction, definition, name_of, vector_hint


@final
class Functional(Summable):
    r"""Integral of a function of fields: ``J(u)`` is a number.

    `femops.functional` makes it. Functionals on one space can be added, subtracted and multiplied
    by numbers. They may be integrals over different domains.

    Attributes
    ----------
    space : Space or Product
        Space of the fields.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    derivative : Residual
        :math:`R(u; v)`, the derivative of the functional at u in the direction v.
        ``derivative.residual(u)`` is a vector, ``derivative.jacobian(u)`` the symmetric second
        derivative. ``femops.newton(J.derivative, u0)`` searches for a stationary point.
    """

    def __init__(self, values: Sequence[tuple[float, Residual]], derivative: Residual) -> None:
        self._values, self.derivative = tuple(values), derivative
        self.space, self.dtype = derivative.space, derivative.dtype

    @staticmethod
    def of(
        function: FormFunction,
        sides: Arguments,
        quadrature: Quadrature1D,
        coefficients: Mapping[str, FormCoefficient],
        kind: tuple[np.dtype[Any], int],
    ) -> Functional:
        """Make the functional of one function. Parameters are those of `NonlinearIntegral`."""
        made = quadrature, coefficients, kind
        value = NonlinearIntegral(
            _Integrand(function, ENERGY), sides, Functionals((ENERGY,)), *made
        )
        slope = NonlinearIntegral(_Integrand(function, "value"), sides, NONE, *made, of_energy=True)
        whole, derivative = (Residual(sides.whole, kind[0], [p]) for p in (value, slope))
        return Functional([(1.0, whole)], derivative)

    def _plus(self, other: Functional) -> Functional:
        return Functional(self._values + other._values, self.derivative + other.derivative)

    def _times(self, factor: float) -> Functional:
        values = [(product_of_factors(factor, a, self.dtype), value) for a, value in self._values]
        return Functional(values, factor * self.derivative)

    def __call__(self, u: NDArray[Any]) -> float:
        """Value of the functional. Collective if ranks share the space.

        Shapes: `u` (size,).
        """
        found = sum(factor * value.evaluate(u)[1][ENERGY] for factor, value in self._values)
        if not math.isfinite(found) and self.dtype == np.float32:
            broken = not self.space.memory.xp.isfinite(u).all()
            if not self.space.comm.max(int(broken)):
                raise OperatorError(
                    f"the functional is {found} at a finite u: numbers are beyond the range of "
                    "float32, or the function has no value there: take dtype='float64', or scale"
                )
        return found

    def update(self, **coefficients: Any) -> Functional:
        """Copy of the functional with new values of some coefficients; see `Residual.update`."""
        derivative, made = self.derivative.update(**coefficients), dict[Any, Any]()
        values = [(a, value.with_coefficients(coefficients, made)) for a, value in self._values]
        return Functional(values, derivative)

    def __repr__(self) -> str:
        labels = " + ".join(part.label for part in self.derivative.parts)
        return f"Functional({labels}: {self.space!r}, {self.dtype})"


@final
class _Integrand:
    """Wraps a function that returns a number. The wrapper returns ``{key: number}``.

    Tracing needs the dictionary.
    """

    def __init__(self, function: FormFunction, key: str) -> None:
        functools.update_wrapper(self, function)
        self._function, self._key = function, key

    def __call__(self, *args: Any, **options: Any) -> dict[str, Any]:
        found = self._function(*args, **options)
        kinds = {type(None): "nothing", dict: "a dictionary"}
        shape = () if type(found) in kinds else np.shape(found)
        if type(found) in kinds or shape not in ((), (1,)):
            name = f"{definition(self._function)}{name_of(self._function)}"
            what = kinds.get(type(found), f"an array of shape {shape}")
            raise TraceError(
                f"{name} returned {what}: the function of a functional returns a number, the "
                f"integrand{vector_hint([shape])}"
            )
        return {self._key: found}
