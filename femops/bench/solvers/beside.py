"""Whole solves of other libraries beside femops' own, in turns, on one core."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from femops.bench.machine import using
from femops.bench.peers.interface import peer_solve
from femops.bench.problems import RTOL, make_mesh
from femops.forms import diffusion, load
from femops.solvers import cg, multigrid
from femops.spaces.h1_l2 import H1

_TOLERANCE = 1e-4
"""By how much (relative) integrals of solutions may differ."""


def run_beside(
    order: int, dofs: float, peers: Sequence[str], rounds: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Solve Poisson's equation with a load of one on bent hexahedra, by femops and by peers.

    Returns
    -------
    rows : list of dict
        femops first: ``label``, ``order``, ``dofs``, ``iterations``, medians of ``seconds_setup``
        and ``seconds_solve``, and how many ``times_as_long`` as femops both together take.
    notes : list of str
        Peers that did not solve, or came to another solution.
    """
    space = H1(make_mesh("multilinear", order, dofs), order)
    _own(space)  # kernels are compiled
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("femops", *peers)}
    notes = []
    for _ in range(rounds):
        found["femops"].append(_own(space))
        for name in [name for name in peers if name in found]:
            row = peer_solve(name, order, dofs)
            if isinstance(row, str):
                notes.append(f"order {order}: {row}")
                del found[name]
            else:
                found[name].append(row)
    rows = [_row(order, solves, found["femops"]) for solves in found.values()]
    wanted = found["femops"][0]["integral"]
    for name, solves in found.items():
        off = abs(solves[0]["integral"] / wanted - 1.0)
        if not off < _TOLERANCE:
            notes.append(f"order {order}: {name}'s solution differs by {off:.1e}")
    return rows, notes


def _row(order: int, solves: list[dict[str, Any]], own: list[dict[str, Any]]) -> dict[str, Any]:
    seconds, reference = (
        [float(np.median([row[f"seconds_{part}"] for row in each])) for part in ("setup", "solve")]
        for each in (solves, own)
    )
    kept = {name: solves[0][name] for name in ("label", "dofs", "iterations")}
    times = {"seconds_setup": seconds[0], "seconds_solve": seconds[1]}
    return {"order": order} | kept | times | {"times_as_long": sum(seconds) / sum(reference)}


def _own(space: H1) -> dict[str, Any]:
    right = load(space, 1.0)
    with using(1):
        begin = perf_counter()
        A = diffusion(space).constrained(space.boundary_dofs())
        M = multigrid(A)
        ready = perf_counter()
        u, info = cg(A, A.rhs(right), M=M, rtol=RTOL)
        end = perf_counter()
    return {
        "label": "femops multigrid",
        "dofs": space.size,
        "iterations": info.iterations,
        "seconds_setup": ready - begin,
        "seconds_solve": end - ready,
        "integral": float(right @ u),
    }
