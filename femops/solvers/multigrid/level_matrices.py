"""Matrices of the levels of a multigrid method, for relaxations by blocks of dofs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from femops.operators import Operator
from femops.operators.coarsening import coarse_operator
from femops.parallel.comm import Communicator, Serial
from femops.solvers.multigrid.coarse import gathered, gathered_rows
from femops.solvers.multigrid.elements import element_matrices
from femops.solvers.multigrid.grids import CoarseGrid
from femops.spaces.base import Space

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Ratio of couplings along two directions of an element from which one of them is strong.
_STRONG = 10.0


@final
@dataclass(frozen=True, eq=False)
class LevelMatrix:
    """Matrix of a level, and where its dofs are in the elements.

    Attributes
    ----------
    matrix : (n, n) csr_array of float64
    nodes : (ne, (order + 1)**dim) int64
        Nodes of the elements, lexicographic. Dof ``node * ncomp + component`` is at a node.
    free : (n,) bool
        Dofs that are not constrained.
    order, ncomp, dim : int
    comm : Communicator
        Ranks that share the level's vectors. Each has all of the matrix.
    couplings : callable
        Returns the couplings (ne, dim) of the elements; see `couplings`.
    """

    matrix: csr_array
    nodes: Ints
    free: Flags
    order: int
    ncomp: int
    dim: int
    comm: Communicator
    couplings: Callable[[], Floats]


def strong_directions(sizes: Floats) -> Flags:
    """Directions (ne, dim) of elements that couple nodes far more than another one.

    Parameters
    ----------
    sizes : (ne, dim) float64
        See `couplings`.
    """
    most, least = sizes.max(axis=1, keepdims=True), sizes.min(axis=1, keepdims=True)
    strong: Flags = (_STRONG * sizes > most) & (most > _STRONG * least)
    return strong


def couplings(matrices: Floats, dim: int) -> Floats:
    """Couplings (ne, dim) along the directions of elements, by their matrices of order 1.

    A coupling is the energy of the functions that are 1 at one end of a direction of the element,
    -1 at the other, and linear between: the sum over components.
    """
    corners = 2**dim
    ends = np.where(np.arange(corners)[:, np.newaxis] >> np.arange(dim) & 1, 1.0, -1.0)
    ncomp = matrices.shape[1] // corners
    sizes = np.zeros((len(matrices), dim))
    for c in range(ncomp):
        own = matrices[:, c * corners : (c + 1) * corners, c * corners : (c + 1) * corners]
        sizes += ((own @ ends) * ends).sum(axis=1)
    return sizes


@final
class LevelMatrices:
    """Makes the matrices of levels, when a relaxation asks for them. Each rank gets all of them.

    Parameters
    ----------
    A : Operator
    lowest : Space
        H1 space of order 1 on A's mesh.
    """

    def __init__(self, A: Operator, lowest: Space) -> None:
        self._operator, self._lowest = A, lowest
        self.makers: list[Callable[[], LevelMatrix]] = []

    def add_space(self, space: Space) -> None:
        """Add the level of an H1 space on A's mesh."""
        self.makers.append(lambda: self._of_space(space))

    def add_grid(self, grid: CoarseGrid, dim: int) -> None:
        """Add the level of a coarser mesh."""
        ncomp = len(grid.free) // len(grid.x)

        def made() -> LevelMatrix:
            of_elements = partial(couplings, grid.matrices, dim)
            sizes = 1, ncomp, dim, Serial()
            return LevelMatrix(grid.matrix, grid.elements, grid.free, *sizes, of_elements)

        self.makers.append(made)

    def _of_space(self, space: Space) -> LevelMatrix:
        A, comm = self._operator, space.comm
        B = A if space is A.space else coarse_operator(A, space, np.float64, "partial")
        own = np.ones(space.size, dtype=bool)
        own[B.constrained_dofs] = False
        free = gathered(comm, own)
        matrix = gathered_rows(comm, csr_array(B.assemble().tocsr(), dtype=np.float64))
        if not B.constraints.identity:  # eliminated rows and columns get a diagonal
            matrix = csr_array(matrix + diags_array((~free).astype(float)))
        nodes = gathered(comm, _global_nodes(space))
        sizes = space.order, space.ncomp, space.dim, comm
        return LevelMatrix(matrix, nodes, free, *sizes, lambda: self.couplings)

    @cached_property
    def couplings(self) -> Floats:
        """Couplings (ne, dim) of the elements of all ranks; see `couplings`. Collective."""
        B = coarse_operator(self._operator, self._lowest, np.float64, "partial")
        free = np.ones(self._lowest.restriction.ndofs * self._lowest.ncomp, bool)
        own = couplings(element_matrices(B, free), self._lowest.dim)
        return gathered(self._lowest.comm, own)


def _global_nodes(space: Space) -> Ints:
    """Numbers in the vectors of all ranks of the nodes of this rank's elements."""
    nodes = space.restriction.indices
    if space.numbering is None:
        return nodes
    return np.asarray(space.numbering.whole[nodes])
