"""Benchmark of simplices and prisms: products beside the assembled matrix, and solves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from femops.bench.machine import Meter, using
from femops.bench.problems import Progress, check_asked
from femops.bench.timing import medians, stopwatch
from femops.errors import OperatorError
from femops.forms import diffusion, elasticity, load, mass
from femops.operators import Operator
from femops.solvers import cg, multigrid
from femops.spaces.h1_l2 import H1
from femops_meshes import box
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh

MATRIX = "scipy csr"
_LEVELS = "partial", "matrix-free", "full"
_RTOL = 1e-9
_DIMS = {"triangles": 2, "tetrahedra": 3, "prisms": 3, "mixed": 3}

Row = dict[str, Any]


def _diffusion(V: H1, level: str) -> Operator:
    return diffusion(V, level=level)


def _mass(V: H1, level: str) -> Operator:
    return mass(V, level=level)


def _elasticity(V: H1, level: str) -> Operator:
    return elasticity(V, 1.0, 1.0, level=level)


FORMS: dict[str, Callable[[H1, str], Operator]] = {
    "mass": _mass,
    "diffusion": _diffusion,
    "elasticity": _elasticity,
}


def mesh_for(cells: str, order: int, dofs: float, *, curved: bool = False) -> Mesh | MixedMesh:
    """Make a mesh of a box whose space of an order has about so many dofs for each component.

    One half of a mixed mesh has hexahedra, the other prisms.
    """
    dim = _DIMS[cells]
    n = max(1 + (cells == "mixed"), round((dofs ** (1.0 / dim) - 1.0) / order))
    mesh = box((n,) * dim)
    if curved:
        mesh = mesh.curved(2).mapped(lambda x: x + 0.05 / n * np.sin(2 * np.pi * x[::-1]))
    if cells in ("triangles", "tetrahedra"):
        return mesh.simplices()
    prisms: MixedMesh = mesh.prisms()
    if cells == "prisms":
        return prisms
    parts = mesh, prisms.parts[0]
    kept = [part.element_centers()[:, 0] < n // 2 / n for part in parts]
    kept[1] = ~kept[1]
    names = [part.cell.plural for part in parts]
    elements, nodes = (
        {
            name: getattr(part, what)[some]
            for name, part, some in zip(names, parts, kept, strict=True)
        }
        for what in ("elements", "coordinates")
    )
    return MixedMesh.from_arrays(None, elements, coordinates=nodes)


def run_simplices(
    cells: Sequence[str] = ("tetrahedra",),
    orders: Sequence[int] = (1, 2, 3, 4),
    forms: Sequence[str] = tuple(FORMS),
    *,
    dofs: float | None = None,
    curved: bool = False,
    solves: bool = True,
    threads: int = 1,
    rounds: int = 5,
    seconds: float = 0.05,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Time products by numbers at points, none, and femops' matrix, beside SciPy's, in turns."""
    check_asked(orders=orders, rounds=rounds)
    dofs = dofs or 1e6
    for name, known in ((forms, FORMS), (cells, _DIMS)):
        for one in name:
            if one not in known:
                raise OperatorError(f"{one!r} is not measured: choose of {', '.join(known)}")
    meter, rows, solved = Meter((threads,)), list[Row](), list[Row]()
    for kind in dict.fromkeys(cells):
        for order in dict.fromkeys(orders):
            progress(f"order {order}, {kind}")
            for form in dict.fromkeys(forms):
                ncomp = _DIMS[kind] if form == "elasticity" else 1
                mesh = mesh_for(kind, order, dofs / ncomp, curved=curved)
                facts = {"cells": kind, "order": order, "form": form, "threads": threads}
                with using(threads):
                    rows += _products(
                        facts, H1(mesh, order, ncomp), meter, threads, rounds, seconds
                    )
            if solves:
                V = H1(mesh_for(kind, order, dofs, curved=curved), order)
                with using(threads):
                    solved.append({"cells": kind, "order": order, "dofs": V.size} | _solve(V))
    return {"machine": meter.describe(), "rows": rows, "solves": solved}


def _products(
    facts: Row, V: H1, meter: Meter, threads: int, rounds: int, seconds: float
) -> list[Row]:
    form = FORMS[facts["form"]]
    x = np.random.default_rng(0).standard_normal(V.size)
    operators = {level: form(V, level) for level in _LEVELS}
    calls: dict[str, Callable[[], Any]] = {
        level: partial(A.apply, x, V.zeros()) for level, A in operators.items()
    }
    matrix = operators["full"].assemble().tocsr()
    calls[MATRIX] = partial(matrix.dot, x)
    times = medians(meter.turns(calls, threads, rounds, seconds))
    return [
        facts
        | {"with": name, "elements": V.mesh.num_elements, "dofs": V.size}
        | {"seconds_median": times[name], "dofs_per_second": V.size / times[name]}
        | {"over_matrix": times[MATRIX] / times[name]}
        for name in calls
    ]


def _solve(V: H1) -> Row:
    """Solve Poisson's equation with multigrid."""
    A: Operator = diffusion(V).constrained(V.boundary_dofs())
    b, lap = A.rhs(load(V, 1.0)), stopwatch()
    M = multigrid(A)
    found = {"seconds_setup": lap()}
    cg(A, b, M=M, rtol=_RTOL, warn=False)  # compiles
    lap()
    _, info = cg(A, b, M=M, rtol=_RTOL, warn=False)
    return found | {"iterations": info.iterations, "seconds_solve": lap()}
