"""Semi-discrete equations of a gas on a mesh that moves with the gas.

M_V dv/dt = -F 1, M_E de/dt = F^T v, dx/dt = v (Dobrev, Kolev, Rieben, 2012). The matrix F is not
assembled. Its products with 1 and v come from the stress at the quadrature points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from functools import cached_property
from time import perf_counter
from typing import Annotated, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.basis import bernstein_coefficients
from femops.errors import HydroError
from femops.fields.norms import exact_sum
from femops.geometry.jacobians import Geometry
from femops.hydro.diagnosis import check_density, check_energy
from femops.hydro.problems import POSITIVE, PointFunction, Problem
from femops.hydro.qfunctions import corner_force, stress_at_points, work_of
from femops.hydro.sequence import OperationSequence, Scalar
from femops.parallel import Communicator
from femops.spaces.functions import evaluate
from femops.spaces.memory import DeviceLike
from femops_common.arguments import Count, Degree, Fraction, checked, whole_numbers
from femops_meshes.coordinates.mapping import tensor_apply
from femops_meshes.mesh import check_conforming, check_cubes


@final
@dataclass(frozen=True)
class Clock:
    """Seconds and counts of a run's parts, for figures of merit.

    Attributes
    ----------
    force, mass, energy : float
        Seconds in forces (with the stress at points), in solves with the velocity's mass matrix,
        and in solves with the energy's mass matrix.
    sweeps, iterations, solves : int
        Evaluations of forces, iterations of conjugate gradients, evaluations of rates.
    """

    force: float = 0.0
    mass: float = 0.0
    energy: float = 0.0
    sweeps: int = 0
    iterations: int = 0
    solves: int = 0

    def since(self, before: Clock) -> Clock:
        """Difference from an earlier reading."""
        return Clock(
            *(now - then for now, then in zip(astuple(self), astuple(before), strict=True))
        )


Floats = NDArray[np.float64]


def mass_and_inverse(
    part: femops.Mesh, order: int, rho: Any, rule: femops.basis.Quadrature1D
) -> tuple[Floats, Floats]:
    """Mass matrices of this rank's elements, and their inverses, each (ne, n, n).

    Before the inversion each matrix is scaled to a diagonal of 1. So different magnitudes of
    quadrature weights and densities cost no digits.

    A product with an inverse has as many operations as two triangular solves, but the operations do
    not wait for each other. `femops.tensor.solve_triangular` with Cholesky factors took 3 times as
    long for 4096 blocks of 27 by 27, and 5 times as long for 512 blocks of 8 by 8.
    """
    space = femops.L2(part, order)
    n = space.element.size
    blocks = femops.mass(space, rho=rho, quadrature=rule).assemble().tobsr((n, n)).data
    scale = 1.0 / np.sqrt(np.diagonal(blocks, axis1=1, axis2=2))
    both = scale[:, :, np.newaxis] * scale[:, np.newaxis, :]
    try:
        return blocks, np.asarray(np.linalg.inv(blocks * both) * both)
    except np.linalg.LinAlgError as error:
        raise HydroError(
            "the density differs so much within an element that its mass matrix is singular: put "
            "mesh lines where the density jumps, or take --order-thermo 0"
        ) from error


def bernstein_norm(space: femops.L2, energy: Floats) -> float:
    """Euclidean norm of the Bernstein coefficients of an energy. Collective.

    Shapes: `energy` (size,).
    """
    lines = [bernstein_coefficients(space.basis.nodes)] * space.dim
    values = tensor_apply(lines, energy.reshape(-1, space.element.size))
    return float(np.sqrt(exact_sum((values * values).reshape(-1), space.comm)))


class CornerForce(ABC):
    """Corner force of a problem."""

    # length of a result. The first entries have the layout of a state, with -F 1 as velocity and
    # F^T v as energy. Further entries are data for `put_work`.
    size: int

    def __init__(
        self,
        problem: Problem,
        space: femops.Product,
        walls: NDArray[np.int64],
        rule: femops.basis.Quadrature1D,
        materials: dict[str, Any],
    ) -> None:
        self._problem, self._space, self._walls = problem, space, walls
        self._given = {"quadrature": rule, **materials}
        self._V: Any = space.spaces["velocity"]
        self.size = space.size

    @abstractmethod
    def evaluate(self, state: Floats) -> tuple[Floats, float]:
        """Return the result (size,) of a state, and the least time step of points. Collective."""

    @abstractmethod
    def put(self, sequence: OperationSequence, state: Floats, result: Floats) -> Scalar:
        """Add `evaluate` of a state to a sequence. Return the time step as a scalar.

        ``state`` is a vector (space.size,), ``result`` (size,).
        """

    @abstractmethod
    def put_work(
        self, sequence: OperationSequence, state: Floats, result: Floats, mean: Floats
    ) -> Floats:
        """Add to a sequence the product F^T v for a velocity other than the state's.

        Shapes: `state` (space.size,), `result` (size,), `mean` (V.size,), returned (E.size,).
        """

    @abstractmethod
    def slowest(self) -> int:
        """Element that allowed the least time step in the last evaluation. Collective."""


@final
class SweptForce(CornerForce):
    """Corner force in one sweep, from the stress at the points."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._form = femops.residual(
            corner_force(self._problem, self._V.order), self._space, minima=["step"], **self._given
        ).constrained(self._space.offsets["velocity"] + self._walls)

    def evaluate(self, state: Floats) -> tuple[Floats, float]:
        result, found = self._form.evaluate(state)
        return result, found["step"]

    def put(self, sequence: OperationSequence, state: Floats, result: Floats) -> Scalar:
        return sequence.evaluate(self._form, state, result, label="force")["step"]

    @cached_property
    def _work(self) -> femops.Residual:
        """Form for the work of a state's stress on another velocity."""
        product = femops.Product(**self._space.spaces, mean=self._V)
        return femops.residual(work_of(self._problem, self._V.order), product, **self._given)

    def put_work(
        self,
        sequence: OperationSequence,
        state: Floats,
        result: Floats,  # noqa: ARG002  (the stress is computed again)
        mean: Floats,
    ) -> Floats:
        product, memory = self._work.space, self._space.memory
        whole, work = (memory.put(np.zeros(product.size)) for _ in range(2))
        sequence.add(whole[: state.size], (1.0, state), label="force")
        sequence.add(whole[state.size :], (1.0, mean), label="force")
        sequence.evaluate(self._work, whole, work, label="force")
        energy: Floats = work[product.slice("energy")]
        return energy

    def slowest(self) -> int:
        return self._form.element_of("step")


