"""Measurements of the levels of a multigrid cycle: times, and reduction of errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from femops.solvers.multigrid.hierarchy import Hierarchy
from femops.solvers.multigrid.level import Level, Size, scattered
from femops_kernels.compiled import VectorUpdates

# Cycles after which the factor of the slowest error is known, and after which a large one is.
_CYCLES, _MORE_CYCLES, _LARGE = 8, 20, 0.8
_SOLVED = 1e-10  # energy of a residual over that of the first, at which a measurement ends
_TOLERANCE = 1e-9  # tolerance of the solves whose iterations are estimated


@final
@dataclass(frozen=True)
class LevelReport:
    """Size of a level, its measured time, and the measured reduction of errors.

    Attributes
    ----------
    order, elements, dofs : int
        Polynomial order; elements and dofs of all ranks.
    seconds : float
        Time that a cycle spends on the level, with the transfers to the next level.
    factor : float
        Factor by which a cycle that begins on this level reduces the energy norm of the slowest
        error. Zero on the coarsest level, which is solved directly.
    limits : bool
        Whether the level holds the convergence back: of all levels it makes the factor worse by
        most.
    """

    order: int
    elements: int
    dofs: int
    seconds: float
    factor: float
    limits: bool


class Cycle(Protocol):
    """Parts of `Multigrid` that measurements need."""

    hierarchy: Hierarchy
    levels: list[Level]
    sizes: list[Size]
    rights: list[NDArray[Any]]
    updates: VectorUpdates

    def cycle_from(self, k: int) -> NDArray[Any]:
        """See `Multigrid.cycle_from`."""


def report(M: Cycle) -> tuple[LevelReport, ...]:
    """Measure the levels of a multigrid method; see `Multigrid.report`. Collective."""
    seconds = [_seconds(M, k) for k in range(len(M.sizes))]
    factors = [*(factor(M, k) for k in range(len(M.levels))), 0.0]
    alone = [a - b for a, b in zip(seconds, [*seconds[1:], 0.0], strict=True)]
    worst = slowest(factors)
    return tuple(
        LevelReport(size.order, size.elements, size.dofs, max(time, 0.0), factor, k == worst)
        for k, (size, time, factor) in enumerate(zip(M.sizes, alone, factors, strict=True))
    )


def slowest(factors: list[float]) -> int:
    """Level that makes the factor worse by most, given the factors of all levels, finest first.

    A cycle with the factor f on top of a direct solver is a preconditioner with a condition number
    of about 1 / (1 - f). The level multiplies this number by most.
    """
    conditions = [_condition(f) for f in factors] + [1.0]
    return int(np.argmax([a / b for a, b in pairwise(conditions)]))


def iterations(factor: float) -> int:
    """Iterations of conjugate gradients to 1e-9 that a cycle's reduction factor makes expect."""
    root = math.sqrt(_condition(factor))
    return math.ceil(math.log(2.0 / _TOLERANCE) / math.log((root + 1.0) / max(root - 1.0, 1e-9)))


def _condition(factor: float) -> float:
    return 1.0 / max(1.0 - factor, 1e-9)


def _seconds(M: Cycle, k: int) -> float:
    """Median time of a cycle that begins on level k."""
    size, times, updates = M.sizes[k], list[float](), M.updates
    M.rights[k][: size.own] = updates.put(scattered(size.first, size.own))
    for _ in range(5):
        updates.wait()
        begin = perf_counter()
        M.cycle_from(k)
        updates.wait()
        times.append(perf_counter() - begin)
    return float(np.median(times))


def factor(M: Cycle, k: int, cycles: int | None = None) -> float:
    """Factor by which a cycle from level k reduces the energy norm of slow errors. Collective.

    Conjugate gradients with the cycle as preconditioner begin with a scattered load, which contains
    slow and fast errors alike. Their coefficients give the matrix of Lanczos' method, whose extreme
    Ritz values show the slowest error after far fewer cycles than repeated cycles do. The
    factor grows with ``cycles``. By default slow cycles are measured longer. The factor is infinite
    if numbers overflow.
    """
    level, r = M.levels[k], M.rights[k]
    level.dual(level.scattered_error())
    if M.hierarchy.solver.singular:  # remove the null space from the load
        level.compiled.apply(M.cycle_from(k), r)
    direction, product = (M.updates.vector(level.size.own, r.dtype) for _ in range(2))
    alphas, betas, before, found = list[float](), list[float](), 0.0, 0.0
    first = length = 0.0
    for done in range(cycles or _MORE_CYCLES):
        if cycles is None and done == _CYCLES and found <= _LARGE:
            break
        z = M.cycle_from(k)
        energy = level.dot(r, z)
        first = first or abs(energy)
        if not abs(energy) > _SOLVED * first:
            return math.inf if math.isnan(energy) else found
        ratio = energy / before if done else 0.0
        direction *= ratio
        direction += z
        level.compiled.apply(direction, product)
        curvature = level.dot(direction, product)
        alphas.append(curvature / energy + (ratio / length if done else 0.0))
        if done:
            betas.append(math.sqrt(abs(ratio)) / length)
        found = _largest_factor(alphas, betas)
        if not (curvature > 0.0 and energy > 0.0 and found < math.inf):
            break
        before, length = energy, energy / curvature
        product *= length
        r -= product
    return found


def _largest_factor(alphas: list[float], betas: list[float]) -> float:
    """Largest factor of an error, by the matrix of Lanczos' method for cycles times operator."""
    matrix = np.diag(alphas) + np.diag(betas, 1) + np.diag(betas, -1)
    if not np.isfinite(matrix).all():
        return math.inf
    values = np.linalg.eigvalsh(matrix)
    return float(max(1.0 - values[0], values[-1] - 1.0))
