"""Benchmark of setup and solve: Poisson's equation with multigrid and with Jacobi, in turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.machine import Meter, using
from femops.bench.peers.interface import SOLVERS, peer_solve, solved
from femops.bench.problems import RTOL, Progress, check_asked, choose, make_mesh
from femops.bench.timing import batch_times, median_seconds, medians, stopwatch
from femops.errors import OperatorError
from femops.forms import diffusion, load
from femops.operators import Operator
from femops.solvers import Info, cg, jacobi, multigrid
from femops.spaces.h1_l2 import H1
from femops.spaces.memory import DeviceLike
from femops_kernels.cpu import machine
from femops_meshes import Mesh, ball, l_shape
from femops_meshes.topology.ordering import hilbert_order

MESHES = ("cartesian", "multilinear", "ball", "fichera")
"""Boxes, boxes with bent elements, and a ball and the Fichera corner with cubic elements."""

_TOLERANCE = 1e-4
"""Largest relative difference of integrals of solutions."""

Rows = list[dict[str, Any]]

KINDS = {"multigrid": multigrid, "jacobi": jacobi}


@final
@dataclass
class Solves:
    """Solves with each preconditioner, and products with the operator, on one mesh."""

    mesh: str  # name in `MESHES`
    operator: Operator
    b: Any  # (size,): right-hand side, in the operator's memory
    # seconds in each round, by the name of the timed step
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    # reports of the last round, by preconditioner
    infos: dict[str, Info] = field(default_factory=dict)

    def round(self, seconds: float) -> None:
        """Time setup and solve with each preconditioner, and products for about ``seconds``."""
        A, device = self.operator, self.operator.space.device
        apply = partial(A.apply, self.b, A.space.zeros())
        self.seconds["apply"].append(
            median_seconds(apply, seconds)
            if device is None
            else batch_times(device, apply, seconds).median
        )
        for kind, make in KINDS.items():
            lap = stopwatch()
            M = make(A)
            if device is not None:
                device.synchronize()
            self.seconds[f"{kind} setup"].append(lap())
            _, self.infos[kind] = cg(A, self.b, M=M, rtol=RTOL, warn=False)
            self.seconds[f"{kind} solve"].append(lap())

    def rows(self, threads: int) -> Rows:
        """Return a row of the result for each preconditioner."""
        median, space = medians(self.seconds), self.operator.space
        apply = median["apply"]
        facts = {"problem": "poisson", "mesh": self.mesh, "order": space.order}
        facts |= {"elements": space.mesh.num_elements, "dofs": space.size}
        facts |= {"level": self.operator.level, "threads": threads}
        facts |= {"device": space.device and space.device.name}
        rows = []
        for kind, info in self.infos.items():
            setup, solve = (median[f"{kind} {part}"] for part in ("setup", "solve"))
            row = facts | {"preconditioner": kind, "iterations": info.iterations}
            row |= {"converged": info.converged, "seconds_apply": apply}
            row |= {"seconds_setup": setup, "seconds_solve": solve}
            row |= {"setup_applications": setup / apply, "solve_applications": solve / apply}
            row |= {"faster_than_jacobi": median["jacobi solve"] / solve}
            rows.append(row | {"dofs_per_second": space.size / (setup + solve)})
        return rows


def run_solve(
    orders: Sequence[int] = (2, 4, 6, 8),
    dofs: float = 1e6,
    threads: int | None = None,
    *,
    meshes: Sequence[str] = MESHES,
    level: str = "partial",
    rounds: int = 3,
    seconds: float = 0.3,
    peers: Sequence[str] = (),
    device: DeviceLike = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure solves of Poisson's equation to a relative residual of 1e-9.

    Values are imposed on the whole boundary. The load is random at each dof, so that no part of the
    spectrum is missing.

    Arguments and errors are as in `femops.bench.run`, except for these. Both preconditioners and
    the operator alone take turns.

    Parameters
    ----------
    dofs : float
        Approximate number of unknowns. Balls and corners may have an eighth or eight times as many.
    meshes : sequence of {"cartesian", "multilinear", "ball", "fichera"}
    peers : sequence of str
        Names in `femops.bench.peers.interface.SOLVERS`. Libraries to compare with, for a load of
        one on multilinear elements, on one core.
    device : str or Device, optional
        Device of the solves; the host if omitted. Peers always run on the host.

    Returns
    -------
    dict
        ``machine`` and ``limits`` as in `femops.bench.run`.  ``rows`` have iterations, the seconds
        of a product, of the setup and of the solve, the last two also as numbers of products, and
        the speedup of the solve over Jacobi.  ``peers``: see `run_beside`.  ``notes``: peers that
        did not solve.
    """
    count = machine.get_threads() if threads is None else threads
    check_asked(levels=(level,), orders=orders, dofs=(dofs,), rounds=rounds)
    choose("mesh", meshes, MESHES)
    choose("peer", peers, SOLVERS, none=True)
    if peers and device is not None:
        raise OperatorError("peers solve on the host: give a device or peers, not both")
    meter, rows, beside, notes = Meter((count,)), Rows(), Rows(), list[str]()
    for order in orders:
        for mesh in meshes:
            if progress:
                progress(f"solve, order {order}, {mesh}")
            with using(count):
                solves = prepared(mesh, order, dofs, level, device)
                for _ in range(rounds):
                    solves.round(seconds)
            rows += solves.rows(count)
        if peers:
            found = run_beside(order, dofs, peers, rounds)
            beside, notes = beside + found[0], notes + found[1]
        meter.round()
    result = {"machine": meter.describe(), "limits": meter.limits()}
    return result | {"rows": rows, "peers": beside, "notes": notes}


