"""The one door to peers: whether they are installed, and a process for each of their operators.

A process of its own, as a library may abort where another would raise, and prints what it likes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from types import TracebackType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.problems import Problem
from femops.errors import OperatorError
from femops.spaces.h1_l2 import H1

PEERS = ("libceed", "mfem")
PEER_PROBLEMS = ("bp1", "bp3")
PEER_MESH = "cartesian"
"""The mesh that peers run on; they store numbers at every point, as on any other."""

AGREEMENT = 1e-10
"""By how much (relative) norms of a peer's result may differ from ours."""

_CHILD = "femops.bench.peers.child"
_PATIENCE = 60.0  # seconds for a library to load


def wave(x: NDArray[Any]) -> NDArray[Any]:
    """A function with no symmetry that would hide a direction mistaken for another, (dim, n)."""
    values: NDArray[Any] = np.sin(3.0 * x[0] + 1.0) * np.cos(2.0 * x[1]) * (1.0 + x[2])
    return values


def norms(x: NDArray[Any], y: NDArray[Any]) -> list[float]:
    """What operators are compared by: the norm of y = A x, and x . y."""
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
        return f"{name} is not installed: pip install 'femops[peers]'"
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

    Parameters
    ----------
    name : {"libceed", "mfem"}
    problem : Problem
    space : H1
        Of femops, on `PEER_MESH`; the peer has one of the same order and number of dofs.

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
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", _CHILD, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        request = {"problem": problem.name, "order": space.order, "dofs": space.size}
        try:
            answer = self._ask(request)
        except BaseException:
            self.close()
            raise
        self.label: str = answer["label"]
        self.norms: list[float] = answer["norms"]

    @staticmethod
    def knows(problem: Problem) -> bool:
        """Whether peers can do a problem."""
        return problem.name in PEER_PROBLEMS

    def disagreement(self, problem: Problem, space: H1) -> float:
        """Largest relative difference of the norms from those of femops."""
        u = space.interpolate(wave)
        ours = norms(u, problem.operator(space) @ u)
        return max(abs(a - b) / abs(b) for a, b in zip(self.norms, ours, strict=True))

    def time(self, seconds: float) -> float:
        """Median seconds of applications for about that long (at least three)."""
        return float(self._ask({"seconds": seconds})["median"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise OperatorError(f"the process of {self.name} has ended with code {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # what could not be written to a process that has ended is tried once more
                with suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
