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

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Basis1D, grid_rule
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
from femops_meshes.coordinates.hanging import closed_nodes
from femops_meshes.coordinates.mapping import tensor_apply

Floats = NDArray[np.float64]
Kinds = tuple[tuple[bool, bool], ...]
Lines = list[dict[tuple[bool, bool], Floats]]

# Numbers in the arrays of one block of elements.
_BLOCK = 500_000
# Numbers of D at the points of elements whose hanging diagonals are formed at once.
_VALUES = 4_000_000
# Largest total size of the matrices that element matrices are linear combinations of.
_COMBINED = 4_000_000
# Largest size of the matrix that leads from D to an element matrix: where contractions have two
# points in a direction, NumPy multiplies slowly.
_DIRECT = 5_000
# Most elements without hanging nodes between two with them whose D is computed at once.
_APART = 16


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
        self.dim = term.trial.dim
        self._points = term.trial.num_points(term.quadrature)
        self.trial, self.test = term.trial.element, term.test.element

    @cached_property
    def _test(self) -> TensorElement:
        return self.term.test.tensor

    @cached_property
    def _trial(self) -> TensorElement:
        return self.term.trial.tensor

    @cached_property
    def _along(self) -> list[Floats]:
        """Coordinates (q1d,) of the points of a grid, for each direction."""
        return self.term.trial.points_along(grid_rule(self.term.quadrature, "a product"))

    @cached_property
    def _tables(self) -> tuple[Floats, Floats] | None:
        """Tables of test functions and field, if functions are no products, or points no grid."""
        if not self.term.tabulated:
            return None
        test, trial, rule = self.term.test, self.term.trial, self.term.quadrature
        return table_of(self.test, test.places(rule)), table_of(self.trial, trial.places(rule))

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
        return self._blocks(self._diagonal_step)

    @property
    def _diagonal_step(self) -> int:
        fields = len(self._on_diagonal) + 2 * (1 + self.dim) ** 2
        return int(max(1, _BLOCK // (fields * self._points)))

    def _blocks(
        self, step: int, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, int]]:
        end = self.term.domain.num_elements if last is None else last
        return ((start, min(start + step, end)) for start in range(first, end, step))

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
        weights = self.term.quadrature.cell_weights(self.dim)
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
        """Diagonals (n, nodes, ncomp) of elements start <= e < stop, for values at their nodes.

        See `replace_hanging` for nodes without dofs.
        """
        ncomp, nodes = self.term.trial.ncomp, self.trial.size
        values = distinct_values(self.term, start, stop, self._on_diagonal)
        out = np.zeros((stop - start, nodes, ncomp))
        if self._tables is not None:
            # one product per element: see `matrices`
            flat = values.reshape(len(values), 1, -1)
            for c in range(ncomp):
                out[:, :, c] = np.matmul(flat, self._own_squares[c])[:, 0]
            return out
        known: dict[bytes, Floats] = {}
        for c in range(ncomp):
            entries = self.entries[:, c, :, c]
            if np.any(entries):
                key = entries.tobytes()
                if key not in known:
                    known[key] = self._diagonals(values, entries)
                out[:, :, c] = known[key]
        return out

    def replace_hanging(self, diagonals: Floats) -> None:
        """Set the diagonals (ne, nodes, ncomp) of all elements where nodes hang.

        A dof in the place of such a node has a function that is interpolated to hanging nodes
        alone. Elements in which the same entities hang are worked on at once.
        """
        free, hanging = self.term.trial.restriction.free, self.term.trial.restriction.hanging
        if free is None or hanging is None or not self._on_diagonal:
            return
        hang = np.flatnonzero(~free.all(axis=1))
        step = max(1, _VALUES // (len(self._on_diagonal) * self._points))
        for begin in range(0, len(hang), step):
            some = hang[begin : begin + step]
            values, alike = self._values_in(some), dict[bytes, list[int]]()
            for place, key in enumerate(hanging.patterns(some)):
                alike.setdefault(key, []).append(place)
            for key, same in alike.items():
                found = np.zeros((len(same), *diagonals.shape[1:]))
                self._add_hanging(found, values[same], key, int(some[same[0]]))
                places = np.flatnonzero(~free[some[same[0]]])
                diagonals[some[same][:, np.newaxis], places] = found[:, places]

    def _values_in(self, elements: NDArray[np.int64]) -> Floats:
        """Distinct entries (n, points, `_on_diagonal`) of D in ascending elements."""
        found = np.empty((len(elements), self._points, len(self._on_diagonal)))
        cuts = np.flatnonzero(np.diff(elements) > _APART) + 1
        for places in np.split(np.arange(len(elements)), cuts):
            run = elements[places]
            for first, last in self._blocks(self._diagonal_step, int(run[0]), int(run[-1]) + 1):
                here = (first <= run) & (run < last)
                values = distinct_values(self.term, first, last, self._on_diagonal)
                found[places[here]] = values[run[here] - first]
        return found

    def _add_hanging(self, diagonals: Floats, values: Floats, key: bytes, e: int) -> None:
        """Add the diagonals (n, nodes, ncomp) of dofs in the places of hanging nodes.

        Element e is one of the n, ``values`` (n, points, entries) are the entries `_on_diagonal`.
        """
        hanging = self.term.trial.restriction.hanging
        assert hanging is not None
        rows = range(self.term.trial.ncomp)
        if self._tables is not None or len(hanging.parts):
            if key not in self._known_squares:
                self._known_squares[key] = self._squares_at(e)
            for c in rows:
                # one product per element: see `matrices`
                flat = values.reshape(len(values), 1, -1)
                diagonals[..., c] += np.matmul(flat, self._known_squares[key][c])[:, 0]
            return
        if key not in self._known_pairs:
            self._known_pairs[key] = self._pairs_of_entities(e)
        for c in rows:
            entries = self.entries[:, c, :, c]
            parts = {same: self._parts(values, entries, same=same) for same in (False, True)}
            for nodes, lines, times in self._known_pairs[key] if parts[True] else ():
                found = self._contracted(dict(parts[times == 1]), lines)
                diagonals[:, nodes, c] += times * found.reshape(len(values), -1)

    @cached_property
    def _known_squares(self) -> dict[bytes, list[Floats]]:
        return {}

    @cached_property
    def _known_pairs(self) -> dict[bytes, list[tuple[NDArray[np.int64], Lines, int]]]:
        return {}

    def _pairs_of_entities(self, e: int) -> list[tuple[NDArray[np.int64], Lines, int]]:
        """Pairs of entities that hang in element e, whose functions of a dof are multiplied.

        A dof's function is a sum over the hanging entities that it is on: of products of functions
        along the directions. For each pair: nodes (m,) on both, the products `_squares` along each
        direction, and how often they count: once for the same entity, twice for two.
        """
        hanging = self.term.trial.restriction.hanging
        assert hanging is not None
        bases = [(b.interpolation(s), b.gradient(s)) for b, s in self._bases_and_points]
        each = []
        for digits, matrices in hanging.entities(e):
            lines = [
                [values if m is None else values @ m for values in pair]
                for pair, m in zip(bases, matrices, strict=True)
            ]
            each.append((digits, lines))
        found = []
        for one, other in itertools.combinations_with_replacement(each, 2):
            ends = [*zip(one[0], other[0], strict=True)]
            if (0, 2) in ends or (2, 0) in ends:
                continue
            both = [s if t == 1 else t for s, t in ends]
            p = hanging.p
            some = [slice(None) if t == 1 else slice(t * p // 2, t * p // 2 + 1) for t in both]
            products: Lines = [
                {
                    (a, b): np.ascontiguousarray((u[a][:, at] * v[b][:, at]).T)
                    for a in (False, True)
                    for b in (False, True)
                }
                for u, v, at in zip(one[1], other[1], some, strict=True)
            ]
            code = sum(t * 3**d for d, t in enumerate(both))
            nodes = closed_nodes(self.dim, code, p)
            found.append((nodes, products, 1 if one is other else 2))
        return found

    @property
    def _bases_and_points(self) -> Iterator[tuple[Basis1D, Floats]]:
        return zip(self._trial.bases, self._along, strict=True)

    def _squares_at(self, e: int) -> list[Floats]:
        """Matrices (points * entries, nodes) from D to diagonals of element e, by components."""
        hanging = self.term.trial.restriction.hanging
        assert hanging is not None
        functions = hanging.interpolated(np.eye(self.trial.size)[np.newaxis], np.array([e]))
        return self._squares_of(self._slots(functions))

    @cached_property
    def _own_squares(self) -> list[Floats]:
        """Those of `_squares_at` for functions by tables, in elements where nothing hangs."""
        assert self._tables is not None
        return self._squares_of([*self._tables[1]])

    def _squares_of(self, slots: Sequence[Floats]) -> list[Floats]:
        """See `_squares_at`. `slots` has values and derivatives (points, nodes) of functions."""
        out, into = self.term.qfunction.slots_out, self.term.qfunction.slots_in
        squares = []
        for c in range(self.term.trial.ncomp):
            total = np.zeros((self._points, len(self._on_diagonal), self.trial.size))
            entries = self.entries[:, c, :, c]
            for i, j in np.argwhere(entries):
                at = self._on_diagonal.index(abs(entries[i, j]))
                total[:, at] += np.sign(entries[i, j]) * slots[out[i]] * slots[into[j]]
            squares.append(total.reshape(-1, self.trial.size))
        return squares

    def _slots(self, functions: Floats) -> list[Floats]:
        """Values, then derivatives, (points, m) of functions with values (1, nodes, m) at nodes."""
        if self._tables is not None:
            return [table @ functions[0] for table in self._tables[1]]
        lines = [(b.interpolation(s), b.gradient(s)) for b, s in self._bases_and_points]
        return [
            tensor_apply([line[s == d + 1] for d, line in enumerate(lines)], functions)[0]
            for s in range(self.dim + 1)
        ]

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
            return self._by_tables(d, pairs)
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

    def _by_tables(self, d: Floats, pairs: NDArray[np.int64]) -> Floats:
        """Element matrices (n, rows, columns) of the entries (n, points) of D at some pairs."""
        assert self._tables is not None
        out, into = self.term.qfunction.slots_out, self.term.qfunction.slots_in
        test, trial = self._tables
        n, rows, columns = d.shape[2], self.test.size, self.trial.size
        if len(pairs) * self._points * rows * columns <= _DIRECT:
            each = [
                test[out[i]][:, :, np.newaxis] * trial[into[j]][:, np.newaxis] for i, j in pairs
            ]
            data = np.concatenate([d[i, j] for i, j in pairs], axis=1)[:, np.newaxis]
            product = np.matmul(data, np.concatenate(each).reshape(-1, rows * columns))
            return np.asarray(product.reshape(n, rows, columns))
        written = np.unique(pairs[:, 0])
        # for each value or derivative of the test functions what it is multiplied by
        factors = np.zeros((n, len(written), self._points, columns))
        for i, j in pairs:
            factors[:, np.searchsorted(written, i)] += d[i, j, :, :, np.newaxis] * trial[into[j]]
        tables = np.concatenate([test[out[i]] for i in written]).T
        # one product per element: see `matrices`
        return np.asarray(np.matmul(tables, factors.reshape(n, -1, columns)))

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
        parts = self._parts(values, entries, same=True)
        return self._contracted(parts, self._squares).reshape(len(values), -1)

    def _parts(
        self, values: Floats, entries: NDArray[np.int64], *, same: bool
    ) -> dict[Kinds, Floats]:
        """Entries (n, points) of the symmetric part of D for each kind of derivatives.

        ``same``: whether test and trial functions are the same.
        """
        parts: dict[Kinds, Floats] = {}
        for i, j in np.argwhere(entries):
            at = self._on_diagonal.index(abs(entries[i, j]))
            part = np.sign(entries[i, j]) * values[..., at]
            kinds = self._kinds(i, j)
            ways = [kinds, tuple((b, a) for a, b in kinds)]
            if same:  # either may be the one that is differentiated
                ways = [tuple((a and b, a or b) for a, b in kinds)]
            for way in ways:
                each = part / len(ways)
                parts[way] = parts[way] + each if way in parts else each
        return parts

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
