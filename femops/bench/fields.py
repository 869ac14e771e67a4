"""Benchmark of systems of several fields: iterations and seconds by M, and published values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import product
from typing import Any, final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from femops.bench.machine import Meter, using
from femops.bench.problems import Progress, check_asked, choose
from femops.bench.timing import call_seconds, stopwatch
from femops.errors import Errors, OperatorError
from femops.fields.probes import Probe
from femops.forms import boundary_load, form, functional, residual
from femops.operators import Operator
from femops.operators.residual import Residual
from femops.solvers import gmres, newton, structure
from femops.spaces.base import GridFunction
from femops.spaces.h1_l2 import H1
from femops.spaces.product import Product
from femops_meshes import Mesh, box
from femops_meshes.mixed import MixedMesh

AUTO, BLOCKS, DIRECT = "auto", "blocks", "direct"
WITH = AUTO, BLOCKS, DIRECT
CELLS = "blocks", "simplices", "prisms"
RTOL = 1e-8
_MOST = 300  # iterations of a linear solve

Row = dict[str, Any]
Vector = NDArray[Any]
AnyMesh = Mesh | MixedMesh
Values = dict[str, tuple[float, float]]
"""Computed and published values, by name."""


@final
@dataclass
class Solves:
    """Linear solves of a program, all with the preconditioner of one name."""

    M: Any
    iterations: list[int] = field(default_factory=list)
    product: float = 0.0  # seconds of a product with the last matrix
    size: int = 0

    def linear(self, A: Operator, b: Vector, x0: Vector | None = None) -> Vector:
        """Solve a linear system."""
        x, info = gmres(A, b, x0, M=self.M, rtol=RTOL, maxiter=_MOST, warn=False)
        self._note(A, [info.iterations], converged=info.converged)
        return x

    def newton(self, F: Residual, z: Vector) -> Vector:
        """Solve a nonlinear system."""
        z, info = newton(F, z, linear="gmres", preconditioner=self.M, history=True, warn=False)
        counts = [len(norms) - 1 for norms in info.linear_residuals]
        self._note(F.jacobian(z), counts, converged=info.converged)
        return z

    def _note(self, A: Operator, counts: Sequence[int], *, converged: bool) -> None:
        self.iterations += counts
        self.size = A.space.size
        self.product = min(call_seconds(lambda: A @ np.ones(A.space.size)) for _ in range(3))
        if not converged:
            raise Unsolved(f"not converged: iterations {list(counts)}")


@final
class Unsolved(Exception):
    """A solve has not converged."""


EXPECTED: tuple[type[Exception], ...] = (Unsolved, *Errors)
Stages = Iterator[tuple[str, Values]]
"""Names of the stages of a program, each when it is solved, and what can be compared then."""


@final
@dataclass(frozen=True)
class Problem:
    """A mesh of blocks, and a program that solves for the fields on it."""

    mesh: Callable[[], Mesh]
    run: Callable[[AnyMesh, int, Solves], Stages]


# --- Meshes ---------------------------------------------------------------------------------------


def patched(patches: Sequence[tuple[tuple[int, ...], Callable[[Vector], Any]]]) -> Mesh:
    """Join patches: images of the unit square or cube, each with elements along its axes."""
    parts = [box(counts, mapping=image, order=4) for counts, image in patches]
    nodes = np.concatenate([part.coordinates for part in parts])
    dim = nodes.shape[-1]
    corners = nodes.reshape(len(nodes), *(5,) * dim, dim)[
        (slice(None), *(slice(None, None, 4),) * dim)
    ]
    _, vertices = np.unique(corners.reshape(-1, dim).round(9), axis=0, return_inverse=True)
    return Mesh.from_arrays(None, vertices.reshape(len(nodes), -1), coordinates=nodes)


def _rectangle(x: Sequence[float], y: Sequence[float], counts: tuple[int, int]) -> Any:
    """Patch between two positions along each axis."""
    low, size = np.array([x[0], y[0]])[:, None], np.array([x[1] - x[0], y[1] - y[0]])[:, None]
    return counts, lambda s: low + size * s


def _named(mesh: Mesh, first: float, last: float) -> Mesh:
    """Name the parts of the boundary of a channel between two ends."""

    def ends(x: Vector) -> Any:
        return (abs(x[0] - first) < 1e-9) | (abs(x[0] - last) < 1e-9)

    names = {
        "inflow": lambda x: abs(x[0] - first) < 1e-9,
        "outflow": lambda x: abs(x[0] - last) < 1e-9,
        "walls": lambda x: ~ends(x),
    }
    return mesh.with_names(boundary=names)


def step_mesh() -> Mesh:
    """Channel of height 1 that opens to height 2 at x = 0, behind a step of height 1."""
    ways = [([0, 16], 16), ([16, 40], 12)]
    patches = [_rectangle([-4, 0], [1, 2], (4, 2))]
    patches += [_rectangle(x, [y, y + 1], (n, 2)) for x, n in ways for y in (0, 1)]
    return _named(patched(patches), -4.0, 40.0)


_GIVEN = ["inflow", "walls"]
_HEIGHT, _CENTRE, _RADIUS = 0.41, 0.2, 0.05


def _sector(side: int, half: int) -> Callable[[Vector], Any]:
    """Image of the unit square: an eighth of the ring between the cylinder and a square."""
    turn = np.array([[0, -1], [1, 0]])
    axes = np.linalg.matrix_power(turn, side)
    reach = np.array([_HEIGHT - _CENTRE, _HEIGHT - _CENTRE, _CENTRE, _CENTRE])  # +x, +y, -x, -y

    def image(s: Vector) -> Any:
        along = s[1] + half - 1.0  # from -1 to 1 along the side of the square
        ends = np.stack([np.ones_like(along), along])
        square = axes @ ends
        square = np.where(square > 0, reach[:2, None] * square, reach[2:, None] * square)
        angle = np.pi / 4 * along
        circle = _RADIUS * (axes @ np.stack([np.cos(angle), np.sin(angle)]))
        part = s[0] * (0.55 + 0.45 * s[0])
        return _CENTRE + (1 - part) * circle + part * square

    return image


def channel_mesh() -> Mesh:
    """Channel of 2.2 x 0.41 with a cylinder of radius 0.05 at (0.2, 0.2)."""
    patches = [((3, 1), _sector(side, half)) for side in range(4) for half in range(2)]
    for low, high in ((0.0, _CENTRE), (_CENTRE, _HEIGHT)):
        patches += [_rectangle([_HEIGHT, 1.01], [low, high], (3, 1))]
        patches += [_rectangle([1.01, 2.2], [low, high], (3, 1))]
    return _named(patched(patches), 0.0, 2.2)


def duct_mesh() -> Mesh:
    """Duct of 2.5 x 0.41 x 0.41 around the cylinder, 0.5 behind the inflow, in two layers."""

    def drawn(image: Callable[[Vector], Any]) -> Callable[[Vector], Any]:
        return lambda s: np.concatenate([image(s[:2]), _HEIGHT * s[2:]])

    patches = [((2, 1, 2), drawn(_sector(side, half))) for side in range(4) for half in range(2)]
    for low, high in ((0.0, _CENTRE), (_CENTRE, _HEIGHT)):
        for first, last, n in ((-0.3, 0.0, 1), (_HEIGHT, 2.2, 4)):
            _, image = _rectangle([first, last], [low, high], (1, 1))
            patches += [((n, 1, 2), drawn(image))]
    return _named(patched(patches), -0.3, 2.2)


# --- Flow -----------------------------------------------------------------------------------------


def taylor_hood(mesh: AnyMesh, order: int) -> Product:
    """Velocity of an order, and pressure of one less."""
    return Product(u=H1(mesh, order, mesh.dim), p=H1(mesh, order - 1))


def momentum(u: Any, p: Any, nu: Any) -> Any:
    """Steady flow of density 1."""
    stress = nu * u.grad - p * np.eye(len(u.value))
    return {"u": {"value": u.grad @ u.value, "grad": stress}, "p": {"value": -u.div}}


def _flow(W: Product, given: Any, held: Any, inflow: Any) -> tuple[Residual, Vector]:
    """Residual that is held at parts of the boundary, and a guess with the inflow."""
    U: Any = W.spaces["u"]
    start, at = U.zeros(), U.boundary_dofs(inflow)
    start[at] = U.interpolate(given)[at]
    F = residual(momentum, W, nu=1.0)
    return F.constrained(W.positions(u=U.boundary_dofs(held))), W.join(u=start)


def _lid(x: Vector) -> Any:
    """Velocity of the walls. The ends of the lid are at rest, so that no fluid leaves there."""
    return 1.0 * ((x[1] > 1 - 1e-9) & (abs(x[0] - 0.5) < 0.5 - 1e-9)), 0.0 * x[0]


def cavity(mesh: AnyMesh, order: int, solves: Solves) -> Stages:
    """Lid-driven cavity: Ghia et al. (1982), Botella and Peyret (1998)."""
    W = taylor_hood(mesh, order)
    F, z = _flow(W, _lid, None, None)
    published = {100: (0.4531, -0.21090), 400: (0.2813, -0.32726), 1000: (0.1719, -0.3885691)}
    for reynolds, (height, speed) in published.items():
        z = solves.newton(F := F.update(nu=1.0 / reynolds), z)
        u = Probe(mesh, [0.5, height])(W.spaces["u"], W.split(z)[0]).reshape(-1)[0]
        yield f"Re {reynolds}", {f"u(0.5, {height})": (u, speed)}


def step(mesh: AnyMesh, order: int, solves: Solves) -> Stages:
    """Backward-facing step: Erturk (2008), where Re = 2 h U / nu with U the mean inflow."""
    W = taylor_hood(mesh, order)
    F, z = _flow(W, lambda x: (6 * (x[1] - 1) * (2 - x[1]), 0.0 * x[0]), _GIVEN, "inflow")
    x = np.linspace(1.0, 16.0, 1501)
    probe = Probe(mesh, np.stack([x, 0.0 * x + 1e-4], axis=1))
    for reynolds, length in ((100, 2.922), (200, 4.982), (400, 8.237), (800, 11.834)):
        z = solves.newton(F := F.update(nu=2.0 / reynolds), z)
        u = probe(W.spaces["u"], W.split(z)[0])[:, 0]
        k = int(np.argmax(u > 0))
        found = x[k - 1] - u[k - 1] * (x[k] - x[k - 1]) / (u[k] - u[k - 1])
        yield f"Re {reynolds}", {"reattachment": (found, length)}


def _at_cylinder(x: Vector) -> Any:
    """True at the cylinder."""
    return np.hypot(x[0] - _CENTRE, x[1] - _CENTRE) < 1.01 * _RADIUS


def _cylinder(mean: float, inflow: Callable[[Vector], Any], published: dict[str, float]) -> Any:
    """Program of the flow around a cylinder, with drag and lift by reactions."""

    def run(mesh: AnyMesh, order: int, solves: Solves) -> Stages:
        W, nu = taylor_hood(mesh, order), 1e-3
        U: Any = W.spaces["u"]
        F, z = _flow(W, inflow, _GIVEN, "inflow")
        z = solves.newton(F.update(nu=nu), z)
        reactions = W.split(residual(momentum, W, nu=nu).residual(z))[0]
        around = [U.boundary_dofs("walls", k, where=_at_cylinder) for k in range(2)]
        unit = 0.5 * mean**2 * 2 * _RADIUS * (1.0 if mesh.dim == 2 else _HEIGHT)
        forces = [-reactions[dofs].sum() / unit for dofs in around]
        ends = [[x, _CENTRE, 0.5 * _HEIGHT][: mesh.dim] for x in (0.15, 0.25)]
        p = Probe(mesh, ends)(W.spaces["p"], W.split(z)[1])
        found = dict(zip(("drag", "lift", "pressure drop"), [*forces, p[0] - p[1]], strict=True))
        yield "Re 20", {name: (found[name], value) for name, value in published.items()}

    return run


def _plane_inflow(x: Vector) -> Any:
    """Parabola of mean 0.2."""
    return 1.2 * x[1] * (_HEIGHT - x[1]) / _HEIGHT**2, 0.0 * x[0]


def _duct_inflow(x: Vector) -> Any:
    """Product of two parabolas, of mean 0.2 (DFG 3D-1Z)."""
    each = x[1] * (_HEIGHT - x[1]) * x[2] * (_HEIGHT - x[2])
    return 7.2 * each / _HEIGHT**4, 0.0 * x[0], 0.0 * x[0]


# --- Solids, and reactions ------------------------------------------------------------------------


def column(mesh: AnyMesh, order: int, solves: Solves) -> Stages:
    """Consolidation of a column that is drained at its top: Terzaghi's series, implicit steps."""
    W = Product(u=H1(mesh, order, 2), p=H1(mesh, order - 1))
    U, Q = W.spaces.values()
    sides, ground = U.boundary_dofs([1, 2], components=0), U.boundary_dofs(3)
    held = W.positions(u=np.union1d(sides, ground), p=Q.boundary_dofs(4))
    load, n = boundary_load(U, np.array([0.0, -1.0]), 4), np.pi / 2 * np.arange(1, 20001, 2)
    for dt, steps in ((1 / 60, 10), (1e-6, 2)):
        A = form(_biot, W, dt=dt).constrained(held)
        z = W.zeros()
        for _ in range(steps):
            water = A.unconstrained["p", "u"] @ W.split(z)[0]
            z = solves.linear(A, A.rhs(W.join(u=load, p=water)), z)
        p = Probe(mesh, [0.05, 0.0])(Q, W.split(z)[1])[0]
        decay = (1 + 3 * dt * n**2) ** -steps  # implicit steps
        yield f"dt {dt:.2g}", {"pressure": (p, float(2 * np.sum(np.sin(n) / n * decay)))}


