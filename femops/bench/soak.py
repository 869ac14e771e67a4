"""Mixed work, repeated for a time: the same bits in each cycle, and no growth of the process."""

from __future__ import annotations

import _thread
import copy
import gc
import hashlib
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from femops.bench.problems import Progress
from femops.eigen import chebyshev_subspace
from femops.errors import OperatorError
from femops.forms import convection, diffusion, form, load, mass, neo_hookean
from femops.hydro import Lagrangian, Simulation, built_in
from femops.hydro import problem as gas
from femops.io import TimeSeries, load_state, read_mesh, save, save_state
from femops.io.atomic import temporary_folder
from femops.operators import Operator
from femops.operators.levels.dispatch import LEVELS
from femops.solvers import cg, gmres, multigrid, newton
from femops.spaces.h1_l2 import H1
from femops_kernels.cpu import machine
from femops_meshes import Mesh, ball, box

SETTLING = 3
"""Cycles at the start, in which kernels and libraries are loaded; and cycles at the end."""

BOUNDS = {"memory": 32.0, "files": 0.0, "threads": 0.0}
"""Largest growth of the process: MiB, open files, threads of the system."""


def _bent(dim: int, order: int = 1) -> Mesh:
    return box((4,) * dim, order=order, mapping=lambda x: x + 0.05 * np.sin(3 * x[::-1]))


def _numbers(size: int, *more: int) -> Any:
    return np.random.default_rng(size).standard_normal((size, *more))


def _reaction(u: Any, x: Any) -> Any:
    return {"value": u, "grad": (1 + x[0] ** 2) * u.grad}


def _poisson(mesh: Mesh, order: int) -> tuple[Operator, Any]:
    V = H1(mesh, order)
    A = (diffusion(V, lambda x: 1 + x[0] ** 2) + mass(V)).constrained(V.boundary_dofs())
    return A, A.rhs(load(V, 1.0))


def _products(_: int) -> Iterator[Any]:
    for level in LEVELS:
        for dim, dtype in ((2, "float32"), (3, "float64"), (2, "complex128")):
            V = H1(_bent(dim), 3)
            A = form(_reaction, V, level=level, dtype=dtype)
            x = _numbers(V.size, 3).astype(dtype)
            yield from (A @ x[:, 0], A @ x, A.T @ x[:, 1], A.diagonal())


def _multigrid(_: int) -> Iterator[Any]:
    A, b = _poisson(ball(1, order=3), 4)
    M = multigrid(A)
    for N in (M, M.T, copy.deepcopy(M), pickle.loads(pickle.dumps(M))):
        yield N @ b
    yield cg(A, b, M=M)[0]


def _solves(_: int) -> Iterator[Any]:
    A, b = _poisson(_bent(2), 5)
    wind = convection(A.space, np.array([1.0, 2.0])).constrained(A.space.boundary_dofs())
    yield cg(A, b)[0]
    yield gmres(A + wind, b, M=multigrid(A))[0]


def _eigen(_: int) -> Iterator[Any]:
    A, _b = _poisson(_bent(2), 4)
    found = chebyshev_subspace(A, mass(A.space).diagonal(), 6, tol=1e-4, warn=False)
    yield from (found.values, found.vectors.columns())


def _newton(_: int) -> Iterator[Any]:
    V = H1(_bent(2), 2, ncomp=2)
    F = neo_hookean(V, 1.5, 1.0).constrained(V.boundary_dofs(attributes=1))
    yield newton(F, V.zeros(), load(V, np.array([0.0, -0.01])))[0]


def _hydro(_: int) -> Iterator[Any]:
    run = Simulation.begin(Lagrangian(gas("sedov"), built_in("square01_quad").refine(1)))
    run.run(1.0, max_steps=5)
    yield run.state


def _io(_: int) -> Iterator[Any]:
    A, b = _poisson(_bent(2, 2), 3)
    V = A.space
    with temporary_folder() as folder:
        save(folder / "ball.mesh", V.mesh)
        save(folder / "u.vtu", V, u=b)
        yield read_mesh(folder / "ball.mesh").coordinates
        save_state(folder / "u.state", {"u": (V, b)}, {"step": 3})
        yield load_state(folder / "u.state", {"u": V}).vectors["u"]
        with TimeSeries(folder / "film.pvd") as series:
            series.save(0.1, V, u=b)
        files = sorted(each for each in folder.rglob("*.vtu"))
        yield from (np.frombuffer(each.read_bytes(), np.uint8) for each in files)


