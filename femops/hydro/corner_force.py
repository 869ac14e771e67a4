"""Corner force F of a gas: applied in a sweep over the elements, or stored as matrices.

F_ij is the integral of sigma : grad w_i phi_j, where sigma is the stress of a state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.geometry.jacobians import Geometry
from femops.hydro.problems import Problem
from femops.hydro.qfunctions import corner_force, stress_at_points, work_of
from femops.hydro.sequence import OperationSequence, Scalar

Floats = NDArray[np.float64]


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
