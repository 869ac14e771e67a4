"""Forms on several fields of different spaces, on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import copied
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.data import FilledData, prefetched, uploaded
from femops_kernels.cuda.operator.dofs import Shared
from femops_kernels.cuda.operator.grid import launch_portions
from femops_kernels.cuda.operator.kernel import CONSTRAINED, STATE, CudaKernel
from femops_kernels.cuda.operator.order import Order
from femops_kernels.cuda.operator.sides import INPUT, OUTPUT, Side, suffix
from femops_kernels.cuda.operator.sweep import Combine, DeviceDofs, DeviceShared, Marked
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.runs import DofRuns


@final
@dataclass(frozen=True, eq=False)
class FieldDofs:
    """The dofs of a field or a test function, on a device.

    Attributes
    ----------
    dofs : DeviceDofs
    begin : int
        Entry of the vector at which those of the field begin.
    """

    dofs: DeviceDofs
    begin: int


@final
class DeviceFieldSweep:
    """A kernel of several fields bound to dofs and data on a device.

    Parameters
    ----------
    device : Device
    kernel : CudaKernel
    sources, targets : sequence of FieldDofs
        Those of the fields and of the test functions, as the kernel has them.
    data : Data or FilledData
    constrained : (n,) int64
        Positions of the result that are zero.

    Attributes
    ----------
    functionals : (minima + sums, ne) array
        Of each element, set by a launch.
    """

    def __init__(
        self,
        device: Device,
        kernel: CudaKernel,
        sources: Sequence[FieldDofs],
        targets: Sequence[FieldDofs],
        data: Data | FilledData,
        constrained: NDArray[np.int64],
    ) -> None:
        self._device, self._kernel = device, kernel
        every, count = (*sources, *targets), len(sources[0].dofs.indices)
        ghosts = np.logical_or.reduce([one.dofs.with_ghosts for one in every])
        self._order = Order.of(ghosts, kernel.shape.elements)
        self.functionals = device.xp.empty((kernel.minima + kernel.sums, count), kernel.dtype)
        values: dict[str, Any] = dict.fromkeys((*STATE, "r", "inverse", "p", "touched"))
        values |= {"alpha": 1.0, "keep": 0.0, "add": 0, "count": count, "first_portion": 0}
        values |= {"row": 1, "tiles": 1, "panel_in": 0, "panel_out": 0}
        values |= {"functionals": self.functionals if self.functionals.size else None}
        values |= {"order": device.upload(self._order.elements) if kernel.ordered else None}
        values |= uploaded(device, kernel, data, count, self._order)
        values |= prefetched(device, kernel, self._order)
        for k, (side, field) in enumerate(zip(kernel.sources, sources, strict=True)):
            values |= input_arguments(side, field.dofs, suffix(k))
        self._combines: list[tuple[int, Combine]] = []
        for k, (side, field) in enumerate(zip(kernel.targets, targets, strict=True)):
            values |= self._output(side, field, suffix(k), constrained)
        self._arrays = values  # keeps them alive
        self._function, self._packed = (
            device.function(kernel.text),
            kernel.layout.pack(device, **values),
        )
        size = kernel.dtype.itemsize
        self._places = {
            f"{name}{suffix(k)}": size * field.begin
            for name, fields in (("x", sources), ("y", targets))
            for k, field in enumerate(fields)
        }

    def _output(
        self, side: Side, field: FieldDofs, end: str, constrained: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Arguments of a test function."""
        dofs, size = field.dofs, field.dofs.size * side.ncomp
        inside = (constrained >= field.begin) & (constrained < field.begin + size)
        held = constrained[inside] - field.begin
        marked = Marked.of(self._device, held, dofs, side.ncomp, CONSTRAINED)
        parts, kernel = None, self._kernel
        if kernel.reproducible and not side.broken:
            shared = dofs.shared
            if shared is None:  # another field's space is reproducible
                runs = DofRuns(kernel.dim, side.p1d, side.broken)
                shared = DeviceShared.of(self._device, Shared.of(dofs.indices, runs))
            parts = self._device.xp.empty(dofs.indices.size * side.ncomp, kernel.dtype)
            combine = Combine(self._device, kernel.dtype, side.ncomp, shared, parts)
            self._combines.append((field.begin, combine))
        values: dict[str, Any] = dict.fromkeys(OUTPUT)
        values |= {"starts_out": dofs.starts, "turned_out": dofs.turned, "parts": parts}
        values |= {"flags_out": marked.flags, "marks_out": marked.marks}
        values |= {"owned_out": (dofs.owned or 0) * side.ncomp}
        return {f"{name}{end}": value for name, value in values.items()}

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks of elements that meet no dofs of other ranks, and of all."""
        return self._order.plain, self._order.blocks

    def launch(self, x: int, y: int, begin: int, end: int, **ghosts: int) -> None:
        """Add the result for x to y, both given by address, of the blocks begin to end - 1.

        Parameters
        ----------
        x, y : int
        begin, end : int
        **ghosts
            Addresses of what other ranks own, as the kernel takes them: ghosts_in, ghosts_out_1...
        """
        packed = copied(self._packed)
        for name, place in self._places.items():
            packed[name] = (x if name.startswith("x") else y) + place
        for name, address in ghosts.items():
            packed[name] = address
        launch_portions(self._device, self._function, self._kernel, packed, begin, end)

    def combine(self, y: int) -> None:
        """Add what launches leave, if sums are formed in the elements' order."""
        for begin, combine in self._combines:
            combine.launch(y + begin * self._kernel.dtype.itemsize)


def input_arguments(side: Side, dofs: DeviceDofs, end: str) -> dict[str, Any]:
    """Arguments of a field, whose names have this end; without its vector."""
    values = dict[str, Any].fromkeys(INPUT)
    values |= {"starts_in": dofs.starts, "turned_in": dofs.turned}
    values |= {"owned_in": (dofs.owned or 0) * side.ncomp}
    return {f"{name}{end}": value for name, value in values.items()}
