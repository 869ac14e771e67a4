"""Whole solves by peers: Poisson's equation on bent hexahedra, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from femops.bench.problems import per_direction
from femops.errors import OperatorError

SOLVERS = ("ngsolve", "mfem")
"""NGSolve with BDDC and static condensation, MFEM with partial assembly."""

_MODULE = "femops.bench.peers.solves"
_PATIENCE = 600.0  # seconds


def check_solvers(names: Sequence[str]) -> None:
    """Check names of peers that solve.

    Raises
    ------
    OperatorError
        An unknown one.
    """
    for name in names:
        if name not in SOLVERS:
            raise OperatorError(f"peer {name!r}: choose one of {', '.join(SOLVERS)}")


def peer_solve(name: str, order: int, dofs: float) -> dict[str, Any] | str:
    """Setup and solve by a peer on one core, with values imposed on the boundary and a load of one.

    Parameters
    ----------
    name : {"ngsolve", "mfem"}
    order : int
    dofs : float
        See `femops.bench.problems.make_mesh`, whose mesh ``multilinear`` is solved on.

    Returns
    -------
    dict or str
        ``label``, ``dofs``, ``iterations``, ``seconds_setup``, ``seconds_solve`` and ``integral``
        of the solution; or one line that says why there is nothing.
    """
    command = [sys.executable, "-m", _MODULE, name, str(order), str(per_direction(order, dofs))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{name}: nothing within {_PATIENCE:g} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ends with code {done.returncode}"]
        return f"{name}: {lines[-1]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _main(name: str, order: int, n: int) -> None:
    """Solve, and print what came of it as the last line."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if name == "ngsolve":
        from femops.bench.peers.with_ngsolve import solve
    else:
        from femops.bench.peers.with_mfem import solve
    sys.stdout.write(json.dumps(solve(order, n)) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
