"""Serial order of all ranks' dofs: their order in the undivided mesh.

The name of a dof tells where it is first touched. It combines the lowest global element that has
the dof with the dof's position among the nodes of this element, in numbering order. Names have the
same order as the dofs' numbers in the undivided mesh (`femops.numbering`), part by part if it has
several shapes. If each part has
consecutive elements of the global mesh, the ranks' numbers have this order too. Otherwise the names
are cut, by elements, into one piece per rank, and each rank sorts its piece. So no rank holds much
more than its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.numbering import first_positions
from femops.parallel.comm import Array, Communicator
from femops.parallel.halo import Halo
from femops.parallel.numbering import RankNumbering
from femops_meshes.partitioning.parts import Part
from femops_meshes.partitioning.pieces import equal_pieces

Ints = NDArray[np.int64]


@final
class SerialOrder:
    """Maps values of owned dofs to consecutive rows in serial order, and back.

    Values are arrays of any type. Their first axis counts dofs, and they may have further axes. The
    constructor and both maps are collective.

    `cuts` (size + 1,): rank r has the rows cuts[r] to cuts[r + 1] - 1.

    ``nodes`` (n,), for each part of the mesh: an element's nodes in numbering order.
    """

    def __init__(
        self,
        numbering: RankNumbering,
        nodes: Sequence[Ints],
        part: Part,
        halo: Halo | None,
        comm: Communicator,
    ) -> None:
        self._comm, self._owned = comm, numbering.owned
        self.cuts = numbering.offsets
        self._trivial = _consecutive(part, comm)
        if not self._trivial:
            most = max(map(len, nodes))
            names = _first_touches(numbering, nodes, part, most)
            names = _lowest(names, numbering.owned, halo, comm)
            firsts = equal_pieces(part.num_elements, comm.size) * most
            self._sort(names, firsts)

    def forward(self, values: Array) -> Array:
        """Return this rank's rows (rows, ...) in serial order, from the values of owned dofs."""
        if self._trivial:
            return values
        arrived = self._comm.exchange({rank: values[dofs] for rank, dofs in self._send.items()})
        count = self.cuts[self._comm.rank + 1] - self.cuts[self._comm.rank]
        rows = np.empty((count, *values.shape[1:]), dtype=values.dtype)
        for rank, places in self._receive.items():
            rows[places] = arrived[rank]
        return rows

    def backward(self, rows: Array) -> Array:
        """Return the values (owned, ...) of this rank's dofs, from its rows in serial order."""
        if self._trivial:
            return rows
        arrived = self._comm.exchange({rank: rows[at] for rank, at in self._receive.items()})
        values = np.empty((self._owned, *rows.shape[1:]), dtype=rows.dtype)
        for rank, dofs in self._send.items():
            values[dofs] = arrived[rank]
        return values

    def _sort(self, names: Ints, firsts: Ints) -> None:
        """Send names from firsts[r] on to rank r. Each rank sorts the names that it receives."""
        # Most names ascend already, and the rest in runs, which a "stable" sort merges.
        order = np.argsort(names, kind="stable")
        bounds = np.searchsorted(names, firsts, sorter=order)
        self._send = {
            int(rank): order[bounds[rank] : bounds[rank + 1]]
            for rank in np.flatnonzero(np.diff(bounds))
        }
        arrived = self._comm.exchange({rank: names[dofs] for rank, dofs in self._send.items()})
        mine = np.concatenate([np.empty(0, dtype=np.int64), *arrived.values()])
        places = np.empty(len(mine), dtype=np.int64)
        places[np.argsort(mine, kind="stable")] = np.arange(len(mine))
        ends = np.cumsum([len(piece) for piece in arrived.values()])
        self._receive = dict(zip(arrived, np.split(places, ends)[:-1], strict=True))
        counts = self._comm.gather_all(np.array([len(mine)], dtype=np.int64))
        self.cuts = np.concatenate(([0], np.cumsum(counts)))

    def __repr__(self) -> str:
        how = "as they are" if self._trivial else "sorted"
        return f"SerialOrder({self._owned} of {self.cuts[-1]} dofs, {how})"


def moved(rows: Array, old: Ints, new: Ints, comm: Communicator) -> Array:
    """Redistribute rows among ranks from the cuts ``old`` to the cuts ``new``. Collective.

    Shapes: `old`, `new` (size + 1,).
    """
    if np.array_equal(old, new):
        return rows
    start, stop = old[comm.rank], old[comm.rank + 1]
    bounds = np.clip(new, start, stop) - start
    pieces = {
        int(rank): rows[bounds[rank] : bounds[rank + 1]] for rank in np.flatnonzero(np.diff(bounds))
    }
    kept = pieces.pop(comm.rank, None)
    arrived = comm.exchange(pieces)
    if kept is not None:
        arrived[comm.rank] = kept
    if list(arrived) == [comm.rank]:
        return arrived[comm.rank]
    return np.concatenate([rows[:0], *(arrived[rank] for rank in sorted(arrived))])


def _consecutive(part: Part, comm: Communicator) -> bool:
    """True if each part has consecutive elements of the global mesh, in the order of ranks."""
    own, count = part.elements, len(part.elements)
    ends = [own[0], own[-1]] if count else [0, -1]
    table = comm.gather_all(np.array([*ends, count], dtype=np.int64))
    first, last, counts = table[table[:, 2] > 0].T
    return bool((last - first + 1 == counts).all() and (first[1:] > last[:-1]).all())


def _first_touches(numbering: RankNumbering, nodes: Sequence[Ints], part: Part, most: int) -> Ints:
    """Name of each dof that this rank touches: where this rank first touches the dof.

    ``most`` is the number of names of an element.
    """
    tables = []
    for order, dofs, one in zip(nodes, numbering.dofs, part.parts, strict=True):
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        tables.append((dofs.indices, one.elements[:, np.newaxis] * most + place))
    every, names = (np.concatenate([each.ravel() for each in t]) for t in zip(*tables, strict=True))
    return np.asarray(names[first_positions(every, numbering.ndofs)])


def _lowest(names: Ints, owned: int, halo: Halo | None, comm: Communicator) -> Ints:
    """Lowest name of each owned dof on all ranks. Collective."""
    if halo is None:
        return names
    own, ghosts = names[:owned], names[owned:]
    arrived = comm.exchange({r: ghosts[first:end] for r, (first, end) in halo.receive.items()})
    for rank, dofs in halo.send.items():
        own[dofs] = np.minimum(own[dofs], arrived[rank])
    return own
