"""Nodes of hanging entities on a device, which kernels of operators read and add to as ghosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import simple_text
from femops_kernels.cuda.operator.inputs import CLEARED, CONSTRAINED
from femops_kernels.cuda.ranks.messages import Entries
from femops_kernels.device import Device
from femops_kernels.simd.runs import DofRuns

Ints = NDArray[np.int64]

_THREADS = 256  # about so many of a block
_LANES = 8  # most numbers of a node that a block works on
_IDENTITY = 2  # matrix of a direction along which nothing is interpolated


@final
@dataclass(frozen=True, eq=False)
class HangingStage:
    """Larger entities of elements that are interpolated at the same time; see ``hanging.cuh``."""

    units: Any  # (n, 3): list of dofs, first ghost, and shape * 16 + second * 4 + first matrix
    # (lists, nodes): dofs of a larger entity, lexicographic along it; -1 behind those of edges
    lists: Any
    # (shapes, nodes): place of each node among the ghosts of an element, -1 if another entity of
    # the element has the node
    positions: Any
    # (places, shapes): for each place of hanging nodes in an element, which node of the larger
    # entity of a shape has its dof there, or -1
    columns: Any


@final
@dataclass(frozen=True, eq=False)
class HangingTable:
    """Nodes of elements without a dof of their own: ghosts, numbered behind those of ranks."""

    indices: Ints  # (ne, nodes): dof or ghost at each node of each element
    stages: Sequence[HangingStage]
    halves: NDArray[np.float64]  # (3, p1d, p1d): matrices to both halves of an edge, and 1
    owned: int  # number of the first ghost
    theirs: int  # number of ghosts that other ranks own, which come first
    ghosts: int  # number of all ghosts

    @staticmethod
    def of(
        indices: Ints,
        owned: int,
        theirs: int,
        runs: DofRuns,
        hanging: Ints,
        parts: Ints,
        halves: NDArray[np.float64],
        layers: int,
    ) -> HangingTable:
        """Table of elements with the dofs ``indices`` (ne, nodes) in the places of all nodes.

        ``hanging`` and ``parts`` (n, 3) have element, code and half; see `HangingNodes`. Of a part
        ``layers`` of the element's nodes are interpolated.
        """
        made, stages, count, p = indices.copy(), list[HangingStage](), owned + theirs, runs.p1d
        for rows, many in ((hanging, None), (parts, layers)):
            if len(rows):
                stage, count = _stage(made, rows, runs, many, count, owned)
                stages.append(stage)
        matrices = np.concatenate([halves, np.eye(p)[np.newaxis]])
        return HangingTable(made, stages, matrices, owned, theirs, count - owned)

    def uploaded(self, device: Device) -> HangingTable:
        """Same table with stages in arrays of a device."""
        return self._moved(device.upload)

    def downloaded(self, device: Device) -> HangingTable:
        """Same table with stages on the host."""
        return self._moved(device.download)

    def _moved(self, move: Callable[[Any], Any]) -> HangingTable:
        tables = ((s.units, s.lists, s.positions, s.columns) for s in self.stages)
        return replace(self, stages=[HangingStage(*map(move, each)) for each in tables])

    @property
    def slots(self) -> int:
        """Number of nodes of all units. Each node may contribute to a dof."""
        return sum(len(s.units) * s.lists.shape[1] for s in self.stages)

    def contributions(self) -> tuple[Ints, Ints]:
        """Dof and slot (n,) of each contribution of hanging nodes, from stages on the host."""
        each = [stage.lists[stage.units[:, 0]].ravel() for stage in self.stages]
        dofs = np.concatenate([np.zeros(0, np.int32), *each])  # of some faces nothing hangs
        slots = np.flatnonzero((dofs >= 0) & (dofs < self.owned))
        return dofs[slots].astype(np.int64), slots

    def final(self) -> Ints:
        """Place (ghosts,) of each ghost among the elements' nodes; -1 if a later stage has it."""
        found = np.full(self.ghosts, -1)
        at = np.flatnonzero(self.indices.reshape(-1) >= self.owned)
        found[self.indices.reshape(-1)[at] - self.owned] = at
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the tables that a launch reads."""
        return sum(a.nbytes for s in self.stages for a in (s.units, s.lists, s.positions))


def _stage(
    indices: Ints, rows: Ints, runs: DofRuns, layers: int | None, first: int, owned: int
) -> tuple[HangingStage, int]:
    """Make the stage of some entities, and number the nodes in ``indices`` by its ghosts.

    Ghosts are numbered from ``first`` on. Also returns the number behind the last one. All nodes of
    elements with parts, which have ``layers``, become ghosts.
    """
    elements, place = np.unique(rows[:, 0], return_inverse=True)
    masks, place = np.zeros(len(elements), dtype=np.int64), place.reshape(-1)
    np.bitwise_or.at(masks, place, 1 << rows[:, 1])
    patterns, pattern = np.unique(masks, return_inverse=True)
    entities = {
        code: [_nodes(runs, code, layer) for layer in range(layers)]
        if layers
        else [_nodes(runs, code)]
        for code in np.unique(rows[:, 1]).tolist()
    }
    nodes = max(len(at) for each in entities.values() for at, _ in each)
    ghost, (positions, columns), shapes = _patterns(
        patterns, entities, runs, nodes, whole=bool(layers)
    )
    ends = first + np.cumsum(ghost.max(axis=1)[pattern] + 1)
    begins, lists, units = np.append(first, ends[:-1]), list[Ints](), list[Ints]()
    for code, each in entities.items():
        some = np.flatnonzero(rows[:, 1] == code)
        for layer, (at, along) in enumerate(each):
            dofs = np.full((len(some), nodes), -1)
            dofs[:, : len(at)] = indices[rows[some, :1], at]
            matrix = [rows[some, 2] >> d & 1 for d in along]
            second = matrix[1] if len(along) > 1 else _IDENTITY
            shape = shapes[code, layer][pattern[place[some]]]
            begin = begins[place[some]] - owned
            lists.append(dofs)
            units.append(np.stack([some, begin, shape << 4 | second << 2 | matrix[0]], axis=1))
    each_unit = np.concatenate(units)
    order = np.argsort(each_unit[:, 0], kind="stable")  # neighbours share their dofs
    distinct, number = _distinct(np.concatenate(lists)[order].astype(np.int32))
    each_unit = each_unit[order]
    each_unit[:, 0] = number
    for k in range(len(patterns)):
        some, at = np.flatnonzero(pattern == k), np.flatnonzero(ghost[k] >= 0)
        indices[elements[some, np.newaxis], at] = begins[some, np.newaxis] + ghost[k, at]
    given = each_unit, distinct, positions, columns
    return HangingStage(*(a.astype(np.int32) for a in given)), int(ends[-1])


def _nodes(runs: DofRuns, code: int, layer: int | None = None) -> tuple[Ints, list[int]]:
    """Nodes of an entity and its boundary, and the directions along it.

    With a layer, the nodes of the element's layer along a face, counted from this face.
    """
    p, digits = runs.p1d, [code // 3**d % 3 for d in range(runs.dim)]
    along = [d for d, t in enumerate(digits) if t == 1]
    low = sum(p**d * (p - 1) for d, t in enumerate(digits) if t == 2)
    if layer is not None:
        (across,) = (d for d, t in enumerate(digits) if t != 1)
        low += layer * p**across * (1 - digits[across])
    found = np.array([low])
    for d in along:
        found = np.add.outer(np.arange(p) * p**d, found).ravel()
    return found, along


def _patterns(
    patterns: Ints,
    entities: dict[int, list[tuple[Ints, list[int]]]],
    runs: DofRuns,
    nodes: int,
    *,
    whole: bool,
) -> tuple[Ints, tuple[Ints, Ints], dict[tuple[int, int], Ints]]:
    """Number the ghosts of each pattern of an element's entities, which has a bit for each code.

    Returns the number (patterns, nodes of the element) of each ghost, run by run, or -1; positions
    and columns, see `HangingStage`; and the shape (patterns,) of each layer of each code.
    """
    ghost = np.full((len(patterns), runs.num_nodes), -1)
    shapes = {(code, k): 0 * patterns for code, each in entities.items() for k in range(len(each))}
    positions, columns, order = list[Ints](), list[Ints](), np.concatenate(runs.nodes)
    for k, mask in enumerate(patterns.tolist()):
        met = [key for key in shapes if mask >> key[0] & 1]
        owner = np.full(runs.num_nodes, -1)
        for number, (code, layer) in enumerate(met):
            owner[entities[code][layer][0]] = number
        own = order if whole else order[owner[order] >= 0]
        ghost[k, own] = np.arange(len(own))
        for number, (code, layer) in enumerate(met):
            at, row = entities[code][layer][0], np.full(nodes, -1)
            row[: len(at)] = np.where(owner[at] == number, ghost[k, at], -1)
            shapes[code, layer][k] = len(positions)
            positions.append(row)
            column = np.full(runs.num_nodes, -1)
            column[at] = np.arange(len(at))
            columns.append(column)
    places = np.stack(columns, axis=1)
    places = places[(places >= 0).any(axis=1)]
    return ghost, (np.stack(positions), places), shapes


def _distinct(rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], Ints]:
    """Distinct rows of a table (n, k), and the number (n,) of each row among these."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.strides[0]))).reshape(-1)
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first)  # in the order of the elements
    return rows[first[order]], np.argsort(order)[number.reshape(-1)]


