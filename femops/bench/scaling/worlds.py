"""Ranks started by mpiexec, which carry out requests."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, closing
from typing import Any, final

from femops import launchers
from femops.bench.child import Child
from femops.errors import OperatorError
from femops.parallel import launch

_WORKER = "femops.bench.scaling.worker"
_ENVIRONMENT = {
    # Open MPI starts more ranks than cores only if told to
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # one thread for each rank, also in BLAS
    **dict.fromkeys(
        ("FEMOPS_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"
    ),
}


def check_alone() -> str:
    """Check that ranks can be started, and return the command; see `World`."""
    mpiexec, (count, name) = launch.mpiexec(), launchers.launched()
    if count > 1:
        raise OperatorError(
            f"'bench scaling' starts its ranks itself, but is one of {count} ({name}): "
            "run it without mpiexec"
        )
    return mpiexec


@final
class World:
    """Ranks with one thread each, pinned to its own core, which sleep between requests."""

    def __init__(self, ranks: int) -> None:
        command = [check_alone(), "-n", str(ranks), sys.executable, "-m", _WORKER]
        failed = f"{ranks} ranks failed, mpiexec ended with"
        self.ranks, self._child = ranks, Child(failed, command, _ENVIRONMENT)
        self.close = self._child.close

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Let all ranks call a method of `worker.Worker`, and return the answer."""
        return self._child.ask({"do": do} | arguments)


def started(ranks: int) -> AbstractContextManager[World]:
    """Start a world, which ends with the ``with`` block."""
    return closing(World(ranks))
