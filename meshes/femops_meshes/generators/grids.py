"""Grids: the cells, vertices and nodes of an interval, rectangle or box."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_common.arguments import as_list, numbers_of, shown
from femops_meshes.checks import whole
from femops_meshes.coarsening import Coarsening
from femops_meshes.coordinates.mapping import gauss_lobatto
from femops_meshes.errors import MeshArgumentError
from femops_meshes.topology.ordering import hilbert_cells

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Grid:
    """A box cut into equal cells. `Grid.checked` makes it. It stores no data of cells."""

    counts: tuple[int, ...]  # cells in each direction
    # lower and upper: corners of the box
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    wraps: tuple[bool, ...]  # True for each direction in which opposite sides are joined

    @classmethod
    def checked(
        cls,
        counts: int | Iterable[int],
        lower: float | Sequence[float],
        upper: float | Sequence[float],
        periodic: bool | Iterable[bool],
    ) -> "Grid":
        """Check the arguments of `femops_meshes.box`, and make the grid."""
        number = tuple(whole(n, "each of counts") for n in as_list(counts))
        dim = len(number)
        if not 1 <= dim <= 3:
            raise MeshArgumentError(f"counts must be one to three numbers, got {len(number)}")
        ends = as_list(periodic) * (dim if isinstance(periodic, bool | np.bool_) else 1)
        wraps = tuple(bool(end) for end in ends if isinstance(end, bool | np.bool_ | int))
        if len(wraps) != dim or any(w and n < 3 for w, n in zip(wraps, number, strict=True)):
            raise MeshArgumentError(
                f"give periodic one truth value or {dim}, and at least 3 elements to a periodic "
                f"direction; got {shown(periodic)} for {number} elements"
            )
        low, high = _corner(lower, dim, "lower"), _corner(upper, dim, "upper")
        if not all(a < b for a, b in zip(low, high, strict=True)):
            cure = "exchange them"
            if dim == 1:  # likely box(4, 4)
                cure = "give the numbers of elements together, as box((4, 4))"
            raise MeshArgumentError(
                f"lower must be below upper, got {list(low)}, {list(high)}: {cure}"
            )
        if prod(n + 1 for n in number) >= 2**63:
            raise MeshArgumentError(
                f"counts are {number}: vertices could not be numbered, take less"
            )
        return cls(number, low, high, wraps)

    @property
    def dim(self) -> int:
        """Number of directions, 1 to 3."""
        return len(self.counts)

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return prod(self.counts)

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return prod(self._vertices_along())

    def _vertices_along(self) -> list[int]:
        return [n if wrap else n + 1 for n, wrap in self._directions()]

    def cells(self, start: int = 0, stop: int | None = None) -> Ints:
        """Grid indices (n, dim) of the start-th to the stop-th cell along a Hilbert curve."""
        return hilbert_cells(self.counts, start, stop)

    def elements(self, cells: Ints) -> Ints:
        """Vertex numbers (n, 2**dim) of cells (n, dim), lexicographic corners."""
        elements = np.zeros((len(cells), 2**self.dim), dtype=np.int64)
        for corner in range(2**self.dim):
            stride = 1
            for d, size in enumerate(self._vertices_along()):
                elements[:, corner] += stride * ((cells[:, d] + (corner >> d & 1)) % size)
                stride *= size
        return elements

    def coarsening(self, cells: Ints) -> Coarsening | None:
        """Coarsening of cells (n, dim) to the grid with half as many cells in each direction.

        If a direction has an odd number of cells, its last cell is not merged. A periodic direction
        is not halved if its number of cells is odd, or if too few would remain. Return None if no
        direction is halved.
        """
        halve = [n > 1 and (not w or (n % 2 == 0 and n >= 6)) for n, w in self._directions()]
        if not any(halve):
            return None
        counts = [-(-n // 2) if h else n for n, h in zip(self.counts, halve, strict=True)]
        coarse = Grid(tuple(counts), self.lower, self.upper, self.wraps)
        split = np.array(halve)
        alone = split & (cells == np.array(self.counts) - 1) & (cells % 2 == 0)
        low = np.where(split, cells % 2, 0).astype(np.int8)
        high = np.where(split & ~alone, low + 1, 2).astype(np.int8)
        strides = np.concatenate([[1], np.cumprod(counts[:-1])]).astype(np.int64)
        parent = np.where(split, cells // 2, cells) @ strides
        every = np.indices(counts[::-1]).reshape(self.dim, -1)[::-1].T
        coarser = coarse.coarsening(every)
        return Coarsening(coarse.elements(every), coarse.num_vertices, parent, low, high, coarser)

    def _directions(self) -> list[tuple[int, bool]]:
        return list(zip(self.counts, self.wraps, strict=True))

    def coordinates(self, cells: Ints, order: int) -> Floats:
        """Coordinates (n, (order + 1)**dim, dim) of cells (n, dim)."""
        nodes = gauss_lobatto(order + 1)[0]
        dim, p1d = self.dim, len(nodes)
        result = np.empty((len(cells), *[p1d] * dim, dim))
        for d, n in enumerate(self.counts):
            index = cells[:, d]
            first, last = index.min(initial=n), index.max(initial=0)
            parts = (np.arange(first, last + 1)[:, None] + nodes) / n
            # low (1 - s) + high s hits both ends exactly
            line = (self.lower[d] * (1 - parts) + self.upper[d] * parts)[index - first]
            shape = [len(cells)] + [1] * dim
            shape[dim - d] = p1d
            result[..., d] = line.reshape(shape)
        return result.reshape(len(cells), p1d**dim, dim)

    def at_ends(self, cells: Ints, faces: Ints) -> NDArray[np.bool_]:
        """True (n,) for faces (n, 2) on the grid's boundary: rows of `cells` and ternary codes."""
        digits = faces[:, 1, None] // 3 ** np.arange(self.dim) % 3
        ends = (digits // 2) * (np.array(self.counts) - 1)
        there = (digits != 1) & (cells[faces[:, 0]] == ends) & ~np.array(self.wraps)
        result: NDArray[np.bool_] = there.any(axis=1)
        return result


def _corner(value: float | Sequence[float], dim: int, name: str) -> tuple[float, ...]:
    array = numbers_of(value, name, MeshArgumentError)
    if array.shape not in ((), (dim,)) or not np.isfinite(array).all():
        raise MeshArgumentError(f"{name} is a finite number or {dim} of them, got {shown(value)}")
    return tuple(np.broadcast_to(array, (dim,)).tolist())
