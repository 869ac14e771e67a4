"""Benchmark of discontinuous functions: interior penalty and upwind convection beside bp3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from femops.basis import gauss
from femops.bench.machine import Meter, using
from femops.bench.problems import Progress, check_asked, choose, default_dofs, make_mesh
from femops.bench.timing import medians, stopwatch
from femops.forms import diffusion, interior_penalty, load, upwind_convection
from femops.operators import Operator
from femops.solvers import cg, multigrid
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops_meshes import Mesh

_REFERENCE = "bp3"
_RTOL = 1e-9
_upwind = partial(upwind_convection, velocity=np.array([1.0, 2.0, 3.0]))

PROBLEMS: dict[str, tuple[Callable[..., Space], Callable[..., Operator]]] = {
    _REFERENCE: (H1, diffusion),
    "sip": (L2, interior_penalty),
    "sip hermite": (partial(L2, family="hermite"), interior_penalty),
    "advection": (L2, _upwind),
    "advection gll": (partial(L2, family="gll"), _upwind),
}
"""Space and form by name.

``gll`` has nodes on faces, so values there depend on these only. With ``hermite`` values and
derivatives there depend on two layers of nodes.
"""

_SOLVED = _REFERENCE, "sip", "sip hermite"
Row = dict[str, Any]


def operator_of(name: str, mesh: Mesh, order: int, **options: Any) -> Operator:
    """Make the operator of one of `PROBLEMS`, on a new space with ``options``."""
    space, form = PROBLEMS[name]
    return form(space(mesh, order, **options), quadrature=gauss(order + 2))


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
    meter, rows, solved = Meter((threads,)), list[Row](), list[Row]()
    names = list(dict.fromkeys([_REFERENCE, *problems]))
    named = [name for name in _SOLVED if name in names]
    for order, kind in dict.fromkeys(product(orders, meshes)):
        progress(f"order {order}, {kind}")
        mesh = make_mesh(kind, order, default_dofs(footprint, order))
        operators = {name: operator_of(name, mesh, order) for name in names}
        dofs = {name: A.space.size for name, A in operators.items()}
        facts = {"mesh": kind, "order": order, "threads": threads}
        with using(threads):
            calls = {
                name: partial(A.apply, np.ones(A.space.size), A.space.zeros())
                for name, A in operators.items()
            }
            times = medians(meter.turns(calls, threads, rounds, seconds))
            rows += _rows(facts, dofs, times, "median")
            if solves and len(named) > 1:
                found = {name: _solve(operators[name], name == _REFERENCE) for name in named}
                times = {name: row.pop("seconds_solve") for name, row in found.items()}
                solved += [
                    row | found[row["problem"]] for row in _rows(facts, dofs, times, "solve")
                ]
    return {"machine": meter.describe(), "rows": rows, "solves": solved}


def _rows(facts: Row, dofs: dict[str, int], times: dict[str, float], what: str) -> list[Row]:
    """Rows with the time of a dof over that of bp3."""
    each = {name: times[name] / dofs[name] for name in times}
    return [
        {"problem": name, **facts, "dofs": dofs[name], f"seconds_{what}": times[name]}
        | {"dofs_per_second": 1.0 / each[name], "over_bp3": each[name] / each[_REFERENCE]}
        for name in times
    ]


def _solve(A: Operator, continuous: bool) -> Row:
    """Solve Poisson's equation with multigrid."""
    B = A.constrained(A.space.boundary_dofs()) if continuous else A
    b, lap = B.rhs(load(B.space, 1.0)), stopwatch()
    M = multigrid(B)
    found = {"seconds_setup": lap()}
    cg(B, b, M=M, rtol=_RTOL, warn=False)  # compiles
    lap()
    _, info = cg(B, b, M=M, rtol=_RTOL, warn=False)
    return found | {"iterations": info.iterations, "seconds_solve": lap()}
