"""Coarser meshes of a multigrid method: matrices of order 1, and transfers between meshes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, kron

from femops.operators import Operator
from femops.operators.assembly.csr import summed_matrices
from femops.operators.execution.backend import Backend
from femops.operators.execution.host import backend_of
from femops.parallel.comm import Communicator, Serial, gathered
from femops.solvers.multigrid.coarse import gathered_rows
from femops.solvers.multigrid.elements import clear, coarsened, element_matrices
from femops.solvers.multigrid.level import Size, Transfer
from femops.spaces.base import Space
from femops_kernels.compiled import CompiledOperator
from femops_meshes.coarsening import Coarsening

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Ends = tuple[Transfer, Transfer]


@final
@dataclass(frozen=True, eq=False)
class CoarseGrid:
    """Space of order 1 on a coarser mesh, which each rank has. Its nodes are the vertices."""

    elements: Ints  # (nc, corners): vertices of the elements, lexicographic
    # (nc, rows, rows): element matrices, numbered component by component; zero at constrained
    # dofs
    matrices: Floats
    free: Flags  # (vertices * ncomp,): dofs that are not constrained
    x: Floats  # (vertices, dim): positions of the vertices
    coarsening: Coarsening | None  # map to the next coarser mesh, from which this mesh was refined
    any_width: bool

    @cached_property
    def matrix(self) -> csr_array:
        """Assembled matrix, with ones on the diagonal at constrained dofs."""
        ncomp, n = len(self.free) // len(self.x), len(self.free)
        flat = self.elements[:, np.newaxis] * ncomp + np.arange(ncomp)[:, np.newaxis]
        dofs = flat.reshape(len(self.elements), -1)
        summed = summed_matrices(self.matrices, dofs, dofs, (n, n))
        return csr_array(summed + diags_array((summed.diagonal() <= 0.0).astype(float)))

    def size(self, finer: Size) -> Size:
        """Size of the level on this grid."""
        return Size(1, len(self.elements), len(self.free), len(self.free), finer.affine)

    def coarser(self, dtype: np.dtype[Any], backend: Backend) -> tuple[CoarseGrid, Ends]:
        """Make the next coarser grid, and the transfers from and to it."""
        assert self.coarsening is not None
        ncomp = len(self.free) // len(self.x)
        up = _interpolation(self.coarsening, *_places(self.elements, len(self.x)))
        given = up, self.free, self.x, Serial(), self.any_width
        grid = _coarse(self.matrices, self.coarsening, *given)
        up = _masked(up, ncomp, self.free, grid.free)
        down = products(backend, csr_array(up.T), dtype, self.any_width)
        return grid, (products(backend, up, dtype, self.any_width).apply, down.apply)


def first_coarse(
    A: Operator,
    free: Flags,
    coarsening: Coarsening,
    dtype: np.dtype[Any],
    look: Callable[[Floats], None],
) -> tuple[CoarseGrid, Ends]:
    """Make the grid of the next coarser mesh, and the transfers from and to it. Collective.

    Shapes: `free` (size,).
    """
    space, comm = A.space, A.space.comm
    restriction, shape = space.restriction, (space.mesh.num_elements, space.restriction.num_nodes)
    places = restriction.assigned(np.arange(math.prod(shape)).reshape(shape))
    element, corner = np.divmod(places[: space.ndofs], restriction.num_nodes)
    own = _interpolation(coarsening, element, corner)
    own.sort_indices()  # whatever the rank's first element at a vertex is
    touched = space.l_vec(free.astype(float)).reshape(-1) > 0.0
    whole, x = gathered(comm, free), gathered(comm, _positions(space, element, corner))
    up = gathered_rows(comm, own)
    matrices = element_matrices(A)
    look(matrices)
    clear(matrices, touched[space.pattern()])
    grid = _coarse(matrices, coarsening, up, whole, x, comm, space.any_width)
    ncomp, backend = space.ncomp, backend_of(space)
    given = dtype, space.any_width
    down = products(backend, csr_array(_masked(up, ncomp, whole, grid.free).T), *given)
    restrict = down.apply if comm.size == 1 else _Gathering(space, down, len(whole), dtype).apply
    return grid, (products(backend, _masked(own, ncomp, free, grid.free), *given).apply, restrict)


@final
class _Gathering:
    """Product of a matrix with a vector that is gathered from all ranks."""

    def __init__(
        self, space: Space, compiled: CompiledOperator, whole: int, dtype: np.dtype[Any]
    ) -> None:
        self._space, self._compiled = space, compiled
        self._vector = backend_of(space).updates.vector(whole, dtype)
        self._size = whole

    def apply(self, x: Any, y: Any) -> None:
        """Gather the ranks' pieces x, and overwrite y by the product. Collective."""
        space = self._space
        pieces = gathered(space.comm, space.memory.get(x[: space.size]))
        self._vector[: self._size] = space.memory.put(pieces)
        self._compiled.apply(self._vector, y)