def _threads(_: int) -> Iterator[Any]:
    before = machine.get_threads()
    V = H1(box((40, 40)), 4)
    A, x = diffusion(V), _numbers(V.size)
    try:
        for count in (1, 2, before):
            machine.set_threads(min(count, before))
            yield A @ x
    finally:
        machine.set_threads(before)


def _interrupts(cycle: int) -> Iterator[Any]:
    """Interrupt a series of solves, each time after another delay, and solve again."""
    A, b = _poisson(_bent(2), 4)
    M = multigrid(A)
    cg(A, b, M=M)  # loads the kernels
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        threading.Timer(1e-3 * (1 + cycle % 20), _thread.interrupt_main).start()
        while True:
            cg(A, b, M=M)
    except KeyboardInterrupt:
        yield cg(A, b, M=M)[0]
    finally:
        signal.signal(signal.SIGINT, before)


WORKS: dict[str, Callable[[int], Iterator[Any]]] = {
    "products": _products,
    "solves": _solves,
    "multigrid": _multigrid,
    "eigen": _eigen,
    "newton": _newton,
    "hydro": _hydro,
    "io": _io,
    "threads": _threads,
    "interrupts": _interrupts,
}
"""Functions of a cycle's number, which yield arrays that are the same in each cycle."""


def run_soak(minutes: float = 60.0, *, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Repeat mixed work, and compare the bits of its results and the size of the process.

    Everything is made anew in each cycle: meshes, spaces, operators, solvers, files. Growth is the
    least of the last cycles less the most of the first ones, which load kernels and libraries.
    """
    if not Path("/proc/self/task").is_dir():
        raise OperatorError(
            "only Linux tells the memory, files and threads of a process: run there"
        )
    hashes: dict[str, list[str]] = {name: [] for name in WORKS}
    seconds = dict.fromkeys(WORKS, 0.0)
    sizes: list[dict[str, float]] = []
    begin = perf_counter()
    while len(sizes) < 2 * SETTLING or perf_counter() - begin < 60.0 * minutes:
        for name, work in WORKS.items():
            size = f"{sizes[-1]['memory']:.0f} MiB, " if sizes else ""
            progress(f"cycle {len(sizes) + 1}, {size}{name}")
            start = perf_counter()
            hashes[name].append(_hash(work(len(sizes))))
            seconds[name] += perf_counter() - start
        sizes.append(_size())
    rows = [
        {"work": name, "seconds": seconds[name] / len(sizes), "first": each[0], "last": each[-1]}
        | {"differs": next((k + 1 for k, one in enumerate(each) if one != each[0]), None)}
        for name, each in hashes.items()
    ]
    growth = [_growth(name, [size[name] for size in sizes]) for name in BOUNDS]
    failures = [
        f"{row['work']} has other bits from cycle {row['differs']} on"
        for row in rows
        if row["differs"] is not None
    ]
    failures += [
        f"{row['quantity']} grew by {row['growth']:g}, more than {row['bound']:g}"
        for row in growth
        if row["growth"] > row["bound"]
    ]
    facts = {"machine": machine.describe(), "cycles": len(sizes)}
    facts |= {"minutes": (perf_counter() - begin) / 60.0}
    return facts | {"rows": rows, "growth": growth, "failures": failures}


def _hash(results: Iterator[Any]) -> str:
    found = hashlib.sha256()
    for each in results:
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()[:16]


def _size() -> dict[str, float]:
    """Resident memory in MiB, open files, and threads of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    files, threads = (len([*Path("/proc/self", name).iterdir()]) for name in ("fd", "task"))
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return {"memory": memory, "files": files, "threads": threads}


def _growth(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Row of a quantity, from its values at the end of each cycle."""
    start, end = max(values[:SETTLING]), min(values[-SETTLING:])
    row = {"quantity": name, "start": start, "end": end, "most": max(values)}
    return row | {"growth": end - start, "bound": BOUNDS[name]}
