"""Elements: what a space is on one reference cell."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeGuard, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.basis import Basis1D
from femops.errors import SpaceError
from femops_kernels.simd.runs import DofRuns
from femops_kernels.spec import Factors
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import table_of_lines, tensor_apply
from femops_meshes.topology.entities import CUBES, Cell, cell_and_degree

Floats = NDArray[np.float64]
Grid = ArrayLike | Sequence[ArrayLike]
"""Points: of a grid, those of each direction, x first, or one set (n,) for all directions; or an
array (n, dim) of points that are no grid."""


class Element(ABC):
    """Functions on a reference cell.

    Element vectors have the shape (n, size[, ncomp]). Points of a grid are lexicographic, x
    fastest. See `Grid` for points that are none.
    """

    cell: Cell
    dim: int
    size: int  # number of functions
    order: int  # highest degree in a direction
    is_nodal: bool  # whether coefficients are values at the nodes
    broken: bool  # whether neighbours share no function
    # signs (order - 1,) of the functions inside an edge when they are seen from its other end; None
    # where they change places instead, as values at nodes
    parity: NDArray[np.int64] | None = None

    @abstractmethod
    def runs(self, *, single: bool = False, layers: int = 0) -> DofRuns:
        """Runs of consecutive dofs, as kernels read them."""

    @property
    @abstractmethod
    def nodes(self) -> list[Floats] | Floats:
        """Grid, or list (size, dim), of the nodes, whose values determine a function."""

    @abstractmethod
    def values(self, grid: Grid, e_vec: Floats, slope: int | None = None) -> Floats:
        """Values (n, points[, ncomp]) on a grid, or derivatives along direction `slope`."""

    @abstractmethod
    def sums(self, grid: Grid, values: Floats, slope: int | None = None) -> Floats:
        """Transpose of `values`: (n, points[, ncomp]) -> (n, size[, ncomp])."""

    def slopes(self, grid: Grid, e_vec: Floats) -> list[Floats]:
        """Derivatives (n, points[, ncomp]) on a grid along each direction, x first."""
        return [self.values(grid, e_vec, d) for d in range(self.dim)]

    @abstractmethod
    def from_nodal(self, values: Floats) -> Floats:
        """Coefficients (n, size[, ncomp]) of the functions with these values at the nodes."""

    @abstractmethod
    def weights_at(self, points: Floats) -> Floats:
        """Values (n, size) of all functions at reference points (n, dim)."""

    @abstractmethod
    def values_at(self, points: Floats, e_vec: Floats) -> Floats:
        """Values (n[, ncomp]) at one point in each element, with reference coordinates (n, dim)."""

    @abstractmethod
    def slopes_at(self, points: Floats, e_vec: Floats) -> list[Floats]:
        """Derivatives (n[, ncomp]) at one point in each element, along each direction, x first."""


@final
class TensorElement(Element):
    """Products of one function per direction, lexicographic, x fastest."""

    def __init__(self, bases: Sequence[Basis1D], closed: Sequence[bool]) -> None:
        """``closed``: for each direction, whether neighbours share the functions at its ends."""
        self.bases, self.closed, self.dim = tuple(bases), tuple(closed), len(bases)
        self.cell = CUBES[self.dim]
        self.shape = tuple(basis.p1d for basis in bases)
        self.size, self.order = math.prod(self.shape), max(basis.p for basis in bases)
        self.is_nodal = all(basis.is_nodal for basis in bases)
        self.broken = not any(closed)

    def runs(self, *, single: bool = False, layers: int = 0) -> DofRuns:
        return DofRuns(self.shape, self.closed, single, layers)

    # --- on tensor grids -------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Floats]:
        return [basis.nodes for basis in self.bases]

    def matrices(self, grid: Grid, slope: int | None = None) -> list[Floats]:
        """1-D matrices (points, functions) to values, or to derivatives along direction `slope`."""
        points: Any = grid
        if isinstance(grid, np.ndarray) or not isinstance(points[0], np.ndarray):
            points = [grid] * self.dim
        return [
            basis.gradient(x) if d == slope else basis.interpolation(x)
            for d, (basis, x) in enumerate(zip(self.bases, points, strict=True))
        ]

    def values(self, grid: Grid, e_vec: Floats, slope: int | None = None) -> Floats:
        if _is_list(grid):
            return _by_table(self._table(grid, slope), e_vec)
        return tensor_apply(self.matrices(grid, slope), e_vec)

    def sums(self, grid: Grid, values: Floats, slope: int | None = None) -> Floats:
        if _is_list(grid):
            return _by_table(self._table(grid, slope).T, values)
        return tensor_apply([matrix.T for matrix in self.matrices(grid, slope)], values)

    def _table(self, points: Floats, slope: int | None) -> Floats:
        """Values or derivatives (n, size) of all functions at points (n, dim)."""
        bases = zip(self.bases, points.T, strict=True)
        lines = [(basis.interpolation(x), basis.gradient(x)) for basis, x in bases]
        return table_of_lines(lines, slope)

    def from_nodal(self, values: Floats) -> Floats:
        return tensor_apply([basis.from_nodal for basis in self.bases], values)

    # --- at one point of each element ------------------------------------------------------------

    def values_at(self, points: Floats, e_vec: Floats) -> Floats:
        return _contracted(self._rows(points), e_vec)

    def slopes_at(self, points: Floats, e_vec: Floats) -> list[Floats]:
        values = self._rows(points)
        slopes = [_slopes(basis, x) for basis, x in zip(self.bases, points.T, strict=True)]
        return [
            _contracted([*values[:k], slopes[k], *values[k + 1 :]], e_vec) for k in range(self.dim)
        ]

    def weights_at(self, points: Floats) -> Floats:
        return table_of_lines([(line, line) for line in self._rows(points)])

    def _rows(self, points: Floats) -> list[Floats]:
        return [basis.interpolation(x) for basis, x in zip(self.bases, points.T, strict=True)]


@final
class TableElement(Element):
    """Functions that are no products, by tables of their values and derivatives.

    The functions here are combinations of the products of a `TensorElement`, whose nodes and shared
    dofs they have.
    """

    is_nodal = False

    def __init__(
        self,
        products: TensorElement,
        coefficients: Floats,
        parity: NDArray[np.int64] | None = None,
    ) -> None:
        """Shapes: `coefficients` (products, functions), square and regular; `parity` as above."""
        self._products, self._coefficients = products, coefficients
        self.cell, self.dim, self.size = products.cell, products.dim, coefficients.shape[1]
        self.order, self.broken, self.parity = products.order, products.broken, parity

    def runs(self, *, single: bool = False, layers: int = 0) -> DofRuns:
        return self._products.runs(single=single, layers=layers)

    @property
    def nodes(self) -> list[Floats]:
        return self._products.nodes

    def values(self, grid: Grid, e_vec: Floats, slope: int | None = None) -> Floats:
        return _by_table(self._table(grid, slope), e_vec)

    def sums(self, grid: Grid, values: Floats, slope: int | None = None) -> Floats:
        return _by_table(self._table(grid, slope).T, values)

    def _table(self, grid: Grid, slope: int | None) -> Floats:
        """Values (points, size), or derivatives along a direction."""
        return self._products.values(grid, self._coefficients.T, slope).T

    def from_nodal(self, values: Floats) -> Floats:
        inverse = np.linalg.inv(self._coefficients)
        return np.asarray(np.einsum("ij,nj...->ni...", inverse, self._products.from_nodal(values)))

    def weights_at(self, points: Floats) -> Floats:
        return self._products.weights_at(points) @ self._coefficients

    def values_at(self, points: Floats, e_vec: Floats) -> Floats:
        return self._products.values_at(points, self._in_products(e_vec))

    def slopes_at(self, points: Floats, e_vec: Floats) -> list[Floats]:
        return self._products.slopes_at(points, self._in_products(e_vec))

    def _in_products(self, e_vec: Floats) -> Floats:
        return np.asarray(np.einsum("ij,nj...->ni...", self._coefficients, e_vec))


@final
class LagrangeElement(Element):
    """Lagrange's functions of degree p on a triangle, tetrahedron or prism, by tables."""

    is_nodal = True

    def __init__(self, cell: Cell, order: int, *, closed: bool, axes: tuple[int, ...] = ()) -> None:
        """``axes``: the cell's coordinate that is each coordinate here; () for the cell's own."""
        self.cell, self.dim, self.order, self.broken = cell, cell.dim, order, not closed
        self.size = cell.size(order) if order else 1
        self.axes = axes or tuple(range(cell.dim))

    def runs(self, *, single: bool = False, layers: int = 0) -> DofRuns:
        sizes = (self.cell.inside(c, self.order) for c in range(len(self.cell.entities)))
        return DofRuns(
            (self.size,), (not self.broken,), single, layers, () if self.broken else tuple(sizes)
        )

    @property
    def nodes(self) -> Floats:
        return simplices.nodes(self.cell, self.order)[:, self.axes]

    def values(self, grid: Grid, e_vec: Floats, slope: int | None = None) -> Floats:
        return _by_table(self._tables(grid)[0 if slope is None else slope + 1], e_vec)

    def sums(self, grid: Grid, values: Floats, slope: int | None = None) -> Floats:
        return _by_table(self._tables(grid)[0 if slope is None else slope + 1].T, values)

    def _tables(self, grid: Grid) -> Floats:
        """Values and derivatives (1 + dim, points, size)."""
        if not _is_list(grid):
            raise SpaceError(
                f"{self.cell.plural} have no grid of points: give a list of points (n, {self.dim})"
            )
        if self.axes == tuple(range(self.dim)):
            return simplices.tables(self.cell, self.order, grid)
        found = simplices.tables(self.cell, self.order, self._in_cell(grid))
        return found[[0, *(1 + axis for axis in self.axes)]]

    def _in_cell(self, points: Floats) -> Floats:
        """Coordinates (n, dim) of the cell from those of the element."""
        return points[:, np.argsort(self.axes)]

    def from_nodal(self, values: Floats) -> Floats:
        return values

    def weights_at(self, points: Floats) -> Floats:
        return np.asarray(
            simplices.at_points(self.cell, self.order, self._in_cell(points), slopes=False)[0]
        )

    def values_at(self, points: Floats, e_vec: Floats) -> Floats:
        return np.asarray(np.einsum("nj,nj...->n...", self.weights_at(points), e_vec))

    def slopes_at(self, points: Floats, e_vec: Floats) -> list[Floats]:
        tables = simplices.at_points(self.cell, self.order, self._in_cell(points), slopes=True)
        return [np.einsum("nj,nj...->n...", tables[axis], e_vec) for axis in self.axes]


