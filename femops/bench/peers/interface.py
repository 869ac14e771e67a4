"""Interface to peers, other libraries: checks of their installation, and processes that run them.

Each operator of a peer runs in its own process, because a library may print, or abort instead of
raising an error.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.child import Child, run_once
from femops.bench.problems import Problem, per_direction
from femops.spaces.h1_l2 import H1

PEERS = ("libceed", "mfem")
SOLVERS = ("ngsolve", "mfem")
"""NGSolve with BDDC and static condensation, MFEM with partial assembly."""

PEER_PROBLEMS = ("bp1", "bp3")
PEER_MESH = "cartesian"
"""Mesh of the peers. They store numbers at every point, as on any other mesh."""

PEER_TOLERANCE = 1e-10
"""Largest relative difference of the norms of a peer's result from those of femops."""

_CHILD = "femops.bench.peers.child"
_PATIENCE = 600.0  # seconds for a library to solve


def wave(x: NDArray[Any]) -> NDArray[Any]:
    """Function (n,) of positions (3, n). It has no symmetry, so swapped directions are noticed."""
    values: NDArray[Any] = np.sin(3.0 * x[0] + 1.0) * np.cos(2.0 * x[1]) * (1.0 + x[2])
    return values


class PeerOperator(ABC):
    """An operator of a peer, with the interpolant of `wave` as input vector.

    Attributes
    ----------
    label : str
        Name, version and kind.
    x, y : (ndofs,) float64
        Vectors in the peer's order of dofs.  `apply` sets y.
    """

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    @abstractmethod
    def apply(self) -> None:
        """Set y = A x."""


def norms(x: NDArray[Any], y: NDArray[Any]) -> list[float]:
    """Norm of y = A x, and x . y, by which operators are compared; both vectors are (ndofs,)."""
    return [float(np.linalg.norm(y)), float(x @ y)]


def why_not(name: str) -> str:
    """Reason why a peer cannot be used, in one line; empty if it is installed."""
    return "" if find_spec(name) else f"{name} is not installed: pip install {name}"


def _command(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", _CHILD, name, *words]


def peer_solve(name: str, order: int, dofs: float) -> dict[str, Any] | str:
    """Let a peer set up and solve Poisson's equation with a load of one, on one core.

    Parameters
    ----------
    name : str
        A name in `SOLVERS`.
    order : int
    dofs : float
        Approximate number of dofs on the mesh ``multilinear`` of `femops.bench.problems.make_mesh`.

    Returns
    -------
    dict or str
        ``label``, ``dofs``, ``iterations``, ``seconds_setup``, ``seconds_solve`` and ``integral``
        of the solution; or one line with the reason of a failure.
    """
    words = "solve", str(order), str(per_direction(order, dofs))
    said, fault = run_once(_command(name, *words), _PATIENCE)
    return f"{name}: {fault}" if fault else dict(json.loads(said.splitlines()[-1]))


@final
class Peer:
    """A peer's operator in another process, ready to be timed until it is closed.

    The peer makes its own space on `PEER_MESH`, with the order and number of dofs of ``space``.

    Attributes
    ----------
    label : str
        Name, version and kind.
    norms : list of float
        See `norms`; the input vector is the interpolant of `wave`.

    Raises
    ------
    OperatorError
        The peer has failed.
    """

    def __init__(self, name: str, problem: Problem, space: H1) -> None:
        failed = f"the process of {name} has ended with code"
        self._child = Child(failed, _command(name, "serve"), patience=0.1)
        self.close = self._child.close
        request = {"problem": problem.name, "order": space.order, "dofs": space.size}
        try:
            answer = self._child.ask(request)
        except BaseException:
            self.close()
            raise
        self.label: str = answer["label"]
        self.norms: list[float] = answer["norms"]

    def difference(self, problem: Problem, space: H1) -> float:
        """Largest relative difference of the norms from those of femops."""
        u = space.interpolate(wave)
        ours = norms(u, problem.operator(space) @ u)
        return max(abs(a - b) / abs(b) for a, b in zip(self.norms, ours, strict=True))

    def time(self, seconds: float) -> float:
        """Median seconds of an application, timed for about ``seconds`` (at least three times)."""
        return float(self._child.ask({"seconds": seconds})["median"])
