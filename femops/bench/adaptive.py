"""Benchmark of locally refined meshes: products beside a uniform mesh, setup and solves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.basis import gauss
from femops.bench.machine import Meter, using
from femops.bench.problems import Progress, check_asked, default_dofs, make_mesh
from femops.bench.timing import medians, stopwatch
from femops.forms import diffusion, load
from femops.operators import Operator
from femops.solvers import cg, multigrid
from femops.spaces.h1_l2 import H1
from femops_meshes import Mesh

UNIFORM, REFINED = "uniform", "refined"
_RTOL = 1e-9
_RADIUS = 0.38  # of the ball in which a mesh is refined: about a fifth of its elements hang
SHARE = 2.6  # elements of the refined mesh for each of the mesh that is refined

Row = dict[str, Any]


def in_ball(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True (n,) for positions (3, n) in the ball that is refined."""
    return np.asarray(np.linalg.norm(x - 0.5, axis=0) < _RADIUS)


def hanging_share(mesh: Mesh) -> float:
    """Part of a mesh's elements that have a hanging face or edge."""
    carriers = mesh.topology.carriers
    if carriers is None:
        return 0.0
    return len(np.unique(carriers.hanging[:, 0])) / mesh.num_elements


def meshes_for(kind: str, order: int, dofs: float) -> dict[str, Mesh]:
    """Make a uniform and a locally refined mesh for about so many dofs."""
    refined = make_mesh(kind, order, dofs / SHARE).refined(in_ball)
    return {UNIFORM: make_mesh(kind, order, dofs), REFINED: refined}


def run_adaptive(
    meshes: Sequence[str] = ("multilinear",),
    orders: Sequence[int] = (2, 4, 6),
    levels: Sequence[str] = ("partial", "matrix-free"),
    *,
    footprint: str = "ram",
    solves: bool = True,
    threads: int = 1,
    rounds: int = 5,
    seconds: float = 0.05,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Time diffusion on a uniform and on a locally refined mesh in turns, by element."""
    check_asked(meshes=meshes, orders=orders, levels=levels, footprints=(footprint,), rounds=rounds)
    meter, rows, solved = Meter((threads,)), list[Row](), list[Row]()
    for order, kind in dict.fromkeys(product(orders, meshes)):
        progress(f"order {order}, {kind}")
        dofs = default_dofs(footprint, order)
        coarse, lap = make_mesh(kind, order, dofs / SHARE), stopwatch()
        refined = coarse.refined(in_ball)
        found = {UNIFORM: make_mesh(kind, order, dofs), REFINED: refined}
        spaces = {name: H1(mesh, order) for name, mesh in found.items()}
        setup = lap()
        facts = {"mesh": kind, "order": order, "threads": threads}
        with using(threads):
            for level in levels:
                operators = {
                    name: diffusion(V, quadrature=gauss(order + 2), level=level)
                    for name, V in spaces.items()
                }
                calls = {
                    name: partial(A.apply, np.ones(A.space.size), A.space.zeros())
                    for name, A in operators.items()
                }
                times = medians(meter.turns(calls, threads, rounds, seconds))
                rows += _rows(facts | {"level": level}, spaces, times)
            if solves:
                each = {"seconds_refine": setup}
                solved += [facts | each | {"kind": name} | _solve(V) for name, V in spaces.items()]
    return {"machine": meter.describe(), "rows": rows, "solves": solved}


def _rows(facts: Row, spaces: dict[str, H1], times: dict[str, float]) -> list[Row]:
    """Rows with the time of an element over that of an element of the uniform mesh."""
    each = {name: times[name] / V.mesh.num_elements for name, V in spaces.items()}
    return [
        facts
        | {"kind": name, "elements": V.mesh.num_elements, "hanging": hanging_share(V.mesh)}
        | {"dofs": V.ndofs, "seconds_median": times[name], "seconds_element": each[name]}
        | {"dofs_per_second": V.ndofs / times[name], "over_uniform": each[name] / each[UNIFORM]}
        for name, V in spaces.items()
    ]


def _solve(V: H1) -> Row:
    """Solve Poisson's equation with multigrid."""
    A: Operator = diffusion(V).constrained(V.boundary_dofs())
    b, lap = A.rhs(load(V, 1.0)), stopwatch()
    M = multigrid(A)
    found = {"dofs": V.ndofs, "seconds_setup": lap()}
    cg(A, b, M=M, rtol=_RTOL, warn=False)  # compiles
    lap()
    _, info = cg(A, b, M=M, rtol=_RTOL, warn=False)
    return found | {"iterations": info.iterations, "seconds_solve": lap()}