def _biot(u: Any, p: Any, dt: Any) -> Any:
    """Lame's parameters and the permeability are 1, and the fluid does not give way."""
    stress = u.div * np.eye(2) + 2 * u.sym_grad - p * np.eye(2)
    return {"u": {"grad": stress}, "p": {"value": -u.div, "grad": -dt * p.grad}}


def _quarter(s: Vector) -> Any:
    """Image of the unit square: a quarter of a ring from radius 1 to 2."""
    return (1 + s[0]) * np.stack([np.cos(np.pi / 2 * s[1]), np.sin(np.pi / 2 * s[1])])


def solid(mesh: AnyMesh, order: int, solves: Solves) -> Stages:
    """Thick tube under pressure from inside, with the pressure as a field: Lame's solution."""
    W = taylor_hood(mesh, order)
    U: Any = W.spaces["u"]
    cut = [U.boundary_dofs(side, component) for side, component in ((3, 1), (4, 0))]
    load = boundary_load(U, lambda x: x / np.hypot(*x), 1)
    for nu in (0.3, 0.49, 0.4999, 0.5):
        give = (1 - 2 * nu) / (2 * nu)  # 1 over Lame's first parameter, for a shear modulus of 1
        A = form(_pressed, W, give=give).constrained(W.positions(u=np.union1d(*cut)))
        z = solves.linear(A, A.rhs(W.join(u=load)))
        u = Probe(mesh, [1.0, 0.0])(U, W.split(z)[0])[0, 0]
        yield f"nu {nu:g}", {"displacement": (u, (5 - 2 * nu) / 6)}


