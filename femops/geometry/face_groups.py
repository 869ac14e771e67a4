"""Groups of faces: threads take whole groups, and kernels take batches of faces that lie alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BATCH = 16
"""Faces of the widest batch."""

_FORWARD = 96
"""Number of faces of a group, in the order of their minus elements, that batches go through."""


def size_of_groups(count: int) -> int:
    """Return the number of elements of each group into which the faces of a mesh are divided.

    Threads take whole groups. Kernels are faster if the elements behind the faces of a batch lie in
    the same way, and batches of smaller groups are less full.
    """
    return int(np.clip(count // (64 * BATCH) * BATCH, 128, 512))


def in_batches(group: Ints, lie: Ints, groups: int) -> tuple[Ints, Ints]:
    """Order faces by their groups, and in parts of a group by how they lie, in complete batches.

    Shapes: `group`, `lie` (nf,), `taken` (n,), `start` (groups + 1,).
    """
    kind = np.unique(lie, return_inverse=True)[1]
    runs = group * (kind.max(initial=0) + 1) + kind
    _, run, count = np.unique(runs, return_inverse=True, return_counts=True)
    begins = np.searchsorted(group, np.arange(groups))
    rare = (count < BATCH // 2)[run]  # half empty batches of their own would cost more
    order = np.lexsort((kind, rare, group))
    group, run, rare = group[order], run[order], rare[order]
    repeats = np.where(_last(run) & ~rare, 1 + -count[run] % BATCH, 1)
    sizes = np.bincount(group, repeats, groups).astype(np.int64)
    ends = np.flatnonzero(_last(group))
    repeats[ends] += -sizes[group[ends]] % BATCH
    batches = np.repeat(order, repeats).reshape(-1, BATCH)
    # Batches of one kind in all of a group would meet its elements at its beginning, and wait for
    # memory there. Kernels are faster if some batches of one kind follow each other.
    owner = np.repeat(group, repeats)[::BATCH]
    far = (batches.max(axis=1) - begins[owner]) // _FORWARD  # the same on any number of ranks
    forward = np.lexsort((far, owner))
    start = np.append(0, np.cumsum(sizes + -sizes % BATCH))
    return batches[forward].reshape(-1), start


def _last(names: Ints) -> NDArray[np.bool_]:
    """True (n,) for each number that differs from the next one, and for the last number."""
    return np.append(names[1:] != names[:-1], True)[: len(names)]
