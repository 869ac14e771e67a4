"""Progress of a run on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from femops.hydro import Simulation
    from femops.parallel import Communicator

_PROGRESS_SECONDS = 0.1


def teller(
    update: Callable[[str], None], what: str, comm: Communicator
) -> Callable[[Simulation], None] | None:
    """Return a function that shows steps, some times a second. None without a terminal.

    The call and the returned function are collective. Rank 0 has the terminal and decides for all.
    """
    if not comm.broadcast(sys.stderr.isatty()):
        return None
    last = [0.0]

    def tell(run: Simulation) -> None:
        now = perf_counter()
        if comm.broadcast(now - last[0] > _PROGRESS_SECONDS):
            last[0] = now
            update(
                f"{what}: step {run.steps}, t = {run.t:.4f}, dt = {run.dt:.2e}, "
                f"|e| = {run.e_norm:.6e}"
            )

    return tell
