"""Number of processes that a launcher started. The module imports nothing else of femops."""

from __future__ import annotations

import os
import re

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""Environment variables in which launchers store the number of processes.

They belong to MPICH and its descendants (the process manager Hydra, Intel MPI, Cray, ``srun`` with
PMI-2), Open MPI ("Environment variables set for MPI applications" in its documentation), MVAPICH2.
"""

_SLURM = "SLURM_STEP_NUM_TASKS"
"""The same variable of ``srun`` (see its manual, "Output environment variables").

It is read only if no variable of `_SIZES` is set, because an ``mpiexec`` may start its helpers by
``srun``, which then counts the helpers. ``SLURM_NTASKS`` will not do, because batch scripts, which
run once, have it too.
"""


_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
"""Environment variables in which launchers store the number of this process."""


def first_of_launcher() -> bool:
    """True if the launcher numbers this process 0, or gives no number."""
    return {os.environ.get(name, "0") for name in _RANKS} == {"0"}


def launched() -> tuple[int, str]:
    """Number of processes that the launcher started (1 without launcher), and its variable."""
    for names in (_SIZES, (_SLURM,)):
        sizes = [
            (int(size), name)
            for name in names
            if re.fullmatch("[0-9]{1,9}", size := os.environ.get(name, ""))
        ]
        if sizes:
            return max(sizes)
    return 1, ""
