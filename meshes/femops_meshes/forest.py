"""Forests: trees of halved elements, whose leaves are the elements of a locally refined mesh.

A cell is a root, or one of the 2**dim halves of a cell. The cells of one level fit together like
the elements of a conforming mesh, and so do their entities. Neighbours, also those that share but a
vertex, differ by one level at most. So where a leaf is smaller than its neighbour, the entity that
both share is one of the leaf's parent, and a whole one of the neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coarsening import Coarsening
from femops_meshes.errors import MeshArgumentError
from femops_meshes.topology.entities import (
    CUBES,
    code_digits,
    entity_codes,
    entity_dimension,
    lattice_numbers,
)
from femops_meshes.topology.topology import Carriers, Topology, orientations
from femops_meshes.topology.tree_order import leaf_order

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


@final
@dataclass(frozen=True, eq=False)
class Entities:
    """Vertices, edges, faces of the cells of one level, as in `Topology`."""

    corners: Ints  # shape (cells, 2**dim): vertex numbers, which are the same on all levels
    entity: Ints  # shape (cells, 3**dim)
    orientation: Codes  # shape (cells, 3**dim)
    num_entities: tuple[int, ...]

    @classmethod
    def of(cls, corners: Ints, topology: Topology) -> Entities:
        """Entities of the elements of a mesh that conforms."""
        return cls(corners, topology.entity, topology.orientation, topology.num_entities)

    def reordered(self, order: Ints) -> Entities:
        """Entities of the cells in another order: new cell i is order[i]."""
        entity = self.entity[order]
        entity[:, 3**self.dim // 2] = np.arange(len(order))
        return replace(
            self, corners=self.corners[order], entity=entity, orientation=self.orientation[order]
        )

    @property
    def dim(self) -> int:
        """Dimension of the cells."""
        return int(self.corners.shape[1]).bit_length() - 1

    def halves(self, chosen: Ints) -> Entities:
        """Entities of the halves of some cells (n,). Vertices keep their numbers.

        The halves of a cell follow each other. A lattice of four intervals has a node in the middle
        of each entity of a half, which is the same in all cells: its number tells the entity.
        """
        dim, counts = self.dim, self.num_entities
        sizes = [count * 3**kind for kind, count in enumerate(counts)]
        starts = [sum(sizes[:kind]) for kind in range(dim + 1)]
        by_code = [starts[kind] for kind in entity_dimension(dim)]
        nodes = lattice_numbers(
            4, self.entity[chosen], self.orientation[chosen], by_code, CUBES[dim]
        )
        children = nodes[:, _middles(dim)].reshape(-1, 3**dim)
        kinds, found = np.array(entity_dimension(dim)), []
        marks = np.zeros(sum(sizes), dtype=np.bool_)
        number = np.empty(len(marks), dtype=np.int64)
        for kind in range(dim):
            columns = np.flatnonzero(kinds == kind)
            marks[:] = False
            marks[children[:, columns]] = True
            if not kind:
                marks[: counts[0]] = True
            used = np.flatnonzero(marks)
            number[used] = np.arange(len(used))
            children[:, columns] = number[children[:, columns]]
            found.append(len(used))
        children[:, kinds == dim] = np.arange(len(children))[:, np.newaxis]
        corners = np.ascontiguousarray(children[:, entity_codes(dim, 0)])
        return Entities(corners, children, orientations(corners), (*found, len(children)))


@lru_cache
def _middles(dim: int) -> Ints:
    """Nodes (2**dim, 3**dim), of 5**dim, in the middles of the entities of the halves."""
    found = np.empty((2**dim, 3**dim), dtype=np.int64)
    for half in range(2**dim):
        for code in range(3**dim):
            digits = code_digits(code, dim)
            found[half, code] = sum(
                (2 * (half >> d & 1) + digit) * 5**d for d, digit in enumerate(digits)
            )
    found.setflags(write=False)
    return found


@final
@dataclass(frozen=True, eq=False)
class Level:
    """The cells of one level of a forest."""

    cells: Entities
    leaf: Ints  # shape (cells,): the element of the mesh that the cell is, or -1
    parent: Ints  # shape (cells,): number of the cell on the level above that it halves


@final
@dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """Leaves of trees over the elements of a coarse mesh, in the order of the mesh's elements."""

    base: Entities  # the roots, in the order of the mesh's file
    root: Ints  # shape (ne,): the root of each leaf
    level: NDArray[np.int8]  # shape (ne,): number of halvings
    # shape (ne,): the child at each level, dim bits (x least) each, that of the last level in the
    # lowest bits
    path: Ints

    @property
    def dim(self) -> int:
        """Dimension of the elements."""
        return self.base.dim

    @property
    def roots(self) -> Ints:
        """Vertex numbers (nr, 2**dim) of the roots, lexicographic corners."""
        return self.base.corners

    @property
    def num_vertices(self) -> int:
        """Number of vertices of the roots, which are the first."""
        return self.base.num_entities[0]

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
        cells, parent, found = self.base, np.arange(len(self.base.corners)), []
        for level, numbers in enumerate(self.cells):
            leaf = np.full(len(cells.corners), -1, dtype=np.int64)
            here = np.flatnonzero(self.level == level)
            leaf[numbers[here]] = here
            found.append(Level(cells, leaf, parent))
            refined = np.flatnonzero(leaf < 0)
            if len(refined):
                cells = cells.halves(refined)
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
            elements[level.leaf[some]] = level.cells.corners[some]
        return elements, last.cells.num_entities[0]

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

    def coarsened(self, chosen: Flags) -> tuple[Forest, Ints, Ints] | None:
        """Merge the families of which all are chosen (ne,) and are leaves; see `merged`.

        A family stays if its parent would be more than one level above a leaf that touches it. None
        if all families stay. Also return the leaf that stood at the place of each new one, and the
        families (n, 2**dim).
        """
        families = self.families(chosen)
        while len(families):
            coarse, source = self.merged(families)
            bad = np.isin(families.min(axis=1), source[coarse.unbalanced()])
            if not bad.any():
                return coarse, source, families
            families = families[~bad]
        return None

    @cached_property
    def coarser(self) -> CoarserLeaves | None:
        """The leaves after a step of coarsening; None if no leaf has a parent."""
        return CoarserLeaves(self) if self.depth else None

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
            marks = [np.zeros(count, dtype=np.bool_) for count in above.cells.num_entities]
            kinds = entity_dimension(self.dim)
            for one, codes in enumerate(grandchildren):
                cells = outer[pair == one]
                for code in codes:
                    marks[kinds[code]][above.cells.entity[cells, code]] = True
            leaves = np.flatnonzero(above.leaf >= 0)
            for code, kind in enumerate(kinds):
                if kind < self.dim:
                    far = marks[kind][above.cells.entity[leaves, code]]
                    found[above.leaf[leaves[far]]] = True
        return found

    def topology(
        self, elements: Ints, num_vertices: int, boundary: Ints, faces: Ints | None = None
    ) -> Topology:
        """Topology of the leaves, with the entities that carry the dofs of hanging ones.

        ``faces`` (nb, 2) are the elements and codes of the boundary entries, if they are known.
        """
        entity, orientation, counts, numbers = self._entities(elements, num_vertices)
        kinds = np.array(entity_dimension(self.dim))
        carrier, directions = entity.copy(), orientation.copy()
        hanging: list[Ints] = []
        for level, (above, below) in enumerate(pairwise(self.levels)):
            number, cells_of = numbers[level], above.cells.entity
            small = np.flatnonzero(below.leaf >= 0)
            parents, halves = below.parent[small], small & 2**self.dim - 1
            for child in range(2**self.dim):
                mine = np.flatnonzero(halves == child)
                element, cell = below.leaf[small[mine]], parents[mine]
                for code, closure in _outer_entities(self.dim, child):
                    larger = cells_of[cell, code]
                    hangs = number[kinds[code]][larger] >= 0
                    some, of = element[hangs], cell[hangs]
                    for inner in closure:
                        carrier[some, inner] = number[kinds[inner]][cells_of[of, inner]]
                        directions[some, inner] = above.cells.orientation[of, inner]
                    row = np.empty((len(some), 3), dtype=np.int64)
                    row[:, 0], row[:, 1], row[:, 2] = some, code, child
                    hanging.append(row)
        rows = np.concatenate([np.zeros((0, 3), dtype=np.int64), *hanging])
        carriers = Carriers(carrier, directions, _maximal(rows, self.dim, len(elements)))
        return Topology.of_leaves(elements, entity, orientation, counts, boundary, faces, carriers)

    def _entities(
        self, elements: Ints, num_vertices: int
    ) -> tuple[Ints, Codes, tuple[int, ...], list[list[Ints]]]:
        """Entities of the leaves, where those of two levels are two, with orientations and counts.

        Also return for each level and dimension the number of each entity, -1 if no leaf has it.
        """
        count, kinds = len(elements), np.array(entity_dimension(self.dim))
        entity = np.empty((count, 3**self.dim), dtype=np.int64)
        orientation = np.empty((count, 3**self.dim), dtype=np.uint8)
        totals = [num_vertices, *[0] * (self.dim - 1), count]
        numbers: list[list[Ints]] = []
        for level in self.levels:
            cells = np.flatnonzero(level.leaf >= 0)
            leaves, rows = level.leaf[cells], level.cells.entity[cells]
            numbers.append([np.arange(level.cells.num_entities[0])])
            for kind in range(1, self.dim):
                columns = np.flatnonzero(kinds == kind)
                marks = np.zeros(level.cells.num_entities[kind], dtype=np.bool_)
                marks[rows[:, columns]] = True
                used = np.flatnonzero(marks)
                number = np.full(len(marks), -1, dtype=np.int64)
                number[used] = np.arange(totals[kind], totals[kind] + len(used))
                totals[kind] += len(used)
                rows[:, columns] = number[rows[:, columns]]
                numbers[-1].append(number)
            rows[:, kinds == self.dim] = leaves[:, np.newaxis]
            entity[leaves], orientation[leaves] = rows, level.cells.orientation[cells]
        return entity, orientation, tuple(totals), numbers

    def __repr__(self) -> str:
        least = int(self.level.min(initial=self.depth))
        levels = f"levels {least} to {self.depth}" if least < self.depth else f"level {least}"
        return f"Forest({len(self.root)} leaves of {levels} on {len(self.roots)} roots)"