def products(
    backend: Backend, matrix: csr_array, dtype: np.dtype[Any], any_width: bool
) -> CompiledOperator:
    """Compiled product with a matrix of one process; see `Backend.rows`."""
    return backend.operator([(1.0, backend.rows(matrix, dtype, any_width=any_width))])


def _coarse(
    matrices: Floats,
    coarsening: Coarsening,
    up: csr_array,
    free: Flags,
    x: Floats,
    comm: Communicator,
    any_width: bool,
) -> CoarseGrid:
    """Make a coarse grid from the matrices, interpolation, free dofs and positions of the finer."""
    at, ncomp = _finer_places(up), len(free) // len(x)
    free = (free.reshape(-1, ncomp)[at] & (at >= 0)[:, np.newaxis]).reshape(-1)
    made, elements = coarsened(matrices, coarsening, comm), coarsening.elements
    grid = CoarseGrid(elements, made, free, x[at], coarsening.coarser, any_width)
    dofs = elements[:, np.newaxis] * ncomp + np.arange(ncomp)[:, np.newaxis]
    clear(made, free[dofs.reshape(len(elements), -1)])
    return grid


def _places(elements: Ints, count: int) -> tuple[Ints, Ints]:
    """Return one element (count,) at each of the first vertices, and its corner there (count,)."""
    place = np.zeros(max(count, int(elements.max(initial=-1)) + 1), dtype=np.int64)
    place[elements.reshape(-1)] = np.arange(elements.size)
    element, corner = np.divmod(place[:count], elements.shape[1])
    return element, corner


def _positions(space: Space, element: Ints, corner: Ints) -> Floats:
    """Positions (n, dim) of corners of elements."""
    mesh, dim = space.mesh, space.dim
    ends = mesh.order * (mesh.order + 1) ** np.arange(dim)
    nodes = (np.arange(2**dim)[:, np.newaxis] >> np.arange(dim) & 1) @ ends
    return np.asarray(mesh.coordinates[element, nodes[corner]])


def _interpolation(coarsening: Coarsening, element: Ints, corner: Ints) -> csr_array:
    """Matrix that interpolates from coarse vertices to corners of elements, one row per corner."""
    weights = coarsening.weights(element, corner)
    columns = coarsening.elements[coarsening.parent[element]]
    kept = weights > 0.0
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    shape = len(element), coarsening.num_vertices
    return csr_array((weights[kept], columns[kept], starts), shape=shape)


def _finer_places(up: csr_array) -> Ints:
    """Fine vertex at each coarse vertex, (coarse vertices,). -1 if this rank does not have it."""
    alone = np.flatnonzero(np.diff(up.indptr) == 1)
    at = np.full(up.shape[1], -1, dtype=np.int64)
    at[up.indices[up.indptr[alone]]] = alone
    return at


def _masked(up: csr_array, ncomp: int, free: Flags, there: Flags) -> csr_array:
    """Interpolation of all components, with zeros where the fine or the coarse dof is not free."""
    whole = up if ncomp == 1 else csr_array(kron(up, np.eye(ncomp), "csr"))
    rows = np.repeat(free, np.diff(whole.indptr))
    return csr_array(
        (whole.data * (rows & there[whole.indices]), whole.indices, whole.indptr), shape=whole.shape
    )
