"""Runs: the dofs of an element as pieces of consecutive numbers, and lines of nodes made of them.

The dofs inside a vertex, an edge, a face or the interior of an element have consecutive numbers. So
an element needs only the first dof of each entity (27 numbers in 3-D) instead of an index for each
node. Kernels read the dofs with ``addresses.py`` and ``pieces.py``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

PIECES = 8, 4, 2, 1
"""Lengths of the pieces of runs that are read at once."""


@final
@dataclass(frozen=True)
class NodeBlocks:
    """Blocks of consecutive nodes of an element, all of one size and at equal distances."""

    # count and size: number of blocks, and nodes of each
    count: int
    size: int
    stride: int  # nodes of the element from one block to the next
    first: int = 0  # first node of the first block

    @property
    def dense(self) -> bool:
        """True if the blocks follow each other without other nodes between them."""
        return self.stride == self.size


@final
@dataclass(frozen=True)
class DofRuns:
    """Nodes of an element, grouped into runs."""

    shape: tuple[int, ...]  # nodes along each direction, x first
    # for each direction, whether other elements share the nodes at its ends. If no direction has
    # such ends, all nodes are one run.
    closed: tuple[bool, ...]
    single: bool = False  # whether each node is a run
    # number of layers of nodes, counted inwards from a face, that are read of an element behind
    # the face. Its nodes are those of the layers, in the order of the element, and are one run. 0
    # for all nodes.
    layers: int = 0
    # lengths of the runs of an element whose nodes have no directions: those inside each entity,
    # which follow each other, the inside of the element last. Its shape is (nodes,).
    sizes: tuple[int, ...] = ()

    @property
    def dim(self) -> int:
        """Number of directions, 1 to 3."""
        return len(self.shape)

    @property
    def p1d(self) -> int:
        """Nodes per direction, if all directions have the same number, as at faces."""
        (count,) = set(self.shape)
        return count

    @property
    def num_nodes(self) -> int:
        """Number of nodes, in the layers that are read."""
        return math.prod(self.shape) // self.shape[-1] * (self.layers or self.shape[-1])

    def layer_blocks(self, inwards: int) -> list[NodeBlocks]:
        """Blocks of the nodes of `layers` that are read, in the order of the element.

        Nodes count from the first one of the layers. ``inwards`` is the direction of the element
        that leads inwards from the face.
        """
        together = self.layers * self.p1d**inwards
        if inwards < self.dim - 1:
            count = self.p1d ** (self.dim - 1 - inwards)
            return [NodeBlocks(count, together, self.p1d ** (inwards + 1))]
        size = PIECES[0]
        whole, rest = divmod(together, size)
        blocks = NodeBlocks(whole, size, size), NodeBlocks(1, rest, rest, whole * size)
        return [each for each in blocks if each.count * each.size]

    @cached_property
    def nodes(self) -> list[NDArray[np.int64]]:
        """Lexicographic numbers (x fastest) of the nodes of each run, lexicographic in it.

        Runs go by ternary code (0 the low end of a direction, 1 inside, 2 the high end; x counts
        least); those without nodes are left out.
        """
        nodes = np.arange(self.num_nodes)
        if self.single:
            return list(nodes[:, np.newaxis])
        if self.layers:
            return [nodes]
        return [nodes[self._codes == code] for code in np.unique(self._codes)]

    @cached_property
    def _codes(self) -> NDArray[np.int64]:
        """Ternary code of each node: of a direction without shared ends, all nodes are inside."""
        if self.sizes:
            return np.repeat(np.arange(len(self.sizes)), self.sizes)
        codes = np.zeros((), dtype=np.int64)
        for d, (count, closed) in enumerate(zip(self.shape, self.closed, strict=True)):
            digits = np.ones(count, dtype=np.int64)
            if closed:
                digits[0], digits[-1] = 0, 2
            codes = np.add.outer(digits * 3**d, codes)
        return codes.ravel()

    @property
    def _inner(self) -> int:
        """Code of the inside of the element."""
        return len(self.sizes) - 1 if self.sizes else 3**self.dim // 2

    @property
    def inside(self) -> NDArray[np.int64]:
        """Lexicographic numbers of the nodes that no other element has; see `own_pieces`."""
        if self.single:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self._codes == self._inner)

    @property
    def longest(self) -> int:
        """Nodes of the longest run."""
        return max(len(nodes) for nodes in self.nodes)

    def pieces(self, n: int, ncomp: int, width: int) -> list[tuple[int, int]]:
        """Pieces of n numbers, of ``ncomp`` for each node: (run, first number in it).

        Each run is cut into pieces of 8 as far as they go (no more than ``width``), then of 4, 2
        and 1.
        """
        found = []
        for run, nodes in enumerate(self.nodes):
            first, count = 0, len(nodes) * ncomp
            for size in PIECES:
                while size <= width and count - first >= size:
                    found += [(run, first)] * (size == n)
                    first += size
        return found

    def own_pieces(self, n: int, ncomp: int, width: int) -> tuple[int, int, int]:
        """First and end of the pieces of n numbers whose nodes no other element has, and a total.

        Pieces are counted as `pieces` lists them. The total is the number of all pieces. If each
        node is a run, there are no such pieces, because faces of one element share its nodes.
        """
        if self.single:
            total = len(self.pieces(n, ncomp, width))
            return total, total, total
        before = np.unique(self._codes) < self._inner
        own = int(before.sum()) if self.inside.size else len(self.nodes)
        runs = [run for run, _ in self.pieces(n, ncomp, width)]
        return int(np.searchsorted(runs, own)), int(np.searchsorted(runs, own + 1)), len(runs)

    def line(self, along: int, j: int) -> list[tuple[int, int, int, int]]:
        """Pieces of the j-th line of nodes in a direction: (run, first place in it, stride, count).

        Lines are counted lexicographically by the other directions.
        """
        below, count = math.prod(self.shape[:along]), self.shape[along]
        first = j // below * below * count + j % below
        return self._pieces(first + below * np.arange(count))

    def _pieces(self, nodes: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
        run, place = self._places
        pieces = []
        for number, group in itertools.groupby(nodes, lambda node: int(run[node])):
            places = [int(place[node]) for node in group]
            stride = places[1] - places[0] if len(places) > 1 else 0
            pieces.append((number, places[0], stride, len(places)))
        return pieces

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Run of each node, and the node's position in it."""
        run, place = np.empty((2, math.prod(self.shape)), dtype=np.int64)
        for number, nodes in enumerate(self.nodes):
            run[nodes], place[nodes] = number, np.arange(len(nodes))
        return run, place


def equal_runs(
    dim: int, p1d: int, broken: bool = False, single: bool = False, layers: int = 0
) -> DofRuns:
    """Runs of an element with ``p1d`` nodes in each direction; ``broken`` if it shares none."""
    return DofRuns((p1d,) * dim, (not broken,) * dim, single, layers)


__all__ = ["PIECES", "DofRuns", "NodeBlocks", "equal_runs"]