def _pressed(u: Any, p: Any, give: Any) -> Any:
    """Elasticity of shear modulus 1 with a pressure."""
    return {"u": {"grad": 2 * u.sym_grad - p * np.eye(2)}, "p": {"value": -u.div - give * p}}


_PAIRS = 5


def _gray_scott(u: Any, v: Any, old_u: Any, old_v: Any, dt: Any) -> Any:
    """Implicit step of pairs of species, in layers that exchange them."""
    mixing = np.diag(np.full(_PAIRS - 1, 1.0), 1)
    mixing = 0.01 * (mixing + mixing.T - np.diag((mixing + mixing.T).sum(axis=0)))
    new, other = u.value, v.value
    made = new * other**2
    du = -made + 0.04 * (1 - new) + mixing @ new
    dv = made - 0.1 * other + mixing @ other
    return {
        "u": {"value": new - old_u - dt * du, "grad": dt * 2e-3 * u.grad},
        "v": {"value": other - old_v - dt * dv, "grad": dt * 1e-3 * v.grad},
    }


def reactions(mesh: AnyMesh, order: int, solves: Solves) -> Stages:
    """Five pairs of species that react as Gray and Scott's: implicit steps, and their balance."""
    W = Product(u=H1(mesh, order, _PAIRS), v=H1(mesh, order, _PAIRS))
    U = W.spaces["u"]

    def spot(x: Vector) -> Any:
        near = np.exp(-40 * ((x[0] - 0.5) ** 2 + (x[1] - 0.5) ** 2))
        return np.stack([near / (1 + k) for k in range(_PAIRS)])

    z = W.interpolate(u=lambda x: 1 - 0.5 * spot(x), v=lambda x: 0.25 * spot(x))
    total = functional(lambda u, v: sum(u.value) + sum(v.value), W)
    F: Any = None
    for dt in (1.0, 10.0):
        for _ in range(3):
            u, v = (GridFunction(U, part.copy()) for part in W.split(z))
            given: dict[str, Any] = {"old_u": u, "old_v": v, "dt": dt}
            before = total(z)
            F = residual(_gray_scott, W, **given) if F is None else F.update(**given)
            z = solves.newton(F, z)
        fed = functional(lambda u, v: sum(0.04 * (1 - u.value) - 0.1 * v.value), W)(z)
        yield f"dt {dt:g}", {"growth": ((total(z) - before) / dt, fed)}


