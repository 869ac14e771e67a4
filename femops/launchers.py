"""Number of processes that a launcher started. The module imports nothing else of femops."""

from __future__ import annotations

import os

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""Variables in which launchers give the number of processes that they started.

Those of MPICH and what descends from it (its process manager Hydra, Intel MPI, Cray, ``srun`` by
PMI-2), Open MPI ("Environment variables set for MPI applications" in its documentation), MVAPICH2.
"""

_SLURM = "SLURM_STEP_NUM_TASKS"
"""The same of ``srun`` (its manual, "Output environment variables").

It is asked only where none of the others is there: where an ``mpiexec`` starts its own helpers by
``srun`` it counts those. ``SLURM_NTASKS`` will not do: batch scripts, which run once, have it too.
"""


def launched() -> tuple[int, str]:
    """Number of processes that the launcher started (1 without launcher), and its variable."""
    for names in (_SIZES, (_SLURM,)):
        sizes = [
            (int(size), name) for name in names if (size := os.environ.get(name, "")).isdigit()
        ]
        if sizes:
            return max(sizes)
    return 1, ""
