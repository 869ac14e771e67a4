"""Benchmark of discontinuous functions: interior penalty and upwind convection beside bp3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from femops.basis import gauss
from femops.bench.machine import Meter, using
from femops.bench.problems import Progress, check_asked, choose, default_dofs, make_mesh
from femops.bench.timing import in_turns, median_seconds, medians
from femops.forms import diffusion, interior_penalty, load, upwind_convection
from femops.operators import Operator
from femops.solvers import cg, multigrid
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops_meshes import Mesh

_VELOCITY = np.array([1.0, 2.0, 3.0])
_REFERENCE = "bp3"
_RTOL = 1e-9


def _penalty(V: Space) -> Operator:
    return interior_penalty(V, quadrature=gauss(V.order + 2))


def _upwind(V: Space) -> Operator:
    return upwind_convection(V, _VELOCITY, quadrature=gauss(V.order + 2))


def _bp3(V: Space) -> Operator:
    return diffusion(V, quadrature=gauss(V.order + 2))


PROBLEMS: dict[str, tuple[Callable[..., Space], Callable[[Space], Operator]]] = {
    _REFERENCE: (H1, _bp3),
    "sip": (L2, _penalty),
    "sip hermite": (partial(L2, family="hermite"), _penalty),
    "advection": (L2, _upwind),
    "advection gll": (partial(L2, family="gll"), _upwind),
}
"""Space and operator by name.

``gll`` has nodes on faces, so values there depend on these only. With ``hermite`` values and
derivatives there depend on two layers of nodes.
"""

_SOLVED = _REFERENCE, "sip", "sip hermite"


def run_faces(
    problems: Sequence[str] = tuple(PROBLEMS),
    meshes: Sequence[str] = ("multilinear",),
    orders: Sequence[int] = (2, 4, 6, 8),
    *,
    footprint: str = "ram",
    solves: bool = True,
    threads: int = 1,
    rounds: int = 5,
    seconds: float = 0.05,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Time products with each operator in turns, and solves with multigrid."""
    check_asked(meshes=meshes, orders=orders, footprints=(footprint,), rounds=rounds)
    choose("problem", problems, PROBLEMS)
    meter, rows, solved = Meter((threads,)), list[dict[str, Any]](), list[dict[str, Any]]()
    names = list(dict.fromkeys([_REFERENCE, *problems]))
    for order, kind in dict.fromkeys(product(orders, meshes)):
        progress(f"order {order}, {kind}")
        mesh = make_mesh(kind, order, default_dofs(footprint, order))
        operators = {name: _made(name, mesh, order) for name in names}
        facts = {"mesh": kind, "order": order, "threads": threads}
        with using(threads):
            calls = {name: partial(_timed, A, seconds) for name, A in operators.items()}
            times = medians(in_turns(calls, rounds, meter.round))
            rows += _rows(facts, operators, times, "seconds_median")
            if solves and len(named := [name for name in _SOLVED if name in names]) > 1:
                solved += _solves(facts, {name: operators[name] for name in named})
    return {"machine": meter.describe(), "rows": rows, "solves": solved}


def _made(name: str, mesh: Mesh, order: int) -> Operator:
    space, operator = PROBLEMS[name]
    return operator(space(mesh, order))


def _timed(A: Operator, seconds: float) -> float:
    x, y = np.ones(A.space.size), A.space.zeros()
    return median_seconds(partial(A.apply, x, y), seconds)


def _rows(
    facts: dict[str, Any], operators: dict[str, Operator], times: dict[str, float], key: str
) -> list[dict[str, Any]]:
    """Rows with the time of a dof over that of bp3."""
    each = {name: times[name] / operators[name].space.size for name in times}
    return [
        {"problem": name}
        | facts
        | {"dofs": operators[name].space.size, key: times[name]}
        | {"dofs_per_second": 1.0 / each[name], "over_bp3": each[name] / each[_REFERENCE]}
        for name in times
    ]


def _solves(facts: dict[str, Any], operators: dict[str, Operator]) -> list[dict[str, Any]]:
    """Solve Poisson's equation with continuous and with discontinuous functions."""
    times, more = {}, {}
    for name, A in operators.items():
        B = A.constrained(A.space.boundary_dofs()) if name == _REFERENCE else A
        b, begin = B.rhs(load(B.space, 1.0)), perf_counter()
        M = multigrid(B)
        more[name] = {"seconds_setup": perf_counter() - begin}
        cg(B, b, M=M, rtol=_RTOL, warn=False)  # compiles the kernels
        begin = perf_counter()
        _, info = cg(B, b, M=M, rtol=_RTOL, warn=False)
        times[name], more[name]["iterations"] = perf_counter() - begin, info.iterations
    return [row | more[row["problem"]] for row in _rows(facts, operators, times, "seconds_solve")]
