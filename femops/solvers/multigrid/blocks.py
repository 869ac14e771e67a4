"""Relaxations that solve for blocks of dofs exactly: lines of nodes, and patches around vertices.

A relaxation by points divides residuals by the diagonal. It leaves errors that a block would see:

- Where a direction couples nodes far more strongly than the others, errors that are smooth along it
  and of high order across it. The spaces of lower order do not have them. Lines of nodes along the
  strong directions have.
- Where a material is nearly incompressible or elements are bent and slender, functions of little
  energy whose entries alone have much. Patches of all elements around a vertex have a basis of
  them (Schoeberl, 1999).

Both are sums of inverses of principal submatrices, so they are symmetric and positive.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from femops.errors import SolverError
from femops.parallel.comm import Communicator, check, gathered
from femops.solvers.multigrid.level import Blocks, Size
from femops.solvers.multigrid.level_matrices import LevelMatrices, LevelMatrix, strong_directions
from femops.spaces.base import Space

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Most dofs of a patch, bytes of the inverses of all patches, and operations to make these.
_MOST_DOFS, _MOST_BYTES, _MOST_OPERATIONS = 1500, 2**30, 1.5e10
_MOST_IN_LINE = {1: 10**7, 2: 300_000, 3: 50_000}  # dofs that lines may join to one, by dimension
_LEAST_PIVOT = 1e-12  # smallest pivot of a block over the diagonal entry
_TOGETHER = 2**22  # numbers of matrices of patches that are worked on at once


@final
class Lines(Blocks):
    """Inverses of the parts of a matrix that the strong directions of elements join.

    Consecutive nodes of an element along a strong direction are joined. Parts are lines, or planes
    where two directions are strong, and single nodes where no direction is.
    """

    def __init__(self, level: LevelMatrix, dtype: np.dtype[Any]) -> None:  # noqa: ARG002
        part = np.repeat(_joined(level), level.ncomp)
        longest = int(np.bincount(part).max(initial=0))
        if longest > _MOST_IN_LINE[level.dim]:
            raise SolverError(f"strong directions join {longest:,} dofs")
        blocks = level.parts(part)
        with check(level.comm):  # a rank may be short of memory
            self._factors = _factors(blocks)

    def apply(self, r: Array, z: Array) -> None:
        n = self._factors.shape[0]
        z[:n] = self._factors.solve(r[:n].astype(np.float64))


def _factors(blocks: csc_array) -> Any:
    """SciPy's factors of a positive definite matrix of small blocks."""
    symmetric = {"SymmetricMode": True}
    order = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": symmetric}
    try:
        factors = splu(blocks, **order)
    except RuntimeError as error:
        raise SolverError("a line of nodes has a singular matrix") from error
    pivots = factors.U.diagonal()
    if not (pivots > _LEAST_PIVOT * blocks.diagonal()[factors.perm_c.argsort()]).all():
        raise SolverError("a line of nodes has a singular matrix")
    return factors


def _joined(level: LevelMatrix) -> Ints:
    """Number of the part (nodes,) that each node belongs to."""
    n, dim, strong = level.order + 1, level.dim, strong_directions(level.couplings())
    ends: list[tuple[Ints, Ints]] = []
    for d in range(dim):
        along = np.moveaxis(level.nodes[strong[:, d]].reshape(-1, *[n] * dim), dim - d, 0)
        ends.append((along[:-1].reshape(-1), along[1:].reshape(-1)))
    first, second = (np.concatenate(side) for side in zip(*ends, strict=True))
    count = len(level.free) // level.ncomp
    graph = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(count, count))
    part: Ints = connected_components(graph, directed=False)[1]
    return part


