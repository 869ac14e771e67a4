"""Further cases for a GPU: gas, many vectors, faces, refined meshes, simplices, small matrices.

The state of the gas, and products with forms over faces, on locally refined meshes, tetrahedra and
prisms, are compared with the CPU's. Many vectors at once are compared with one vector after the
other, and batches of products C = A B with cuBLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench import faces, simplices
from femops.bench.adaptive import REFINED, UNIFORM, hanging_share, meshes_for
from femops.bench.bounds import Bound, Demand
from femops.bench.gpu.run import Row, Run, clocks, relative_difference
from femops.bench.problems import PROBLEMS, make_mesh
from femops.bench.tensor.products import ProductCase, Way, layout_of
from femops.bench.timing import Times, batch_times, call_seconds, repeated
from femops.fields.multivector import MultiVector
from femops.hydro import Lagrangian, Simulation, problem
from femops.hydro.meshes import built_in
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops.tensor import Batch, gemm
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.device import Device

OFF = 1e-7
"""Largest difference of states from the CPU's; solves end at 1e-8."""

_COMPARED = 2  # steps, on a mesh of 8 elements
_STEPS, _END = 5, 1e3  # steps, and an end time that no run reaches


@final
@dataclass(frozen=True)
class GasCase:
    """A blast in three dimensions."""

    order: int  # order of position and velocity; the energy has one less
    refine: int  # number of refinements of a mesh of 8 elements

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"gas, orders {self.order} and {self.order - 1}, refined {self.refine} times"

    def run(self, refine: int, device: Device | None) -> Simulation:
        """Make a simulation of the blast in its initial state."""
        mesh, orders = built_in("cube01_hex").refine(refine), (self.order, self.order - 1)
        return Simulation.begin(Lagrangian(problem("sedov"), mesh, *orders, device=device))

    def compared(self, device: Device | None) -> NDArray[Any]:
        """State (n,) of the gas after a few steps on a small mesh."""
        run = self.run(0, device)
        run.run(_END, max_steps=_COMPARED)
        return np.concatenate([*run.equations.parts(run.state).values()])

    def rows(self, run: Run) -> list[Row]:
        """Measure the forces and the steps of a blast."""
        off = relative_difference(self.compared(run.device), self.compared(None))
        gas = self.run(self.refine, run.device)
        equations = gas.equations
        gas.run(_END, max_steps=1)  # compiles

        def forces() -> None:
            equations.forces(gas.state)  # the host looks at its time step

        seconds = float(np.median(repeated(partial(call_seconds, forces), run.seconds)))
        step = call_seconds(lambda: gas.run(_END, max_steps=gas.steps + _STEPS)) / _STEPS
        elements, points = equations.part.num_elements, equations.quadrature.q1d**3
        row = {"name": self.name, "order": self.order, "elements": elements}
        row |= {"dofs": equations.V.size + equations.E.size}
        row |= {"seconds_forces": seconds, "seconds_step": step}
        return [row | {"forces_points_per_second": elements * points / seconds, "off_cpu": off}]


GAS = (GasCase(2, 4), GasCase(3, 3), GasCase(4, 3))
"""Runs, the most important first: 32,768 elements, then 4,096."""


# --- many vectors ---------------------------------------------------------------------------------

_MESH, _LEVEL = "multilinear", "partial"


@final
@dataclass(frozen=True)
class VectorsCase:
    """An operator on elements that are not affine, with numbers stored at points."""

    problem: str  # name in `femops.bench.problems.PROBLEMS`, of one component
    order: int
    nvec: int = 64  # number of vectors
    dofs: float = 5e5  # approximate number of dofs of a vector

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"{self.nvec} vectors, {self.problem}, order {self.order}"

    def rows(self, run: Run) -> list[Row]:
        """Measure an operator on many vectors."""
        device, n = run.device, self.nvec
        space = H1(make_mesh(_MESH, self.order, self.dofs), self.order, device=device)
        operator = PROBLEMS[self.problem].operator(space, _LEVEL)
        many = MultiVector.random(space, n)
        result, alone = many.empty_like(space), space.zeros()
        times = batch_times(device, partial(operator.apply_many, many, result), run.seconds)
        x = device.upload(device.download(many[n - 1]))  # contiguous
        single = batch_times(device, partial(operator.apply, x, alone), run.seconds).median
        bound = Demand.of(operator).of_vectors(n, space.size).bound(run.limits)
        row = {"name": self.name, "problem": self.problem, "mesh": _MESH, "order": self.order}
        row |= {"level": _LEVEL, "dofs": space.size, "nvec": n, "width": many.panels.shape[2]}
        row |= {"seconds_median": times.median, "seconds_launch": times.launch}
        row |= {"seconds_one": single, **bound.speed(space.size * n, times.median)}
        row |= {"over_one_by_one": n * single / times.median}
        row["off_one"] = relative_difference(*map(device.download, (result[n - 1], alone)))
        return [row | clocks(device)]


