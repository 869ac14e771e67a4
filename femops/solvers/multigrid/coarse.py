"""Solvers of the coarsest level, which has a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, csr_array, diags_array, hstack
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from femops.errors import MissingExtraError, SolverError
from femops.parallel.comm import Communicator, gathered
from femops.solvers.multigrid.level import NotPositiveError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Most dofs for a direct solver, by dimension: as first choice, and where PyAMG is missing.
QUICK = {1: 10**7, 2: 30_000, 3: 3_000}
_MOST = {1: 10**8, 2: 300_000, 3: 30_000}
# Times the diagonal, energies up to this count as zero: 450 times the machine's precision.
_SINGULAR = 1e-13


class CoarseSolver(ABC):
    """Solver of a symmetric system with the matrix of the coarsest level."""

    name: str
    singular: bool  # whether the matrix has a null space

    @abstractmethod
    def solve(self, right: Floats) -> Floats:
        """Return the solution (n,). It is orthogonal to the null space of a singular matrix."""


@final
class Direct(CoarseSolver):
    """Direct solver: SciPy's LU factors of the matrix (n, n), bordered by its null space (n, k)."""

    name = "direct"

    def __init__(self, matrix: csr_array, null: csr_array) -> None:
        self._size, self.singular = matrix.shape[0], null.shape[1] > 0
        if null.shape[1]:
            sizes = null.power(2).T @ np.abs(matrix.diagonal())  # mean diagonal entries of bodies
            border = csr_array(null @ diags_array(sizes))
            self._factors = _factored(block_array([[matrix, border], [border.T, None]]))
            return
        self._factors = factored(matrix)
        if not (self._factors.U.diagonal() > 0.0).all():  # by Sylvester's law of inertia
            raise NotPositiveError

    def solve(self, right: Floats) -> Floats:
        padded = np.zeros(self._factors.shape[0])
        padded[: self._size] = right
        found: Floats = self._factors.solve(padded)[: self._size]
        return found


def factored(matrix: Any) -> Any:
    """SciPy's factors of a symmetric sparse matrix, with pivots on the diagonal."""
    symmetric = {"SymmetricMode": True}
    order = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": symmetric}
    return _factored(matrix, **order)


def _factored(matrix: Any, **options: Any) -> Any:
    """SciPy's factors of a sparse matrix."""
    try:
        return splu(matrix.tocsc(), **options)
    except RuntimeError as error:
        raise SolverError(
            "multigrid found A to be singular, with more than constants and rigid motions in its "
            "null space: are boundary conditions or a coefficient missing?"
        ) from error


@final
class Algebraic(CoarseSolver):
    """Two V-cycles of PyAMG's smoothed aggregation. With one, iterations would be a third more."""

    name = "pyamg"

    def __init__(self, matrix: csr_array, null: csr_array, modes: Floats) -> None:
        self._null, self.singular = null, null.shape[1] > 0
        self._cycle = _pyamg().smoothed_aggregation_solver(
            matrix.tocsr(), B=modes, symmetry="symmetric", max_coarse=500, coarse_solver=_Coarsest()
        )

    def solve(self, right: Floats) -> Floats:
        right = right - self._null @ (self._null.T @ right)
        cycle, matrix = self._cycle.aspreconditioner(cycle="V"), self._cycle.levels[0].A
        x: Floats = cycle @ right
        x += cycle @ (right - matrix @ x)
        x -= self._null @ (self._null.T @ x)
        return x


@final
class _Coarsest:
    """Solver of PyAMG's coarsest level, of 500 nodes at most. PyAMG's own takes singular values."""

    _factors: Any = None

    def __call__(self, matrix: Any, right: Floats) -> Any:
        """Solve, with a shift at the size of round-off: the matrix may be singular."""
        if self._factors is None:
            diagonal = matrix.diagonal()
            shift = 1e-12 * diagonal + 1e-14 * diagonal.max()
            self._factors = factored(matrix + diags_array(shift))
        return self._factors.solve(right)


def _pyamg() -> Any:
    try:
        import pyamg
    except ImportError as error:
        raise MissingExtraError(
            f"the coarsest level is too large for a direct solver, and there is no PyAMG ({error}):"
            " pip install pyamg, or refine the mesh here, as femops.read_mesh(path, refine=1) of a "
            "coarser file, so that multigrid knows coarser meshes"
        ) from error
    return pyamg