@final
class Interpolation:
    """Launches that fill the ghosts of hanging nodes, or add to the dofs what is in them.

    Contributions to ghosts are zero before, and after they are added. With ``parts`` contributions
    to dofs are left there, behind those of the elements' nodes, and not added.

    Shapes: `ghosts` (ghosts * ncomp * nvec,).
    """

    def __init__(
        self,
        device: Device,
        table: HangingTable,
        marks: Any,
        ghosts: Any,
        ncomp: int,
        nvec: int = 1,
        *,
        back: bool,
        parts: Any = None,
    ) -> None:
        self._back = back
        self._device, dtype, lanes, p = device, ghosts.dtype, ncomp * nvec, len(table.halves[0])
        layout = Layout(_ARGUMENTS, dtype)
        halves = device.upload(table.halves.astype(dtype))
        self._ghosts, self._launches = ghosts, list[tuple[Any, ...]]()
        begin = table.indices.size * lanes
        self._kept, self._table = (halves, marks, parts), table  # while launches read them
        for stage in table.stages:
            nodes = stage.lists.shape[1]
            each = min(lanes, _LANES, 1024 // nodes)
            units, threads = units_of(nodes, each)
            numbers = {"THREADS": threads, "P": p, "NODES": nodes, "UNITS": units, "LANES": each}
            numbers |= {"NCOMP": ncomp, "BACK": back}
            numbers["MARK"] = CONSTRAINED if back else CLEARED
            numbers["REPRODUCIBLE"] = parts is not None
            text = simple_text(layout, dtype, "hanging", **numbers)
            count = len(stage.units)
            packed = layout.pack(
                device,
                vector=None,
                ghosts=ghosts,
                halves=halves,
                marks=marks,
                parts=parts,
                units=stage.units,
                lists=stage.lists,
                positions=stage.positions,
                owned=table.owned,
                lanes=lanes,
                row=nvec,
                count=count,
                begin=begin,
            )
            begin += count * nodes * lanes
            blocks = -(-count // units) * -(-lanes // each)
            room = threads * dtype.itemsize
            self._launches.append((text, blocks, threads, room, packed))
        self._taken = None if parts is None else Taken(device, table, parts, ghosts, ncomp)
        if back:
            self._launches.reverse()  # elements with parts have ghosts that hang

    @property
    def nbytes(self) -> int:
        """Bytes of tables that the launches read, and of ghosts that are written and read."""
        return int(self._table.nbytes + self._ghosts.nbytes * (3 if self._back else 2))

    def launch(self, vector: int) -> None:
        """Read or add to a vector, given by its address."""
        if self._taken is not None:
            self._taken.launch()
        for text, blocks, threads, room, packed in self._launches:
            packed = copied(packed)  # noqa: PLW2901
            packed["vector"] = vector
            self._device.function(text).launch(blocks, threads, room, packed)


def units_of(nodes: int, lanes: int) -> tuple[int, int]:
    """Number of units of a block, and of its threads, by the nodes of a unit and their numbers."""
    units = max(1, _THREADS // (nodes * lanes))
    return units, units * nodes * lanes


@final
class Taken:
    """Launch that copies contributions to ghosts from where a reproducible launch leaves them."""

    def __init__(
        self, device: Device, table: HangingTable, parts: Any, ghosts: Any, ncomp: int
    ) -> None:
        at = table.final()[:, np.newaxis]
        at = np.where(at < 0, at, at * ncomp + np.arange(ncomp))
        fields = {"x": "const T*", "values": "T*"}
        self._entries = Entries(device, "pack", fields, ghosts, at.reshape(-1))
        self._device, self._parts = device, parts

    def launch(self) -> None:
        """Copy them."""
        self._entries.launch(x=self._device.address(self._parts))


_ARGUMENTS = (
    dict.fromkeys(("vector", "ghosts", "parts"), "T*")
    | {"halves": "const T*", "marks": "const unsigned char*"}
    | dict.fromkeys(("units", "lists", "positions"), "const int*")
    | dict.fromkeys(("owned", "lanes", "row", "count"), "int")
    | {"begin": "long long"}
)
