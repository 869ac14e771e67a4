"""Layouts: offsets of the entries of a tensor in memory, counted in numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Literal, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import TensorError
from femops_common.arguments import checked

Shape = tuple[int, ...]
Table = NDArray[np.int64]


class Layout(ABC):
    """Order of a tensor's entries in memory. To define a layout, implement `offsets`.

    All functions on tensors accept all layouts.
    """

    @abstractmethod
    def offsets(self, shape: Shape) -> Table:
        """Offset of each entry of a tensor, counted in numbers from 0.

        Parameters
        ----------
        shape : tuple of int

        Returns
        -------
        (shape) int64
        """

    def lanes(self, dtype: DTypeLike) -> int:  # noqa: ARG002  (Interleaved needs it)
        """Number of members whose entries are interleaved. 1 if members are separate."""
        return 1

    def takes(self, shape: Shape, known: Shape) -> bool:
        """True if the layout for shape ``known`` is also a layout for ``shape``.

        If False, results and copies of shape ``shape`` are `Strided`.
        """
        return shape == known

    def table(self, shape: Shape) -> Table:
        """Offsets (*shape) of a tensor, after a check that they are valid and differ."""
        try:
            found = np.asarray(self.offsets(shape))
        except (TypeError, ValueError, IndexError) as error:
            raise TensorError(
                f"{self!r} has no offsets for tensors of shape {shape} ({error}): give a layout "
                f"that takes {len(shape)} indices of these sizes"
            ) from error
        if found.shape != shape or found.dtype.kind not in "iu":
            raise TensorError(
                f"{self!r} has offsets {found.shape} of {found.dtype} for a tensor of shape "
                f"{shape}: give a whole number for each entry"
            )
        if found.size and found.min() < 0:
            raise TensorError(f"{self!r} puts an entry at {found.min()}: count from 0")
        check_apart(found, repr(self))
        return found.astype(np.int64)


def check_apart(table: Table, who: str) -> None:
    """Raise if two offsets in a table are equal."""
    flat = table.reshape(-1)
    order = np.argsort(flat, kind="stable")
    twice = np.flatnonzero(np.diff(flat[order]) == 0)
    if len(twice):
        one, other = (
            tuple(map(int, np.unravel_index(order[twice[0] + k], table.shape))) for k in (0, 1)
        )
        raise TensorError(
            f"{who} puts entries {one} and {other} at one place: what is written needs places of "
            "its own; copy the tensor"
        )


@final
@checked(TensorError)
@dataclass(frozen=True)
class Strided(Layout):
    """Contiguous entries by rows ("C", last index fastest) or by columns ("F", first fastest)."""

    order: Literal["C", "F"] = "C"

    def __post_init__(self) -> None:
        if self.order not in ("C", "F"):
            raise TensorError(f"order is {self.order!r}: choose 'C' (by rows) or 'F' (by columns)")

    def takes(self, shape: Shape, known: Shape) -> bool:  # noqa: ARG002
        """See `Layout.takes`: any shape."""
        return True

    def offsets(self, shape: Shape) -> Table:
        return np.arange(prod(shape), dtype=np.int64).reshape(shape, order=self.order)


@final
@checked(TensorError)
@dataclass(frozen=True)
class Tiled(Layout):
    """Consecutive blocks of a tensor, each by rows. Blocks at the ends are padded.

    Attributes
    ----------
    tile : tuple of int
        Entries of a block in each direction.
    """

    tile: Shape

    def takes(self, shape: Shape, known: Shape) -> bool:
        """See `Layout.takes`: any shape of as many indices."""
        return len(shape) == len(known)

    def offsets(self, shape: Shape) -> Table:
        if len(self.tile) != len(shape) or any(size < 1 for size in self.tile):
            raise TensorError(
                f"tiles of {self.tile} for a tensor of shape {shape}: give a size >= 1 for each "
                "index"
            )
        index = np.indices(shape, dtype=np.int64)
        tiles = [-(-size // tile) for size, tile in zip(shape, self.tile, strict=True)]
        outer = inner = np.zeros(shape, dtype=np.int64)
        for k, tile in enumerate(self.tile):
            outer = outer * tiles[k] + index[k] // tile
            inner = inner * tile + index[k] % tile
        return np.asarray(outer * prod(self.tile) + inner)


@final
@checked(TensorError)
@dataclass(frozen=True)
class Interleaved(Layout):
    """Groups of members with the member as innermost index. Equal entries are adjacent.

    Attributes
    ----------
    width : int, optional
        Members of a group: 2, 4, 8 or 16. By default as many as fill a SIMD vector.
    """

    width: int | None = None

    def __post_init__(self) -> None:
        if self.width not in (None, 2, 4, 8, 16):
            raise TensorError(f"groups of {self.width!r} members: choose 2, 4, 8 or 16")

    def lanes(self, dtype: DTypeLike) -> int:
        from femops_kernels.cpu.machine import lane_width

        kind = np.dtype(dtype)
        if self.width is not None:
            return self.width
        return max(2, lane_width(np.finfo(kind).dtype) // (2 if kind.kind == "c" else 1))

    def takes(self, shape: Shape, known: Shape) -> bool:  # noqa: ARG002
        """See `Layout.takes`: any shape."""
        return True

    def offsets(self, shape: Shape) -> Table:
        return np.arange(prod(shape), dtype=np.int64).reshape(shape)


@final
@checked(TensorError)
class Mapped(Layout):
    """Layout defined by a user's function from indices to offsets.

    Parameters
    ----------
    function : callable
        Takes the indices of entries as arrays of equal shape. Returns the offsets of the entries.
    name : str, optional
        Name in messages.

    Examples
    --------
    >>> import femops
    >>> by_antidiagonals = femops.tensor.Mapped(lambda i, j: 8 * (i + j) + i, "antidiagonals")
    >>> femops.tensor.Batch((2, 2), 3, layout=by_antidiagonals).shape
    (2, 2)
    """

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        self._function, self._name = function, name

    def offsets(self, shape: Shape) -> Table:
        offsets = np.asarray(self._function(*np.indices(shape, dtype=np.int64)))
        return np.broadcast_to(offsets, shape)

    def __repr__(self) -> str:
        return f"Mapped({self._name or getattr(self._function, '__name__', 'function')})"