def coarse_solver(
    matrix: csr_array, modes: Floats, dim: int, *, direct: bool = False
) -> CoarseSolver:
    """Solver of a matrix (n, n) with modes (n, k): PyAMG, or direct if small or without PyAMG."""
    null, size = null_space(matrix, modes), matrix.shape[0]
    if direct or size <= QUICK[dim]:
        return Direct(matrix, null)
    try:
        return Algebraic(matrix, null, modes)
    except MissingExtraError:
        if size > _MOST[dim]:
            raise
    return Direct(matrix, null)


def null_space(matrix: csr_array, modes: Floats) -> csr_array:
    """Orthonormal basis (n, k) of the null space of a matrix (n, n), within the modes (n, m).

    Each body, which the matrix couples to no other, may have entries of another magnitude.
    """
    bodies = _bodies(matrix, modes)
    basis, kept = np.zeros_like(modes), list[Flags]()
    for rows in bodies:
        vectors, sizes, _ = np.linalg.svd(modes[rows], full_matrices=False)
        keep = sizes > 1e-10 * sizes.max(axis=1, initial=0.0, keepdims=True)
        basis[rows, : keep.shape[1]] = vectors * keep[:, np.newaxis]
        kept.append(keep)
    products, diagonal = matrix @ basis, np.abs(matrix.diagonal())
    columns = [csr_array((len(modes), 0))]
    for rows, keep in zip(bodies, kept, strict=True):
        scale, own = diagonal[rows].mean(axis=1), basis[rows][..., : keep.shape[1]]
        energies = own.swapaxes(1, 2) @ products[rows][..., : keep.shape[1]]
        energies += np.apply_along_axis(np.diag, 1, ~keep * scale[:, np.newaxis])
        values, vectors = np.linalg.eigh(energies)
        least = _SINGULAR * scale[:, np.newaxis]
        if (values < -least).any():
            raise NotPositiveError
        body, which = np.nonzero(values < least)
        null = np.einsum("knr,kr->kn", own[body], vectors[body, :, which])
        column = np.repeat(np.arange(len(body)), rows.shape[1])
        at = rows[body].reshape(-1), column
        columns.append(csr_array((null.reshape(-1), at), shape=(len(modes), len(body))))
    return csr_array(hstack(columns, "csr"))


def _bodies(matrix: csr_array, modes: Floats) -> list[NDArray[np.int64]]:
    """Dofs of the bodies that have modes, as one array (bodies, dofs) per number of dofs."""
    _, body = connected_components(matrix, directed=False)
    dofs = np.flatnonzero(modes.any(axis=1))
    dofs = dofs[np.argsort(body[dofs], kind="stable")]
    _, first, counts = np.unique(body[dofs], return_index=True, return_counts=True)
    return [
        dofs[first[counts == count][:, np.newaxis] + np.arange(count)]
        for count in np.unique(counts).tolist()
    ]


def rigid_modes(x: Floats, ncomp: int, free: NDArray[np.bool_]) -> Floats:
    """Constants of each component as columns, with rotations if ncomp = dim. x is (nodes, dim)."""
    nodes, dim = x.shape
    x = (x - x.mean(axis=0)) / (np.abs(x - x.mean(axis=0)).max() or 1.0)  # as large as constants
    modes = [np.tile(unit, (nodes, 1)) for unit in np.eye(ncomp)]
    for i in range(dim if ncomp == dim else 0):
        for j in range(i):
            turned = np.zeros((nodes, ncomp))
            turned[:, i], turned[:, j] = x[:, j], -x[:, i]
            modes.append(turned)
    return np.stack([mode.reshape(-1) * free for mode in modes], axis=1)


def gathered_rows(comm: Communicator, rows: csr_array) -> csr_array:
    """Return the matrix of which each rank has consecutive rows. Collective."""
    if comm.size == 1:
        return rows
    lengths = gathered(comm, np.diff(rows.indptr))
    start = np.concatenate([[0], np.cumsum(lengths)])
    data, columns = gathered(comm, rows.data), gathered(comm, rows.indices)
    return csr_array((data, columns, start), shape=(len(lengths), rows.shape[1]))
