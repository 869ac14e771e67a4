"""Forests: trees of halved elements, whose leaves are the elements of a locally refined mesh.

A cell is a root, or one of the 2**dim halves of a cell. The cells of one level fit together like
the elements of a conforming mesh, and so do their entities. Neighbours, also those that share but a
vertex, differ by one level at most. So where a leaf is smaller than its neighbour, the entity that
both share is one of the leaf's parent, and a whole one of the neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coarsening import Coarsening
from femops_meshes.errors import MeshArgumentError
from femops_meshes.refinement import children_of
from femops_meshes.topology.entities import code_digits, entity_codes, entity_dimension
from femops_meshes.topology.topology import Carriers, Topology, with_carriers
from femops_meshes.topology.tree_order import leaf_order

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@final
@dataclass(frozen=True, eq=False)
class Level:
    """The cells of one level of a forest."""

    topology: Topology
    # shape (cells, 2**dim): vertex numbers, which are the same on all levels
    cells: Ints
    leaf: Ints  # shape (cells,): the element of the mesh that the cell is, or -1
    parent: Ints  # shape (cells,): number of the cell on the level above that it halves


@final
@dataclass(frozen=True, eq=False)
class Forest:
    """Leaves of trees over the elements of a coarse mesh, in the order of the mesh's elements."""

    # shape (nr, 2**dim): vertex numbers, lexicographic corners, in the order of the mesh's file
    roots: Ints
    num_vertices: int  # number of vertices of the roots
    root: Ints  # shape (ne,): the root of each leaf
    level: NDArray[np.int8]  # shape (ne,): number of halvings
    # shape (ne,): the child at each level, dim bits (x least) each, that of the last level in the
    # lowest bits
    path: Ints

    @property
    def dim(self) -> int:
        """Dimension of the elements."""
        return int(self.roots.shape[1]).bit_length() - 1

    @property
    def depth(self) -> int:
        """Highest level of a leaf."""
        return int(self.level.max(initial=0))

    @cached_property
    def cells(self) -> list[Ints]:
        """For each level, the number (ne,) of the cell in which each leaf lies; -1 below a leaf."""
        cell, found = self.root, [self.root]
        for level in range(self.depth):
            deeper = self.level > level
            refined = np.zeros(int(cell.max(initial=-1)) + 1, dtype=np.bool_)
            refined[cell[deeper]] = True
            rank = np.cumsum(refined) - 1
            child = self.path[deeper] >> self.dim * (self.level[deeper] - level - 1)
            below = np.full(len(cell), -1, dtype=np.int64)
            below[deeper] = rank[cell[deeper]] << self.dim | child & 2**self.dim - 1
            found.append(below)
            cell = below
        return found

    @cached_property
    def levels(self) -> list[Level]:
        """The cells of each level."""
        cells, count, parent = self.roots, self.num_vertices, np.arange(len(self.roots))
        found = []
        for level, numbers in enumerate(self.cells):
            leaf = np.full(len(cells), -1, dtype=np.int64)
            here = np.flatnonzero(self.level == level)
            leaf[numbers[here]] = here
            topology = Topology.build(cells, count)
            found.append(Level(topology, cells, leaf, parent))
            refined = np.flatnonzero(leaf < 0)
            if len(refined):
                cells, count = children_of(topology, refined, count)
                parent = np.repeat(refined, 2**self.dim)
        return found

    @property
    def file_elements(self) -> Ints:
        """Place (ne,) of each leaf in MFEM's order of the leaves."""
        places = np.empty(len(self.root), dtype=np.int64)
        order = leaf_order(self.dim, self.root, self.level, self.path)
        places[order] = np.arange(len(order))
        return places

    @property
    def elements(self) -> tuple[Ints, int]:
        """Vertex numbers (ne, 2**dim) of the leaves, and the number of vertices."""
        last = self.levels[-1]
        elements = np.empty((len(self.root), 2**self.dim), dtype=np.int64)
        for level in self.levels:
            some = level.leaf >= 0
            elements[level.leaf[some]] = level.cells[some]
        return elements, last.topology.num_entities[0]

    @cached_property
    def siblings(self) -> Ints:
        """Leaves (ne, 2**dim) that halve the same cell as each leaf; -1 where a half is no leaf."""
        found = np.full((len(self.root), 2**self.dim), -1, dtype=np.int64)
        for level in self.levels[1:]:
            leaves = level.leaf >= 0
            family = np.repeat(level.leaf.reshape(-1, 2**self.dim), 2**self.dim, axis=0)
            found[level.leaf[leaves]] = family[leaves]
        return found

    def split(self, chosen: Flags) -> Forest:
        """Forest whose chosen leaves (ne,) are halved. The halves follow each other."""
        if (self.level[chosen] >= 62 // self.dim).any():
            raise MeshArgumentError(
                f"elements of level {self.depth} cannot be halved: a tree has at most "
                f"{62 // self.dim} levels"
            )
        count = np.where(chosen, 2**self.dim, 1)
        source = np.repeat(np.arange(len(count)), count)
        halves = chosen[source]
        path = self.path[source]
        children = np.tile(np.arange(2**self.dim), int(chosen.sum()))
        path[halves] = path[halves] << self.dim | children
        level = self.level[source] + halves.astype(np.int8)
        return replace(self, root=self.root[source], level=level, path=path)

    def families(self, chosen: Flags) -> Ints:
        """Leaves (n, 2**dim) of the families whose members are all chosen (ne,) and are leaves.

        Members are lexicographic.
        """
        some = np.flatnonzero(chosen & (self.level > 0))
        child, above = self.path[some] & 2**self.dim - 1, self.path[some] >> self.dim
        keys = child, above, self.level[some], self.root[some]
        order, count = np.lexsort(keys), 2**self.dim
        whole = child[order][: max(len(some) - count + 1, 0)] == 0
        for key in keys[1:]:
            ordered = key[order]
            whole &= ordered[: len(whole)] == ordered[count - 1 :]
        return some[order[np.flatnonzero(whole)[:, np.newaxis] + np.arange(count)]]

    def merged(self, families: Ints) -> tuple[Forest, Ints]:
        """Forest in which families (n, 2**dim) of leaves give way to their parents.

        A parent takes the place of the first member. Also return the leaf that stood at the place
        of each leaf of the new forest.
        """
        first = families.min(axis=1)
        keep = np.ones(len(self.root), dtype=np.bool_)
        keep[families.reshape(-1)] = False
        keep[first] = True
        source, up = np.flatnonzero(keep), np.zeros(len(self.root), dtype=np.int8)
        up[first] = 1
        path = self.path[source] >> self.dim * up[source].astype(np.int64)
        level = self.level[source] - up[source]
        return replace(self, root=self.root[source], level=level, path=path), source

    def reordered(self, order: Ints) -> Forest:
        """Forest with its leaves in another order: new leaf i is order[i]."""
        return replace(self, root=self.root[order], level=self.level[order], path=self.path[order])

    def unbalanced(self) -> Flags:
        """True (ne,) for leaves that are more than one level above a cell that touches them."""
        found = np.zeros(len(self.root), dtype=np.bool_)
        grandchildren = [
            _touched(self.dim, *pair) for pair in product(range(2**self.dim), repeat=2)
        ]
        for level in range(self.depth - 1):
            above, below, last = self.levels[level : level + 3]
            inner = last.parent
            outer = below.parent[inner]
            pair = (inner & 2**self.dim - 1) << self.dim | np.arange(len(inner)) & 2**self.dim - 1
            marks = [np.zeros(count, dtype=np.bool_) for count in above.topology.num_entities]
            kinds = entity_dimension(self.dim)
            for one, codes in enumerate(grandchildren):
                cells = outer[pair == one]
                for code in codes:
                    marks[kinds[code]][above.topology.entity[cells, code]] = True
            leaves = np.flatnonzero(above.leaf >= 0)
            for code, kind in enumerate(kinds):
                if kind < self.dim:
                    far = marks[kind][above.topology.entity[leaves, code]]
                    found[above.leaf[leaves[far]]] = True
        return found

    def topology(self, elements: Ints, num_vertices: int, boundary: Ints | None) -> Topology:
        """Topology of the leaves, with the entities that carry the dofs of hanging ones."""
        plain = Topology.build(elements, num_vertices, boundary)
        kinds = np.array(entity_dimension(self.dim))
        carrier, orientation = plain.entity.copy(), plain.orientation.copy()
        hanging: list[Ints] = []
        pairs: list[Ints] = []
        for above, below in zip(self.levels[:-1], self.levels[1:], strict=True):
            number = [np.full(n, -1, dtype=np.int64) for n in above.topology.num_entities]
            owner = np.full((above.topology.num_entities[self.dim - 1], 2), -1, dtype=np.int64)
            cells = np.flatnonzero(above.leaf >= 0)
            leaves = above.leaf[cells]
            for code in np.flatnonzero(kinds < self.dim).tolist():
                at = above.topology.entity[cells, code]
                number[kinds[code]][at] = plain.entity[leaves, code]
                if kinds[code] == self.dim - 1:
                    owner[at] = np.stack([leaves, np.full(len(leaves), code)], axis=1)
            small = np.flatnonzero(below.leaf >= 0)
            parents, halves = below.parent[small], small & 2**self.dim - 1
            for child in range(2**self.dim):
                mine = np.flatnonzero(halves == child)
                element, cell = below.leaf[small[mine]], parents[mine]
                for code, closure in _outer_entities(self.dim, child):
                    larger = above.topology.entity[cell, code]
                    hangs = number[kinds[code]][larger] >= 0
                    some, of = element[hangs], cell[hangs]
                    for inner in closure:
                        at = number[kinds[inner]][above.topology.entity[of, inner]]
                        carrier[some, inner] = at
                        orientation[some, inner] = above.topology.orientation[of, inner]
                    hanging.append(
                        np.stack(
                            [some, np.full(len(some), code), np.full(len(some), child)], axis=1
                        )
                    )
                    if kinds[code] == self.dim - 1:
                        behind = owner[larger[hangs]]
                        pairs.append(np.column_stack([some, np.full(len(some), code), behind]))
        rows = np.concatenate([np.zeros((0, 3), dtype=np.int64), *hanging])
        faces = np.concatenate([np.zeros((0, 4), dtype=np.int64), *pairs])
        return with_carriers(plain, Carriers(carrier, orientation, _maximal(rows, self.dim)), faces)


def whole_trees(
    elements: Ints, num_vertices: int, coarser: Coarsening | None, file_elements: Ints
) -> Forest:
    """Trees of a mesh that conforms, of which `Mesh.refine` has halved all elements, or none.

    ``file_elements`` (ne,) are the places of the elements in the mesh's file.
    """
    dim, count = elements.shape[1].bit_length() - 1, len(elements)
    root, path, level = np.arange(count), np.zeros(count, dtype=np.int64), 0
    while coarser is not None and coarser.split:
        child = coarser.low.astype(np.int64) @ (1 << np.arange(dim))
        path |= child[root] << dim * level
        root, level = coarser.parent[root], level + 1
        elements, num_vertices, coarser = coarser.elements, coarser.num_vertices, coarser.coarser
    first = np.full(len(elements), np.iinfo(np.int64).max)
    np.minimum.at(first, root, file_elements)
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    levels = np.full(count, level, dtype=np.int8)
    return Forest(elements[order], num_vertices, number[root], levels, path)


def _touched(dim: int, inner: int, last: int) -> list[int]:
    """Codes of a cell's entities that a half ``last`` of its half ``inner`` touches."""
    bits = [(inner >> d & 1, last >> d & 1) for d in range(dim)]
    codes = []
    for code in range(3**dim):
        digits = code_digits(code, dim)
        inside = all(t == 1 or bit == (t // 2, t // 2) for t, bit in zip(digits, bits, strict=True))
        if inside and digits.count(1) < dim:
            codes.append(code)
    return codes


def _outer_entities(dim: int, child: int) -> list[tuple[int, list[int]]]:
    """Edges, then faces, of a cell on which one of its halves lies, and each one's closure."""
    found = []
    for kind in range(1, dim):
        for code in entity_codes(dim, kind):
            digits = code_digits(code, dim)
            if all(t == 1 or t // 2 == child >> d & 1 for d, t in enumerate(digits)):
                found.append((code, closure_of(dim, code)))
    return found


def closure_of(dim: int, code: int) -> list[int]:
    """Codes of an entity and of those on its boundary."""
    digits = code_digits(code, dim)
    ranges = [range(3) if t == 1 else (t,) for t in digits]
    return [sum(t * 3**d for d, t in enumerate(each)) for each in product(*ranges)]


def _maximal(rows: Ints, dim: int) -> Ints:
    """Rows (element, code, child) without edges of hanging faces, by element, faces last."""
    if dim == 3:
        kinds = np.array(entity_dimension(3))
        key = rows[:, 0] * 27 + rows[:, 1]
        inside = np.zeros(len(rows), dtype=np.bool_)
        faces = rows[kinds[rows[:, 1]] == 2]
        for code in entity_codes(3, 2):
            mine = faces[faces[:, 1] == code, 0]
            for edge in closure_of(3, code):
                if kinds[edge] == 1:
                    inside |= np.isin(key, mine * 27 + edge)
        rows = rows[~inside]
    kind = np.array(entity_dimension(dim))[rows[:, 1]]
    return rows[np.lexsort((rows[:, 1], kind, rows[:, 0]))]
