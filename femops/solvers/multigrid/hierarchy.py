"""Levels of a multigrid method: orders are halved, then the meshes that were refined are undone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, kron

from femops.errors import SolverError
from femops.geometry.legendre import LegendreGeometry
from femops.operators import Operator
from femops.operators.coarsening import coarse_operator, in_precision
from femops.operators.execution.backend import Backend
from femops.operators.execution.choice import backend_of
from femops.operators.execution.transfer import compile_cycles_ahead, summed_interpolation
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid.coarse import (
    CoarseSolver,
    coarse_solver,
    gathered,
    gathered_rows,
    rigid_modes,
)
from femops.solvers.multigrid.level import NOT_POSITIVE, Level, Size, scattered
from femops.spaces.h1_l2 import H1
from femops_kernels.compiled import CompiledOperator
from femops_kernels.derived import Derived
from femops_meshes.coarsening import Coarsening

Array = NDArray[Any]
Ints = NDArray[np.int64]

_halves = Derived[H1, H1]()

_FEW = 600  # dofs of a matrix that is not made coarser


@final
@dataclass(frozen=True)
class Hierarchy:
    """The levels of a multigrid method.

    Attributes
    ----------
    levels : list of Level
        The finest first; the coarsest is not among them.
    coarsest : Size
    solver : CoarseSolver
        Of the coarsest level, for the whole vector of all ranks.
    constrained : (k,) int64
        Constrained dofs of this rank on the coarsest level.
    """

    levels: list[Level]
    coarsest: Size
    solver: CoarseSolver
    constrained: Ints


def build(A: Operator, degree: int, dtype: np.dtype[Any] | None = None) -> Hierarchy:
    """The levels of an operator. Collective.

    Parameters
    ----------
    A : Operator
        Symmetric, on an H1 space.
    degree : int
        Of the relaxations.
    dtype : dtype, optional
        Of the cycle; float32, if the numbers allow it, where omitted.

    Raises
    ------
    SolverError
        A is found not to be positive.
    MissingExtraError
        The coarsest level is too large for what is installed.
    """
    spaces = _spaces(A.space)  # type: ignore[arg-type]
    compile_cycles_ahead(spaces, A.dtype, dtype or np.dtype(np.float32))
    dtype = dtype or _cycle_type(A)
    operators = _operators(A, spaces, dtype)
    levels = list[Level]()
    for fine, (space, coarse) in zip(operators, pairwise(spaces), strict=False):
        levels.append(_of_operator(fine, space, dtype, degree))
        levels[-1].transfer = summed_interpolation(coarse, space, dtype)
    return _with_matrices(levels, operators[-1], spaces[-1], dtype, degree)


def _spaces(finest: H1) -> list[H1]:
    """The spaces of the operator and of the orders below it, to order 1."""
    spaces = [finest]
    while spaces[-1].order > 1:
        spaces.append(_half(spaces[-1]))
    return spaces


def _operators(A: Operator, spaces: list[H1], dtype: np.dtype[Any]) -> list[Operator]:
    """The operator on each space, that of order 1 for its matrix."""
    if len(spaces) == 1:
        return [A]
    level = "matrix-free" if A.level == "matrix-free" else "partial"
    operators = [
        in_precision(A, dtype, level),
        *(coarse_operator(A, space, dtype, level) for space in spaces[1:-1]),
        coarse_operator(A, spaces[-1], np.float64, "partial"),
    ]
    for coarser in operators[1:-1]:
        coarser.compile_ahead()
    return operators


def _cycle_type(A: Operator) -> np.dtype[Any]:
    """float32, if what A makes of some numbers is in its range; else the type of A.

    The type of A also where bits shall be the same on any number of ranks: float32's are not.
    """
    space, n = A.space, A.space.size
    kind: np.dtype[Any] = A.dtype
    if space.distributed is not None and space.distributed.reproducible:
        return kind
    memory = space.memory
    sample = abs(memory.get(A.apply(memory.put(scattered(0, n).astype(kind)))))
    sample[A.constrained_dofs] = 0.0
    most = A.space.comm.max(float(sample.max(initial=0.0)))
    least = -A.space.comm.max(-float(sample[sample > 0.0].min(initial=np.inf)))
    return np.dtype(np.float32) if 1e-20 < most < 1e20 and least > 1e-30 else A.dtype


def _half(space: H1) -> H1:
    """The space of half of the order, rounded up; made once."""
    mesh, family = space.distributed or space.mesh, space.basis.family
    assert family != "gauss"

    def made() -> H1:
        half, ncomp = -(-space.order // 2), space.ncomp
        return H1(mesh, half, ncomp, family, device=space.device, reproducible=space.reproducible)

    return _halves.get(space, made)


def _free(size: int, constrained: Ints) -> NDArray[np.bool_]:
    free = np.ones(size, dtype=bool)
    free[constrained] = False
    return free


def _of_operator(A: Operator, space: H1, dtype: np.dtype[Any], degree: int) -> Level:
    """The level of an operator of any order."""
    shared = space.sum_elements(np.ones(space.restriction.indices.shape))
    elements = int(space.comm.sum(space.mesh.num_elements))
    size = _size_of(space, elements)
    constrained, diagonal = A.constrained_dofs, _positive(A, space)
    each = np.repeat(shared, space.ncomp)
    updates = backend_of(space).updates
    return Level(size, A.compiled, diagonal, constrained, each, dtype, degree, updates, Sums(space))


def _size_of(space: H1, elements: int) -> Size:
    first, affine = space.first_dof * space.ncomp, LegendreGeometry(space.mesh).affine
    return Size(space.order, elements, space.size, space.global_size, affine, first)


def _positive(A: Operator, space: H1) -> Array:
    """The diagonal of an operator, ones at constrained dofs."""
    diagonal = A.diagonal()
    diagonal[space.memory.put(A.constrained_dofs)] = 1.0
    if space.comm.max(int(not (diagonal > 0.0).all())):
        raise SolverError(NOT_POSITIVE)
    return diagonal


# --- levels of order 1, by their matrices ---------------------------------------------------------


def _with_matrices(
    levels: list[Level], A: Operator, space: H1, dtype: np.dtype[Any], degree: int
) -> Hierarchy:
    """The levels of order 1: this mesh, and those that it was refined from."""
    rows, comm, constrained = A.assemble().tocsr(), space.comm, A.constrained_dofs
    backend = backend_of(space)
    size = _size_of(space, int(comm.sum(space.mesh.num_elements)))
    free = _free(space.size, constrained)
    x, coarsening, vertex = space.dof_coordinates(), space.mesh.coarser, None
    if space.distributed is None and coarsening is not None:
        vertex = np.empty(space.mesh.num_vertices, dtype=np.int64)
        vertex[space.mesh.elements] = space.restriction.indices
    elements = space.mesh.elements
    while coarsening is not None and vertex is not None and size.dofs > _FEW:
        up, at = _prolongation(coarsening, elements, vertex, space.ncomp)
        there = free.reshape(-1, space.ncomp)[at].reshape(-1)
        up = _masked(up, free, there)
        levels.append(_of_matrix(rows, size, free, dtype, degree, backend))
        down = csr_array(up.T)
        levels[-1].transfer = _products(backend, up, dtype), _products(backend, down, dtype)
        rows, free, x = csr_array(down @ rows @ up), there, x[at]
        rows = csr_array(rows + diags_array((rows.diagonal() <= 0.0).astype(float)))
        size = Size(1, len(coarsening.elements), len(free), len(free), size.affine)
        vertex, elements = np.arange(len(x)), coarsening.elements
        coarsening = coarsening.coarser
    matrix = gathered_rows(comm, rows)
    modes = rigid_modes(gathered(comm, x), space.ncomp, gathered(comm, free))
    solver = coarse_solver(matrix, modes, space.dim)
    return Hierarchy(levels, size, solver, np.flatnonzero(~free))


def _prolongation(
    coarsening: Coarsening, elements: Ints, dofs: Ints, ncomp: int
) -> tuple[csr_array, Ints]:
    """Interpolation from the coarse vertices to the dofs, and the dof at each coarse vertex."""
    corners = elements.shape[1]
    vertices, first = np.unique(elements, return_index=True)
    element, corner = np.divmod(first, corners)
    weights = coarsening.weights(element, corner)
    columns = coarsening.elements[coarsening.parent[element]]
    rows = np.repeat(dofs[vertices], corners)
    kept = weights.reshape(-1) > 0.0
    entries = weights.reshape(-1)[kept], (rows[kept], columns.reshape(-1)[kept])
    shape = len(dofs), coarsening.num_vertices
    at = np.empty(coarsening.num_vertices, dtype=np.int64)
    alone = weights.max(axis=1) == 1.0
    at[columns[alone, weights[alone].argmax(axis=1)]] = dofs[vertices[alone]]
    scalar = csr_array(entries, shape=shape)
    return (scalar if ncomp == 1 else csr_array(kron(scalar, np.eye(ncomp), "csr"))), at


def _masked(up: csr_array, free: NDArray[np.bool_], there: NDArray[np.bool_]) -> csr_array:
    return csr_array(diags_array(free.astype(float)) @ up @ diags_array(there.astype(float)))


def _of_matrix(
    matrix: csr_array,
    size: Size,
    free: NDArray[np.bool_],
    dtype: np.dtype[Any],
    degree: int,
    backend: Backend,
) -> Level:
    diagonal = matrix.diagonal()
    if not (diagonal > 0.0).all():
        raise SolverError(NOT_POSITIVE)
    constrained, updates = np.flatnonzero(~free), backend.updates
    there, product = updates.put(diagonal), _products(backend, matrix, dtype)
    return Level(size, product, there, constrained, None, dtype, degree, updates)


def _products(backend: Backend, matrix: csr_array, dtype: np.dtype[Any]) -> CompiledOperator:
    """The compiled product of a matrix of one process."""
    return backend.operator([(1.0, backend.rows(matrix, dtype))])