@final
class Patches(Blocks):
    """Inverses of the parts of a matrix that belong to the elements around a vertex.

    A patch has the nodes of which all elements are around the vertex.
    """

    def __init__(self, level: LevelMatrix, dtype: np.dtype[Any]) -> None:
        starts, dofs = _patches(level)
        sizes = np.diff(starts)
        _check_sizes(sizes, dtype)
        matrix = level.matrix()
        with check(level.comm):  # a rank may be short of memory
            self._invert(matrix, starts, dofs, dtype)

    def _invert(self, matrix: csr_array, starts: Ints, dofs: Ints, dtype: np.dtype[Any]) -> None:
        sizes, columns = np.diff(starts), list[Ints]()
        self._inverses = list[tuple[Ints, Array]]()
        for size in np.unique(sizes[sizes > 0]).tolist():
            own = dofs[starts[:-1][sizes == size][:, np.newaxis] + np.arange(size)]
            step = max(1, _TOGETHER // size**2)
            for first in range(0, len(own), step):
                some = own[first : first + step]
                self._inverses.append((some, _inverses(matrix, some).astype(dtype)))
                columns.append(some.reshape(-1))
        into = np.concatenate(columns) if columns else np.zeros(0, np.int64)
        n, count = matrix.shape[0], len(into)
        ones = np.ones(count, dtype)
        self._sums = csc_array((ones, into, np.arange(count + 1)), shape=(n, count)).tocsr()

    def apply(self, r: Array, z: Array) -> None:
        parts = [np.matmul(inverses, r[at][..., np.newaxis]) for at, inverses in self._inverses]
        found = self._sums @ np.concatenate([part.reshape(-1) for part in parts]) if parts else 0.0
        z[: self._sums.shape[0]] = found


def _patches(level: LevelMatrix) -> tuple[Ints, Ints]:
    """Free dofs of each patch, ascending: starts (patches + 1,), and dofs."""
    n, dim, nodes = level.order + 1, level.dim, level.nodes
    corners = (np.arange(2**dim)[:, np.newaxis] >> np.arange(dim) & 1) @ (
        level.order * n ** np.arange(dim)
    )
    ne, count = len(nodes), len(level.free) // level.ncomp
    vertices, at = np.unique(nodes[:, corners], return_inverse=True)
    elements = np.repeat(np.arange(ne), 2**dim)
    shape = len(vertices), ne
    around = csr_array((np.ones(elements.size), (at.reshape(-1), elements)), shape=shape)
    filled = np.arange(0, nodes.size + 1, nodes.shape[1])
    touched = csr_array((np.ones(nodes.size), nodes.flatten(), filled), shape=(ne, count))
    touched.sum_duplicates()
    star = csr_array(around @ touched)
    star.sort_indices()
    shared = np.asarray(touched.sum(axis=0)).reshape(-1)
    inside = star.data == shared[star.indices]
    vertex = np.repeat(np.arange(len(vertices)), np.diff(star.indptr))[inside]
    flat = star.indices[inside].astype(np.int64)[:, np.newaxis] * level.ncomp
    dofs = (flat + np.arange(level.ncomp)).reshape(-1)
    owner, free = np.repeat(vertex, level.ncomp), level.free[dofs]
    sizes = np.bincount(owner[free], minlength=len(vertices))
    return np.concatenate([[0], np.cumsum(sizes)]), dofs[free]


def check_lines(matrices: LevelMatrices) -> None:
    """Raise if no element has a strong direction. Collective."""
    if not strong_directions(matrices.couplings).any():
        raise SolverError("no direction of an element is far stronger than another")


def check_patches(space: Space) -> None:
    """Raise if the patches of a space are far too large, before its matrix is assembled."""
    most = (2 * space.order - 1) ** space.dim * space.ncomp
    operations = 2.0 * float(most) ** 3 * space.comm.sum(space.mesh.num_elements)
    if operations > 4.0 * _MOST_OPERATIONS:  # patches at boundaries are smaller
        raise SolverError(f"patches of {most:,} dofs are too large to be inverted")


def _check_sizes(sizes: Ints, dtype: np.dtype[Any]) -> None:
    """Raise an error if patches with ``sizes`` dofs (npatches,) take too much memory or time."""
    most, numbers = int(sizes.max(initial=0)), float((sizes.astype(float) ** 2).sum())
    operations = 2.0 * float((sizes.astype(float) ** 3).sum())
    if most > _MOST_DOFS:
        raise SolverError(f"a patch has {most:,} dofs, and at most {_MOST_DOFS:,} are inverted")
    if numbers * dtype.itemsize > _MOST_BYTES:
        needed = numbers * dtype.itemsize / 2**30
        raise SolverError(f"the inverses of patches need {needed:.1f} GiB, and 1 is taken")
    if operations > _MOST_OPERATIONS:
        raise SolverError(f"the inverses of patches take {operations:.0e} operations")


def _inverses(matrix: csr_array, dofs: Ints) -> Floats:
    """Inverses (k, m, m) of the submatrices of ascending dofs (k, m)."""
    blocks = _blocks(matrix, dofs)
    try:
        pivots = np.diagonal(np.linalg.cholesky(blocks), axis1=1, axis2=2) ** 2
    except np.linalg.LinAlgError as error:
        raise SolverError("a patch has a singular matrix") from error
    if not (pivots > _LEAST_PIVOT * np.diagonal(blocks, axis1=1, axis2=2)).all():
        raise SolverError("a patch has a singular matrix")
    inverses = np.linalg.inv(blocks)
    return np.asarray(0.5 * (inverses + inverses.swapaxes(1, 2)))


def _blocks(matrix: csr_array, dofs: Ints) -> Floats:
    """Submatrices (k, m, m) of ascending dofs (k, m)."""
    (count, m), n = dofs.shape, matrix.shape[0]
    rows = dofs.reshape(-1)
    starts, lengths = matrix.indptr[rows].astype(np.int64), np.diff(matrix.indptr)[rows]
    ends = np.cumsum(lengths)
    place = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    row = np.repeat(np.arange(count * m), lengths)
    keys = (np.arange(count)[:, np.newaxis] * n + dofs).reshape(-1)  # ascending
    wanted = (row // m) * n + matrix.indices[place]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    there = keys[at] == wanted
    blocks = np.zeros((count, m, m))
    blocks.reshape(-1)[row[there] * m + at[there] % m] = matrix.data[place[there]]
    return blocks


@final
class Gathered(Blocks):
    """Blocks that each rank has, for residuals that are distributed over ranks."""

    def __init__(self, blocks: Blocks, comm: Communicator, size: Size) -> None:
        self._blocks, self._comm, self._size = blocks, comm, size

    def apply(self, r: Array, z: Array) -> None:
        """See `Blocks.apply`. Collective."""
        first, own = self._size.first, self._size.own
        entries = gathered(self._comm, r[:own])
        self._blocks.apply(entries, entries)
        z[:own] = entries[first : first + own]


BLOCKS: dict[str, type[Lines | Patches]] = {
    "lines": Lines,
    "patches": Patches,
}