VECTORS = tuple(VectorsCase(problem, order) for order in (6, 4, 8) for problem in ("bp3", "bp1"))
"""Cases, the most important first; vectors in and out take 512 MB."""


# --- one product ----------------------------------------------------------------------------------


def _product(A: Operator) -> NDArray[Any]:
    """Product (n,) with a random vector, which depends on n alone."""
    memory, n = A.space.memory, A.shape[1]
    found: NDArray[Any] = memory.get(A @ memory.put(np.random.default_rng(n).standard_normal(n)))
    return found


def _times(A: Operator, run: Run) -> Times:
    """Times of a product with ones."""
    x, out = A.space.zeros(), A.space.zeros()
    x += 1.0
    return batch_times(run.device, partial(A.apply, x, out), run.seconds)


# --- faces between elements -----------------------------------------------------------------------


@final
@dataclass(frozen=True)
class FacesCase:
    """An operator on elements that are not affine: discontinuous functions, or bp3 beside them."""

    problem: str  # name in `femops.bench.faces.PROBLEMS`
    order: int
    dofs: float = 1.5e6  # approximate number of dofs of continuous functions on the mesh

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"{self.problem}, order {self.order}"

    def operator(self, dofs: float, device: Device | None) -> Operator:
        """Make the operator on a mesh for about so many dofs."""
        mesh = make_mesh(_MESH, self.order, dofs)
        return faces.operator_of(self.problem, mesh, self.order, device=device)

    def compared(self, device: Device | None) -> NDArray[Any]:
        """Product (n,) with a random vector on a mesh of a few elements."""
        return _product(self.operator((3 * self.order + 1) ** 3, device))

    def rows(self, run: Run) -> list[Row]:
        """Measure a product, and compare one on a small mesh."""
        off = relative_difference(self.compared(run.device), self.compared(None))
        A = self.operator(self.dofs, run.device)
        times = _times(A, run)
        row = {"name": self.name, "problem": self.problem, "mesh": _MESH, "order": self.order}
        row |= {"dofs": A.space.size, "seconds_median": times.median}
        row |= {"seconds_launch": times.launch, "dofs_per_second": A.space.size / times.median}
        return [row | {"off_cpu": off} | clocks(run.device)]


FACES = tuple(
    FacesCase(problem, order)
    for order in (4, 6, 2, 8)
    for problem in faces.PROBLEMS
    if order > 2 or problem != "sip hermite"
)
"""Cases, the most important first."""


# --- locally refined meshes -----------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RefinedCase:
    """bp3 on a mesh of which a fifth of the elements have hanging nodes, beside a uniform one."""

    order: int
    level: str
    dofs: float = 3e6  # approximate number of dofs

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"refined, order {self.order}, {self.level}"

    def operators(self, dofs: float, device: Device | None) -> dict[str, Operator]:
        """Make the operator on both meshes, for about so many dofs."""
        meshes = meshes_for(_MESH, self.order, dofs)
        spaces = {name: H1(mesh, self.order, device=device) for name, mesh in meshes.items()}
        return {name: PROBLEMS["bp3"].operator(V, self.level) for name, V in spaces.items()}

    def compared(self, device: Device | None) -> NDArray[Any]:
        """Product with a random vector, and diagonal, (2 n,), on a refined mesh of few elements."""
        A = self.operators((6 * self.order + 1) ** 3, device)[REFINED]
        return np.concatenate([_product(A), A.space.memory.get(A.diagonal())])

    def rows(self, run: Run) -> list[Row]:
        """Measure products by element, and the diagonal; compare results on a small mesh."""
        off = relative_difference(self.compared(run.device), self.compared(None))
        row: Row = {"name": self.name, "mesh": _MESH, "order": self.order, "level": self.level}
        each: dict[str, float] = {}
        for name, A in self.operators(self.dofs, run.device).items():
            x, out = A.space.zeros(), A.space.zeros()
            x += 1.0
            times = batch_times(run.device, partial(A.apply, x, out), run.seconds)
            elements = A.space.mesh.num_elements
            each[name] = times.median / elements
            row |= {"dofs": A.space.size, "elements": elements, "seconds_median": times.median}
            row |= {"seconds_launch": times.launch, "hanging": hanging_share(A.space.mesh)}
            row |= {"dofs_per_second": A.space.size / times.median}
        A.diagonal()  # compiles
        row |= {"seconds_diagonal": run.device.seconds(A.diagonal)}
        row |= {"over_uniform": each[REFINED] / each[UNIFORM], "off_cpu": off}
        return [row | clocks(run.device)]


REFINEMENTS = tuple(
    RefinedCase(order, level) for order in (4, 2, 6) for level in ("partial", "matrix-free")
)
"""Cases, the most important first."""


# --- tetrahedra, prisms, several shapes -----------------------------------------------------------


