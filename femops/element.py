"""Elements: what a space is on one reference cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.basis import Basis1D
from femops_kernels.simd.runs import DofRuns
from femops_meshes.coordinates.interpolation import tensor_apply

Floats = NDArray[np.float64]
Grid = ArrayLike | Sequence[ArrayLike]
"""Points of a tensor grid: those of each direction, x first, or one set for all directions."""


@final
@dataclass(frozen=True)
class Element:
    """Functions on a reference segment, square or cube: products of one function per direction.

    Element vectors have the shape (n, size[, ncomp]), lexicographic, x fastest.
    """

    bases: tuple[Basis1D, ...]  # of each direction, x first
    # for each direction, whether neighbours share the functions at its ends
    closed: tuple[bool, ...]

    @property
    def dim(self) -> int:
        """Number of directions."""
        return len(self.bases)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of functions along each direction, x first."""
        return tuple(basis.p1d for basis in self.bases)

    @cached_property
    def size(self) -> int:
        """Number of functions."""
        return math.prod(self.shape)

    @property
    def order(self) -> int:
        """Highest degree in a direction."""
        return max(basis.p for basis in self.bases)

    @property
    def is_nodal(self) -> bool:
        """True if coefficients are values at the nodes."""
        return all(basis.is_nodal for basis in self.bases)

    @property
    def broken(self) -> bool:
        """True if neighbours share no function."""
        return not any(self.closed)

    def runs(self, *, single: bool = False, layers: int = 0) -> DofRuns:
        """Runs of consecutive dofs, as kernels read them."""
        return DofRuns(self.shape, self.closed, single, layers)

    # --- on tensor grids -------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Floats]:
        """Grid of the nodes, whose values determine a function."""
        return [basis.nodes for basis in self.bases]

    def matrices(self, grid: Grid, slope: int | None = None) -> list[Floats]:
        """1-D matrices (points, functions) to values, or to derivatives along direction `slope`."""
        return [
            basis.gradient(x) if d == slope else basis.interpolation(x)
            for d, (basis, x) in enumerate(zip(self.bases, self._each(grid), strict=True))
        ]

    def values(self, grid: Grid, e_vec: Floats, slope: int | None = None) -> Floats:
        """Values (n, points[, ncomp]) on a grid, or derivatives along direction `slope`."""
        return tensor_apply(self.matrices(grid, slope), e_vec)

    def sums(self, grid: Grid, values: Floats, slope: int | None = None) -> Floats:
        """Transpose of `values`: (n, points[, ncomp]) -> (n, size[, ncomp])."""
        return tensor_apply([matrix.T for matrix in self.matrices(grid, slope)], values)

    def slopes(self, grid: Grid, e_vec: Floats) -> list[Floats]:
        """Derivatives (n, points[, ncomp]) on a grid along each direction, x first."""
        return [self.values(grid, e_vec, d) for d in range(self.dim)]

    def from_nodal(self, values: Floats) -> Floats:
        """Coefficients (n, size[, ncomp]) of the functions with these values at the nodes."""
        return tensor_apply([basis.from_nodal for basis in self.bases], values)

    def _each(self, grid: Any) -> Sequence[Floats]:
        alike = isinstance(grid, np.ndarray) or not isinstance(grid[0], np.ndarray)
        return [grid] * self.dim if alike else grid

    # --- at one point of each element ------------------------------------------------------------

    def values_at(self, points: Floats, e_vec: Floats) -> Floats:
        """Values (n[, ncomp]) at one point in each element, with reference coordinates (n, dim)."""
        return _contracted(self._rows(points), e_vec)

    def slopes_at(self, points: Floats, e_vec: Floats) -> list[Floats]:
        """Derivatives (n[, ncomp]) at one point in each element, along each direction, x first."""
        values = self._rows(points)
        slopes = [_slopes(basis, x) for basis, x in zip(self.bases, points.T, strict=True)]
        return [
            _contracted([*values[:k], slopes[k], *values[k + 1 :]], e_vec) for k in range(self.dim)
        ]

    def weights_at(self, points: Floats) -> Floats:
        """Values (n, size) of all functions at reference points (n, dim)."""
        result = np.ones((len(points), 1))
        for along in self._rows(points):  # x fastest: the later direction varies more slowly
            result = (along[:, :, np.newaxis] * result[:, np.newaxis]).reshape(len(points), -1)
        return result

    def _rows(self, points: Floats) -> list[Floats]:
        return [basis.interpolation(x) for basis, x in zip(self.bases, points.T, strict=True)]


def tensor_element(basis: Basis1D, dim: int, *, closed: bool = True) -> Element:
    """Element with the same functions in each direction."""
    return Element((basis,) * dim, (closed,) * dim)


def _slopes(basis: Basis1D, x: Floats) -> Floats:
    """Derivatives (n, p1d) of the basis at points, with the same bits for any number of points."""
    if not basis.is_nodal:
        return basis.gradient(x)
    # one product per point: in a large one BLAS rounds a row by the number of rows
    rows = np.matmul(basis.interpolation(x)[:, np.newaxis], basis.gradient(basis.nodes))
    return np.asarray(rows[:, 0])


def _contracted(lines: list[Floats], e_vec: Floats) -> Floats:
    """Contract the dofs of element e with row e of a matrix (n, p1d) per direction, x first."""
    n, trailing = len(e_vec), e_vec.shape[2:]
    inner = math.prod(e_vec.shape[1:])
    data = e_vec
    for line in reversed(lines):  # the slowest direction first, so that the rest is contiguous
        inner //= line.shape[1]
        data = np.einsum("nk,nkr->nr", line, data.reshape(n, line.shape[1], inner))
    return data.reshape(n, *trailing)
