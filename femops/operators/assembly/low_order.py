"""Matrix of order 1 on the nodes of a space of high order.

The nodes of an element cut it into sub-cells, p in each direction. A sub-cell has the multilinear
functions that are 1 at one of its nodes. The matrix of these functions is spectrally equivalent to
the matrix of order p, and has few entries a row (Orszag 1980; Canuto, Gervasio and Quarteroni
2010). D at the points of a sub-cell is interpolated linearly between the quadrature points of the
operator. So the matrix has the operator's geometry and coefficients, and is positive definite if
each D is.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array, kron

from femops.basis import gauss
from femops.operators.assembly.csr import (
    domains,
    require_memory,
    split,
    summed_matrices,
)
from femops.operators.assembly.distributed_csr import rank_matrix
from femops.operators.assembly.point_matrices import entry_numbers, point_matrices
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.state import between_points
from femops.operators.integrals.term import Sum, Term
from femops.spaces.domain_space import DomainSpace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Numbers in the arrays of one block of elements.
_BLOCK = 2_000_000


def low_order_matrix(summands: Sum, constraints: Constraints, dtype: np.dtype[Any]) -> csr_array:
    """Assemble the matrix of order 1 with the essential conditions. Collective."""
    require_memory(_nbytes(summands), "the matrix of order 1", "a smaller mesh or order")
    if summands.first.trial.volume.distributed is not None:
        return rank_matrix(summands, constraints, cells=sub_cells)
    parts = [_domain_matrix(group) for group in domains(summands)]
    return split(reduce(operator.add, parts), constraints, dtype)[0]


def _domain_matrix(summands: Sum) -> csr_array:
    """Matrix (size, size) of integrals over the same elements."""
    space = summands.first.trial
    if space.restriction.hanging is None:
        return summed_matrices(*sub_cells(summands), (space.size, space.size))
    ne, n, ncomp = space.domain.num_elements, space.restriction.num_nodes, space.ncomp
    nodes = np.arange(ne * n * ncomp).reshape(ne, n, ncomp).swapaxes(1, 2)
    matrix = summed_matrices(*sub_cells(summands, nodes), (nodes.size, nodes.size))
    P = _nodes_from_dofs(space)
    return csr_array(P.T @ matrix @ P)


def _nodes_from_dofs(space: DomainSpace) -> csr_array:
    """Matrix (ne * nodes * ncomp, size) from dofs to the nodes of each element."""
    restriction, hanging = space.restriction, space.restriction.hanging
    assert hanging is not None
    n, (size, _) = restriction.num_nodes, restriction.shape
    places, indices = (
        np.arange(size).reshape(-1, n),
        restriction.entries(np.arange(restriction.ndofs)),
    )
    hangs = np.zeros(len(places), dtype=np.bool_)
    hangs[hanging.hanging[:, 0]] = True
    some = np.flatnonzero(hangs)
    same = np.broadcast_to(np.eye(n), (len(some), n, n))
    values = hanging.transposed(same, some)  # (elements, dofs, nodes)
    element, dof, node = np.nonzero(values)
    rows = np.concatenate([places[~hangs].reshape(-1), places[some[element], node]])
    columns = np.concatenate([indices[~hangs].reshape(-1), indices[some[element], dof]])
    ones = np.ones(rows.size - element.size)
    entries = np.concatenate([ones, values[element, dof, node]])
    one = coo_array((entries, (rows, columns)), shape=restriction.shape).tocsr()
    return csr_array(kron(one, eye_array(space.ncomp), format="csr"))


def sub_cells(summands: Sum, places: Ints | None = None) -> tuple[Floats, Ints, Ints]:
    """Matrices of the sub-cells of all elements of one domain.

    `places` (ne, ncomp, nodes): rows of the elements' nodes, by default those of their dofs.
    Shapes: `values` (ne * cells, n, n), `rows`, `columns` (ne * cells, n).
    """
    first = summands.first
    nodes = _Cells(first).nodes
    shape = first.domain.num_elements, first.trial.ncomp, first.trial.restriction.num_nodes
    dofs = first.trial.pattern().reshape(shape) if places is None else places
    cells = np.moveaxis(dofs[:, :, nodes], 1, 2)  # (ne, cells, ncomp, nodes of a cell)
    per_cell = first.trial.ncomp * nodes.shape[1]
    cells = np.ascontiguousarray(cells).reshape(len(dofs) * len(nodes), per_cell)
    values = np.zeros((*cells.shape, cells.shape[1]))
    blocks = values.reshape(len(dofs), len(nodes), *values.shape[1:])
    for factor, term in summands:
        grid = _Cells(term)
        for start in range(0, len(dofs), grid.step):
            stop = min(start + grid.step, len(dofs))
            blocks[start:stop] += factor * grid.matrices(start, stop)
    return values, cells, cells


def _nbytes(summands: Sum) -> int:
    """Bytes needed to assemble the matrix: entries of the sub-cells, with rows and columns."""
    total = 0
    for (_, first), *_ in domains(summands):
        cells, nodes = _Cells(first).nodes.shape
        total += first.domain.num_elements * cells * (nodes * first.trial.ncomp) ** 2 * 40
    return total


@final
@dataclass(frozen=True)
class _Line:
    """Sub-cells of an element in one direction."""

    nodes: Ints  # (cells, n): nodes of each sub-cell, of those of the direction
    # (cells * points, q1d): matrix from values at the operator's points, without weights, to the
    # sub-cells' points, with weights
    resampled: Floats
    # values and slopes are (points, n): the functions of a sub-cell and their derivatives in it,
    # as on [0, 1]
    values: Floats
    slopes: Floats
    lengths: Floats  # (cells,): lengths of the sub-cells, of those of the element

    @staticmethod
    def of(term: Term, direction: int) -> _Line:
        """Sub-cells in a direction of the term's elements. Points at an end touch one cell."""
        space, points = term.trial, term.trial.points_along(term.quadrature)[direction]
        if space.p1d == 1:  # a face in 1-D: a point
            one = np.ones((1, 1))
            return _Line(np.zeros((1, 1), dtype=np.int64), one, one, 0.0 * one, np.ones(1))
        at = space.basis.nodes
        nodes = np.arange(space.order)[:, np.newaxis] + np.arange(2)
        if space.has_end and direction == space.dim - 1:
            rule, nodes, matrix = np.zeros(1), nodes[:1], np.ones((1, 1))
        else:
            two = gauss(2)
            rule = two.points
            lengths = np.diff(at)[:, np.newaxis]
            new = (at[:-1, np.newaxis] + lengths * rule).reshape(-1)
            weights = (lengths * two.weights).reshape(-1, 1)
            matrix = weights * between_points(points, new) / term.quadrature.weights
        values = np.stack([1.0 - rule, rule], axis=1)
        slopes = np.stack([-np.ones_like(rule), np.ones_like(rule)], axis=1)
        return _Line(nodes, matrix, values, slopes, np.diff(at)[nodes[:, 0]])


