"""Reports of a running iteration: norms, progress and callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops_meshes.arguments import check_takes

Vector = NDArray[Any]
Progress = Callable[[int, float], Any]
"""Called with the number of iterations and the norm of the residual."""
Callback = Callable[[Vector], Any]
"""Called with a view of the iterate."""


_TAKEN = {"progress": "(iterations, residual)", "callback": "(x)"}


def _refused(call: str, reason: str) -> SolverError:
    return SolverError(f"the solver calls {call}: {reason}")


@final
class Watch:
    """Keeps the residual norms of a solve, and calls the user's ``progress`` and ``callback``.

    Parameters
    ----------
    history : bool
        Whether to keep the norms.
    progress : callable, optional
    callback : callable, optional
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
        exponent: int = 0,
        arrays: Any = np,
    ) -> None:
        self.norms: list[float] = []
        for name, told, given in (("progress", progress, (0, 0.0)), ("callback", callback, (0,))):
            if told is not None:
                check_takes(told, given, partial(_refused, f"{name}{_TAKEN[name]}"))
        self._history, self._progress, self.callback = history, progress, callback
        self.exponent, self._arrays = exponent, arrays

    @property
    def each(self) -> bool:
        """True if every iteration has to be reported."""
        return self._history or self.callback is not None

    @property
    def idle(self) -> bool:
        """True if the solve reports nothing: no history, progress or callback."""
        return not self.each and self._progress is None

    def tell(self, iterations: int, norm: float, iterate: Callable[[], Vector]) -> None:
        """Report an iteration. ``iterate()`` is called only if there is a callback."""
        norm = math.ldexp(norm, self.exponent)
        if self._history:
            self.norms.append(norm)
        if self._progress:
            self._progress(iterations, norm)
        if self.callback and iterations:
            x = iterate()
            self.callback(self._arrays.ldexp(x, self.exponent) if self.exponent else x)
