"""The dofs of elements as a GPU kernel reads them: where their runs begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.device import Device
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.runs import DofRuns

_LARGEST = np.iinfo(np.int32).max


@final
@dataclass(frozen=True, eq=False)
class DofTable:
    """Begin of the runs of each element; see ``dofs.cuh``.

    Attributes
    ----------
    starts : (ne, runs) int32
        First dof of a run, or ``~place`` in ``turned`` where the element has its dofs in another
        order than they are numbered.
    turned : (n,) int32
        Never empty.
    """

    starts: NDArray[np.int32]
    turned: NDArray[np.int32]

    @staticmethod
    def of(indices: NDArray[np.int64], runs: DofRuns) -> DofTable:
        """Table of the dofs of elements, (ne, nodes).

        Raises
        ------
        KernelValueError
            More dofs, or more in another order, than numbers of 32 bits can count.
        """
        if indices.size and indices.max() > _LARGEST:
            raise KernelValueError(
                f"dofs are numbered up to {indices.max()}, a GPU kernel counts to {_LARGEST}: "
                "use more GPUs, a part of the mesh each"
            )
        starts = np.empty((len(indices), len(runs.nodes)), dtype=np.int32)
        turned: list[NDArray[Any]] = [np.zeros(1, dtype=np.int32)]
        count = 1
        for run, nodes in enumerate(runs.nodes):
            dofs = indices[:, nodes]
            starts[:, run] = dofs[:, 0]
            other = np.flatnonzero((dofs != dofs[:, :1] + np.arange(len(nodes))).any(axis=1))
            starts[other, run] = ~(count + len(nodes) * np.arange(len(other)))
            turned.append(dofs[other].ravel().astype(np.int32))
            count += len(nodes) * len(other)
        if count - 1 > _LARGEST:
            raise KernelValueError(
                f"{count - 1} dofs stand in another order in elements than they are numbered, a "
                f"GPU kernel counts to {_LARGEST}: use more GPUs, a part of the mesh each"
            )
        return DofTable(starts, np.concatenate(turned))


@final
@dataclass(frozen=True, eq=False)
class Shared:
    """The dofs that several elements have, or one several times.

    Attributes
    ----------
    dofs : (n,) int32
    starts : (n + 1,) int32
        Start of the places of each dof in ``slots``.
    slots : int64 array
        Numbers of nodes, element by element, ascending for each dof.
    """

    dofs: NDArray[np.int32]
    starts: NDArray[np.int32]
    slots: NDArray[np.int64]

    @staticmethod
    def of(indices: NDArray[np.int64], runs: DofRuns) -> Shared:
        """Make the table of all dofs that are not inside an element, from (ne, nodes) indices.

        Raises
        ------
        KernelValueError
            More nodes than numbers of 32 bits can count.
        """
        outside = np.setdiff1d(np.arange(indices.shape[1]), runs.inside)
        slots = np.add.outer(np.arange(len(indices)) * indices.shape[1], outside).ravel()
        if len(slots) > _LARGEST:
            raise KernelValueError(
                f"{len(slots)} nodes are shared by elements, a GPU kernel counts to {_LARGEST}: "
                "use more GPUs, a part of the mesh each"
            )
        dofs = indices[:, outside].ravel()
        order = np.argsort(dofs, kind="stable")
        found, first = np.unique(dofs[order], return_index=True)
        starts = np.append(first, len(slots)).astype(np.int32)
        return Shared(found.astype(np.int32), starts, slots[order])


@final
@dataclass(frozen=True, eq=False)
class DeviceShared:
    """The dofs that elements share, on a device.

    Attributes
    ----------
    dofs, starts, slots
        See `Shared`.
    """

    dofs: Any
    starts: Any
    slots: Any

    @staticmethod
    def of(device: Device, shared: Shared) -> DeviceShared:
        """Copy them there."""
        return DeviceShared(*(device.upload(a) for a in (shared.dofs, shared.starts, shared.slots)))


@final
@dataclass(frozen=True, eq=False)
class DeviceDofs:
    """The dofs of elements, on a device.

    Attributes
    ----------
    starts, turned
        See `DofTable`.
    touched : (ne + 1,) int32 array
        Element e is the first to meet the dofs ``touched[e]`` to ``touched[e + 1] - 1``.
    indices : (ne, nodes) int64
        The same dofs one by one, on the host.
    met : int
        Number of dofs that one of these elements meets first.
    shared : DeviceShared, optional
        Shared dofs, if sums over elements are to be formed in their order.
    owned : int, optional
        Dofs from this number on are other ranks'; none are if omitted.
    size : int
        Dofs of the whole space.
    """

    starts: Any
    turned: Any
    touched: Any
    indices: NDArray[np.int64]
    met: int
    shared: DeviceShared | None = None
    owned: int | None = None
    size: int = 0

    @property
    def with_ghosts(self) -> NDArray[np.bool_]:
        """Elements that meet dofs of other ranks, (ne,)."""
        if self.owned is None:
            return np.zeros(len(self.indices), dtype=np.bool_)
        return np.asarray((self.indices >= self.owned).any(axis=1))


@final
@dataclass(frozen=True, eq=False)
class Marked:
    """Marked entries of a vector, on a device; two null pointers if there are none.

    Attributes
    ----------
    flags : (ne,) uint8 array or None
        The bit, for elements that meet any.
    marks : (size,) uint8 array or None
        The bit, for entries.
    """

    flags: Any
    marks: Any

    @staticmethod
    def of(
        device: Device, positions: NDArray[np.int64], dofs: DeviceDofs, ncomp: int, bit: int
    ) -> Marked:
        """Mark flat positions of a vector."""
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
    """A field or a test function of a sweep.

    Attributes
    ----------
    dofs : DeviceDofs
    marked : (n,) int64
        Flat positions of a field that count as zero, of a test function where the result is
        ``keep`` times the entry read.
    begin : int
        Entry of the sweep's vector at which it begins.
    """

    dofs: DeviceDofs
    marked: NDArray[np.int64]
    begin: int = 0
