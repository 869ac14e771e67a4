"""The one door to peers: whether they are installed, and a process for each of their operators.

A process of its own, as a library may abort where another would raise, and prints what it likes.
"""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.child import Child
from femops.bench.problems import Problem
from femops.errors import OperatorError
from femops.spaces.h1_l2 import H1

PEERS = ("libceed", "mfem")
PEER_PROBLEMS = ("bp1", "bp3")
PEER_MESH = "cartesian"
"""The mesh that peers run on; they store numbers at every point, as on any other."""

PEER_TOLERANCE = 1e-10
"""By how much (relative) norms of a peer's result may differ from ours."""

_CHILD = "femops.bench.peers.child"
_PATIENCE = 60.0  # seconds for a library to load


def wave(x: NDArray[Any]) -> NDArray[Any]:
    """A function with no symmetry that would hide a direction mistaken for another, (dim, n)."""
    values: NDArray[Any] = np.sin(3.0 * x[0] + 1.0) * np.cos(2.0 * x[1]) * (1.0 + x[2])
    return values


class PeerOperator(ABC):
    """An operator of a peer, applied to `wave`, interpolated.

    Attributes
    ----------
    label : str
        Name, version and kind.
    x, y : (ndofs,) float64
        Vectors, in whatever order of dofs; y is written by `apply`.
    """

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    @abstractmethod
    def apply(self) -> None:
        """Set y = A x."""


def norms(x: NDArray[Any], y: NDArray[Any]) -> list[float]:
    """Numbers by which operators are compared: the norm of y = A x, and x . y."""
    return [float(np.linalg.norm(y)), float(x @ y)]


def check_peers(names: Iterable[str]) -> None:
    """Check names of peers.

    Raises
    ------
    OperatorError
        An unknown one.
    """
    for name in names:
        if name not in PEERS:
            raise OperatorError(f"peer {name!r}: choose one of {', '.join(PEERS)}")


@cache
def why_not(name: str) -> str:
    """Why a peer cannot be used, one line; empty where it can."""
    if find_spec(name) is None:
        return f"{name} is not installed: pip install {name}"
    command = [sys.executable, "-m", _CHILD, name, "--probe"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{name} cannot be used: it does not load within {_PATIENCE:g} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ends with code {done.returncode}"]
        return f"{name} cannot be used: {lines[-1]}"
    return ""


@final
class Peer:
    """A peer's operator, ready to be timed; close it by leaving a ``with`` block.

    Of the space, on `PEER_MESH`, it has one of the same order and number of dofs.

    Attributes
    ----------
    label : str
        Name, version and kind.
    norms : list of float
        See `norms`, of `wave` interpolated.

    Raises
    ------
    OperatorError
        The peer has failed.
    """

    def __init__(self, name: str, problem: Problem, space: H1) -> None:
        command = [sys.executable, "-m", _CHILD, name]
        self._child = Child(f"the process of {name} has ended with code", command, patience=0.1)
        request = {"problem": problem.name, "order": space.order, "dofs": space.size}
        try:
            answer = self._child.ask(request)
        except BaseException:
            self.close()
            raise
        self.label: str = answer["label"]
        self.norms: list[float] = answer["norms"]

    @staticmethod
    def knows(problem: Problem) -> bool:
        """True if peers can do a problem."""
        return problem.name in PEER_PROBLEMS

    def difference(self, problem: Problem, space: H1) -> float:
        """Largest relative difference of the norms from those of femops."""
        u = space.interpolate(wave)
        ours = norms(u, problem.operator(space) @ u)
        return max(abs(a - b) / abs(b) for a, b in zip(self.norms, ours, strict=True))

    def time(self, seconds: float) -> float:
        """Median seconds of applications for about that long (at least three)."""
        return float(self._child.ask({"seconds": seconds})["median"])

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