PROBLEMS = {
    "cavity": Problem(lambda: box((8, 8), mapping=_to_walls), cavity),
    "step": Problem(step_mesh, step),
    "cylinder": Problem(
        channel_mesh,
        _cylinder(
            0.2,
            _plane_inflow,
            {"drag": 5.57953523384, "lift": 0.010618948146, "pressure drop": 0.11752016697},
        ),
    ),
    "duct": Problem(duct_mesh, _cylinder(0.2, _duct_inflow, {"drag": 6.18533, "lift": 0.009401})),
    "column": Problem(lambda: box((1, 8), upper=(0.1, 1.0)), column),
    "solid": Problem(lambda: box((2, 2), mapping=_quarter, order=4), solid),
    "reactions": Problem(lambda: box((8, 8)), reactions),
}


def _to_walls(x: Vector) -> Any:
    """Move positions in the unit square towards its sides."""
    return 0.5 - 0.5 * np.cos(np.pi * x)


# --- The runner -----------------------------------------------------------------------------------


def mesh_for(name: str, cells: str, refine: int) -> AnyMesh:
    """Make the mesh of a problem, from blocks or from simplices or prisms, and refine it."""
    mesh: Any = PROBLEMS[name].mesh()
    if cells == "prisms" and mesh.dim == 2:
        raise OperatorError(f"{name} is in 2-D, and prisms in 3-D: choose blocks or simplices")
    if cells != "blocks":
        mesh = getattr(mesh, cells)()
    found: AnyMesh = mesh.refine(refine)
    return found


