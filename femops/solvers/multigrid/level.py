"""Level of a multigrid method: its operator and its relaxation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SolverError
from femops_kernels.compiled import CompiledOperator, Reduction, VectorUpdates, segment_edges
from femops_kernels.cpu.in_order import in_order

Array = NDArray[Any]
Factors = tuple[float, float, float]
Transfer = Callable[[Any, Any], None]
"""Transfers the first vector to another level, and overwrites the second one by the result."""

# Factor on the largest Ritz value of some steps of Lanczos' method, for an upper bound.
_MARGIN = 1.15  # measured: 7 steps come to 0.89 of the largest eigenvalue and more
_LANCZOS_STEPS = 7
_TOGETHER = 2**15  # pseudo-random numbers that are made at once, in cache
_MIXING = (0x9E3779B1, 15), (0x85EBCA77, 13), (0xC2B2AE3D, 16)  # as xxHash does
_SOLVED = 1e-8  # energy of a residual over that of the first, at which the steps end


@final
@dataclass(frozen=True)
class Size:
    """Order, number of elements and number of dofs of a level."""

    order: int
    elements: int  # number of elements of all ranks
    # own and dofs: entries of a vector on this rank, and on all ranks
    own: int
    dofs: int
    affine: bool  # whether the maps of all elements are affine
    first: int = 0  # number of entries that lower ranks own


class Blocks(ABC):
    """Sum of inverses of blocks of a level's matrix, between two products with `scales`."""

    # (own + padding,): zero at constrained dofs. None if it is one at all others.
    scales: Array | None = None

    @abstractmethod
    def apply(self, r: Array, z: Array) -> None:
        """Set a vector z of the level to the sum of the products with r (own + padding,)."""


