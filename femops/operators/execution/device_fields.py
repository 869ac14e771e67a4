"""Forms on several fields, compiled for a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.fields import FieldWork
from femops.operators.integrals.term import Term
from femops.spaces.base import Space
from femops_kernels.compiled import CompiledFields
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.data import FilledData
from femops_kernels.cuda.operator.fields import DeviceFieldSweep, FieldDofs
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.sides import Side, suffix
from femops_kernels.cuda.operator.sweep import DeviceDofs
from femops_kernels.cuda.ranks.messages import DeviceForward, DeviceReverse
from femops_kernels.pointwise.qdata import Data

SideOf = Callable[[Space, NDArray[np.float64]], Side]
"""Side of a kernel for a space, given the quadrature points."""
DofsOf = Callable[[Space], DeviceDofs]
DataOf = Callable[[Term], Data | FilledData]
Forwards = Sequence[tuple[int, DeviceForward]]
"""Exchanges that bring ghosts, by number of the field."""
Reverses = Sequence[tuple[int, DeviceReverse]]
"""Exchanges that bring contributions to ghosts to their owners, by number of the test function."""


@final
class DeviceFields(CompiledFields):
    """A form on several fields, compiled for a device.

    Parameters
    ----------
    device : Device
    work : FieldWork
    side, dofs, data : callable
        Sides of kernels, and dofs there, of spaces; data of the term.
    forwards, reverses
        Exchanges of fields that ranks share.
    """

    def __init__(
        self,
        device: Device,
        work: FieldWork,
        side: SideOf,
        dofs: DofsOf,
        data: DataOf,
        forwards: Forwards,
        reverses: Reverses,
    ) -> None:
        self._device, self._work = device, work
        self._forwards, self._reverses = forwards, reverses
        self._written_at = [work.product.offsets[name] * work.dtype.itemsize for name in work.tests]
        self._read_at = [begin * work.dtype.itemsize for begin in work.product.offsets.values()]
        self._sweep = _sweep(device, work, side, dofs, data) if work.num_elements else None

    @property
    def functionals(self) -> Any:
        """See `CompiledFields.functionals`."""
        if self._sweep is not None:
            return self._sweep.functionals
        return self._device.xp.zeros((self._work.minima + self._work.integrals, 0))

    def apply(self, u: Any, out: Any) -> None:
        """See `CompiledFields.apply`; does not wait for the end of what was launched."""
        x, y = self._device.address(u), self._device.address(out)
        for k, forward in self._forwards:
            forward.pack(x + self._read_at[k])
        self._device.clear(out)
        for _, reverse in self._reverses:
            reverse.clear()
        plain, blocks = (0, 0) if self._sweep is None else self._sweep.blocks
        half = plain // 2 if self._forwards else 0
        self._launch(x, y, 0, half)
        for _, forward in self._forwards:
            forward.post.start()
        for _, forward in self._forwards:
            forward.post.finish()
        behind = plain if self._reverses else half
        self._launch(x, y, behind, blocks)
        for _, reverse in self._reverses:
            reverse.post.ready()
        self._launch(x, y, half, behind)
        for _, reverse in self._reverses:
            reverse.post.start()
        if self._sweep is not None:
            self._sweep.combine(y)
        for k, reverse in self._reverses:
            reverse.add(y + self._written_at[k])

    def _launch(self, x: int, y: int, begin: int, end: int) -> None:
        """Work on some blocks of elements."""
        if self._sweep is None:
            return
        ghosts = {f"ghosts_in{suffix(k)}": forward.ghosts for k, forward in self._forwards}
        ghosts |= {f"ghosts_out{suffix(k)}": reverse.ghosts for k, reverse in self._reverses}
        self._sweep.launch(x, y, begin, end, **ghosts)


def _sweep(
    device: Device, work: FieldWork, side: SideOf, dofs: DofsOf, data: DataOf
) -> DeviceFieldSweep:
    product, rule = work.product, work.term.quadrature
    spaces = product.spaces
    kernel = CudaKernel.fitting(
        device,
        dim=product.dim,
        sources=tuple(side(space, rule.points) for space in spaces.values()),
        targets=tuple(side(spaces[name], rule.points) for name in work.tests),
        d1d=work.derivative,
        qfunction=work.term.qfunction.code,
        dtype=work.dtype,
        weights=rule.weights,
        geometry=work.geometry,
        reproducible=any(space.reproducible for space in spaces.values()),
        minima=work.minima,
        sums=work.integrals,
    )
    fields = {name: FieldDofs(dofs(space), product.offsets[name]) for name, space in spaces.items()}
    return DeviceFieldSweep(
        device,
        kernel,
        list(fields.values()),
        [fields[name] for name in work.tests],
        data(work.term),
        work.constrained,
    )