@final
@dataclass(frozen=True)
class SimplicesCase:
    """A form by tables: at points, or on straight tetrahedra in an orthonormal basis."""

    form: str  # name in `femops.bench.simplices.FORMS`
    order: int
    curved: bool = False
    cells: str = "tetrahedra"  # see `femops.bench.simplices.mesh_for`
    dofs: float = 3e6  # approximate number of dofs of a component

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"{self.cells}, {self.form}, order {self.order}{', curved' * self.curved}"

    def operator(self, dofs: float, device: Device | None) -> Operator:
        """Make the operator on a mesh for about so many dofs."""
        mesh = simplices.mesh_for(self.cells, self.order, dofs, curved=self.curved)
        ncomp = 3 if self.form == "elasticity" else 1
        return simplices.FORMS[self.form](H1(mesh, self.order, ncomp, device=device), _LEVEL)

    def compared(self, device: Device | None) -> NDArray[Any]:
        """Product (n,) with a random vector on a mesh of a few elements."""
        return _product(self.operator((2 * self.order + 1) ** 3, device))

    def rows(self, run: Run) -> list[Row]:
        """Measure a product beside its limit, and compare one on a small mesh.

        ``points`` is the mean of all elements, ``registers`` that of the kernel that has most.
        """
        off = relative_difference(self.compared(run.device), self.compared(None))
        A = self.operator(self.dofs, run.device)
        times, demand = _times(A, run), Demand.of(A)
        sweeps = [sweep for sweep in A.compiled.sweeps if isinstance(sweep, DeviceSweep)]
        elements = sum(sweep.count for sweep in sweeps)
        points = sum(sweep.count * sweep.kernel.points for sweep in sweeps) / elements
        functions = (run.device.function(sweep.kernel.text) for sweep in sweeps)
        row = {"name": self.name, "form": self.form, "order": self.order, "curved": self.curved}
        row |= {"cells": self.cells, "dofs": A.space.size, "elements": elements, "points": points}
        row |= demand.bound(run.limits).speed(A.space.size, times.median)
        row |= {"seconds_median": times.median, "seconds_launch": times.launch}
        row |= {"bytes_per_dof": demand.memory / A.space.size}
        row |= {"registers": max(function.registers for function in functions)}
        return [row | {"off_cpu": off} | clocks(run.device)]


SIMPLICES = tuple(
    SimplicesCase(form, order, curved)
    for order in (3, 2, 4, 1, 5, 6)
    for form, curved in (("diffusion", False), ("diffusion", True), ("elasticity", False))
) + tuple(
    SimplicesCase("diffusion", order, cells=cells)
    for order in (2, 3, 1, 4)
    for cells in ("prisms", "mixed")
)
"""Cases, the most important first."""


# --- products of small matrices -------------------------------------------------------------------

_CUBLAS: Way = "cublas", "contiguous"  # library and layout of the rows to compare with


def product_rows(case: ProductCase, run: Run) -> list[Row]:
    """Measure a case in each layout and by cuBLAS. If cuBLAS fails, femops is still measured."""
    rates, single = run.limits, case.dtype in ("float32", "complex64")
    bound = Bound(
        memory=case.nbytes * (2 / rates.copied_bytes + 1 / rates.read_bytes),
        # single precision is taken to be twice as fast as double
        arithmetic=case.flops / (rates.flops * (2 if single else 1)),
    )
    calls, timed = _calls(run.device, case), dict[Way, Times]()
    for way, (call, _) in calls.items():
        measure = partial(batch_times, run.device, call, run.seconds)
        if times := run.found.attempt(f"{case.name}, {', '.join(way)}", measure):
            timed[way] = times
    rows = []
    for way, times in timed.items():
        row: Row = {"name": f"{case.name}, {', '.join(way)}"}
        row |= case.row(way, 0, times.median, bound) | {"seconds_launch": times.launch}
        row |= {"over_best_peer": None, "off_peer": None}
        if way != _CUBLAS and _CUBLAS in timed:
            expected: Any = run.device.download(calls[_CUBLAS][1])
            row["over_best_peer"] = timed[_CUBLAS].median / times.median
            row["off_peer"] = relative_difference(calls[way][1].numpy(), expected)
        rows.append(row)
    return rows


def _calls(device: Device, case: ProductCase) -> dict[Way, tuple[Callable[[], object], Any]]:
    """Return the calls to be timed and their results, by library and layout."""
    here = [Batch.wrap(array) for array in case.operands()]
    a, b = (device.upload(one.numpy()) for one in here)
    shape = case.n, case.n
    c = device.xp.empty((case.members, *shape), np.dtype(case.dtype))
    calls: dict[Way, tuple[Callable[[], object], Any]]
    calls = {_CUBLAS: (partial(device.xp.matmul, a, b, out=c), c)}
    for name in case.layouts:
        layout = layout_of(name, on_device=True)
        x, y = (one.copy(layout).to(device) for one in here)
        out = Batch(shape, case.members, case.dtype, layout, device)
        calls["femops", name] = partial(gemm, x, y, out), out
    return calls
