"""Explicit Runge-Kutta methods that estimate their error and choose the length of their steps.

A pair of methods shares its stages. The solution is that of the higher order, the difference
estimates the error of the lower one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.parallel import Communicator
from femops.solvers.stage_vectors import StageVectors

Vector = NDArray[Any]
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 5.0  # factors of the next step
_BLOCK = 16384  # entries of a vector of the host whose errors are measured at a time, in cache
_SHORTEST = 1e-13  # part of the time, below which a step changes nothing


@final
@dataclass(frozen=True)
class Pair:
    """Pair of explicit methods. The last stage is the first one of the next step."""

    order: int  # order of the solution. The error estimate is of one order less.
    times: Sequence[float]  # (stages,)
    # factors of the earlier stages in each stage after the first; the last row is the solution
    rows: Sequence[Sequence[float]]
    errors: Sequence[float]  # (stages,): factors of the stages in the error


PAIRS = {
    "bs32": Pair(
        3,
        (0.0, 1 / 2, 3 / 4, 1.0),
        ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
        (-5 / 72, 1 / 12, 1 / 9, -1 / 8),
    ),
    "dp54": Pair(
        5,
        (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
        (
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        ),
        (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    ),
}
"""Pairs by name: P. Bogacki and L. Shampine, Appl. Math. Lett. 2 (1989); J. Dormand and P. Prince,
J. Comput. Appl. Math. 6 (1980)."""


@final
@dataclass(frozen=True)
class Tolerance:
    """Bound of the error of a step, in the mean square over all entries."""

    # rtol and atol: the bound of an entry's error is atol + rtol times its magnitude
    rtol: float
    atol: float
    comm: Communicator  # ranks that each have a part of the vectors

    def size(self, error: Vector, u: Vector, new: Vector) -> float:
        """Size of an error: 1 if it is as large as allowed, infinite if not finite. Collective."""
        block = _BLOCK if isinstance(error, np.ndarray) else max(len(error), 1)
        own = 0.0
        for begin in range(0, len(error), block):
            part = slice(begin, begin + block)
            bound = np.maximum(abs(u[part]), abs(new[part]))
            bound *= self.rtol
            bound += self.atol
            bound += bound == 0.0
            ratio = error[part] / bound
            own += float(ratio @ ratio)
        count = self.comm.sum(float(len(error)))
        square = self.comm.sum(own) / max(count, 1.0)
        return float(np.sqrt(square)) if np.isfinite(square) else np.inf


def take_steps(
    pair: Pair,
    f: Callable[[float, Vector], Vector],
    vectors: StageVectors,
    span: tuple[float, float],
    dt: float,
    tolerance: Tolerance,
    callback: Callable[[float, Vector], Any] | None,
) -> Vector:
    """Solve du/dt = f(t, u) from the beginning of ``span`` to its end. Collective."""
    t, end = span
    u, work = vectors.start, vectors.work(len(pair.times))
    vectors.set((work[0], ((1.0, f(t, u)),), None))
    least = _SHORTEST * max(abs(t), abs(end))
    while t < end:
        step, last = (end - t, True) if t + 1.0001 * dt >= end else (dt, False)
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is too long
            new, error, rate = _stages(pair, f, t, u, step, vectors)
            size = tolerance.size(error, u, new)
        if size <= 1.0:
            vectors.set((work[0], ((1.0, rate),), None))
            t, u, new = end if last else t + step, new, u
            if callback is not None:
                callback(t, vectors.shown(u))
        if size > 1.0 or callback is None:
            vectors.give_back(new)
        grown = _SAFETY * size ** (-1.0 / pair.order) if size else _MOST
        dt = step * min(max(grown, _LEAST), _MOST)
        if size > 1.0 and dt < least:
            raise SolverError(
                f"soon after t = {t:g} no step is short enough for the tolerances: look whether f "
                "is finite there, or give larger tolerances"
            )
    return u


def _stages(
    pair: Pair,
    f: Callable[[float, Vector], Vector],
    t: float,
    u: Vector,
    dt: float,
    vectors: StageVectors,
) -> tuple[Vector, Vector, Vector]:
    """Return the solution after a step, its error, and the rate there.

    The work space has the rates of all stages but the last, then a stage. The first rate is given.
    The others are copied, as f may return the same array each time. The error is in the place of
    the stage.
    """
    work, new = vectors.work(len(pair.times)), vectors.new()
    stage, rate = work[-1], None
    for n, (c, row) in enumerate(zip(pair.times[1:], pair.rows, strict=True), 1):
        out = stage if n < len(pair.rows) else new
        vectors.combine(out, [dt * a for a in row], (1.0, u), rate)
        rate = None  # its memory serves f again
        rate = f(t + c * dt, out)
    assert rate is not None
    *factors, last = (dt * a for a in pair.errors)
    vectors.combine(stage, factors, (last, rate))
    return new, stage, rate
