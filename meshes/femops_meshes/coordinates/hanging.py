"""Values at the nodes of elements where some entities are parts of larger ones; see `Carriers`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.mapping import (
    gauss_lobatto,
    geometry_degree,
    lagrange_matrix,
    tensor_apply,
)
from femops_meshes.topology.entities import code_digits

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@lru_cache
def closed_nodes(dim: int, code: int, p: int) -> Ints:
    """Lexicographic numbers of an element's nodes on an entity and on its boundary."""
    nodes = np.zeros(1, dtype=np.int64)
    for d, digit in enumerate(code_digits(code, dim)):
        line = np.arange(p + 1) if digit == 1 else np.array([p * digit // 2])
        nodes = np.add.outer(line * (p + 1) ** d, nodes).ravel()
    nodes.setflags(write=False)
    return nodes


def nodal_halves(p: int) -> Floats:
    """Matrices (2, p + 1, p + 1) from values at Gauss-Lobatto points to values on each half."""
    nodes = gauss_lobatto(p + 1)[0]
    return np.stack([lagrange_matrix(nodes, (nodes + half) / 2) for half in (0, 1)])


def halved_along(values: Floats, path: Ints, levels: NDArray[Any]) -> Floats:
    """Coordinates (ne, (p + 1)**dim, dim) of parts of elements, from those of the elements.

    Each element is halved as often as `levels` (ne,) says; for `path` see `Forest`.
    """
    result, dim = values.copy(), values.shape[2]
    halves = nodal_halves(geometry_degree(values.shape[1], dim))
    for step in reversed(range(int(levels.max(initial=0)))):
        digit = np.where(levels > step, path >> dim * step & 2**dim - 1, -1)
        for half in range(2**dim):
            some = np.flatnonzero(digit == half)
            matrices = [halves[half >> d & 1] for d in range(dim)]
            result[some] = tensor_apply(matrices, result[some])
    return result


def with_larger_nodes(values: Floats, hanging: Ints, families: Ints) -> Floats:
    """Values (ne, (p + 1)**dim, n) with those of larger entities at the nodes of hanging ones.

    A larger entity's values come from the halves of the parent on its smaller side: `families`
    (ne, 2**dim) has the elements that halve the same parent.
    """
    result, dim = values.copy(), families.shape[1].bit_length() - 1
    p = round(values.shape[1] ** (1 / dim)) - 1
    nodes = gauss_lobatto(p + 1)[0]
    ends = [0, int((nodes <= 0.5).sum()), p + 1]
    rows = [lagrange_matrix(nodes, 2 * nodes[ends[k] : ends[k + 1]] - k) for k in (0, 1)]
    keys = hanging[:, 1] << 3 | hanging[:, 2]
    for key in np.unique(keys).tolist():
        elements = hanging[keys == key, 0]
        code, half = divmod(key, 8)
        along = [d for d, t in enumerate(code_digits(code, dim)) if t == 1]
        places = closed_nodes(dim, code, p)
        grid = places.reshape((p + 1,) * len(along))  # the last direction first
        for part in product((0, 1), repeat=len(along)):
            sibling = half
            at: list[slice] = []
            for d, k in zip(along, part, strict=True):
                sibling = sibling & ~(1 << d) | k << d
                at.insert(0, slice(ends[k], ends[k + 1]))
            of = families[elements, sibling][:, np.newaxis]
            found = tensor_apply([rows[k] for k in part], values[of, places])
            result[elements[:, np.newaxis], grid[tuple(at)].ravel()] = found
    return result


def _contains(digits: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """True if an entity of an element, by its digits, has another on its boundary."""
    return all(t in (1, s) for t, s in zip(digits, inner, strict=True))


@final
@dataclass(frozen=True, eq=False)
class HangingNodes:
    """Interpolation of the nodes on hanging entities, from dofs of the larger entities.

    An element first has the dofs of the larger entities in the places of these nodes. Each hanging
    entity is interpolated from them, and where two share an edge they agree.
    """

    dim: int
    ne: int  # number of elements
    hanging: Ints  # shape (n, 3): element, code, half; see `Carriers`
    halves: Floats  # shape (2, p + 1, p + 1): matrices from dofs of an edge to those of its halves
    # shape (m, 3): elements of which but a part meets the element behind a face, code of that face,
    # and the half. All layers of nodes along the face are interpolated to the part, after the rest.
    parts: Ints = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))

    @property
    def p(self) -> int:
        """Degree."""
        return int(self.halves.shape[1]) - 1

    def interpolated(self, e_vec: NDArray[Any], elements: Ints | slice) -> NDArray[Any]:
        """Interpolate element values (k, nodes[, ...]) of some elements (k,)."""
        result = e_vec
        for places, code, matrices in self._groups(elements):
            if result is e_vec:
                result = e_vec.copy()
            at = places[:, np.newaxis], closed_nodes(self.dim, code, self.p)
            result[at] = tensor_apply(matrices, e_vec[at])
        for places, matrices in self._parts(elements):
            if result is e_vec:
                result = e_vec.copy()
            result[places] = tensor_apply(matrices, result[places])
        return result

    def transposed(self, e_vec: NDArray[Any], elements: Ints | slice) -> NDArray[Any]:
        """Transpose of `interpolated`."""
        for places, matrices in self._parts(elements):
            e_vec = e_vec.copy()
            e_vec[places] = tensor_apply([matrix.T for matrix in matrices], e_vec[places])
        groups = [*self._groups(elements)]
        if not groups:
            return e_vec
        rest, sums = e_vec.copy(), np.zeros_like(e_vec)
        for places, code, matrices in reversed(groups):
            at = places[:, np.newaxis], closed_nodes(self.dim, code, self.p)
            sums[at] += tensor_apply([matrix.T for matrix in matrices], rest[at])
            rest[at] = 0  # what two entities share was interpolated by the later one
        return np.asarray(rest + sums)

    def free(self, elements: Ints | slice = slice(None)) -> NDArray[np.bool_]:
        """False (k, nodes) at the nodes of hanging entities of some elements (k,)."""
        numbers = np.arange(self.ne)[elements]
        result = np.ones((len(numbers), (self.p + 1) ** self.dim), dtype=np.bool_)
        for places, code, _ in self._groups(numbers):
            result[places[:, np.newaxis], closed_nodes(self.dim, code, self.p)] = False
        for places, _ in self._parts(numbers):
            result[places] = False
        return result

    def patterns(self, elements: Ints) -> list[bytes]:
        """Keys (k,) that are equal for elements in which the same entities, and parts, hang."""
        found = [b""] * len(elements)
        for rows in (self.hanging, self.parts):
            begin, end = (np.searchsorted(rows[:, 0], elements + k) for k in (0, 1))
            for k, key in enumerate(found):
                found[k] = key + b";" + rows[begin[k] : end[k], 1:].tobytes()
        return found

    def entities(self, element: int) -> list[tuple[tuple[int, ...], list[Floats | None]]]:
        """Hanging entities of an element: digits of the code, and a matrix for each direction.

        Products of the matrices lead from dofs on the entity to those of its nodes that no later
        entity has. None where the entity does not extend.
        """
        groups = [*self._groups(np.array([element]))]
        every = [code_digits(code, self.dim) for _, code, _ in groups]
        found: list[tuple[tuple[int, ...], list[Floats | None]]] = []
        for k, (digits, (_, _, along)) in enumerate(zip(every, groups, strict=True)):
            matrices: list[Floats | None] = [None] * self.dim
            lines = (matrix.copy() for matrix in along)
            for d in (d for d, t in enumerate(digits) if t == 1):
                matrices[d] = line = next(lines)
                for end, row in ((0, 0), (2, -1)):
                    there = (*digits[:d], end, *digits[d + 1 :])
                    if any(_contains(later, there) for later in every[k + 1 :]):
                        line[row] = 0.0
            found.append((digits, matrices))
        return found

    def _parts(self, elements: Ints | slice) -> Iterator[tuple[Ints, list[Floats]]]:
        """Places (m,) among the elements, and matrices of all directions, of `parts`."""
        if not len(self.parts):
            return
        of = np.full(self.ne, -1)
        of[self.parts[:, 0]] = self.parts[:, 1] << 3 | self.parts[:, 2]
        of = of[elements]
        for key in np.unique(of[of >= 0]).tolist():
            digits = code_digits(key >> 3, self.dim)
            same = np.eye(self.p + 1)
            matrices = [self.halves[key >> d & 1] if t == 1 else same for d, t in enumerate(digits)]
            yield np.flatnonzero(of == key), matrices

    def _groups(self, elements: Ints | slice) -> Iterator[tuple[Ints, int, list[Floats]]]:
        """Places (m,) among the elements, code and matrices of hanging entities, edges first."""
        numbers = np.arange(self.ne)[elements]
        first = self._first[numbers], self._first[numbers + 1]
        counts = first[1] - first[0]
        places = np.repeat(np.arange(len(numbers)), counts)
        rows = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts - first[0], counts)
        found = self.hanging[rows]
        keys, group = np.unique(found[:, 1] << 3 | found[:, 2], return_inverse=True)
        ways = [[d for d, t in enumerate(code_digits(k >> 3, self.dim)) if t == 1] for k in keys]
        for k in sorted(range(len(keys)), key=lambda k: (len(ways[k]), keys[k])):
            code, half = divmod(int(keys[k]), 8)
            matrices = [self.halves[half >> d & 1] for d in ways[k]]
            yield places[group.reshape(-1) == k], code, matrices

    @cached_property
    def _first(self) -> Ints:
        """First row of each element, then the number of rows: (ne + 1,)."""
        return np.searchsorted(self.hanging[:, 0], np.arange(self.ne + 1))
