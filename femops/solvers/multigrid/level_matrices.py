"""Matrices of the levels of a multigrid method, for relaxations by blocks of dofs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array

from femops.operators import Operator
from femops.operators.assembly.csr import domains, flat
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.coarsening import coarse_operator
from femops.parallel.comm import Communicator, Serial, gathered
from femops.solvers.multigrid.coarse import factored, gathered_rows
from femops.solvers.multigrid.elements import element_matrices
from femops.solvers.multigrid.grids import CoarseGrid
from femops.spaces.base import Space

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Ratio of couplings along two directions of an element from which one of them is strong.
_STRONG = 10.0
_MOST_VERTICES = {1: 10**6, 2: 200_000, 3: 10_000}  # by dimension, for `factor_work`


@final
@dataclass(frozen=True, eq=False)
class LevelMatrix:
    """Matrix of a level, and where its dofs are in the elements."""

    matrix: Callable[[], csr_array]  # returns the matrix (n, n), a csr_array of float64
    # returns the matrix (n, n) of the entries whose row and column belong to the same part, a
    # csc_array of float64. The argument is the number of each dof's part, (n,).
    parts: Callable[[Ints], csc_array]
    # (ne, (order + 1)**dim): nodes of the elements, lexicographic. Dof ``node * ncomp +
    # component`` is at a node.
    nodes: Ints
    free: Flags  # (n,): dofs that are not constrained
    order: int
    ncomp: int
    dim: int
    comm: Communicator  # ranks that share the level's vectors. Each has all of the matrix.
    # returns the couplings (ne, dim) of the elements; see `couplings`
    couplings: Callable[[], Floats]


def strong_directions(sizes: Floats) -> Flags:
    """True (ne, dim) where a direction couples nodes far more than another of the element does.

    Shapes: `sizes` (ne, dim).
    """
    most, least = sizes.max(axis=1, keepdims=True), sizes.min(axis=1, keepdims=True)
    strong: Flags = (_STRONG * sizes > most) & (most > _STRONG * least)
    return strong


def energies(matrices: Floats, dim: int) -> Floats:
    """Energies (ne, dim + 1) of functions on elements, by their matrices of order 1.

    For each direction, the function is 1 at one end of the element, -1 at the other, and linear
    between. This is the coupling along the direction. The last function is constant. Energies are
    sums over components.
    """
    corners = 2**dim
    ends = np.where(np.arange(corners)[:, np.newaxis] >> np.arange(dim) & 1, 1.0, -1.0)
    functions = np.column_stack([ends, np.ones(corners)])
    found = np.zeros((len(matrices), dim + 1))
    for c in range(matrices.shape[1] // corners):
        own = matrices[:, c * corners : (c + 1) * corners, c * corners : (c + 1) * corners]
        found += ((own @ functions) * functions).sum(axis=1)
    return found


def couplings(matrices: Floats, dim: int) -> Floats:
    """Couplings (ne, dim) along the directions of elements; see `energies`."""
    return energies(matrices, dim)[:, :-1]


@final
class LevelMatrices:
    """Makes the matrices of levels, when a relaxation asks for them. Each rank gets all of them."""

    def __init__(self, A: Operator, lowest: Space, *, exact: bool) -> None:
        self._operator, self._lowest, self._exact = A, lowest, exact
        self.makers: list[Callable[[], LevelMatrix]] = []
        self.spaces: list[Space | None] = []

    def add_space(self, space: Space) -> None:
        """Add the level of an H1 space on A's mesh."""
        self.makers.append(lambda: self._of_space(space))
        self.spaces.append(space)

    def add_grid(self, grid: CoarseGrid, dim: int) -> None:
        """Add the level of a coarser mesh."""
        ncomp = len(grid.free) // len(grid.x)

        def made() -> LevelMatrix:
            of_elements = partial(couplings, grid.matrices, dim)
            parts, sizes = partial(_within, grid.matrix), (1, ncomp, dim, Serial())
            return LevelMatrix(
                lambda: grid.matrix, parts, grid.elements, grid.free, *sizes, of_elements
            )

        self.makers.append(made)
        self.spaces.append(None)

    def _of_space(self, space: Space) -> LevelMatrix:
        A, comm = self._operator, space.comm
        B = A if space is A.space else self._coarse(space)
        own = np.ones(space.size, dtype=bool)
        own[B.constrained_dofs] = False
        free, nodes = gathered(comm, own), gathered(comm, _global_nodes(space))
        matrix, parts = partial(_assembled, B, free), partial(_parts, B, free)
        sizes = space.order, space.ncomp, space.dim, comm
        return LevelMatrix(matrix, parts, nodes, free, *sizes, lambda: self.couplings)

    @cached_property
    def energies(self) -> Floats:
        """Energies (ne, dim + 1) of functions on this rank's elements; see `energies`."""
        return energies(element_matrices(self._coarse(self._lowest)), self._lowest.dim)

    @cached_property
    def factor_work(self) -> tuple[float, float]:
        """Estimated multiplications and entries of the factors of A's matrix. Collective.

        They are those of a matrix that couples the vertices of elements. A column of that stands
        for as many columns as a face has nodes for each vertex. Measured on boxes and
        tetrahedral meshes: 0.3 to 4 times those of SciPy's factors. Infinite if there are many
        vertices, of which this matrix alone takes long.
        """
        A, lowest = self._operator, self._lowest
        order, ncomp, dim = A.space.order, A.space.ncomp, lowest.dim
        if lowest.global_size > _MOST_VERTICES[dim] * ncomp:
            return np.inf, np.inf
        nodes = gathered(lowest.comm, _global_nodes(lowest))
        count, corners = lowest.global_size // ncomp, nodes.shape[1]
        rows, columns = np.repeat(nodes, corners, axis=1), np.tile(nodes, (1, corners))
        at = rows.reshape(-1), columns.reshape(-1)
        graph = csc_array((np.full(rows.size, -1.0), at), shape=(count, count))
        graph += diags_array(2.0 * np.bincount(at[0], minlength=count))  # dominant diagonal
        each = np.diff(factored(graph).L.indptr).astype(float)
        wide, inner = ncomp * order ** (dim - 1), float(ncomp * (order - 1) ** dim)
        inside = len(nodes) * inner**3 / 3.0
        return float((each**2).sum()) * wide**3 + inside, float(each.sum()) * wide**2

    def _coarse(self, space: Space) -> Operator:
        return coarse_operator(self._operator, space, np.float64, "partial", exact=self._exact)

    def look(self, matrices: Floats) -> None:
        """Take the `energies` from the matrices of the elements, which are known."""
        self.energies = energies(matrices, self._lowest.dim)

    @property
    def couplings(self) -> Floats:
        """Couplings (ne, dim) of the elements of all ranks; see `energies`. Collective."""
        return gathered(self._lowest.comm, self.energies[:, :-1])


