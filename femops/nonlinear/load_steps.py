"""Loads in steps whose sizes follow from the last ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, final

from numpy.typing import NDArray

from femops.errors import LawError, RankError, SolverError
from femops.solvers.convergence import warn_unconverged
from femops.solvers.newton_equation import is_of_ranks
from femops.solvers.watch import ALONE
from femops_common.arguments import Count, check_takes, checked, real_numbers, shown

Vector = NDArray[Any]
Solve = Callable[[float, Vector], Any]
Positive = Annotated[float, real_numbers(math.ulp(0.0))]
LEAST, MOST = 0.5, 2.0  # factors between which a step follows from the iterations of the last one


def next_factor(iterations: int, wanted: int) -> float:
    """Factor of the next step after a number of Newton iterations (Crisfield, 1981)."""
    return min(MOST, max(LEAST, math.sqrt(max(wanted, 1) / max(iterations, 1))))


@final
@dataclass(frozen=True)
class LoadStep:
    """Report of a step of `femops.load_steps`.

    Attributes
    ----------
    load : float
        The load of the state.
    size : float
        Change of the load in this step.
    tries : int
        Number of solves for this step. Each but the last one has failed, for a larger step.
    info : NewtonInfo
        What the user's function has returned.
    """

    load: float
    size: float
    tries: int
    info: Any

    @property
    def iterations(self) -> int:
        """Newton iterations of the last solve."""
        return int(self.info.iterations)


@final
class LoadSteps(Iterator[tuple[Vector, LoadStep]]):
    """Iterator over states under growing loads. `femops.load_steps` makes it.

    Attributes
    ----------
    load : float
        Load of the last good state.
    u : (size,) array
        The last good state.
    reason : str
        Empty while steps go on, then the reason for which they have ended.
    """

    def __init__(
        self,
        solve: Solve,
        u0: Vector,
        loads: tuple[float, float],
        sizes: tuple[float, float, float],
        *,
        wanted: int,
        warn: bool,
    ) -> None:
        self.load, self._end = loads
        self._first, self._smallest, self._largest = sizes
        self._solve, self._wanted, self._warn = solve, wanted, warn
        self.u, self.reason = u0.copy(), ""
        self._steps = self._run()

    @property
    def converged(self) -> bool:
        """True if the last good state has the whole load."""
        return self.load == self._end

    def __next__(self) -> tuple[Vector, LoadStep]:
        return next(self._steps)

    def __repr__(self) -> str:
        return f"LoadSteps(load {self.load:g} of {self._end:g}{self.reason and ', '}{self.reason})"

    def _run(self) -> Iterator[tuple[Vector, LoadStep]]:
        sign, size, tries = math.copysign(1.0, self._end - self.load), self._first, 0
        while not self.converged:
            left = abs(self._end - self.load)
            size = left if size > left * (1.0 - 1e-9) else size
            load = self._end if size == left else self.load + sign * size
            tries += 1
            u, info, failure = self._tried(load)
            if failure:
                size *= 0.5
                if size < self._smallest:
                    self._give_up(load, failure)
                    return
                continue
            step = LoadStep(load, load - self.load, tries, info)
            self.load, self.u, tries = load, u, 0
            size = min(self._largest, size * next_factor(step.iterations, self._wanted))
            yield u.copy(), step
        self.reason = "the whole load is applied"

    def _tried(self, load: float) -> tuple[Vector, Any, str]:
        """State and report of a solve, or the reason for which it failed."""
        try:
            found = self._solve(load, self.u.copy())
        except (SolverError, LawError) as error:
            return self.u, None, str(error)
        except RankError as error:  # another rank has one of these
            if not is_of_ranks(error, SolverError, LawError):
                raise
            return self.u, None, str(error)
        if not (isinstance(found, tuple) and len(found) == 2 and hasattr(found[1], "iterations")):
            raise SolverError(
                f"solve(load, u) returned {shown(found)}: return (u, info), as femops.newton does"
            )
        u, info = found
        return u, info, "" if info.converged else getattr(info, "reason", "") or "not converged"

    def _give_up(self, load: float, failure: str) -> None:
        self.reason = (
            f"no step smaller than {self._smallest:.2g} is tried, and the solve at {load:.6g} "
            f"failed: {failure}"
        )
        if self._warn:
            warn_unconverged(
                f"femops.load_steps ends at the load {self.load:.6g} of {self._end:g}: "
                f"{self.reason}. If the load has a maximum there, femops.continuation goes on "
                "beyond it.",
                ALONE,  # whose ranks these are, only the function knows
            )


def _refused(reason: str) -> SolverError:
    return SolverError(f"load_steps calls solve(load, u): {reason}")


@checked(SolverError)
def load_steps(
    solve: Solve,
    u0: NDArray[Any],
    to: float = 1.0,
    *,
    start: float = 0.0,
    first: Positive = 0.1,
    smallest: Positive | None = None,
    largest: Positive | None = None,
    wanted: Count = 8,
    warn: bool = True,
) -> LoadSteps:
    """Apply a load in steps whose sizes follow from the last ones.

    A step grows after a solve with few Newton iterations, and shrinks after one with many: by the
    root of ``wanted`` over their number, between 1/2 and 2. A step that fails is halved, and begins
    again at the last good state. A solve fails if it has not converged, or raises a `SolverError`
    or `LawError`.

    Parameters
    ----------
    solve : callable
        ``solve(load, u)`` solves under a load and returns ``(u, info)``, as `femops.newton` does
        with ``warn=False``. u is a copy of the last good state.
    u0 : (size,) array
        State at the load ``start``.
    to, start : float
        Last and first load. What a load is the function says: a factor, a stretch, a time.
    first, smallest, largest : float
        Sizes of the first step, of the smallest one (by default 2**-10 of the first) and of the
        largest one (no limit).
    wanted : int
        Newton iterations of a good step.
    warn : bool
        Whether to issue a `ConvergenceWarning` if the steps end before the whole load.

    Returns
    -------
    LoadSteps
        An iterator over ``(u, step)``, with a `LoadStep`. After the loop its ``converged`` and
        ``reason`` tell how it has ended, and its ``u`` and ``load`` are the last good ones. The
        loop's body may do what a step ends with, such as `History.commit`.

    Raises
    ------
    SolverError
        Arguments that make no sense, or a function that returns something else.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning contains ``reason``.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 1), upper=(4.0, 0.5)), order=2, ncomp=2)
    >>> F = femops.neo_hookean(V, lam=1.0, mu=1.0).constrained(V.boundary_dofs(1))
    >>> b = femops.boundary_load(V, (0.0, 0.02), 2)
    >>> def solve(load, u):
    ...     return femops.newton(F, u, load * b, warn=False)
    >>> steps = femops.load_steps(solve, V.zeros(), first=0.25)
    >>> loads = [step.load for u, step in steps]
    >>> loads[0], loads[-1], steps.converged
    (0.25, 1.0, True)
    """
    check_takes(solve, (0.0, None), _refused)
    if not hasattr(u0, "copy") or not isinstance(getattr(u0, "shape", None), tuple):
        raise SolverError(f"u0 is {shown(u0)}: give a vector of the space")
    smallest = first * 2.0**-10 if smallest is None else smallest
    sizes = first, smallest, math.inf if largest is None else largest
    if not sizes[1] <= first <= sizes[2]:
        raise SolverError(
            f"the first step {first:g} is not between the smallest, {smallest:g}, and the largest"
        )
    return LoadSteps(solve, u0, (start, to), sizes, wanted=wanted, warn=warn)
