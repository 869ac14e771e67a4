"""Exchanges between ranks: counted in partitions of boxes, and by the law of surfaces beyond."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import Mesh, Partition, box, partition

FITS = 47
"""Elements in each direction of boxes that are partitioned for the model.

Odd, so that parts are no cubes: those of powers of two have the least surface of all.
"""

MANY = 64
"""Parts from which on their shapes depend on their number of elements alone."""

Counts = tuple[int, int, int]
"""Elements of a box in each direction."""
Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Halo:
    """Exchange of the busiest of several ranks, each way.

    Attributes
    ----------
    messages : float
        Those that it sends, or receives, if these are more.
    dofs : float
        In them, of one component.
    near : float
        Part of its elements that touch what others touch too, 0 to 1.
    source : {"partition", "law"}
        Counted in the partition of this very box, or scaled from one that is smaller.
    """

    messages: float
    dofs: float
    near: float
    source: str


@lru_cache(maxsize=4)
def whole_box(counts: Counts) -> Mesh:
    """The box of which ranks have parts."""
    return box(counts)


def least_exchange(counts: Counts, ranks: int, order: int, ncomp: int) -> tuple[int, int]:
    """Messages and bytes of an application at least: shared dofs to who touches them, and back."""
    messages, dofs = partition(whole_box(counts), ranks).exchange(order)
    return 2 * messages, 2 * dofs * ncomp * np.dtype(np.float64).itemsize


@lru_cache(maxsize=256)
def counted(counts: Counts, ranks: int, order: int) -> Halo:
    """The busiest rank's halo in the partition of a box."""
    mesh = whole_box(counts)
    parts = partition(mesh, min(ranks, mesh.num_elements))
    owners, others, numbers = parts.copies[:, 0], parts.copies[:, 1], parts.copies[:, 2:]
    dofs = numbers @ (order - 1) ** np.arange(numbers.shape[1])
    sent = [_sums(owners, dofs, parts), _sums(owners, dofs > 0, parts)]
    received = [_sums(others, dofs, parts), _sums(others, dofs > 0, parts)]
    most = np.maximum(sent, received).max(axis=1)
    near = np.bincount(parts.owner[_near(mesh, parts)], minlength=parts.size) / parts.elements
    return Halo(float(most[1]), float(most[0]), float(near.mean()), "partition")


def _sums(of: NDArray[np.int64], what: NDArray[Any], parts: Partition) -> Floats:
    sums = np.bincount(of, weights=what.astype(np.float64), minlength=parts.size)
    return sums.astype(np.float64)


def _near(mesh: Mesh, parts: Partition) -> NDArray[np.bool_]:
    """Mask of the elements that have a vertex that several parts touch."""
    low = np.full(mesh.num_vertices, parts.size)
    high = np.full(mesh.num_vertices, -1)
    owner = np.broadcast_to(parts.owner[:, None], mesh.elements.shape)
    np.minimum.at(low, mesh.elements, owner)
    np.maximum.at(high, mesh.elements, owner)
    return np.asarray((low < high)[mesh.elements].any(axis=1))


def halo(counts: Counts, ranks: int, order: int) -> Halo:
    """The busiest rank's halo; that of a box too large to be partitioned by the law of surfaces.

    By it surfaces go with the elements of a rank to the power 2/3. Shapes are those of the parts
    of a cube of `FITS` elements in each direction: as many parts if they are few, and else parts
    of as many elements, or the largest of which there are `MANY`.
    """
    elements, sample = counts[0] * counts[1] * counts[2], FITS**3
    if ranks == 1:
        return Halo(0.0, 0.0, 0.0, "partition")
    if elements <= sample:
        return counted(counts, ranks, order)
    each = max(elements / ranks, 1.0)
    pieces = min(ranks, max(MANY, round(sample / each)))
    known = counted((FITS, FITS, FITS), pieces, order)
    larger = each / (sample / pieces)
    near = min(1.0, known.near * larger ** (-1.0 / 3.0))
    return replace(known, dofs=known.dofs * larger ** (2.0 / 3.0), near=near, source="law")