@final
@dataclass(frozen=True, eq=False, repr=False)
class CoarserLeaves:
    """Positions of the leaves of trees in those of coarser trees.

    A step of coarsening takes all families that `Mesh.coarsened` takes, and the leaves of the last
    level are among these. Other leaves stay. Attributes are those of `Coarsening`, and are computed
    when they are needed.
    """

    finer: Forest
    split = False  # not all leaves are halves

    @cached_property
    def _step(self) -> tuple[Forest, Ints, Ints]:
        """Coarser trees, the leaf that stood at the place of each of their leaves, and families."""
        found = self.finer.coarsened(np.ones(len(self.finer.root), dtype=np.bool_))
        assert found is not None
        return found

    @property
    def trees(self) -> Forest:
        """The coarser trees."""
        return self._step[0]

    @property
    def elements(self) -> Ints:
        """Vertex numbers (nc, 2**dim) of the coarser leaves; hanging vertices have numbers too."""
        return self.trees.elements[0]

    @property
    def num_vertices(self) -> int:
        """Number of vertices of the coarser leaves."""
        return self.trees.elements[1]

    @cached_property
    def parent(self) -> Ints:
        """The coarser leaf (ne,) of each leaf: its parent, or itself."""
        _, source, families = self._step
        number = np.empty(len(self.finer.root), dtype=np.int64)
        number[source] = np.arange(len(source))
        number[families] = number[families.min(axis=1), np.newaxis]
        return number

    @cached_property
    def low(self) -> NDArray[np.int8]:
        """Begin (ne, dim) of each leaf in its coarser leaf, in halves: 0 or 1."""
        dim, families = self.finer.dim, self._step[2]
        found = np.zeros((len(self.finer.root), dim), dtype=np.int8)
        found[families] = np.arange(2**dim)[:, np.newaxis] >> np.arange(dim) & 1
        return found

    @cached_property
    def high(self) -> NDArray[np.int8]:
        """End (ne, dim) of each leaf in its coarser leaf, in halves: 1, or 2."""
        found = np.full_like(self.low, 2)
        found[self._step[2]] = self.low[self._step[2]] + np.int8(1)
        return found

    @property
    def coarser(self) -> CoarserLeaves | None:
        """The step after this one; None if the coarser leaves have no parents."""
        return self.trees.coarser

    def reordered(self, order: Ints) -> CoarserLeaves:
        """The step of the leaves in another order (ne,): new leaf i is order[i]."""
        return CoarserLeaves(self.finer.reordered(order))

    def __repr__(self) -> str:
        return f"CoarserLeaves({len(self.parent)} leaves in {len(self.trees.root)})"