@final
class Level:
    """Level of a multigrid method, with Chebyshev relaxation.

    Shapes: `diagonal` (own,), `constrained` (k,), `shares` (own,).
    """

    transfer: tuple[Transfer, Transfer]  # transfers from the next coarser level and to that level
    x: Array  # (own + padding,): approximate solution while the coarser levels compute a correction

    def __init__(
        self,
        size: Size,
        compiled: CompiledOperator,
        diagonal: Array,
        constrained: NDArray[np.int64],
        shares: Array | None,
        dtype: np.dtype[Any],
        degree: int,
        updates: VectorUpdates,
        sums: Reduction | None = None,
    ) -> None:
        self.size, self.compiled, self._updates = size, compiled, updates
        edges = segment_edges(size.own) if sums is None else sums.edges
        total = _alone if sums is None else sums
        self.dot = updates.directions(edges, total, dtype, dtype).inner
        names = ("right", "_first", "_second", "product", "weights", "inverse")
        for name in names:
            setattr(self, name, updates.vector(size.own, dtype))
        updates.xp.divide(1.0, diagonal, out=self.inverse[: size.own])
        self.weights[: size.own] = 1.0 if shares is None else updates.put(shares)
        there = updates.put(constrained)
        self.inverse[there] = self.weights[there] = 0.0
        self._degree, self._advance = degree, self._by_points
        self.largest = _MARGIN * self._highest()
        low = self.largest / reduced(size.order, affine=size.affine)
        self._steps = chebyshev_steps(low, self.largest, degree)

    right: Array  # (own + padding,): right-hand side, the input of a cycle
    product: Array
    weights: Array
    inverse: Array  # (own + padding,): inverse of the diagonal, zero at constrained dofs
    _first: Array
    _second: Array

    def use(self, blocks: Blocks, degree: int | None = None, width: float | None = None) -> None:
        """Relax by blocks of dofs from now on, instead of by the diagonal."""
        size, scales = self.size, blocks.scales
        z: Array = self._updates.vector(size.own, self.right.dtype)
        if scales is None:
            scales = self._updates.vector(size.own, self.right.dtype)
            scales[:] = self.weights > 0.0
        self._advance = partial(self._by_blocks, blocks, scales, z)
        largest = _MARGIN * self._highest_of(blocks, scales, z)
        low = largest / (width or reduced(size.order, affine=size.affine))
        self._steps = chebyshev_steps(low, largest, degree or self._degree)

    def relax(self, x: Array | None = None) -> Array:
        """Relax x (own + padding,), a vector of the level (zero if omitted). Return the new x."""
        spare = self._second if x is self._first else self._first
        other = self._second if x is None else x
        for k, (h, g) in enumerate(self._steps):
            older = -g if k > (x is None) else 0.0  # the vector before, which is zero at first
            self._advance(spare, None if k == 0 and x is None else other, (h, 1.0 + g, older))
            other, spare = spare, other
        return other

    def _by_points(self, spare: Array, x: Array | None, factors: Factors) -> None:
        """Set spare = h (residual of x) / diagonal + current x + older spare. None is a zero x.

        Shapes: `spare`, `x` (own + padding,), `factors` (h, current, older).
        """
        h, current, older = factors
        if x is None:
            self._updates.step(spare, None, self.right, self.inverse, None, (0.0, h, 0.0, 0.0))
        else:
            self.compiled.apply(x, self.product)
            given = -h, h, current, older
            self._updates.step(spare, self.product, self.right, self.inverse, x, given)

    def _by_blocks(
        self,
        blocks: Blocks,
        scales: Array,
        z: Array,
        spare: Array,
        x: Array | None,
        factors: Factors,
    ) -> None:
        """Do as `_by_points`, with the inverses of blocks in place of that of the diagonal."""
        h, current, older = factors
        step, product = self._updates.step, self.product
        if x is None:
            step(product, None, self.right, scales, None, (0.0, 1.0, 0.0, 0.0))
        else:
            self.compiled.apply(x, product)
            step(product, product, self.right, scales, None, (-1.0, 1.0, 0.0, 0.0))
        blocks.apply(product, z)
        step(spare, z, None, scales, x, (h, 0.0, current if x is not None else 0.0, older))

    def restricted(self) -> Array:
        """Store the right-hand side times the weights in ``product``, and return it."""
        self._updates.step(self.product, None, self.right, self.weights, None, (0.0, 1.0, 0.0, 0.0))
        return self.product

    def interpolated(self) -> Array:
        """Return ``product`` times the weights, in a vector of the level."""
        factors = 1.0, 0.0, 0.0, 0.0
        self._updates.step(self._first, self.product, None, self.weights, None, factors)
        return self._first

    def scattered_error(self) -> Array:
        """Vector of the level with scattered entries.

        Each entry alone has an energy of the same size. So none hides the others where coefficients
        jump by many orders of magnitude.
        """
        size, updates = self.size, self._updates
        error: Array = updates.vector(size.own, self.right.dtype)
        error[: size.own] = updates.put(scattered(size.first, size.own))
        error *= updates.xp.sqrt(self.inverse)
        return error

    def dual(self, x: Array) -> None:
        """Set the right-hand side to x times the diagonal. Allocates memory."""
        self.right[:] = self.inverse
        self.right[self.right == 0.0] = 1.0
        self._updates.xp.divide(x, self.right, out=self.right)

    def residual(self, x: Array) -> Array:
        """Store the residual of x times the weights in ``product``, and return it."""
        self.compiled.apply(x, self.product)
        factors = -1.0, 1.0, 0.0, 0.0
        self._updates.step(self.product, self.product, self.right, self.weights, None, factors)
        return self.product

    def correct(self, x: Array) -> None:
        """Add ``product`` times the weights to x."""
        self._updates.step(x, self.product, None, self.weights, None, (1.0, 0.0, 0.0, 1.0))

    def _highest(self) -> float:
        """Largest Ritz value of the scaled operator, by a few steps of Lanczos' method."""
        updates, n = self._updates, self.size.own
        scale, before = (updates.vector(n, self.inverse.dtype) for _ in range(2))
        scale[:] = updates.xp.sqrt(self.inverse)  # steps also read the padding behind its end
        v, scaled = self._first, self._second
        v[:n] = updates.put(scattered(self.size.first, n))
        v *= scale > 0.0
        alphas, betas = list[float](), list[float]()
        norm = self.dot(v, v) ** 0.5
        for _ in range(_LANCZOS_STEPS):
            if not norm > 1e-5 * max(alphas, default=0.0):
                break
            betas.append(norm)
            # the vectors of the method are v and the one before divided by their norms
            updates.step(scaled, v, None, scale, None, (1.0 / norm, 0.0, 0.0, 0.0))
            self.compiled.apply(scaled, self.product)
            alphas.append(self.dot(scaled, self.product))
            older = -norm / betas[-2] if len(alphas) > 1 else 0.0
            updates.step(
                before, self.product, None, scale, v, (1.0, 0.0, -alphas[-1] / norm, older)
            )
            before, v = v, before
            norm = self.dot(v, v) ** 0.5
        self.right[:] = self._first[:] = self._second[:] = 0.0
        return _checked(alphas, betas[1:])

    def _highest_of(self, blocks: Blocks, scales: Array, z: Array) -> float:
        """Largest Ritz value of the operator times a sum of inverses of blocks, as `_highest`."""
        r, direction, step = self._second, self._first, self._updates.step
        self.dual(self.scattered_error())
        step(r, None, self.right, scales, None, (0.0, 1.0, 0.0, 0.0))  # a residual times the scales
        self.right[:] = 0.0
        alphas, betas = list[float](), list[float]()
        lengths, energy, first = list[float](), 0.0, 0.0  # lengths of conjugate gradients' steps
        for k in range(_LANCZOS_STEPS):
            blocks.apply(r, z)
            before, energy = energy, self.dot(z, r)
            first = first or energy
            if not energy > _SOLVED * first:
                break
            ratio = energy / before if k else 0.0
            step(direction, z, None, scales, None, (1.0, 0.0, 0.0, ratio))
            self.compiled.apply(direction, self.product)
            curvature = self.dot(direction, self.product)
            alphas.append(curvature / energy + (ratio / lengths[-1] if k else 0.0))
            if k:
                betas.append(ratio**0.5 / lengths[-1])
            if not curvature > 0.0:  # as of a direction in the null space
                break
            length = energy / curvature
            lengths.append(length)
            step(r, self.product, None, scales, None, (-length, 0.0, 0.0, 1.0))
        self._first[:] = self._second[:] = 0.0
        return _checked(alphas, betas)


