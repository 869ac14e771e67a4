"""Layout of an element's points in shared memory, chosen for few bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

ROW = 128
"""Bytes that shared memory reads or writes at a time, one word from each bank."""

_FREE = 48 * 1024  # bytes that a block can have on any device


@final
@dataclass(frozen=True)
class Strides:
    """Strides of a work array in shared memory, counted in numbers."""

    # x, y and z: distance of neighbours in each direction
    x: int
    y: int
    z: int
    more: int  # unused numbers between an element of the block and the next one


@final
@dataclass(frozen=True)
class Lines:
    """Lines of points that the threads of a block read and write; see ``element.cuh``."""

    # dim and q1d: number of directions, and of points in each direction
    dim: int
    q1d: int
    p1d: int  # nodes in each direction
    gradient: bool  # True if derivatives are computed
    arrays: int  # work arrays of an element
    elements: int  # number of elements of the block
    itemsize: int  # bytes of a number
    identity: bool = False  # True if the nodes are the points, so that nothing is interpolated

    def rows(self, *tried: Strides) -> NDArray[np.int64]:
        """Number of accesses, of `ROW` bytes each, that all lines need, for each of the strides."""
        q, p = self.q1d, self.p1d
        thread = np.arange(self.elements * q ** (self.dim - 1))
        slot, line = np.divmod(thread, q ** (self.dim - 1))
        second, first = np.divmod(line, q)
        x, y, z, more = np.array([(s.x, s.y, s.z, s.more) for s in tried]).T[..., np.newaxis]
        begin = slot * (self.arrays * q * x + more)
        along_x = begin + second * z + first * y
        along_y = begin + second * z + first * x
        along_z = begin + second * y + first * x
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

    def _busy(self, begins: NDArray[Any], works: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Number of accesses to shared memory in which all lines read one number each.

        ``begins`` (strides, threads) holds where the line of each thread begins, ``works``
        (threads,) which threads read. An access serves one thread of each bank.
        """
        banks, (cases, threads) = self.banks, begins.shape
        groups = -(-threads // banks)
        at = begins % banks + np.arange(threads) // banks * banks
        at += np.arange(cases)[:, np.newaxis] * groups * banks
        counts = np.bincount(at[:, works].ravel(), minlength=cases * groups * banks)
        return np.asarray(counts.reshape(cases, groups, banks).max(axis=2).sum(axis=1))

    @property
    def banks(self) -> int:
        """Numbers that shared memory reads or writes at a time."""
        return ROW // self.itemsize

    @property
    def widths(self) -> range:
        """Strides of x to try: from no gaps to rows of odd length, or more if memory is free."""
        odd = self.q1d | 1
        plane, plain = (self.q1d**2, self.q1d * odd) if self.dim == 3 else (self.q1d, odd)
        spare = _FREE // (self.itemsize * self.arrays * self.q1d)
        return range(plane, min(plane + self.banks, max(plain, spare) + 1))

    @property
    def most(self) -> int:
        """Most numbers of shared memory that an element takes with any of the strides to try."""
        return self.arrays * self.q1d * self.widths[-1] + self.banks - 1


@lru_cache(maxsize=512)
def strides_for(lines: Lines) -> Strides:
    """Strides with which shared memory is busy for the shortest time.

    y is fastest, then z, which leaves the fewest conflicts at most orders.  The function tries all
    distances between planes of equal x, and between elements.
    """
    if lines.dim == 1:
        return Strides(1, 1, 1, 0)  # all is in registers
    gaps = range(lines.banks if lines.elements > 1 else 1)
    tried = [Strides(x, 1, lines.q1d, more) for x in lines.widths for more in gaps]
    return tried[int(np.argmin(lines.rows(*tried)))]  # the narrowest of the best


def face_strides(q1d: int) -> Strides:
    """Strides of the points of a face: rows have odd length, for few bank conflicts in columns."""
    return Strides(1, q1d | 1, 0, 0)
