"""Reports of a running iteration: norms, progress and callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.parallel.comm import Communicator, Serial, check
from femops.spaces.memory import HasMemory
from femops_common.arguments import check_takes

Vector = NDArray[Any]
Progress = Callable[[int, float], Any]
"""Called with the number of iterations and the norm of the residual."""
Callback = Callable[[Vector], Any]
"""Called with a view of the iterate."""


ALONE = Serial()
_TAKEN = {"progress": "(iterations, residual)", "callback": "(x)"}


def read_only(space: HasMemory, iterate: Vector) -> Vector:
    """View (size,) of an iterate for a callback, read-only if the memory supports this."""
    view = iterate.view()
    space.memory.protect(view)
    return view


def on_all_ranks(callback: Callable[..., Any] | None, comm: Communicator) -> Any:
    """Return a function that calls a rank's callback. If it raises on a rank, all ranks raise.

    None if no rank has a callback. Collective, and so is the function.
    """
    if not comm.max(int(callback is not None)):
        return None

    def call(*given: Any) -> None:
        with check(comm):
            if callback is not None:
                callback(*given)

    return call


def _refused(call: str, reason: str) -> SolverError:
    return SolverError(f"the solver calls {call}: {reason}")


@final
class Watch:
    """Keeps the residual norms of a solve, and calls the user's ``progress`` and ``callback``.

    Some ranks may have functions, and others none. If a function raises, all ranks raise.
    Collective, as all methods.

    Parameters
    ----------
    history : bool
        Whether to keep the norms.
    progress : callable, optional
    callback : callable, optional
    comm : Communicator
    exponent : int
        Norms and iterates are multiplied by this power of two before they are reported.
    arrays : module
        NumPy, or the module with the same functions for iterates of a device.

    Attributes
    ----------
    norms : list of float
        Norms of the residual before the first iteration and after each. Empty without ``history``.
    exponent : int
        See the parameter. It may be set until the first report.
    shows : bool
        Whether a rank has a callback.

    Raises
    ------
    SolverError
        ``progress`` or ``callback`` cannot be called with the right arguments.
    """

    def __init__(
        self,
        history: bool,
        progress: Progress | None,
        callback: Callback | None,
        comm: Communicator = ALONE,
        exponent: int = 0,
        arrays: Any = np,
    ) -> None:
        self.norms: list[float] = []
        with check(comm):
            told = ("progress", progress, (0, 0.0)), ("callback", callback, (0,))
            for name, function, given in told:
                if function is not None:
                    check_takes(function, given, partial(_refused, f"{name}{_TAKEN[name]}"))
        self._history, self._progress, self.callback = history, progress, callback
        self.exponent, self._comm, self._arrays = exponent, comm, arrays
        mine = np.array([history, callback is not None, progress is not None], dtype=np.int64)
        self._keeps, self.shows, self._told = map(bool, comm.max(mine).tolist())

    @property
    def each(self) -> bool:
        """True if every iteration has to be reported on a rank."""
        return self._keeps or self.shows

    @property
    def idle(self) -> bool:
        """True if the solve reports nothing on any rank: no history, progress or callback."""
        return not (self.each or self._told)

    def tell(self, iterations: int, norm: float, iterate: Callable[[], Vector]) -> None:
        """Report an iteration. ``iterate()`` is called only if there is a callback."""
        norm = math.ldexp(norm, self.exponent)
        if self._history:
            self.norms.append(norm)
        if not (self.shows or self._told):
            return
        with check(self._comm):
            if self._progress:
                self._progress(iterations, norm)
            if self.callback and iterations:
                x = iterate()
                self.callback(self._arrays.ldexp(x, self.exponent) if self.exponent else x)
