"""Chebyshev polynomials of an operator, which amplify the lower end of its spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.eigen.inverse import Inverse, apply_panel
from femops.eigen.pencil import Array
from femops.fields.multivector import MultiVector

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Interval:
    """Part of a spectrum to damp.

    Attributes
    ----------
    lowest : float
        Eigenvalue at which the scaled polynomial is one.
    cut, upper : float
        Ends of the interval.
    """

    lowest: float
    cut: float
    upper: float

    @property
    def centre(self) -> float:
        """Centre of the interval."""
        return (self.upper + self.cut) / 2

    @property
    def radius(self) -> float:
        """Half the length of the interval."""
        return (self.upper - self.cut) / 2

    def growth(self, value: float | Floats) -> Floats:
        """Logarithm of the amplification of an eigenvalue per degree. Zero inside the interval."""
        outside = np.maximum((self.centre - np.asarray(value)) / self.radius, 1.0)
        return np.asarray(np.arccosh(outside))


def filter_vectors(
    X: MultiVector,
    MX: MultiVector | None,
    values: Floats | None,
    inverse: Inverse,
    interval: Interval,
    degree: int,
) -> None:
    """Overwrite vectors by a Chebyshev polynomial of B A times the vectors. Collective.

    B is an approximate inverse of M. If B is not exact, the recurrence adds the error (x - B M x)
    lambda. So an eigenvector of the pencil is only scaled, for any B.

    Parameters
    ----------
    X : MultiVector
        Ritz vectors, or any vectors.
    MX : MultiVector or None
        Products of X with a mass that is a matrix. None for a diagonal mass.
    values : (nvec,) array or None
        Ritz values of X. None if X are not Ritz vectors, or if B is exact.
    inverse : Inverse
    interval : Interval
    degree : int

    Notes
    -----
    Y. Zhou, Y. Saad, M. Tiago and J. Chelikowsky, "Self-consistent-field calculations using
    Chebyshev-filtered subspace iteration", J. Comput. Phys. 219 (2006), with scaled polynomials.
    The correction is residual-based filtering: N. Kodali, K. Ramakrishnan and P. Motamarri,
    "Residual-based Chebyshev filtered subspace iteration ... tolerant to inexact matrix-vector
    products" (2025).
    """
    memory = X.space.memory
    other, product = (memory.panels(X.panels.shape[1:], X.dtype) for _ in range(2))
    for k, panel in enumerate(X.panels):
        extra = theirs = None
        if MX is not None and values is not None:
            theirs = np.zeros(X.width)
            part = values[k * X.width : (k + 1) * X.width]
            theirs[: len(part)] = part
            extra = _missed(panel, MX.panels[k], theirs, inverse)
        _filter_panel(panel, (other, product), inverse, interval, degree, extra, theirs)


def _missed(panel: Array, massed: Array, values: Floats, inverse: Inverse) -> Array:
    """Error (X - B M X) lambda of an inexact B, divided by `Inverse.scales`."""
    pencil = inverse.pencil
    factors = pencil.A.space.memory.put(values.astype(panel.dtype))
    if not inverse.degree:
        assert pencil.weights is not None
        difference: Array = pencil.weights[:, np.newaxis] * panel - massed
    else:
        difference = panel - inverse.of_panel(massed)
    difference *= factors
    difference *= pencil.free[:, np.newaxis]
    return difference


def _filter_panel(
    panel: Array,
    spare: tuple[Array, Array],
    inverse: Inverse,
    interval: Interval,
    degree: int,
    extra: Array | None,
    values: Floats | None,
) -> None:
    """Overwrite one panel by Chebyshev's recurrence; see `filter_vectors`."""
    A, memory = inverse.pencil.A, inverse.pencil.A.space.memory
    centre, radius = interval.centre, interval.radius
    first = sigma = radius / (interval.lowest - centre)
    (old, product), current = spare, panel
    scalars = before = np.ones(panel.shape[1])
    for step in range(degree):
        # Y' = alpha (B A Y - centre Y) - beta Y_old; ``scalars`` follow it with lambda for B A
        following = sigma if step == 0 else 1.0 / (2.0 / first - sigma)
        alpha = following / radius if step == 0 else 2.0 * following / radius
        beta = 0.0 if step == 0 else sigma * following
        apply_panel(A, current, product)
        given = None
        if extra is not None and values is not None:
            given = extra, memory.put((alpha * scalars).astype(panel.dtype))
            after = alpha * (values - centre) * scalars - beta * before
            before, scalars = scalars, after
        numbers = alpha, -alpha * centre, -beta
        memory.three_term(old, inverse.of_panel(product), current, numbers, inverse.scales, given)
        current, old, sigma = old, current, following
    if current is not panel:
        panel[...] = current
