"""Approximate inverses of a mass, for the filters."""

from __future__ import annotations

from copy import copy
from typing import final

import numpy as np

from femops.eigen.bounds import spectrum_of_mass
from femops.eigen.pencil import AnyOperator, Array, Pencil
from femops.errors import SolverError
from femops.fields.multivector import MultiVector

_WIDER = 1.1  # factor by which the estimated spectrum of the mass is widened


@final
class Inverse:
    """Approximate inverse of a mass: a polynomial of the mass, by Chebyshev iteration from zero.

    The inverse is symmetric and positive definite. With degree 0 it is the inverse of a diagonal
    that approximates the mass. For a diagonal mass this is exact.
    """

    def __init__(self, pencil: Pencil, degree: int = 0) -> None:
        self.pencil, self.degree = pencil, degree
        if degree:
            low, high, bound = spectrum_of_mass(pencil)
            if not low > 0.0:
                raise SolverError(
                    "M is found to be singular: give a mass that is positive definite"
                )
            self._centre = (bound + low / _WIDER) / 2
            self._radius = max((bound - low / _WIDER) / 2, 1e-3 * high)

    @classmethod
    def within(cls, pencil: Pencil, error: float) -> Inverse:
        """Return an inverse B of a mass. Eigenvalues of B M lie from 1 - error to 1 + error.

        Lanczos' method estimates the spectrum of the mass, so the bounds hold only approximately.
        """
        inverse = cls(pencil, 1)
        # the iteration's residual is at most one over Chebyshev's polynomial at zero
        growth = np.arccosh(inverse._centre / inverse._radius)
        inverse.degree = int(np.ceil(np.log(2.0 / min(error, 1.0)) / growth))
        return inverse

    def of(self, pencil: Pencil) -> Inverse:
        """Copy for the same pencil in another type."""
        other = copy(self)
        other.pencil = pencil
        return other

    @property
    def scales(self) -> Array | None:
        """Factors (size,) that the results of `of_panel` lack. None if there are no factors."""
        return None if self.degree else self.pencil.scales

    def of_vector(self, w: Array) -> Array:
        """Product of the inverse with a vector (size,)."""
        scales = self.pencil.scales
        if not self.degree:
            return w if scales is None else w * scales
        given = MultiVector.zeros(self.pencil.A.space, 1, w.dtype)
        given[0] = w
        return self._iterated(given.panels[0])[:, 0]

    def of_panel(self, w: Array) -> Array:
        """Product with the vectors of a panel (size, width), without the factors ``scales``."""
        return self._iterated(w) if self.degree else w

    def _iterated(self, w: Array) -> Array:
        """Solve M z = w approximately by Chebyshev's semi-iteration. z and w are (size, width)."""
        mass, memory = self.pencil.mass, self.pencil.A.space.memory
        assert mass is not None
        z, before, product = (memory.panels(w.shape, w.dtype) for _ in range(3))
        ratio, ones = self._centre / self._radius, memory.xp.ones(w.shape[1], w.dtype)
        memory.three_term(z, w, None, (1.0 / self._centre, 0.0, 0.0), self.pencil.scales)
        rho = 1.0 / ratio
        for _ in range(self.degree):
            following = 1.0 / (2.0 * ratio - rho)
            apply_panel(mass, z, product)
            weight = 2.0 * following / self._radius
            numbers = -weight, 1.0 + rho * following, -rho * following
            memory.three_term(before, product, z, numbers, self.pencil.scales, (w, weight * ones))
            z, before, rho = before, z, following
        found: Array = z
        return found


def apply_panel(A: AnyOperator, panel: Array, out: Array) -> None:
    """Overwrite the panel ``out`` (size, width) by A times the vectors of ``panel``."""
    A.apply_many(MultiVector(A.space, panel[np.newaxis]), MultiVector(A.space, out[np.newaxis]))
