"""Measurements of the levels of a multigrid cycle: times, and reduction of errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from femops.solvers.multigrid.level import Level, Size, scattered
from femops_kernels.vector_updates import VectorUpdates

FACTOR_CYCLES = 9
"""Energies after which the reduction factor is that of the slowest error."""

_TOLERANCE = 1e-9  # of the solves whose iterations are estimated


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
        Factor by which a cycle that begins on this level reduces the energy norm of an error. Zero
        on the coarsest level, which is solved directly.
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


def factor(M: Cycle, k: int, cycles: int = FACTOR_CYCLES) -> float:
    """Factor by which a cycle from level k reduces the energy norm of an error. Collective.

    It is that of the last of ``cycles`` - 1 cycles, which begin with a scattered error. It is
    infinite if numbers overflow.
    """
    level, right = M.levels[k], M.rights[k]
    error = level.scattered_error()
    before = found = 0.0
    for done in range(cycles):
        level.compiled.apply(error, right)
        energy = max(level.dot(error, right), 0.0) ** 0.5
        found, before = (energy / before if before else 0.0), 1.0
        if done == cycles - 1 or not 0.0 < energy < np.inf:
            break
        error /= energy
        right /= energy
        error -= M.cycle_from(k)
    return math.inf if math.isnan(found) else found