def prepared(name: str, order: int, dofs: float, level: str, device: DeviceLike = None) -> Solves:
    """Make a problem, and compile its kernels; see `run_solve`."""
    V = H1(mesh_of(name, order, dofs), order, device=device)
    A = diffusion(V, level=level).constrained(V.boundary_dofs())
    b = V.memory.get(load(V, 1.0)) * np.random.default_rng(order).standard_normal(V.size)
    b[A.constrained_dofs] = 0.0
    there = V.memory.put(b)
    for make in KINDS.values():
        cg(A, there, M=make(A), maxiter=2, warn=False)
    return Solves(name, A, there)


def mesh_of(name: str, order: int, dofs: float) -> Mesh:
    """Make one of `MESHES`, refined so that a space of this order has about ``dofs`` dofs."""
    if name in ("cartesian", "multilinear"):
        return make_mesh(name, order, dofs)
    mesh = ball(1, order=3) if name == "ball" else l_shape(1, dim=3).mapped(_bent, order=3)
    parts = max(dofs / order**3 / mesh.num_elements, 1.0)
    times = round(np.log2(parts) / 3)
    refined = mesh.refine(times)
    return refined.reordered(hilbert_order(refined.element_centers()))


def _bent(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map positions (3, n) of the corner smoothly, so that all elements bend."""
    a, b, c = np.sin(1.5 * x)
    return x + 0.06 * np.stack([b * c + x[1] ** 2, a * c + x[2] ** 2, a * b + x[0] ** 2])


# --- beside other libraries ---------------------------------------------------------------------


def run_beside(
    order: int, dofs: float, peers: Sequence[str], rounds: int
) -> tuple[Rows, list[str]]:
    """Solve Poisson's equation with a load of one on bent hexahedra, with femops and with peers."""
    space = H1(make_mesh("multilinear", order, dofs), order)
    _own(space)  # kernels are compiled
    found: dict[str, Rows] = {name: [] for name in ("femops", *peers)}
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
    wanted = found["femops"][0]["integral"]
    for name, solves in found.items():
        off = abs(solves[0]["integral"] / wanted - 1.0)
        if not off < _TOLERANCE:
            notes.append(f"order {order}: {name}'s solution differs by {off:.1e}")
    names, rows, own = ("seconds_setup", "seconds_solve"), Rows(), 0.0
    for solves in found.values():
        times = medians({name: [row[name] for row in solves] for name in names})
        own = own or sum(times.values())  # femops comes first
        kept = {name: solves[0][name] for name in ("label", "dofs", "iterations")}
        rows.append({"order": order} | kept | times | {"times_as_long": sum(times.values()) / own})
    return rows, notes


def _own(space: H1) -> dict[str, Any]:
    right = load(space, 1.0)
    with using(1):
        lap = stopwatch()
        A = diffusion(space).constrained(space.boundary_dofs())
        M = multigrid(A)
        setup = lap()
        u, info = cg(A, A.rhs(right), M=M, rtol=RTOL)
        seconds = setup, lap()
    label = "femops multigrid"
    return solved(label, space.size, info.iterations, *seconds, float(right @ u))
