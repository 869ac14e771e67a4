"""Tables of the dofs of elements for GPU kernels: runs, shared dofs and marked dofs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.operator.hanging import HangingTable
from femops_kernels.device import Device
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.runs import DofRuns

_LARGEST = np.iinfo(np.int32).max
_TOGETHER = 2**16  # dofs that are worked on at once


def centre(runs: DofRuns) -> int:
    """Number of the run inside an element."""
    return next(k for k, nodes in enumerate(runs.nodes) if nodes[0] == runs.inside[0])


def interleaved(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers (elements, n) as kernels by tables read them: those of 32 elements side by side."""
    blocks = -(-len(values) // 32)
    padded = np.zeros((blocks * 32, values.shape[1]), values.dtype)
    padded[: len(values)] = values
    return padded.reshape(blocks, 32, -1).swapaxes(1, 2).copy()


@final
@dataclass(frozen=True, eq=False)
class DofTable:
    """First dof of each run of each element; see ``dofs.cuh``."""

    # (ne, runs): first dof of each run whose dofs ascend one by one in the element.  For other
    # runs, ``~position`` of the run in ``turned``.
    starts: NDArray[np.int32]
    turned: NDArray[np.int32]  # (n,): all dofs of these other runs.  Never empty.

    @staticmethod
    def of(indices: NDArray[np.int64], runs: DofRuns) -> DofTable:
        """Table of elements with the dofs ``indices``, (ne, nodes)."""
        if indices.size and indices.max() > _LARGEST:
            raise KernelValueError(
                f"dofs are numbered up to {indices.max()}, a GPU kernel counts to {_LARGEST}: "
                "use more GPUs, a part of the mesh each"
            )
        starts, turns = _starts(indices, runs)
        turned: list[NDArray[Any]] = [np.zeros(1, dtype=np.int32)]
        count = 1
        for run, nodes in enumerate(runs.nodes):
            other = np.flatnonzero(turns[:, run])
            starts[other, run] = ~(count + len(nodes) * np.arange(len(other)))
            turned.append(indices[other[:, np.newaxis], nodes].ravel().astype(np.int32))
            count += len(nodes) * len(other)
        if count - 1 > _LARGEST:
            raise KernelValueError(
                f"{count - 1} dofs stand in another order in elements than they are numbered, a "
                f"GPU kernel counts to {_LARGEST}: use more GPUs, a part of the mesh each"
            )
        return DofTable(starts, np.concatenate(turned))

    def inside(self, runs: DofRuns) -> NDArray[np.int32] | None:
        """First dofs of the runs inside the elements, ascending. See `DeviceDofs`."""
        begins = self.starts[:, centre(runs)] if len(runs.inside) else None
        return None if begins is None or (begins < 0).any() else np.sort(begins)


def _starts(
    indices: NDArray[np.int64], runs: DofRuns
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """First dof of each run (ne, runs), and where the dofs of a run do not ascend one by one."""
    nodes = np.concatenate(runs.nodes)
    firsts = np.cumsum([0, *(len(run) for run in runs.nodes[:-1])])
    starts = np.empty((len(indices), len(firsts)), dtype=np.int32)
    turns = np.empty(starts.shape, dtype=np.bool_)
    count = max(_TOGETHER // len(nodes), 1)
    for begin in range(0, len(indices), count):
        dofs, some = indices[begin : begin + count, nodes], slice(begin, begin + count)
        jumps = np.zeros(dofs.shape, dtype=np.bool_)
        np.not_equal(np.diff(dofs, axis=1), 1, out=jumps[:, 1:])
        jumps[:, firsts] = False
        starts[some], turns[some] = dofs[:, firsts], np.logical_or.reduceat(jumps, firsts, axis=1)
    return starts, turns


@final
@dataclass(frozen=True, eq=False)
class Shared:
    """Dofs that are not inside an element, and for each dof the nodes of elements at it."""

    dofs: NDArray[np.int32]  # (n,)
    # (n + 1,): nodes at dof ``dofs[i]`` are ``slots[starts[i]:starts[i + 1]]``
    starts: NDArray[np.int32]
    slots: NDArray[np.int64]  # numbers ``element * nodes + node``, ascending for each dof

    @staticmethod
    def of(
        indices: NDArray[np.int64], runs: DofRuns, hanging: HangingTable | None = None
    ) -> Shared:
        """Make the table of all dofs that are not inside an element, from (ne, nodes) indices.

        With hanging nodes it also has the slots of `HangingTable.contributions`.
        """
        outside = np.setdiff1d(np.arange(indices.shape[1]), runs.inside)
        slots = np.add.outer(np.arange(len(indices)) * indices.shape[1], outside).ravel()
        dofs = indices[:, outside].ravel()
        if hanging is not None:
            some, (more, theirs) = dofs < hanging.owned, hanging.contributions()
            slots = np.concatenate([slots[some], indices.size + theirs])
            dofs = np.concatenate([dofs[some], more])
        if len(slots) > _LARGEST:
            raise KernelValueError(
                f"{len(slots)} nodes are shared by elements, a GPU kernel counts to {_LARGEST}: "
                "use more GPUs, a part of the mesh each"
            )
        order = np.argsort(dofs, kind="stable")
        found, first = np.unique(dofs[order], return_index=True)
        starts = np.append(first, len(slots)).astype(np.int32)
        return Shared(found.astype(np.int32), starts, slots[order])


@final
@dataclass(frozen=True, eq=False)
class DeviceShared:
    """A `Shared` on a device: the dofs that elements share."""

    dofs: Any
    starts: Any
    slots: Any

    @staticmethod
    def of(device: Device, shared: Shared) -> DeviceShared:
        """Copy the arrays of ``shared`` to the device."""
        return DeviceShared(*(device.upload(a) for a in (shared.dofs, shared.starts, shared.slots)))


@final
@dataclass(frozen=True, eq=False)
class DeviceDofs:
    """Dofs of elements, in arrays of a device."""

    starts: Any
    turned: Any
    # (ne + 1,): element e is the first to touch the dofs ``touched[e]`` to ``touched[e + 1] - 1``
    touched: Any
    indices: NDArray[np.int64]  # (ne, nodes): dofs of the elements' nodes, on the host
    num_first_touched: int  # number of dofs whose first touch is by one of these elements
    # shared dofs, needed if contributions are added in the order of the elements
    shared: DeviceShared | None = None
    owned: int | None = None  # number of the first ghost.  If omitted, no dof is a ghost.
    size: int = 0  # number of dofs of the space, also outside these elements
    # (ne,): first dofs of the runs inside the elements, in ascending order, on the host. None if
    # there are none, or if one has its dofs in another order.
    inside: NDArray[np.int32] | None = None
    # nodes that are interpolated from dofs of larger entities; `indices` has ghosts there
    hanging: HangingTable | None = None
    # (n,): dofs that the element which is first to touch them has in the places of such nodes alone
    unmet: NDArray[np.int64] | None = None
    _marked: WeakValueDictionary[tuple[int, int, bytes], Marked] = field(
        default_factory=WeakValueDictionary, init=False, repr=False
    )

    @property
    def with_ghosts(self) -> NDArray[np.bool_]:
        """True for each element that touches ghosts, (ne,)."""
        if self.owned is None:
            return np.zeros(len(self.indices), dtype=np.bool_)
        return np.asarray((self.indices >= self.owned).any(axis=1))

    def marked(self, device: Device, positions: NDArray[np.int64], ncomp: int, bit: int) -> Marked:
        """Mark the entries at the flat positions (n,) of a vector. Operators share the flags."""
        key = ncomp, bit, positions.tobytes()
        if (found := self._marked.get(key)) is None:
            found = self._marked[key] = Marked.of(device, positions, self, ncomp, bit)
        return found


@final
@dataclass(frozen=True, eq=False)
class Marked:
    """Flags of marked entries of a vector, on a device; both None if no entry is marked."""

    flags: Any  # (ne,): the bit for each element that touches a marked entry, else 0
    marks: Any  # (size,): the bit for each marked entry, else 0

    @staticmethod
    def of(
        device: Device, positions: NDArray[np.int64], dofs: DeviceDofs, ncomp: int, bit: int
    ) -> Marked:
        """Mark the entries at the flat positions (n,) of a vector with ``bit``."""
        if not len(positions):
            return Marked(None, None)
        size = max(int(dofs.indices.max()) + 1, int(positions.max()) // ncomp + 1)
        marks = np.zeros(size * ncomp, dtype=np.uint8)
        marks[positions] = bit
        constrained: NDArray[np.bool_] = np.asarray(marks.reshape(size, ncomp).any(axis=1))
        met = np.asarray(constrained[dofs.indices].any(axis=1) * np.uint8(bit))
        return Marked(device.upload(met), device.upload(marks))


@final
@dataclass(frozen=True, eq=False)
class DeviceEnd:
    """A field or a test function of a sweep."""

    dofs: DeviceDofs
    # (n,): flat positions of marked entries.  Marked entries of a field are read as zero.  At a
    # marked entry of a test function the result is ``keep`` times the entry of the field.
    marked: NDArray[np.int64]
    begin: int = 0  # first entry of the field or test function in the sweep's vector