def whole_trees(
    elements: Ints, topology: Topology, coarser: Coarsening | None, file_elements: Ints
) -> Forest:
    """Trees of a mesh that conforms, of which `Mesh.refine` has halved all elements, or none.

    ``file_elements`` (ne,) are the places of the elements in the mesh's file.
    """
    dim, count, num_vertices = topology.dim, len(elements), topology.num_entities[0]
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
    if level:
        topology = Topology.build(elements, num_vertices)
    return Forest(Entities.of(elements, topology).reordered(order), number[root], levels, path)


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


def _maximal(rows: Ints, dim: int, count: int) -> Ints:
    """Rows (element, code, child) without edges of hanging faces, by element, faces last."""
    kinds = np.array(entity_dimension(dim))
    kind = kinds[rows[:, 1]]
    if dim == 3:
        inside = np.zeros((count, 27), dtype=np.bool_)
        faces = rows[kind == 2]
        for code in entity_codes(3, 2):
            mine = faces[faces[:, 1] == code, 0]
            for edge in closure_of(3, code):
                if kinds[edge] == 1:
                    inside[mine, edge] = True
        kept = ~inside[rows[:, 0], rows[:, 1]]
        rows, kind = rows[kept], kind[kept]
    return rows[np.lexsort((rows[:, 1], kind, rows[:, 0]))]
