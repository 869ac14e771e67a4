"""Interface to peers, other libraries: checks of their installation, and processes that run them.

Each operator of a peer runs in its own process, because a library may print, or abort instead of
raising an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.child import Child, run_once
from femops.bench.problems import Problem, per_direction
from femops.spaces.h1_l2 import H1

PEERS = ("libceed", "mfem", "ngsolve", "scikit-fem", "warp-lang")
"""Peers with operators, by their names on PyPI."""

SOLVERS = ("ngsolve", "mfem", "scikit-fem", "warp-lang")
"""NGSolve with BDDC and static condensation, MFEM with partial assembly, scikit-fem with PyAMG,
Warp with Jacobi."""

PEER_PROBLEMS = ("bp1", "bp3")
PEER_MESHES = ("cartesian", "multilinear")
"""Meshes of the peers. On both the peers do the work that they do on any mesh."""

PEER_TOLERANCE = 1e-10
"""Largest relative difference of a peer's `energies` from those of femops."""

_MODULES = {"scikit-fem": "skfem", "warp-lang": "warp"}
_NEEDED = {"scikit-fem": "pyamg"}  # by its solve

_MOST_ORDER = {
    "scikit-fem": (2, "scikit-fem has hexahedra up to order 2"),
    "warp-lang": (2, "Warp takes minutes to assemble above order 2 on a CPU"),
}
"""Highest orders of peers, with the reasons."""

_ASSEMBLED = ("ngsolve", "scikit-fem", "warp-lang")
_ENTRIES = 1e7
"""Number of entries of an assembled matrix: 120 MB, more than the caches of most cores hold."""

_CHILD = "femops.bench.peers.child"
_PATIENCE = 600.0  # seconds for a library to solve


def first_function(x: Any, order: int) -> Any:
    """Polynomial of degree ``order`` of positions (3, n).

    Each space of this order on multilinear elements contains the polynomial, so that peers with any
    basis represent it exactly. It has no symmetry, so swapped directions are noticed.
    """
    return ((1.0 + x[0] + 2.0 * x[1] + 3.0 * x[2]) / 4.0) ** order


def second_function(x: Any, order: int) -> Any:
    """Another polynomial like `first_function`."""
    return ((1.0 + 3.0 * x[0] + x[1] + 2.0 * x[2]) / 4.0) ** order


@final
@dataclass(frozen=True)
class PeerOperator:
    """An operator of a peer."""

    label: str  # name, version and kind
    apply: Callable[[], Any]  # returns A x (ndofs,)
    # x and v are (ndofs,): `first_function` and `second_function` in the peer's basis and order
    # of dofs
    x: Any
    v: Any
    # level of femops that stores as much: ``full`` for a matrix, ``partial`` for numbers at
    # points, ``matrix-free`` for neither
    level: str = "partial"
    alive: Sequence[Any] = ()  # objects that the operator uses


def functions(space: H1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Vectors (ndofs,) of `first_function` and `second_function` in a space of femops."""
    x, v = (
        np.ascontiguousarray(space.interpolate(partial(function, order=space.order)))
        for function in (first_function, second_function)
    )
    return x, v


def energies(operator: PeerOperator) -> list[float]:
    """Energies x . y and v . y of y = A x. They compare operators, whatever the bases."""
    y = operator.apply()
    return [float(operator.x @ y), float(operator.v @ y)]


def why_not(name: str, order: int = 1, solving: bool = False) -> str:
    """Reason why a peer cannot be used at an order, in one line; empty if it can.

    ``solving`` asks for its solve too.
    """
    needed = {name: _MODULES.get(name, name)}
    if solving and name in _NEEDED:
        needed[_NEEDED[name]] = _NEEDED[name]
    for package, module in needed.items():
        if not find_spec(module):
            return f"{package} is not installed: pip install {package}"
    most, reason = _MOST_ORDER.get(name, (order, ""))
    return reason if order > most else ""


def peer_dofs(name: str, order: int, dofs: float) -> float:
    """Return the number of dofs for a peer: ``dofs``, but less for an assembled matrix.

    A row of the matrix has about (order + 2)**3 entries.
    """
    return min(dofs, _ENTRIES / (order + 2) ** 3) if name in _ASSEMBLED else dofs


def solved(
    label: str, dofs: int, iterations: int, setup: float, solve: float, integral: float
) -> dict[str, Any]:
    """Entries about a solve of Poisson's equation; the integral is that of load times solution."""
    facts = {"label": label, "dofs": dofs, "iterations": iterations}
    return facts | {"seconds_setup": setup, "seconds_solve": solve, "integral": integral}


def _command(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", _CHILD, name, *words]


def peer_solve(name: str, order: int, dofs: float) -> dict[str, Any] | str:
    """Let a peer set up and solve Poisson's equation with a load of one, on one core."""
    if reason := why_not(name, order, solving=True):
        return reason
    words = "solve", str(order), str(per_direction(order, dofs))
    said, fault = run_once(_command(name, *words), _PATIENCE)
    return f"{name}: {fault}" if fault else dict(json.loads(said.splitlines()[-1]))


@final
class Peer:
    """A peer's operator in another process, ready to be timed until it is closed.

    The peer makes its own space on the mesh of this kind, with the order and number of dofs of
    ``space``.
    """

    def __init__(self, name: str, problem: Problem, kind: str, space: H1) -> None:
        failed = f"the process of {name} has ended with code"
        self._child = Child(failed, _command(name, "serve"), patience=0.1)
        self.close = self._child.close
        request: dict[str, Any] = {"problem": problem.name, "mesh": kind}
        request |= {"order": space.order, "dofs": space.size}
        try:
            answer = self._child.ask(request)
        except BaseException:
            self.close()
            raise
        self.label: str = answer["label"]
        self.level: str = answer["level"]
        self.energies: list[float] = answer["energies"]

    def difference(self, problem: Problem, space: H1) -> float:
        """Largest relative difference of the energies from those of femops."""
        x, v = functions(space)
        y = problem.operator(space) @ x
        ours = float(x @ y), float(v @ y)
        return max(abs(a - b) / abs(b) for a, b in zip(self.energies, ours, strict=True))

    def time(self, seconds: float) -> float:
        """Median seconds of an application, timed for about ``seconds`` (at least three times)."""
        return float(self._child.ask({"seconds": seconds})["median"])
