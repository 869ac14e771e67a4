"""mpi4py and MPI's launcher, and the end of all ranks when a rank fails."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from femops.errors import CommunicatorError, MissingExtraError, RankError
from femops.launchers import launched

_PRECEDENCE = 0.4, 2.0
"""Seconds that a rank waits, per lower rank and at most, so that a lower rank reports first."""

_FOLLOWING = 3.0
"""Seconds that a rank waits for the rank whose failure caused the error."""
# Seconds for the launcher to read the output before the ranks are aborted.
_DELIVERY = 0.05


def mpi() -> Any:
    """Import and return the module ``mpi4py.MPI``. The first import starts MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no library of MPI is found
        count, name = launched()
        why = (
            f"{count} processes were started ({name}), but they cannot" if name else "ranks cannot"
        )
        raise MissingExtraError(
            f"{why} exchange messages without mpi4py and an MPI library ({error}): "
            "pip install mpi4py mpich, or mpi4py alone for the MPI that is installed here"
        ) from error
    return MPI


def check_world() -> None:
    """Raise if a launcher of another MPI started this process."""
    MPI = mpi()
    count, name = launched()
    if count > 1 and MPI.COMM_WORLD.size == 1:
        beside = _mpiexec_beside()
        raise CommunicatorError(
            f"the launcher started {count} processes ({name}), but each is alone in COMM_WORLD: "
            f"mpi4py uses another MPI than the launcher's, {library()}. Start the program by the "
            f"mpiexec of that one{f', {beside}' if beside else ''}; or, to use the launcher's MPI, "
            "take mpi4py without the package mpich; with srun, try --mpi=pmi2 or pmix"
        )


def _mpiexec_beside() -> str | None:
    """Path of the launcher installed with this Python, if there is one."""
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent))


def mpiexec() -> str:
    """Path of the launcher: that of this Python, else that of the machine. Starts no MPI."""
    found = _mpiexec_beside() or shutil.which("mpiexec")
    if find_spec("mpi4py") is None or found is None:
        missing = "mpi4py" if find_spec("mpi4py") is None else "mpiexec"
        raise MissingExtraError(
            f"ranks cannot be started without {missing}: "
            "pip install mpi4py mpich, or mpi4py alone for the MPI that is installed here"
        )
    return found


def loaded() -> Any:
    """The module ``mpi4py.MPI`` if it has been imported, else None."""
    return sys.modules.get("mpi4py.MPI")


def library() -> str:
    """Name and version of the MPI library."""
    return " ".join(re.split("[\n,]", str(mpi().Get_library_version()))[0].split())


@cache
def end_all_on_errors() -> None:
    """Let an uncaught exception on one rank end all ranks.

    Otherwise other ranks would wait for messages forever. For a single rank nothing changes.
    """
    if mpi().COMM_WORLD.size == 1:
        return
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        end_all(error, lambda: before(kind, error, trace))

    sys.excepthook = hook


def end_all(error: BaseException, report: Callable[[], None]) -> None:
    """Report an error of this rank, and end all ranks.

    If several ranks fail in the same way, the lowest rank reports. A rank with a `RankError` waits
    until the failed rank has reported its error.
    """
    world = _several()
    if world is None:
        report()
        return
    each, most = _PRECEDENCE
    time.sleep(_FOLLOWING if isinstance(error, RankError) else min(each * world.rank, most))
    sys.stderr.write(f"femops: rank {world.rank} of {world.size} failed, which ends all ranks:\n")
    report()
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_DELIVERY)
    world.Abort(1)


def _several() -> Any:
    """Return ``COMM_WORLD`` if MPI runs and has several ranks, else None."""
    MPI = loaded()
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return None
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None