def turned_to(element: Element, face: Cell) -> Element:
    """Element of a cell that is turned to a face of some shape: the last coordinate leads inwards.

    Only prisms at a quadrilateral have other coordinates than the cell: the last two change places.
    """
    if element.cell.shape != "prism" or not face.cube:
        return element
    return LagrangeElement(element.cell, element.order, closed=not element.broken, axes=(0, 2, 1))


def _is_list(grid: Grid) -> TypeGuard[Floats]:
    """True if points are no grid."""
    return isinstance(grid, np.ndarray) and grid.ndim == 2


def _by_table(table: Floats, e_vec: Floats) -> Floats:
    """Products (n, rows[, ncomp]) of a table with the values of each element."""
    return np.asarray(np.einsum("qj,nj...->nq...", table, e_vec))


def table_of(element: Element, grid: Grid) -> Floats:
    """Values, then derivatives along each direction, of all functions: (1 + dim, points, size)."""
    kinds = [element.values(grid, np.eye(element.size), d) for d in (None, *range(element.dim))]
    return np.stack(kinds).swapaxes(1, 2)


def slope_factors(element: Element, points: Grid) -> tuple[Floats, Floats] | None:
    """Factors (points, modes) and (dim, modes, size) of the derivatives in `table_of`.

    None where the product of both does not save a fifth of the table's work.
    """
    if not isinstance(element, LagrangeElement) or not element.order or not element.cell.simplex:
        return None
    values = simplices.tables(element.cell, element.order - 1, np.asarray(points))[0]
    (count, modes), size = values.shape, element.size
    if 5 * modes * (count + size) > 4 * count * size:
        return None
    return values, simplices.slope_tables(element.cell, element.order)