def _factors(M: str) -> AbstractContextManager[Any]:
    """Let blocks be taken apart whatever the size, or let the size decide."""
    few = dict.fromkeys(structure._FEW, 0)
    return patch.dict(structure._FEW, few) if M == BLOCKS else nullcontext()


def run_fields(
    problems: Sequence[str] = tuple(PROBLEMS),
    orders: Sequence[int] = (2, 4),
    cells: Sequence[str] = ("blocks",),
    preconditioners: Sequence[str] = (AUTO, DIRECT),
    *,
    refine: Sequence[int] = (0, 1),
    threads: int = 1,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Solve systems of several fields, each with several preconditioners."""
    check_asked(orders=orders)
    if min(orders) < 2 or not refine or min(refine) < 0:
        raise OperatorError("give orders from 2 on (pressures have one less), and refine from 0 on")
    choose("problem", problems, PROBLEMS)
    choose("cells", cells, CELLS)
    choose("preconditioner", preconditioners, WITH)
    meter, rows, values = Meter((threads,)), list[Row](), list[Row]()
    for name, kind, order, times in dict.fromkeys(product(problems, cells, orders, refine)):
        mesh = mesh_for(name, kind, times)
        facts = {"problem": name, "cells": mesh.parts[0].cell.plural, "order": order}
        facts |= {"refine": times, "elements": mesh.num_elements}
        for M in dict.fromkeys(preconditioners):
            progress(f"{name}, order {order}, {times} times refined, {M}")
            meter.round()
            with using(threads), _factors(M):
                found = [*_stages(PROBLEMS[name], mesh, order, Solves(M.replace(BLOCKS, AUTO)))]
            rows += [facts | {"with": M} | row for row, _ in found]
            values += [
                facts
                | {"with": M, "stage": row["stage"], "value": what}
                | {"found": ours, "published": theirs, "difference": ours - theirs}
                for row, each in found
                for what, (ours, theirs) in each.items()
            ]
    return {"machine": meter.describe(), "rows": rows, "values": values}


def _stages(
    problem: Problem, mesh: AnyMesh, order: int, solves: Solves
) -> Iterator[tuple[Row, Values]]:
    """Rows of the stages of a program, the last perhaps with the reason why it has none."""
    lap, stages = stopwatch(), problem.run(mesh, order, solves)
    while True:
        solves.iterations.clear()
        try:
            stage, values = next(stages)
        except StopIteration:
            return
        except EXPECTED as error:
            missing = dict.fromkeys(
                ("stage", "solves", "most", "iterations", "seconds", "products")
            )
            yield missing | {"unknowns": solves.size, "failure": str(error)}, {}
            return
        seconds, counts = lap(), solves.iterations
        row = {"stage": stage, "unknowns": solves.size, "solves": len(counts), "failure": None}
        row |= {"most": max(counts, default=0), "iterations": sum(counts)}
        yield row | {"seconds": seconds, "products": seconds / solves.product}, values
        lap()
