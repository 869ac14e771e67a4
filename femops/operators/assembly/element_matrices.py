"""Element matrices A = B^T D B and their diagonals, by near-optimal sum factorisation.

Near-optimal assembly contracts one direction after the other, (1a)-(2c) of the tensor report, each
with the kernel (9), ``A[k,i,l,j] = sum_s B[s,i] B[s,j] C[k,s,l]``. Here the two matrices B may
differ (derivatives, two spaces).  Entries of D that use the same bases in the remaining directions
are summed before the next contraction. So diffusion has nine entries of D, but only four arrays in
the last direction. The diagonal of diffusion, ``A[k,i,l] = sum_s B[s,i]^2 C[k,s,l]``, has six
entries, but only three arrays in the last direction.  Components that couple in the same way share
one contraction. If D without the quadrature weights is constant in each element, an element matrix
is a linear combination of one matrix per distinct entry of D. These matrices are formed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.element import TensorElement, table_of
from femops.operators.assembly.point_matrices import (
    constant_in_elements,
    distinct_values,
    element_factors,
    entry_numbers,
    point_matrices,
    spread,
)
from femops.operators.integrals.term import Term

Floats = NDArray[np.float64]
Kinds = tuple[tuple[bool, bool], ...]

# Numbers in the arrays of one block of elements.
_BLOCK = 500_000
# Largest total size of the matrices that element matrices are linear combinations of.
_COMBINED = 4_000_000
# Largest size of the matrix that leads from D to an element matrix: where contractions have two
# points in a direction, NumPy multiplies slowly.
_DIRECT = 5_000
# Most elements without hanging nodes between two with them whose matrices are formed at once.
_APART = 4


@final
@dataclass(frozen=True)
class Contraction:
    """Contraction of one array in one direction, a step of near-optimal assembly."""

    direction: int  # the contracted direction: 0 for x, which comes first
    # key of the input array. For each direction that is not contracted yet, it tells whether test
    # and trial basis are derivatives.
    taken: Kinds
    left: Kinds  # key of the output array: ``taken`` without this direction
    first: bool  # whether this is the first product for the output array


@final
class ElementAssembly:
    """Forms the element matrices of a term: choice of the method, and its cost."""

    def __init__(self, term: Term) -> None:
        self.term, self.entries = term, entry_numbers(term)
        self.dim, self._along = term.trial.dim, term.trial.points_along(term.quadrature)
        self._points = term.trial.num_points(term.quadrature)
        self.trial, self.test = term.trial.element, term.test.element

    @cached_property
    def _test(self) -> TensorElement:
        return self.term.test.tensor

    @cached_property
    def _trial(self) -> TensorElement:
        return self.term.trial.tensor

    @cached_property
    def _tables(self) -> tuple[Floats, Floats] | None:
        """Tables of the test functions and of the field, if not all functions are products."""
        if all(isinstance(element, TensorElement) for element in (self.test, self.trial)):
            return None
        points = self.term.quadrature.points
        return table_of(self.test, points), table_of(self.trial, points)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of an element matrix."""
        test, trial = self.term.test, self.term.trial
        return test.ncomp * self.test.size, trial.ncomp * self.trial.size

    @property
    def step(self) -> int:
        """Number of elements in a block."""
        rows, columns = self.shape
        numbers = 3 * rows * columns + self.entries.size * self._points
        return int(max(1, _BLOCK // numbers))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of elements whose matrices are formed at once."""
        return self._blocks(self.step)

    def diagonal_blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of elements whose diagonals are formed at once."""
        fields = len(self._on_diagonal) + 2 * (1 + self.dim) ** 2
        return self._blocks(max(1, _BLOCK // (fields * self._points)))

    def _blocks(self, step: int) -> Iterator[tuple[int, int]]:
        ne = self.term.domain.num_elements
        return ((start, min(start + step, ne)) for start in range(0, ne, step))

    def matrices(self, start: int, stop: int) -> Floats:
        """Matrices (n, rows, columns) of elements start <= e < stop, component by component.

        Rows and columns belong to the dofs in the places of an element's nodes.
        """
        matrices, some = self._at_nodes(start, stop), slice(start, stop)
        for space, axis in ((self.term.test, 1), (self.term.trial, 2)):
            hanging = space.restriction.hanging
            if hanging is not None:
                n, size, ncomp = len(matrices), space.element.size, space.ncomp
                moved: Floats = np.moveaxis(matrices, axis, 1)
                by_node = moved.reshape(n, ncomp, size, -1).swapaxes(1, 2).reshape(n, size, -1)
                at_dofs = hanging.transposed(by_node, some).reshape(n, size, ncomp, -1)
                matrices = np.moveaxis(at_dofs.swapaxes(1, 2).reshape(moved.shape), 1, axis)
        return matrices

    def _at_nodes(self, start: int, stop: int) -> Floats:
        """Matrices as `matrices`, for values at the elements' nodes."""
        if self._combined:
            factors = element_factors(self.term, start, stop)
            # one product per element: in a large one BLAS rounds a row by the number of rows
            matrices: Floats = np.matmul(factors[:, np.newaxis], self._of_unit_factors)
            return matrices.reshape(stop - start, *self.shape)
        return self._formed(point_matrices(self.term, start, stop))

    @cached_property
    def _combined(self) -> bool:
        """True if element matrices are computed as linear combinations of a few matrices.

        This needs less work than contractions, and little memory. The answer does not depend on the
        number of elements. So all ranks round their matrices in the same way.
        """
        rows, columns = self.shape
        small = self._numbers * rows * columns <= _COMBINED
        fewer = self._combination_flops < self._formation_flops
        return small and fewer and constant_in_elements(self.term)

    @cached_property
    def _of_unit_factors(self) -> Floats:
        """Matrices (numbers, rows * columns): one distinct entry of D is 1, all others are 0."""
        weights = self.term.quadrature.tensor_weights(self.dim)
        values = np.eye(self._numbers)[:, np.newaxis] * weights[:, np.newaxis]
        matrices = self._formed(spread(values, self.entries))
        return matrices.reshape(self._numbers, -1)

    @property
    def _numbers(self) -> int:
        """Number of distinct entries of D."""
        assert self.term.source is not None
        return len(self.term.source.qfunction.distinct)

    def _formed(self, d: Floats) -> Floats:
        """Compute the matrices (n, rows, columns) of n elements by contraction of their D.

        ``d`` has shape (slots_out, ncomp, slots_in, ncomp, n, points).
        """
        term, n = self.term, d.shape[4]
        rows, columns = self.test.size, self.trial.size
        out = np.zeros((n, term.test.ncomp, rows, term.trial.ncomp, columns))
        known: dict[bytes, Floats] = {}
        for a, b in np.ndindex(term.test.ncomp, term.trial.ncomp):
            entries = self.entries[:, a, :, b]
            if np.any(entries):
                key = entries.tobytes()
                if key not in known:
                    known[key] = self._near_optimal(d[:, a, :, b], entries != 0)
                out[:, a, :, b] = known[key]
        return out.reshape(n, *self.shape)

    def diagonals(self, start: int, stop: int) -> Floats:
        """Diagonals (n, nodes, ncomp) of elements start <= e < stop of a square term."""
        found, free = self._diagonals_at_nodes(start, stop), self.term.trial.restriction.free
        if free is not None:
            self.replace_hanging(found, free, start, stop)
        return found

    def replace_hanging(
        self, diagonals: Floats, free: NDArray[np.bool_], start: int, stop: int
    ) -> None:
        """Set the diagonals (n, nodes, ncomp) of elements start <= e < stop where nodes hang."""
        hang = start + np.flatnonzero(~free[start:stop].all(axis=1))
        cuts = np.flatnonzero(np.diff(hang) > _APART) + 1
        for run in np.split(hang, cuts) if len(hang) else ():
            for first in range(int(run[0]), int(run[-1]) + 1, self.step):
                last = min(first + self.step, int(run[-1]) + 1)
                matrices = self._at_nodes(first, last)
                for e in hang[(first <= hang) & (hang < last)].tolist():
                    self._set_hanging(diagonals[e - start], matrices[e - first], free[e], e)

    def _set_hanging(
        self, diagonal: Floats, matrix: Floats, free: NDArray[np.bool_], e: int
    ) -> None:
        """Set the diagonal (nodes, ncomp) of element e where nodes hang, from its matrix at nodes.

        A dof in the place of such a node is interpolated to hanging nodes alone.
        """
        hanging, some = self.term.trial.restriction.hanging, np.flatnonzero(~free)
        assert hanging is not None
        ends = (
            np.searchsorted(rows[:, 0], [e, e + 1]) for rows in (hanging.hanging, hanging.parts)
        )
        each = zip(ends, (hanging.hanging, hanging.parts), strict=True)
        key = tuple(rows[slice(*end), 1:].tobytes() for end, rows in each)
        if key not in self._interpolations:
            units = np.zeros((1, len(free), len(some)))
            units[0, some, np.arange(len(some))] = 1.0
            self._interpolations[key] = hanging.interpolated(units, np.array([e]))[0, some]
        C, n = self._interpolations[key], len(free)
        for c in range(self.term.trial.ncomp):
            at = c * n + some
            diagonal[some, c] = ((matrix[np.ix_(at, at)] @ C) * C).sum(axis=0)

    @cached_property
    def _interpolations(self) -> dict[tuple[bytes, ...], Floats]:
        """Matrices from dofs to hanging nodes of an element, by its hanging entities."""
        return {}

    def _diagonals_at_nodes(self, start: int, stop: int) -> Floats:
        ncomp, nodes = self.term.trial.ncomp, self.trial.size
        if self._tables is not None:
            diagonal = np.diagonal(self._at_nodes(start, stop), axis1=1, axis2=2)
            return diagonal.reshape(-1, ncomp, nodes).swapaxes(1, 2)
        values = distinct_values(self.term, start, stop, self._on_diagonal)
        out = np.zeros((stop - start, nodes, ncomp))
        known: dict[bytes, Floats] = {}
        for c in range(ncomp):
            entries = self.entries[:, c, :, c]
            if np.any(entries):
                key = entries.tobytes()
                if key not in known:
                    known[key] = self._diagonals(values, entries)
                out[:, :, c] = known[key]
        return out

    def flops(self) -> int:
        """Number of floating-point operations of one element matrix, without those for D."""
        return self._combination_flops if self._combined else self._formation_flops

    @property
    def _formation_flops(self) -> int:
        structure = self.entries != 0
        pairs = np.ndindex(structure.shape[1], structure.shape[3])
        return sum(self._near_optimal_flops(structure[:, a, :, b]) for a, b in pairs)

    @property
    def _combination_flops(self) -> int:
        rows, columns = self.shape
        return rows * columns * (2 * self._numbers - 1)

    # --- near-optimal ----------------------------------------------------------------------------

    def _kinds(self, i: int, j: int) -> Kinds:
        """For each direction, True if test and trial basis of entry i, j are derivatives."""
        qfunction = self.term.qfunction
        out, into = qfunction.slots_out[i], qfunction.slots_in[j]
        return tuple((out == d + 1, into == d + 1) for d in range(self.dim))

    def _contractions(self, kinds: Iterable[Kinds]) -> list[Contraction]:
        left = dict.fromkeys(kinds)
        todo: list[Contraction] = []
        for direction in range(self.dim):
            results: dict[Kinds, None] = {}
            for taken in left:
                todo.append(Contraction(direction, taken, taken[1:], taken[1:] not in results))
                results[taken[1:]] = None
            left = results
        return todo

    def _near_optimal(self, d: Floats, structure: NDArray[np.bool_]) -> Floats:
        """Compute element matrices (n, rows, columns) of one pair of components."""
        n, dim, pairs = d.shape[2], self.dim, np.argwhere(structure)
        if self._tables is not None:
            total = np.zeros((n, self.test.size, self.trial.size))
            for i, j in pairs:
                total += self._by_tables(i, j, d[i, j])
            return total
        parts = {self._kinds(i, j): d[i, j] for i, j in pairs}
        rows, columns = self.test.size, self.trial.size
        if len(pairs) * self._points * rows * columns <= _DIRECT:
            # one product per element: see `matrices`
            data = np.concatenate([*parts.values()], axis=1)[:, np.newaxis]
            product: Floats = np.matmul(data, self._direct(tuple(parts)))
            return product.reshape(n, rows, columns)
        result = self._contracted(parts, self._pairs)
        # (n, i3, j3, i2, j2, i1, j1): rows first
        sizes = zip(self._test.shape[::-1], self._trial.shape[::-1], strict=True)
        grid = result.reshape(n, *(count for pair in sizes for count in pair))
        order = [0, *range(1, 2 * dim, 2), *range(2, 2 * dim + 1, 2)]
        matrices: Floats = grid.transpose(order).reshape(n, rows, columns)
        return matrices

    def _by_tables(self, i: int, j: int, d: Floats) -> Floats:
        """Part of element matrices (n, rows, columns) of the entries (n, points) i, j of D."""
        assert self._tables is not None
        qfunction = self.term.qfunction
        test, trial = self._tables
        rows = test[qfunction.slots_out[i]].T * d[:, np.newaxis]
        # one product per element: see `matrices`
        return np.asarray(np.matmul(rows, trial[qfunction.slots_in[j]]))

    def _direct(self, kinds: tuple[Kinds, ...]) -> Floats:
        """Matrix (kinds * points, rows * columns) from entries of D to an element matrix."""
        if kinds not in self._known_direct:
            parts = []
            for each in kinds:
                whole = np.ones((1, 1, 1))  # rows, columns, points
                for d, (weights, kind) in enumerate(zip(self._pairs, each, strict=True)):
                    line = weights[kind].reshape(self._test.shape[d], self._trial.shape[d], -1)
                    sizes = np.array(whole.shape) * line.shape
                    whole = np.einsum("ijs,abt->aibjts", whole, line).reshape(sizes)
                parts.append(whole.reshape(-1, whole.shape[2]).T)
            self._known_direct[kinds] = np.concatenate(parts)
        return self._known_direct[kinds]

    @cached_property
    def _known_direct(self) -> dict[tuple[Kinds, ...], Floats]:
        return {}

    def _diagonals(self, values: Floats, entries: NDArray[np.int64]) -> Floats:
        """Compute diagonals (n, nodes) of one component from the entries `_on_diagonal` of D.

        ``values`` has shape (n, points, entries).
        """
        parts: dict[Kinds, Floats] = {}
        for i, j in np.argwhere(entries):
            # test and trial basis are the same, so either may be the one that is differentiated
            kinds = tuple((a and b, a or b) for a, b in self._kinds(i, j))
            at = self._on_diagonal.index(abs(entries[i, j]))
            part = np.sign(entries[i, j]) * values[..., at]
            parts[kinds] = parts[kinds] + part if kinds in parts else part
        return self._contracted(parts, self._squares).reshape(len(values), -1)

    def _contracted(
        self, parts: dict[Kinds, Floats], weights: Sequence[dict[tuple[bool, bool], Floats]]
    ) -> Floats:
        """Contract arrays at points (n, points) in all directions, and sum the results."""
        n = len(next(iter(parts.values())))
        for c in self._contractions(parts):
            matrix, data = weights[c.direction][c.taken[0]], parts.pop(c.taken)
            q = matrix.shape[1]
            if c.direction == 0:
                # one product per element: in a large one BLAS rounds a row by the number of rows
                product = np.matmul(data.reshape(n, -1, q), matrix.T)
            else:
                product = np.matmul(matrix, data.reshape(n * self._left(c.direction), q, -1))
            if c.first:
                parts[c.left] = product
            else:
                parts[c.left] += product
        (result,) = parts.values()
        return result

    @cached_property
    def _on_diagonal(self) -> list[int]:
        """Numbers (see `entry_numbers`) of the distinct entries of D within one component."""
        numbers = np.unique(np.abs(np.diagonal(self.entries, axis1=1, axis2=3)))
        return [int(number) for number in numbers if number]

    def _left(self, direction: int) -> int:
        """Number of points in all directions after ``direction``."""
        return math.prod(len(points) for points in self._along[direction + 1 :])

    @cached_property
    def _pairs(self) -> list[dict[tuple[bool, bool], Floats]]:
        """Products ``test[s, i] * trial[s, j]`` for each direction, as arrays ((i, j), s).

        The key tells whether the test and the trial basis are derivatives.
        """
        return [self._pairs_along(d) for d in range(self.dim)]

    def _pairs_along(self, d: int) -> dict[tuple[bool, bool], Floats]:
        points = self._along[d]
        bases = [
            (element.bases[d].interpolation(points), element.bases[d].gradient(points))
            for element in (self._test, self._trial)
        ]
        return {
            (a, b): np.ascontiguousarray(
                (bases[0][a][:, :, np.newaxis] * bases[1][b][:, np.newaxis, :])
                .reshape(len(points), -1)
                .T
            )
            for a in (False, True)
            for b in (False, True)
        }

    @cached_property
    def _squares(self) -> list[dict[tuple[bool, bool], Floats]]:
        """Products `_pairs` for i = j, as arrays (i, s)."""
        return [
            {
                kind: np.ascontiguousarray(matrix.reshape(n, n, -1).diagonal().T)
                for kind, matrix in pairs.items()
            }
            for n, pairs in zip(self._trial.shape, self._pairs, strict=True)
        ]

    def _near_optimal_flops(self, structure: NDArray[np.bool_]) -> int:
        if self._tables is not None:
            return 2 * int(structure.sum()) * self.test.size * self.trial.size * self._points
        pairs = [m * n for m, n in zip(self._test.shape, self._trial.shape, strict=True)]
        total = 0
        for c in self._contractions(self._kinds(i, j) for i, j in np.argwhere(structure)):
            result = math.prod(pairs[: c.direction + 1]) * self._left(c.direction)
            total += result * (2 * len(self._along[c.direction]) - 1 + (not c.first))
        return total