def _assembled(A: Operator, free: Flags) -> csr_array:
    """Matrix of an operator, of all ranks. Collective."""
    comm = A.space.comm
    matrix = gathered_rows(comm, csr_array(A.assemble().tocsr(), dtype=np.float64))
    if not A.constraints.identity:  # eliminated rows and columns get a diagonal
        matrix = csr_array(matrix + diags_array((~free).astype(float)))
    return matrix


def _within(matrix: csr_array, part: Ints) -> csc_array:
    """Entries of a matrix whose row and column belong to the same part."""
    entries = matrix.tocoo()
    kept = part[entries.row] == part[entries.col]
    at = entries.row[kept], entries.col[kept]
    return csc_array((entries.data[kept], at), shape=matrix.shape)


def _parts(A: Operator, free: Flags, part: Ints) -> csc_array:
    """Entries of an operator's matrix whose row and column belong to the same part. Collective.

    The diagonal is one at constrained dofs. Entries between different parts are not summed.
    """
    space, n = A.space, len(free)
    here = (_numbers(space)[:, np.newaxis] * space.ncomp + np.arange(space.ncomp)).reshape(-1)
    own = np.where(free[here], part[here], -1)
    found = [(here[:0], here[:0], np.zeros(0))]
    for group in domains(flat(A.at_level("partial").summands)):
        rows, columns = group.first.test.pattern(), group.first.trial.pattern()
        for factor, term in group:
            assembly = ElementAssembly(term)
            for start, stop in assembly.blocks():
                r, c = rows[start:stop], columns[start:stop]
                same = own[r][:, :, np.newaxis] == own[c][:, np.newaxis]
                same &= (own[r] >= 0)[:, :, np.newaxis]
                e, i, j = np.nonzero(same)
                values = factor * assembly.matrices(start, stop)[same]
                found.append((here[r[e, i]], here[c[e, j]], values))
    row, column, values = (
        gathered(space.comm, np.concatenate(a)) for a in zip(*found, strict=True)
    )
    held = np.flatnonzero(~free)
    data = np.concatenate([values, np.ones(len(held))])
    at = np.concatenate([row, held]), np.concatenate([column, held])
    return csc_array((data, at), shape=(n, n))


def _global_nodes(space: Space) -> Ints:
    """Numbers in the vectors of all ranks of the nodes of this rank's elements."""
    return space.restriction.entries(_numbers(space))


def _numbers(space: Space) -> Ints:
    """Numbers in the vectors of all ranks of this rank's nodes, ghosts last."""
    if space.numbering is None:
        return np.arange(space.restriction.ndofs)
    return np.asarray(space.numbering.whole)