def _alone(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(sums.sum(axis=1))


def _checked(alphas: list[float], betas: list[float]) -> float:
    matrix = np.diag(alphas) + np.diag(betas, 1) + np.diag(betas, -1)
    if not np.isfinite(matrix).all():
        raise SolverError("products of A are not finite: look at its coefficients")
    if not len(matrix):  # no free dofs
        return 1.0
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-4 * values[-1] or not values[-1] > 0.0:
        raise NotPositiveError
    return float(values[-1])


@final
class NotPositiveError(SolverError):
    """The operator of a level is not positive definite."""

    def __init__(self) -> None:
        super().__init__(
            "multigrid found A not to be positive definite, as Helmholtz's operator with a wave "
            "number is: solve by femops.minres with femops.jacobi of a positive operator, or by "
            "femops.gmres"
        )


def reduced(order: int, *, affine: bool) -> float:
    """Ratio of the largest eigenvalue to the smallest eigenvalue that a relaxation reduces.

    The numbers are measured. On curved elements and for high orders, the next level, of half the
    order, represents less of the spectrum.
    """
    return max(10.0, 2.5 * order) if affine else max(20.0, 3.5 * order)


def chebyshev_steps(low: float, high: float, degree: int) -> tuple[tuple[float, float], ...]:
    """Factors (h, g) of each step of a Chebyshev relaxation on the eigenvalues from low to high.

    A step computes x + g (x - previous x) + h (scaled residual of x).
    """
    centre, radius = (high + low) / 2.0, (high - low) / 2.0
    rho = radius / centre
    steps = [(1.0 / centre, 0.0)]
    for _ in range(degree - 1):
        old, rho = rho, 1.0 / (2.0 * centre / radius - rho)
        steps.append((2.0 * rho / radius, rho * old))
    return tuple(steps)


def scattered(first: int, count: int, dtype: DTypeLike = np.float32) -> Array:
    """Pseudo-random float32 numbers (count,) in [-1, 1) for the indices from ``first`` on.

    A number depends only on its index in the global vector, so ranks agree. ``dtype`` is the type
    of the array.
    """
    numbers, places = np.empty(count, dtype=dtype), np.arange(_TOGETHER, dtype=np.uint32)

    def fill(begin: int) -> None:
        part = numbers[begin : begin + _TOGETHER]
        mixed = places[: len(part)] + np.uint32((first + begin) % 2**32)
        for multiplier, shift in _MIXING:
            mixed *= np.uint32(multiplier)
            mixed ^= mixed >> np.uint32(shift)
        mixed >>= np.uint32(8)
        part[:] = mixed
        part *= np.float32(2.0**-23)
        part -= np.float32(1.0)

    deque(in_order(fill, range(0, count, _TOGETHER)), maxlen=0)
    return numbers
