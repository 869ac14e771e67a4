"""Search for eigenvectors that a subspace misses, by random vectors orthogonal to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.eigen.filters import Interval, filter_vectors
from femops.eigen.inverse import Inverse
from femops.eigen.pencil import Pencil
from femops.eigen.ritz import mass_products, residuals, ritz_vectors
from femops.fields.multivector import MultiVector
from femops.fields.reproducible import random_columns

Floats = NDArray[np.float64]

# A random vector has less than so much of an eigenvector, where it has 1 on average, in one of
# 120,000 cases.
_LEAST_PART = 1e-5
_MOST_LEFT = 0.3  # part of an eigenvector in a vector orthogonal to X
_SLACK = 20.0  # twice, and ten as norms of residuals are those of an approximate mass
STRICTER, STRICTEST = 0.1, 2e-3
"""Part to which residuals fall before a search that would be in vain, again and again, and the part
at which that ends."""
_DIGITS = 1e-4  # relative precision of filtered vectors after X has been taken out


@final
@dataclass(frozen=True)
class Search:
    """Search by filters for every eigenvector whose eigenvalue is at most ``value``.

    The coefficients of a random vector w in the basis of the n eigenvectors are about 1. Let c be
    the coefficient of an eigenvector whose eigenvalue is at most ``value``. Let the filter's
    polynomial p be at most 1 in the interval. Then the Rayleigh quotient of p(A) w is below the
    cut as soon as

    (c p(value))^2 (cut - value) > n (upper - cut).

    So a quotient at the cut or above means that there is no such eigenvector. Here p(A) stands for
    p(B A) with an inverse B of the mass. The error of B moves no eigenvalue from ``value`` to the
    cut. The argument is that of J. Kuczynski and H. Wozniakowski, "Estimating the largest
    eigenvalue by the power and Lanczos algorithms with a random start", SIAM J. Matrix Anal. Appl.
    13 (1992).
    """

    # interval of the eigenvalues that filters damp. Its ``cut`` lies above ``value``.
    interval: Interval
    value: float  # largest eigenvalue that may be missing
    # degree of a filter. After each filter the vectors are orthogonalized against X again.
    step: int
    filters: int  # number of filters

    @classmethod
    def planned(
        cls, interval: Interval, values: Floats, norms: Floats, k: int, pencil: Pencil
    ) -> Search:
        """Plan the filters of a search for eigenvalues up to the k-th Ritz value of X.

        Shapes: `values`, `norms` (nvec,).
        """
        limits = np.finfo(pencil.A.dtype)
        eps, value = float(limits.eps), float(values[k - 1])
        below = values < interval.cut
        parts = np.clip(norms[below] / (interval.cut - values[below]), eps, _MOST_LEFT)
        allowed = np.minimum(-2.0 * np.log(parts), np.log(_DIGITS / (eps * parts)))
        allowed = allowed / interval.growth(values[below])
        underflow = -0.8 * np.log(float(limits.tiny)) / interval.growth(interval.lowest)
        step = int(max(1.0, min(allowed.min(), underflow)))
        upper, cut = interval.upper, interval.cut
        needed = 0.5 * np.log(pencil.count * max(upper - cut, 0.0) / (cut - value) + 1.0)
        needed -= np.log(_LEAST_PART)
        rate = float(interval.growth(value))
        whole = int(np.ceil((needed + np.log(2.0)) / rate))
        if whole <= step:
            return cls(interval, value, whole, 1)
        # cosh is at least half of the exponential, in each filter
        gain = step * rate + np.log1p(np.exp(-2.0 * step * rate)) - np.log(2.0)
        return cls(interval, value, step, int(np.ceil(needed / gain)))

    @property
    def degree(self) -> int:
        """Maximum number of products with A for each vector."""
        return self.filters * (self.step + 1)

    def run(
        self, X: MultiVector, count: int, inverse: Inverse, tolerance: float, seed: int
    ) -> tuple[MultiVector, Floats, int]:
        """Filter ``count`` random vectors orthogonal to X. Collective.

        Return the Ritz vectors, the Ritz values (count,), and the number of products with A. The
        search ends early when the lowest Ritz value is less than ``value`` minus the tolerance.
        """
        pencil, products = inverse.pencil, 0
        Y = MultiVector.zeros(X.space, count, X.dtype, 1 if count == 1 else None)
        random_columns(Y, range(count), seed, pencil.deviations)
        _take_out(Y, X, pencil, seed)
        values, left = None, None
        for done in range(self.filters):
            filter_vectors(Y, left, values, inverse, self.interval, self.step)
            _take_out(Y, X, pencil, seed + done)
            left = pencil.A.apply_many(Y)
            values = ritz_vectors(Y, left, pencil)
            residuals(Y, left, mass_products(Y, pencil), values, pencil)
            products += count * (self.step + 1)
            if values[0] < self.value - tolerance:
                break
        assert values is not None
        return Y, values, products


def _take_out(Y: MultiVector, X: MultiVector, pencil: Pencil, seed: int) -> None:
    """Make vectors orthonormal and orthogonal to X. Collective."""
    for _ in range(2):  # the second time removes the round-off of the first
        massed = pencil.massed(Y)
        parts = X @ X.gram(massed)
        for i in range(Y.nvec):
            Y[i][:] -= parts[i]
        Y.orthonormalise(pencil.norm_mass, seed, pencil.deviations)


@final
@dataclass(frozen=True)
class Gap:
    """Number above which all eigenvalues lie on the space orthogonal to some Ritz vectors.

    Attributes
    ----------
    kept : int
        Number of Ritz vectors, the lowest ones.
    cut : float
    """

    kept: int
    cut: float

    @classmethod
    def below(cls, values: Floats, norms: Floats, k: int, tolerance: float) -> Gap:
        """Least cut from which it follows that no eigenvalue below the k-th is missing.

        Let theta_j be the Ritz values and r_j their residuals. Let A have no eigenvalue below the
        cut on the space orthogonal to the vectors. Then A has as many eigenvalues below t as there
        are theta_j < t if the Schur complement is positive. That is so if the sum of r_j^2 /
        (theta_j - t) over the theta_j > t is less than cut - t. Here t is the k-th value minus the
        tolerance, or less if another value is there.
        """
        last = float(values[k - 1])
        t = last - tolerance
        while (near := values[np.abs(values - t) < 0.5 * tolerance]).size:
            t = float(near.min()) - tolerance
        above = values > t
        parts = np.divide(norms**2, values - t, out=np.zeros_like(values), where=above)
        cuts = np.maximum(0.5 * (t + last), t + _SLACK * np.cumsum(parts))
        for kept in range(len(values), k, -1):
            if cuts[kept - 1] <= last + 0.5 * (float(values[kept - 1]) - last):
                return cls(kept, float(cuts[kept - 1]))
        return cls(k, float(cuts[k - 1]))

    def in_vain(self, values: Floats, k: int) -> bool:
        """True if a search would find the known vector that follows the k lowest.

        The next eigenvalues are near the k-th then. Smaller residuals make the cut smaller.
        """
        return self.kept == k < len(values) and bool(values[k] <= self.cut)


@final
class ComplementSearch:
    """Search for a vector, orthogonal to some Ritz vectors, whose Rayleigh quotient is below a cut.

    Conjugate gradients solve (A - cut M) y = r on the orthogonal space, with a random r and the
    preconditioner. If there is such a vector, A - cut M times the preconditioner has a negative
    eigenvalue. While curvatures are positive, so are the roots of the residual's polynomial, which
    is one at zero. So at the negative eigenvalue it is above one, and the residual keeps its part
    of that eigenvector, for any positive preconditioner. That part is below `_LEAST_PART` in one of
    120,000 cases. So either a curvature becomes negative, or the residual falls below that part and
    there is no such vector.

    Attributes
    ----------
    products : int
        Number of products of A with a vector.
    settled : bool
        Whether there is no such vector.
    """

    def __init__(
        self,
        pencil: Pencil,
        preconditioned: Callable[[MultiVector], MultiVector],
        X: MultiVector,
        MX: MultiVector,
        cut: float,
    ) -> None:
        self._pencil, self._preconditioned, self._cut = pencil, preconditioned, cut
        self._X, self._MX = X, MX
        self.products, self.settled = 0, False

    def run(self, most: int, seed: int) -> Any:
        """Return a vector (size,), or None after ``most`` products or if there is none."""
        pencil = self._pencil
        r = MultiVector.zeros(pencil.A.space, 1, pencil.A.dtype, 1)
        random_columns(r, range(1), seed, pencil.deviations)
        if pencil.weights is not None:
            r.panels *= pencil.weights[:, np.newaxis]
        r = self._residual_part(r)
        z = self._direction(r)
        p, energy = z.copy(), float(z.dots(r)[0].real)
        while self.products < most and energy > 0.0:
            product = pencil.A.apply_many(p)
            product -= self._cut * pencil.massed(p)
            self.products += 1
            curvature = float(p.dots(self._residual_part(product))[0].real)
            if not curvature > 0.0:
                return p[0]
            r -= (energy / curvature) * product
            if self._norm(r) <= _LEAST_PART:
                self.settled = True
                return None
            z = self._direction(r)
            before, energy = energy, float(z.dots(r)[0].real)
            p *= energy / before
            p += z
        return None

    def _residual_part(self, r: MultiVector) -> MultiVector:
        """Overwrite a residual by its part that is orthogonal to X, and return it."""
        r[0][:] -= (self._MX @ self._X.gram(r))[0]
        return r

    def _direction(self, r: MultiVector) -> MultiVector:
        """Preconditioned residual, M-orthogonal to X."""
        z = self._preconditioned(r)
        z[0][:] -= (self._X @ self._MX.gram(z))[0]
        return z

    def _norm(self, r: MultiVector) -> float:
        scaled = r
        if self._pencil.scales is not None:
            scaled = r.copy()
            scaled.panels *= self._pencil.scales[:, np.newaxis]
        return float(np.sqrt(r.dots(scaled)[0].real))
