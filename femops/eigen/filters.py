"""Chebyshev polynomials of an operator, which amplify the lower end of its spectrum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.eigen.inverse import Inverse, apply_panel
from femops.eigen.pencil import Array
from femops.fields.multivector import MultiVector
from femops.fields.panels import rows_of, set_rows

Floats = NDArray[np.float64]


MOST_DEGREE = 400
LEAST_DEGREE = 8
CONDITION = 1e6
"""Largest condition number of filtered vectors: the square still has a Cholesky factor."""

_MARGIN = 4.0  # a filter reduces residuals by this factor more than the tolerance needs
_LEAST_GAIN = np.log(2.0)  # the bound of round-off may be pessimistic, and even above one


@final
@dataclass(frozen=True)
class Interval:
    """Part of a spectrum to damp."""

    lowest: float  # eigenvalue at which the scaled polynomial is one
    # cut and upper: ends of the interval
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


def filter_degree(
    interval: Interval,
    values: Floats,
    norms: Floats,
    tolerance: float,
    wanted: int,
    rest: float,
) -> tuple[int, float]:
    """Degree of a filter that makes residuals small enough and keeps vectors independent.

    Each vector contains a part of the lowest eigenvector, of about the lowest vector's residual
    over the gap. The filter amplifies this part most.

    Shapes: `values`, `norms` (n,).
    """
    gap = max(interval.cut - float(values[0]), float(norms[0]))
    part = float(norms[0]) / gap
    rates = np.maximum(interval.growth(values), 1e-8)
    most = np.log(CONDITION / part) / rates[0]
    goals = np.log(_MARGIN * norms[:wanted] / tolerance)
    needed = np.minimum(goals, max(-np.log(max(rest, 1e-300)), _LEAST_GAIN)) / rates[:wanted]
    degree = int(np.clip(np.ceil(min(most, needed.max())), LEAST_DEGREE, MOST_DEGREE))
    return degree, degree * float(rates[:wanted].min())


def filter_vectors(
    X: MultiVector,
    R: MultiVector | None,
    values: Floats | None,
    inverse: Inverse,
    interval: Interval,
    degree: int,
) -> None:
    """Overwrite vectors by a Chebyshev polynomial p of B A times the vectors. Collective.

    B is an approximate inverse of M. The type of its pencil is that of the arithmetic: float32, or
    the type of X.

    Of a Ritz vector x the result is p(lambda) x + z. Here z begins with zero, and its recurrence
    adds the residual, B (A x - lambda M x). So an error of B, or round-off in float32, is relative
    to the residual. An eigenvector of the pencil is only scaled, for any B.

    Shapes: `values` (nvec,).

    Notes
    -----
    Y. Zhou, Y. Saad, M. Tiago and J. Chelikowsky, "Self-consistent-field calculations using
    Chebyshev-filtered subspace iteration", J. Comput. Phys. 219 (2006), with scaled polynomials. N.
    Kodali, K. Ramakrishnan and P. Motamarri, "Residual-based Chebyshev filtered subspace iteration
    ... tolerant to inexact matrix-vector products", arXiv 2503.22652 (2025).
    """
    kind, memory = inverse.pencil.A.dtype, X.space.memory
    if R is None or values is None:
        work = _in_type(X, kind, np.ones(X.nvec))
        spare = _spare(work)
        for panel in work.panels:
            _filter_panel(panel, spare, inverse, interval, degree, None)
        if work is not X:
            _add(X, np.zeros(X.nvec), work, np.ones(X.nvec))
        return
    sizes = np.ones(X.nvec) if kind == X.dtype else _sizes(R)
    work = _in_type(R, kind, sizes)
    spare, width = _spare(work), work.width
    padded = np.zeros(work.npanels * width)
    padded[: X.nvec] = values
    for k, panel in enumerate(work.panels):
        source, theirs = inverse.of_panel(panel), padded[k * width : (k + 1) * width]
        z = memory.panels(panel.shape, kind)
        _filter_panel(z, spare, inverse, interval, degree, (source, theirs))
        panel[...] = z
    _add(X, _scalars(values, interval, degree), work, sizes)


def _spare(X: MultiVector) -> tuple[Array, Array]:
    """Two panels of work space."""
    shape, memory = X.panels.shape[1:], X.space.memory
    return memory.panels(shape, X.dtype), memory.panels(shape, X.dtype)


def _sizes(R: MultiVector) -> Floats:
    """Norms (nvec,) of vectors, one where a norm is zero. Collective."""
    norms = R.norms()
    return np.where(norms > 0.0, norms, 1.0)


def _scalars(values: Floats, interval: Interval, degree: int) -> Floats:
    """Values (nvec,) of the filter's polynomial at Ritz values."""
    last: Floats = _polynomials(values, interval, degree)[-1]
    return last