def factors_of(element: Element, points: Grid) -> Factors | None:
    """Factors of `table_of`, if the functions of the element are products, and so are the points.

    None for grids too, whose points a kernel multiplies by one 1-D matrix for each direction.
    """
    if not isinstance(element, LagrangeElement) or element.axes != tuple(range(element.dim)):
        return None
    found = simplices.factors(element.cell, element.order, np.asarray(points))
    if found is None:
        return None
    (base, line), (of, along) = found
    return Factors(base, line, tuple(np.lexsort((along, of)).tolist()))


def halves_of(element: Element) -> Floats:
    """Matrices (2, p + 1, p + 1) from coefficients on an edge to those on each of its halves."""
    if not isinstance(element, TensorElement) or len({*element.bases}) > 1:
        raise SpaceError(
            "functions that are no products of the same 1-D functions in each direction cannot be "
            "interpolated to hanging nodes: take femops.H1 or femops.L2, or a mesh that conforms"
        )
    basis = element.bases[0]
    halves = [basis.from_nodal @ basis.interpolation((basis.nodes + k) / 2) for k in (0, 1)]
    return np.stack(halves)


def tensor_element(basis: Basis1D, dim: int, *, closed: bool = True) -> TensorElement:
    """Element with the same functions in each direction."""
    return TensorElement((basis,) * dim, (closed,) * dim)


def element_of_maps(coordinates: Floats) -> Element:
    """Element of the maps whose nodes are coordinates (n, nodes, dim)."""
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    if not cell.cube:
        return LagrangeElement(cell, degree, closed=True)
    return tensor_element(Basis1D("gll", degree), cell.dim)


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