@final
class _Cells:
    """Sub-cells of the elements of a term, and their matrices.

    `nodes` (cells, n): local numbers of the nodes of each sub-cell. Cells and nodes are
    lexicographic.
    """

    def __init__(self, term: Term) -> None:
        self._term, self._dim = term, term.trial.dim
        self._lines = [_Line.of(term, d) for d in range(self._dim)]
        p1d = term.trial.p1d
        places = [p1d**d * line.nodes for d, line in enumerate(self._lines)]
        summed = reduce(_outer_sum, places[1:], places[0])
        self.nodes: Ints = summed

    @property
    def step(self) -> int:
        """Number of elements in a block."""
        per_cell = self.nodes.shape[1] * self._term.trial.ncomp
        fine = (1 + self._dim) ** 2 * self._term.trial.ncomp**2 * 2**self._dim
        return int(max(1, _BLOCK // (len(self.nodes) * (per_cell**2 + fine))))

    def matrices(self, start: int, stop: int) -> Floats:
        """Matrices (ne, cells, n, n) in elements start <= e < stop, component by component."""
        term, n = self._term, stop - start
        used, d = entry_numbers(term) != 0, point_matrices(term, start, stop)
        cells, nodes = self.nodes.shape
        out = np.zeros((term.test.ncomp, term.trial.ncomp, n, cells, nodes * nodes))
        for i, j in product(range(used.shape[0]), range(used.shape[2])):
            slots = term.qfunction.slots_out[i], term.qfunction.slots_in[j]
            for a, b in np.argwhere(used[i, :, j]):
                fine = self._resampled(d[i, a, j, b]) * self._scales(*slots)[:, np.newaxis]
                out[a, b] += fine @ self._pairs(*slots)
        grid = out.reshape(*out.shape[:4], nodes, nodes).transpose(2, 3, 0, 4, 1, 5)
        return grid.reshape(n, cells, term.test.ncomp * nodes, term.trial.ncomp * nodes)

    def _resampled(self, d: Floats) -> Floats:
        """Map an entry (n, points) of D at the operator's points to (n, cells, points of one)."""
        sizes = [line.resampled.shape[1] for line in self._lines]
        grid = d.reshape(-1, *reversed(sizes))
        split_axes: list[int] = []
        for direction, line in enumerate(self._lines):
            axis = self._dim - direction
            grid = np.moveaxis(np.tensordot(grid, line.resampled, axes=(axis, 1)), -1, axis)
        for line in reversed(self._lines):
            split_axes += [len(line.nodes), len(line.values)]
        fine = grid.reshape(len(d), *split_axes)
        order = [0, *range(1, 2 * self._dim, 2), *range(2, 2 * self._dim + 1, 2)]
        ordered: Floats = fine.transpose(order).reshape(len(d), len(self.nodes), -1)
        return ordered

    def _scales(self, out: int, into: int) -> Floats:
        """Factors (cells,) of derivatives in sub-cells, by the slots of test function and field."""
        lengths = [
            line.lengths ** -((out == d + 1) + (into == d + 1.0))
            for d, line in enumerate(self._lines)
        ]
        return reduce(np.multiply.outer, reversed(lengths)).reshape(-1)

    def _pairs(self, out: int, into: int) -> Floats:
        """Products (points, n * n) of test functions and fields in a sub-cell, by their slots."""
        tests, fields = (self._functions(slot) for slot in (out, into))
        return (tests[:, :, np.newaxis] * fields[:, np.newaxis]).reshape(len(tests), -1)

    def _functions(self, slot: int) -> Floats:
        """Functions (points, n) of a sub-cell, or their derivatives: slot d + 1 is direction d."""
        along = [
            line.slopes if slot == d + 1 else line.values for d, line in enumerate(self._lines)
        ]
        return reduce(lambda x, y: np.asarray(np.kron(x, y)), reversed(along))


def _outer_sum(x: Ints, y: Ints) -> Ints:
    """Sums (cells, n) of nodes of the earlier directions and of the next, which is the slowest."""
    sums = y[:, np.newaxis, :, np.newaxis] + x[np.newaxis, :, np.newaxis, :]
    return sums.reshape(len(x) * len(y), -1)
