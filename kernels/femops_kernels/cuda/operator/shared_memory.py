"""Layout of an element's points in shared memory, so that few threads meet in a bank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

ROW = 128
"""Bytes that shared memory reads or writes at a time, one number from each bank."""

_FREE = 48 * 1024  # bytes that a block can have on any device


@final
@dataclass(frozen=True)
class Strides:
    """Distances in a work array, in numbers.

    Attributes
    ----------
    x, y, z : int
        Between neighbours in a direction.
    more : int
        Unused numbers behind an element, before the next one of the block.
    """

    x: int
    y: int
    z: int
    more: int


@final
@dataclass(frozen=True)
class Lines:
    """Lines that a block of threads reads and writes; see ``element.cuh``.

    Attributes
    ----------
    dim, q1d : int
        Directions, and points in each.
    p1d : int
        Nodes in each.
    gradient : bool
        Whether derivatives are taken.
    arrays : int
        Work arrays of an element.
    elements : int
        Number of elements of the block.
    itemsize : int
        Bytes of a number.
    identity : bool
        Whether the nodes are the points: nothing is interpolated.
    """

    dim: int
    q1d: int
    p1d: int
    gradient: bool
    arrays: int
    elements: int
    itemsize: int
    identity: bool = False

    def rows(self, strides: Strides) -> int:
        """Number of rows of banks that all lines keep busy."""
        q, p = self.q1d, self.p1d
        thread = np.arange(self.elements * q ** (self.dim - 1))
        slot, line = np.divmod(thread, q ** (self.dim - 1))
        second, first = np.divmod(line, q)
        begin = slot * (self.arrays * q * strides.x + strides.more)
        along_x = begin + second * strides.z + first * strides.y
        along_y = begin + second * strides.z + first * strides.x
        along_z = begin + second * strides.y + first * strides.x
        few, fewest = first < p, (first < p) & (second < p)
        busy = 2 * p * self._busy(along_x, first >= 0)
        if self.dim == 3:
            busy += 2 * (p + q) * self._busy(along_y, few) * (not self.identity)
            busy += 2 * q * self._busy(along_z, fewest)
        else:
            busy += 2 * q * self._busy(along_y, few)
        if self.gradient:
            lines = [along_x, along_y, along_z][: self.dim]
            for along, times in zip(lines, (7 - self.identity, 4, 4), strict=False):
                busy += times * q * self._busy(along, first >= 0)
        return busy

    def _busy(self, begins: NDArray[Any], works: NDArray[np.bool_]) -> int:
        """Rows busy with one number of each line; one thread per bank works at a time."""
        banks = self.banks
        at = np.arange(len(begins)) // banks * banks + begins % banks
        counts = np.bincount(at[works], minlength=-(-len(begins) // banks) * banks)
        return int(counts.reshape(-1, banks).max(axis=1).sum())

    @property
    def banks(self) -> int:
        """Numbers that shared memory reads or writes at a time."""
        return ROW // self.itemsize

    @property
    def widths(self) -> range:
        """Strides of x that are tried; rows of an odd length need as much memory as the widest."""
        odd = self.q1d | 1
        plane, plain = (self.q1d**2, self.q1d * odd) if self.dim == 3 else (self.q1d, odd)
        spare = _FREE // (self.itemsize * self.arrays * self.q1d)
        return range(plane, min(plane + self.banks, max(plain, spare) + 1))

    @property
    def most(self) -> int:
        """Numbers that an element takes at most."""
        return self.arrays * self.q1d * self.widths[-1] + self.banks - 1


@lru_cache(maxsize=512)
def strides_for(lines: Lines) -> Strides:
    """The strides with which shared memory is busy for the shortest time.

    y is fastest, then z: that leaves the fewest conflicts at most orders. How far planes of
    the same x, and elements, are apart is tried.

    Parameters
    ----------
    lines : Lines
    """
    if lines.dim == 1:
        return Strides(1, 1, 1, 0)  # all is in registers
    gaps = range(lines.banks if lines.elements > 1 else 1)
    tried = (Strides(x, 1, lines.q1d, more) for x in lines.widths for more in gaps)
    return min(tried, key=lambda strides: (lines.rows(strides), strides.x, strides.more))


def face_strides(q1d: int) -> Strides:
    """The strides of the points of a face: rows of odd length, so that columns meet in few banks.

    Parameters
    ----------
    q1d : int
        Points in each direction along the face.
    """
    return Strides(1, q1d | 1, 0, 0)