def _polynomials(values: Floats, interval: Interval, degree: int) -> Floats:
    """Values (degree + 1, nvec) at Ritz values of the polynomial before and after each step."""
    before, found = np.zeros_like(values), [np.ones_like(values)]
    for alpha, beta in _factors(interval, degree):
        now = found[-1]
        found.append(alpha * (values - interval.centre) * now - beta * before)
        before = now
    return np.array(found)


def _of_residuals(values: Floats, interval: Interval, degree: int) -> Floats:
    """Factors (degree, nvec) by which each step of the recurrence adds residuals."""
    alphas = np.array([alpha for alpha, _ in _factors(interval, degree)])
    factors: Floats = alphas[:, np.newaxis] * _polynomials(values, interval, degree)[:-1]
    return factors


def _factors(interval: Interval, degree: int) -> Iterator[tuple[float, float]]:
    """Factors of each step y' = alpha (B A y - centre y) - beta y_before of the recurrence."""
    first = sigma = interval.radius / (interval.lowest - interval.centre)
    yield sigma / interval.radius, 0.0
    for _ in range(degree - 1):
        following = 1.0 / (2.0 / first - sigma)
        yield 2.0 * following / interval.radius, sigma * following
        sigma = following


def _in_type(X: MultiVector, kind: np.dtype[Any], sizes: Floats) -> MultiVector:
    """Copy vectors, divided by their sizes, to another type. Return X itself if it has the type."""
    if X.dtype == kind:
        return X
    result = MultiVector.zeros(X.space, X.nvec, kind)
    factors = X.space.memory.put((1.0 / sizes).astype(X.dtype))
    for rows in X.row_blocks():
        set_rows(result.panels, rows, rows_of(X.panels, X.nvec, rows) * factors)
    return result


def _add(X: MultiVector, factors: Floats, Z: MultiVector, others: Floats) -> None:
    """Overwrite X by ``factors X + others Z``, with a factor for each vector."""
    own, theirs = (X.space.memory.put(each.astype(X.dtype)) for each in (factors, others))
    for rows in X.row_blocks():
        block = rows_of(Z.panels, Z.nvec, rows) * theirs
        set_rows(X.panels, rows, block + own * rows_of(X.panels, X.nvec, rows))


def _filter_panel(
    panel: Array,
    spare: tuple[Array, Array],
    inverse: Inverse,
    interval: Interval,
    degree: int,
    residuals: tuple[Array, Floats] | None,
) -> None:
    """Overwrite one panel by Chebyshev's recurrence; see `filter_vectors`.

    ``residuals`` are B times the residuals, divided by `Inverse.scales`, and the Ritz values. Then
    the panel is zero.
    """
    A, memory, centre = inverse.pencil.A, inverse.pencil.A.space.memory, interval.centre
    (old, product), current = spare, panel
    source, table = None, None
    if residuals is not None:  # one copy to a device for all steps
        source, values = residuals
        table = memory.put(_of_residuals(values, interval, degree).astype(panel.dtype))
    for step, (alpha, beta) in enumerate(_factors(interval, degree)):
        if step or residuals is None:
            apply_panel(A, current, product)
        else:
            product[...] = 0.0
        given = None if source is None or table is None else (source, table[step])
        numbers = alpha, -alpha * centre, -beta
        memory.three_term(old, inverse.of_panel(product), current, numbers, inverse.scales, given)
        current, old = old, current
    if current is not panel:
        panel[...] = current