@final
class MatrixForce(CornerForce):
    """Corner force as element matrices (assembly `full`), from the stress at the points.

    The stress is a field with its nodes at the quadrature points. A result stores the matrices. It
    also stores the integrals of the problem's heat source times the energy's basis functions.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        V, rule, E = self._V, self._given["quadrature"], self._space.spaces["energy"]
        mesh: Any = V.distributed or V.mesh
        at_points = femops.L2(mesh, rule.q1d - 1, ncomp=V.dim**2, family="gauss")
        self._fields = femops.Product(**self._space.spaces, stress=at_points)
        self._stress = femops.residual(
            stress_at_points(self._problem, V.order), self._fields, minima=["step"], **self._given
        )
        blocks = [block.inverse for block in Geometry(V.mesh, rule)]
        self._inverse = np.concatenate(blocks) if blocks else np.zeros((0, 1, V.dim, V.dim))
        values, slopes = (f(rule.points) for f in (V.basis.interpolation, V.basis.gradient))
        gradients = [
            _tensor([slopes if d == k else values for d in range(V.dim)]) for k in range(V.dim)
        ]
        phi = _tensor([E.basis.interpolation(rule.points)] * V.dim)
        # for each point and direction: products of a slope of w and a value of phi
        table = np.einsum("kqi,qj->qkij", np.stack(gradients), phi)
        self._table = table.reshape(-1, table.shape[2] * table.shape[3])
        self._shape = V.mesh.num_elements, V.dim, *table.shape[2:]
        self._source = self._space.size + int(np.prod(self._shape))
        self.size = self._source + E.size

    def evaluate(self, state: Floats) -> tuple[Floats, float]:
        whole = np.zeros(self._fields.size)
        whole[: len(state)] = state
        residual, found = self._stress.evaluate(whole)
        _, _, source, stress = self._fields.split(residual)
        (ne, dim, nodes, _), points = self._shape, self._inverse.shape[1]
        weighted = stress.reshape(-1, points, dim, dim)
        pulled = np.matmul(weighted, self._inverse.swapaxes(2, 3))  # (ne, points, c, k)
        rows = np.ascontiguousarray(pulled.swapaxes(1, 2)).reshape(-1, points * dim)
        matrices = (rows @ self._table).reshape(self._shape)
        by_element = -matrices.sum(axis=3).swapaxes(1, 2)  # -F 1, (ne, nodes, dim)
        shape = (ne, nodes) if dim == 1 else (ne, nodes, dim)
        force = self._V.sum_elements(np.ascontiguousarray(by_element).reshape(shape))
        force[self._walls] = 0.0
        work = self._product(matrices, source, state[self._space.slice("velocity")])
        result = np.zeros(self._V.size), force, work, matrices.reshape(-1), source
        return np.concatenate(result), found["step"]

    def _product(self, matrices: Floats, source: Floats, velocity: Floats) -> Floats:
        """Return F^T v plus the heating by the source."""
        ne, dim, nodes, others = self._shape
        values = self._V.restriction.gather(self._V.l_vec(velocity)).reshape(ne, nodes, dim)
        row = np.ascontiguousarray(values.swapaxes(1, 2)).reshape(ne, 1, dim * nodes)
        flat = matrices.reshape(ne, dim * nodes, others)
        return np.asarray(np.matmul(row, flat).reshape(-1) + source)

    def put(self, sequence: OperationSequence, state: Floats, result: Floats) -> Scalar:
        step = sequence.scalar()

        def compute() -> None:
            result[:], least = self.evaluate(state)
            step.set(least)

        sequence.call(compute, label="force")
        return step

    def put_work(
        self,
        sequence: OperationSequence,
        state: Floats,
        result: Floats,
        mean: Floats,
    ) -> Floats:
        matrices, source = result[state.size : self._source], result[self._source :]
        work = np.zeros(source.size)

        def multiply() -> None:
            work[:] = self._product(matrices, source, mean)

        sequence.call(multiply, label="force")
        return work

    def slowest(self) -> int:
        return self._stress.element_of("step")


def _tensor(matrices: list[Floats]) -> Floats:
    """Kronecker product of one matrix for each direction, x first and fastest."""
    found: Floats = np.ones((1, 1))
    for matrix in matrices:
        found = np.asarray(np.kron(matrix, found), dtype=np.float64)
    return found


Assembly = Literal["partial", "full"]

_EXACT, _MOST_ITERATIONS = 1e-14, 1000  # tolerance and limit of solves that conserve momentum


@final
@dataclass(frozen=True)
class Forces:
    """Forces and heating by the stress of a state, and the time step that the state allows.

    Attributes
    ----------
    result : (n,) array
        -F 1 as velocity and F^T v as energy; see `CornerForce.size`.
    step : float
        Largest stable time step.
    """

    result: Floats
    step: float


@final
@dataclass(frozen=True)
class Fluid:
    """Density and adiabatic index of a gas in the coordinates of the initial mesh.

    A remap makes a new fluid: that which would have become the remapped gas by moving with it.

    Attributes
    ----------
    density, gamma : GridFunction
        Functions with values at the quadrature points, see `Lagrangian.at_points`.
    """

    density: femops.GridFunction
    gamma: femops.GridFunction


@final
@checked(HydroError)
class Lagrangian:
    """Semi-discrete equations of a problem.

    A state is a vector of `space`: position, velocity and specific internal energy.

    Parameters
    ----------
    problem : Problem
    mesh : Mesh or DistributedMesh
        Initial mesh. Boundary attributes 1, 2 and 3 are walls across x, y and z.
    order_kinematic, order_thermo : int
        Degree k of position and velocity, and degree m of the energy, at most 3 k - 1.
    cfl : float
        Time step as a fraction of the largest step that waves allow.
    cg_tol : float
        Relative tolerance of solves with the velocity's mass matrix.
    cg_max : int
        Maximum number of iterations of a solve.
    assembly : {"partial", "full"}
        Whether the force is applied from the stress at points, or stored as element matrices.
    device : str, optional
        Device of the states and of the computations, as for `femops.H1`. By default the host.
    fluid : Fluid, optional
        Density and adiabatic index in place of those of the problem.

    Attributes
    ----------
    space, on_host : Product
        Space of the states, and the same space on the host.
    V, E : H1, L2
        Spaces of position and velocity, and of the energy, on the host.
    density : float or GridFunction
        Initial density.
    part : Mesh
        Mesh of this rank's elements.
    comm : Communicator
        Ranks that share the mesh.
    quadrature : Quadrature1D
    force : CornerForce
    sequences : list of OperationSequence
        Sequences of the time steps of these equations. The clock sums their seconds.

    Raises
    ------
    HydroError
        The problem is not defined in the mesh's dimension, a boundary attribute is no wall, a
        tolerance or order is out of range, the mesh is locally refined, the density is not
        positive, or ``assembly`` is "full" on a device.
    """

    _given_as = "equations, as femops.hydro.Lagrangian(problem, mesh)"

    def __init__(
        self,
        problem: Problem,
        mesh: femops.Mesh | femops.DistributedMesh,
        order_kinematic: Degree = 2,
        order_thermo: Count = 1,
        *,
        cfl: Annotated[float, POSITIVE] = 0.5,
        cg_tol: Fraction = 1e-8,
        cg_max: Annotated[int, whole_numbers(1)] = 300,
        assembly: Assembly = "partial",
        device: DeviceLike = None,
        fluid: Fluid | None = None,
    ) -> None:
        _check(problem, mesh.dim, assembly, device)
        _check_orders(order_kinematic, order_thermo)
        check_cubes(mesh, "gas dynamics", HydroError)
        check_conforming(mesh, "gas dynamics has no locally refined meshes yet", HydroError)
        self.problem, self.mesh, self.cfl, self.fluid = problem, mesh, cfl, fluid
        self.order, self.order_thermo = order_kinematic, order_thermo
        self.cg_tol, self.cg_max, self.assembly = cg_tol, cg_max, assembly
        self.sequences: list[OperationSequence] = []
        self._force_seconds, self._sweeps, self._solves, self._zero = 0.0, 0, 0, Clock()
        self.V = femops.H1(mesh, order_kinematic, ncomp=mesh.dim)
        self.E = femops.L2(mesh, order_thermo)
        self.on_host = femops.Product(position=self.V, velocity=self.V, energy=self.E)
        self.space = self._states(device)
        self._where = {name: self.space.slice(name) for name in self.space.names}
        points = (3 * order_kinematic + order_thermo - 1) // 2 + 1
        self.quadrature = self.V.quadrature(points)
        self.part, self.comm = self.V.mesh, self.V.comm
        whole_groups = isinstance(mesh, femops.DistributedMesh) and mesh.reproducible
        attributes = _walls(self.part, self.comm, whole_groups=whole_groups)
        dofs = [self.V.boundary_dofs(a, components=a - 1) for a in attributes]
        self.walls = np.concatenate(dofs)
        self._check_period()
        volume = femops.integrate(femops.L2(mesh, 0), 1.0)
        self.h0 = float(volume / mesh.num_elements) ** (1.0 / mesh.dim) / order_kinematic
        self.density = self._density()
        check_density(self)
        self.gamma = fluid.gamma if fluid else _by_element(mesh, self.part, problem.gamma)
        self._materials = {"rho": self.density, "gamma": self.gamma, "h0": self.h0}
        force = MatrixForce if assembly == "full" else SweptForce
        given = problem, self.space, self.walls, self.quadrature, self._materials
        self.force: CornerForce = force(*given)
        self._make_masses()

    def _states(self, device: DeviceLike) -> femops.Product:
        """Space of the states."""
        if device is None:
            return self.on_host
        V = femops.H1(self.mesh, self.order, ncomp=self.mesh.dim, device=device)
        E = femops.L2(self.mesh, self.order_thermo, device=V.device)
        return femops.Product(position=V, velocity=V, energy=E)

    def _check_period(self) -> None:
        """Raise if a node is not where its element has it, by half of the element. Collective.

        Elements at a period share nodes that they have at its two ends.
        """
        position = self.V.interpolate(lambda x: x)
        nodal = self.V.restriction.gather(self.V.l_vec(position))
        nodes = [nodal.reshape(len(nodal), -1, self.part.dim), self.part.coordinates]
        at, own = (np.stack([x.min(axis=1), x.max(axis=1)]) for x in nodes)
        away = (np.abs(at - own) > 0.5 * (own[1] - own[0])).any()
        if self.comm.max(int(away)):
            raise HydroError(
                "the mesh is periodic, so that a node has two positions: give a mesh with walls on "
                "all sides"
            )

    def _density(self) -> Any:
        """Initial density: a number, or a field of the energy's space."""
        if self.fluid is not None:
            return self.fluid.density
        density = self.problem.density
        if not callable(density):
            return density
        return femops.GridFunction(self.E, self._projected(density))

    def _projected(self, f: PointFunction, *, energy: bool = False) -> Floats:
        """Values (size,) of a function at the Gauss points of the energy's space."""
        values = self.E.interpolate(f)
        if energy:
            check_energy(self, values)
        return values

    def _make_masses(self) -> None:
        rho, rule = self.fluid.density if self.fluid else self.problem.density, self.quadrature
        memory, device = self.space.memory, self.space.device
        space = femops.H1(self.mesh, self.order, device=device)
        self._mass = femops.mass(space, rho=rho, quadrature=rule)
        gravity = self.V.zeros()
        if self.problem.gravity:
            weights = memory.get(self._mass @ memory.put(np.ones(space.size)))
            self.V.components(gravity)[:, 1] = -self.problem.gravity * weights
            gravity[self.walls] = 0.0
        self._gravity = memory.put(gravity)
        self._solvers = []
        for component in range(self.mesh.dim):
            mine = self.walls[self.walls % self.mesh.dim == component] // self.mesh.dim
            free = self._mass.constrained(mine)
            # one solve per component and natural norms, as in Laghos, for the same solver errors
            self._solvers.append(femops.CGSolver(free, M=femops.jacobi(free), natural=True))
        blocks, inverse = mass_and_inverse(self.part, self.order_thermo, rho, rule)
        self._energy_mass, self._energy_inverse = blocks, memory.put(inverse)

    @property
    def at_points(self) -> femops.L2:
        """Space on the host of functions given by their values at the quadrature points."""
        return femops.L2(self.mesh, self.quadrature.q1d - 1)

    def with_fluid(self, fluid: Fluid) -> Lagrangian:
        """Return equations of another fluid in the coordinates of the same initial mesh."""
        options = {name: getattr(self, name) for name in ("cfl", "cg_tol", "cg_max", "assembly")}
        orders = self.order, self.order_thermo
        device = self.space.device
        given: dict[str, Any] = {**options, "device": device, "fluid": fluid}
        return Lagrangian(self.problem, self.mesh, *orders, **given)

    def momentum_of(self, velocity: Floats) -> Floats:
        """Integrals (V.size,) of the momentum of a velocity (V.size,) against the basis."""
        result, memory = self.V.zeros(), self.space.memory
        for k in range(self.V.ncomp):
            component = memory.put(np.ascontiguousarray(velocity[k :: self.V.ncomp]))
            result[k :: self.V.ncomp] = memory.get(self._mass @ component)
        return result

    def velocity_of(self, momentum: Floats) -> Floats:
        """Velocity (V.size,) with the integrals (V.size,) of its momentum against the basis.

        At walls the velocity across them is zero, whatever the momentum.
        """
        result, memory = self.V.zeros(), self.space.memory
        right = momentum.copy()
        right[self.walls] = 0.0
        for k, solver in enumerate(self._solvers):
            b = memory.put(np.ascontiguousarray(right[k :: self.V.ncomp]))
            found, _ = solver.solve(b, rtol=_EXACT, maxiter=_MOST_ITERATIONS)
            result[k :: self.V.ncomp] = memory.get(found)
        return result

    def energy_of(self, integrals: Floats) -> Floats:
        """Energy (E.size,) with the integrals (E.size,) of density times it against the basis."""
        inverse = self.space.memory.get(self._energy_inverse)
        n = inverse.shape[-1]
        return np.asarray(np.matmul(inverse, integrals.reshape(-1, n, 1)).reshape(-1))

    # --- states ----------------------------------------------------------------------------------

    def initial(self) -> Floats:
        """Initial state (size,).

        Raises
        ------
        HydroError
            Not exactly one element has the blast at its corner, or the energy is negative.
        """
        velocity = self.V.interpolate(self.problem.velocity)
        velocity[self.walls] = 0.0
        if self.problem.blast:
            energy = self._blast()
        else:
            energy = self._projected(self.problem.energy, energy=True)
        position = self.V.interpolate(lambda x: x)
        state = self.on_host.join(position=position, velocity=velocity, energy=energy)
        return self.space.memory.put(state)

    def parts(self, state: Floats) -> dict[str, Floats]:
        """Split a state (space.size,) by name, on the host.

        Position and velocity are (V.size,), and energy is (E.size,).
        """
        parts = self.on_host.split(self.space.memory.get(state))
        return dict(zip(self.on_host.names, parts, strict=True))

    def _blast(self) -> Floats:
        """Energy (size,) of a blast, nonzero only in the element at the origin. Collective."""
        part, m = self.part, self.order_thermo
        nodes = np.abs(part.coordinates).max(axis=2)
        mine = nodes.min(axis=1) <= 1e-12 * nodes.max(axis=1)
        count = int(self.comm.sum(int(mine.sum())))
        if count != 1:
            raise HydroError(
                "a blast is in a corner of the domain, at the origin, with walls there: give a "
                f"mesh of which one element touches the origin, and not {count}"
            )
        energy: Floats = self._projected(lambda x: _peak(part, int(mine.argmax()), x, m))
        energy = energy.reshape(len(mine), -1) * mine[:, None]
        total = float(self.comm.sum(float(np.einsum("eij,ej->", self._energy_mass, energy))))
        energy *= self.problem.blast / 2**part.dim / total
        return energy.reshape(-1)

    # --- rates -----------------------------------------------------------------------------------

    def forces(self, state: Floats) -> Forces:
        """Compute forces and heating of a state (space.size,), and the largest stable time step."""
        begin = perf_counter()
        result, step = self.force.evaluate(state)
        self._force_seconds += perf_counter() - begin
        self.count(sweeps=1)
        return Forces(result, self.cfl * step)

    def put_forces(self, sequence: OperationSequence, state: Floats, result: Floats) -> Scalar:
        """Add the forces of a state (space.size,) to a sequence.

        Return the largest stable time step. ``result`` (n,) gets the forces, see `Forces`.
        """
        return self.cfl * self.force.put(sequence, state, result)

    def slowest(self) -> int:
        """Element that limited the time step in the last evaluation of forces. Collective."""
        return self.force.slowest()

    def put_acceleration(self, sequence: OperationSequence, result: Floats, out: Floats) -> None:
        """Add dv/dt = -M_V^-1 F 1 to a sequence.

        Parameters
        ----------
        sequence : OperationSequence
        result : (n,) array
            See `Forces`.
        out : (V.size,) array
        """
        force, dim = result[self._where["velocity"]], self.V.ncomp
        rows = self.space.memory.put(np.zeros((dim, self.V.size // dim)))
        for k in range(dim):
            terms = [(1.0, force[k::dim])]
            if self.problem.gravity:
                terms.append((1.0, self._gravity[k::dim]))
            sequence.add(rows[k], *terms, label="mass")
        outs = [out[k::dim] for k in range(dim)]
        given = self._solvers, list(rows), outs
        sequence.solve(*given, rtol=self.cg_tol, maxiter=self.cg_max, label="mass")

    def put_heating(self, sequence: OperationSequence, right: Floats, out: Floats) -> None:
        """Add de/dt = M_E^-1 F^T v, (E.size,), to a sequence. ``right`` is F^T v, (E.size,)."""
        sequence.multiply_blocks(self._energy_inverse, right, out, label="energy")

    def put_rate(
        self, sequence: OperationSequence, state: Floats, result: Floats, out: Floats
    ) -> None:
        """Add the time derivative ``out`` (size,) of a state (size,) to a sequence.

        ``result`` (n,) has the state's forces, see `Forces`.
        """
        position, velocity, energy = self.space.split(out)
        sequence.add(position, (1.0, state[self._where["velocity"]]))
        self.put_acceleration(sequence, result, velocity)
        self.put_heating(sequence, result[self._where["energy"]], energy)

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes for copies, without time steps and with the clock at zero."""
        spent = {"_force_seconds": 0.0, "_sweeps": 0, "_solves": 0, "_zero": Clock()}
        return self.__dict__ | spent | {"sequences": []}

    # --- times and counts ------------------------------------------------------------------------

    def count(self, *, sweeps: int = 0, solves: int = 0) -> None:
        """Add counts of force evaluations (sweeps) and rate evaluations (solves) to the clock."""
        self._sweeps, self._solves = self._sweeps + sweeps, self._solves + solves

    @property
    def clock(self) -> Clock:
        """Seconds and counts since the last `reset_clock`."""
        return self._reading().since(self._zero)

    def reset_clock(self) -> None:
        """Set the clock to zero."""
        self._zero = self._reading()

    def _reading(self) -> Clock:
        """Seconds and counts since the equations were made."""
        spent = {"force": self._force_seconds, "mass": 0.0, "energy": 0.0}
        for sequence in self.sequences:
            for label, seconds in sequence.seconds.items():
                spent[label] = spent.get(label, 0.0) + seconds
        iterations = sum(sequence.iterations for sequence in self.sequences)
        times = spent["force"], spent["mass"], spent["energy"]
        return Clock(*times, self._sweeps, iterations, self._solves)

    # --- reports ---------------------------------------------------------------------------------

    def total_energy(self, state: Floats) -> float:
        """Kinetic, internal and potential energy of a state (space.size,), summed. Collective."""
        return self.energies(state)[0]

    def energies(self, state: Floats) -> tuple[float, float]:
        """All energy of a state (space.size,), and that without potential energy. Collective.

        No field leaves a device.
        """
        space, xp = self.space, self.space.memory.xp

        def columns(name: str) -> list[Any]:
            table = state[space.slice(name)].reshape(-1, self.V.dim)
            return [xp.ascontiguousarray(table[:, d]) for d in range(self.V.dim)]

        inner = float(xp.dot(self._energy_weights, state[space.slice("energy")]))
        inner += sum(0.5 * float(xp.dot(v, self._mass @ v)) for v in columns("velocity"))
        potential = 0.0
        if self.problem.gravity:
            weights = self._mass @ columns("position")[1]
            potential = self.problem.gravity * float(xp.sum(weights))
        total, inner = self.comm.sum(np.array([inner + potential, inner]))
        return float(total), float(inner)

    @cached_property
    def _energy_weights(self) -> Any:
        """Integrals (E.size,) of density times the functions of the energy."""
        return self.space.memory.put(self._energy_mass.sum(axis=1).reshape(-1))

    def e_norm(self, state: Floats) -> float:
        """Euclidean norm of the Bernstein coefficients of the energy in a state (space.size,).

        Laghos prints this norm.
        """
        return bernstein_norm(self.E, self.parts(state)["energy"])


def _peak(mesh: femops.Mesh, element: int, x: Floats, order: int) -> Any:
    """(1 - xi)^order (1 - eta)^order ... in the box of an element with a corner at the origin."""
    ends = np.abs(mesh.coordinates[element].reshape(-1, mesh.dim)).max(axis=0)
    return np.prod((1.0 - np.abs(x) / ends[:, None]) ** order, axis=0)


def _by_element(
    mesh: femops.Mesh | femops.DistributedMesh, part: femops.Mesh, gamma: PointFunction | float
) -> Any:
    """Return a number unchanged, and a function as a field with its values at element centres."""
    if not callable(gamma):
        return gamma
    values = evaluate(gamma, np.ascontiguousarray(part.element_centers().T), (), "gamma")
    return femops.GridFunction(femops.L2(mesh, 0), values)


def _walls(part: femops.Mesh, comm: Communicator, *, whole_groups: bool) -> list[int]:
    """Boundary attributes on all ranks. Raise unless all are walls. Collective."""
    empty, elements = comm.sum(int(part.num_elements == 0)), comm.sum(part.num_elements)
    if empty:
        groups = ", shared out in groups of 16 or more" if whole_groups else ""
        raise HydroError(
            f"{empty} of {comm.size} ranks have no elements: the mesh has {elements}{groups}: take "
            "fewer ranks or a finer mesh"
        )
    present = np.isin(np.arange(part.dim + 2), part.boundary_attributes).astype(np.int64)
    strange = ~np.isin(part.boundary_attributes, np.arange(1, part.dim + 1))
    present[-1] = strange.any()
    present = comm.max(present)
    walls = np.flatnonzero(present[1:-1]) + 1
    if present[-1] or not len(walls):
        raise HydroError(
            f"the boundary has other attributes than 1 to {part.dim}, or there is none: give walls "
            "across x, y, z these, by mesh.with_attributes(boundary=...)"
        )
    return walls.tolist()


def _check(problem: Problem, dim: int, assembly: Assembly, device: DeviceLike) -> None:
    if assembly == "full" and device is not None:
        raise HydroError("assembly 'full' on a device: take 'partial', which stores no matrices")
    if dim not in problem.mesh:
        dims = ", ".join(map(str, problem.mesh))
        raise HydroError(f"{problem.name} is a problem of dimension {dims}: not {dim}")
    if problem.gravity and dim == 1:
        raise HydroError("gravity acts along -y, which a mesh of dimension 1 does not have")


def _check_orders(order_kinematic: int, order_thermo: int) -> None:
    most = 3 * order_kinematic - 1  # above, energy would have more dofs than quadrature points
    if order_thermo > most:
        raise HydroError(
            f"order_thermo is {order_thermo} beside order_kinematic {order_kinematic}: give at "
            f"most {most}, 3 x order_kinematic - 1: the quadrature points allow no more"
        )


_MEGA = 1e-6


@checked(HydroError)
def rates(equations: Lagrangian) -> dict[str, float]:
    """Rates of the parts of a run, in millions per second.

    One sweep computes both the stress at the points and the forces. So both rates are relative to
    the same seconds.

    Returns
    -------
    dict
        ``cg_h1``: velocity dofs times iterations. ``cg_l2``: energy dofs times solves. ``forces``:
        dofs of both times stages. ``update_quad_data``: quadrature points times stages. ``total``:
        all of this work except ``cg_l2``. Each is divided by its seconds.
    """
    clock, V, E = equations.clock, equations.V, equations.E
    points = V.mesh.num_elements * equations.quadrature.q1d**V.dim
    mass = _MEGA * V.ndofs * clock.iterations
    forces = _MEGA * (V.size + E.size) * clock.solves
    updates = _MEGA * points * clock.sweeps
    seconds = clock.mass + clock.force
    return {
        "cg_h1": _over(mass, clock.mass),
        "cg_l2": _over(_MEGA * E.size * clock.solves, clock.energy),
        "forces": _over(forces, clock.force),
        "update_quad_data": _over(updates, clock.force),
        "total": _over(mass + forces + updates, seconds),
    }


def _over(work: float, seconds: float) -> float:
    return work / seconds if seconds > 0.0 else 0.0
