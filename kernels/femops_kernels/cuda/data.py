"""What kernels read besides vectors and dofs, copied to a device."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device import Device
from femops_kernels.cuda.kernel import CudaKernel
from femops_kernels.cuda.order import Order
from femops_kernels.sweep import Data, element_values

# Bytes of the blocks in which data are copied, and there brought into the order of a kernel.
_BLOCK = 2**26

_there: WeakKeyDictionary[Data, dict[tuple[Any, ...], dict[str, Any]]] = WeakKeyDictionary()


def uploaded(
    device: Device, kernel: CudaKernel, data: Data, count: int, order: Order
) -> dict[str, Any]:
    """The numbers that the pointwise step is given, in the order in which the kernel reads them.

    Copied once for all kernels that read the same in one order.

    Parameters
    ----------
    device : Device
    kernel : CudaKernel
    data : Data
        As kernels of the CPU take them.
    count : int
        Elements.
    order : Order
        Of these.

    Returns
    -------
    dict
        Arrays of the device by argument; None for what is not read.
    """
    copies, places = _there.setdefault(data, {}), (order.group, order.elements.tobytes())
    key = device, *places, kernel.step.numbers, kernel.dtype, kernel.stored
    if key not in copies:
        copies[key] = _copied(device, kernel, data, count, order)
    return copies[key]


def _copied(
    device: Device, kernel: CudaKernel, data: Data, count: int, order: Order
) -> dict[str, Any]:
    given, kind = kernel.step.numbers, kernel.dtype
    arrays: dict[str, Any] = dict.fromkeys(("points", "elements", "modes", "constants"))
    if given.point:
        arrays["points"] = _streams(device, kernel, data.points, order)
    if given.element:
        elements = element_values(data.elements[:, np.newaxis], count)[:, 0]
        arrays["elements"] = device.upload(np.ascontiguousarray(elements, dtype=kind))
    if given.mapped:
        modes = element_values(data.modes, count)
        arrays["modes"] = device.upload(np.ascontiguousarray(modes, dtype=kind))
    if given.constant:
        arrays["constants"] = device.upload(data.constants.astype(kind))
    return arrays


def _streams(device: Device, kernel: CudaKernel, points: NDArray[Any], order: Order) -> Any:
    """Numbers stored at points: for each block the streams of its threads, by pieces of 16 bytes.

    Returns
    -------
    (blocks, pieces, threads, 16 // itemsize) array
    """
    group, lines, q1d = kernel.shape.elements, kernel.lines, kernel.q1d
    numbers, piece = points.shape[2], 16 // kernel.stored.itemsize
    blocks, pieces = order.blocks, -(-q1d * numbers // piece)
    out = device.xp.zeros((blocks, pieces, kernel.threads, piece), kernel.stored)
    each = max(1, _BLOCK // (group * lines * pieces * 16))
    for begin in range(0, blocks, each):
        end = min(begin + each, blocks)
        values = order.taken(device, points, begin * group, end * group)
        padded = device.xp.zeros((len(values), lines, pieces * piece), kernel.stored)
        padded[:, :, : q1d * numbers] = values.reshape(-1, lines, q1d * numbers)
        streams = padded.reshape(end - begin, group * lines, pieces, piece)
        out[begin:end] = streams.swapaxes(1, 2)
    return out
