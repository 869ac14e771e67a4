"""Inputs of kernels besides vectors and dofs, copied to a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.order import Order
from femops_kernels.derived import Derived
from femops_kernels.pointwise.qdata import Data, element_values

# Bytes of the blocks in which data are copied, and there brought into the order of a kernel.
_BLOCK = 2**26


@final
@dataclass(frozen=True, eq=False)
class FilledData:
    """Data whose numbers at points are computed, or looked at, on the device.

    Attributes
    ----------
    data : Data
        The others.
    fill : callable
        Gives the streams that a kernel reads, as `streams` makes them, for an order of elements;
        None if it reads none.
    """

    data: Data
    fill: Callable[[CudaKernel, Order], Any]


_there = Derived[Data | FilledData, dict[str, Any]]()


def uploaded(
    device: Device, kernel: CudaKernel, data: Data | FilledData, count: int, order: Order
) -> dict[str, Any]:
    """The numbers that the q-function is given, in the order in which the kernel reads them.

    Copied once for all kernels that read the same in one order.

    Parameters
    ----------
    device : Device
    kernel : CudaKernel
    data : Data or FilledData
        As kernels of the CPU take them.
    count : int
        Elements.
    order : Order
        Order of the elements.

    Returns
    -------
    dict
        Arrays of the device by argument; None for what is not read.
    """
    places = order.group, order.elements.tobytes()
    copy = partial(copied, device, kernel, data, count, order)
    return _there.get(
        data, copy, device, *places, kernel.qfunction.numbers, kernel.dtype, kernel.stored
    )


def copied(
    device: Device, kernel: CudaKernel, source: Data | FilledData, count: int, order: Order
) -> dict[str, Any]:
    """The same as `uploaded`, copied anew for a kernel that reads it once."""
    given, kind = kernel.qfunction.numbers, kernel.dtype
    arrays: dict[str, Any] = dict.fromkeys(("points", "elements", "modes", "constants"))
    data = source.data if isinstance(source, FilledData) else source
    if isinstance(source, FilledData):
        arrays["points"] = source.fill(kernel, order)
    elif given.point:
        arrays["points"] = host_streams(device, kernel, data.points, order)
    if given.element:
        elements = element_values(data.elements[:, np.newaxis], count)[:, 0]
        arrays["elements"] = device.upload(np.ascontiguousarray(elements, dtype=kind))
    if given.mapped:
        modes = element_values(data.modes, count)
        arrays["modes"] = device.upload(np.ascontiguousarray(modes, dtype=kind))
    if given.constant:
        arrays["constants"] = device.upload(data.constants.astype(kind))
    return arrays


def prefetched(device: Device, kernel: CudaKernel, order: Order) -> dict[str, int]:
    """Arguments that say which streams a block of a staged kernel asks for, besides its own.

    Those of the block that takes its place, so many behind it as there are at a time, if there is
    one. (A persistent block knows which are its next ones.)
    """
    return {"ahead": device.processors * kernel.shape.blocks, "behind": order.blocks}


def streams(device: Device, kernel: CudaKernel, numbers: int, blocks: int) -> Any:
    """Zeros for ``numbers`` numbers at each point.

    For each block the streams of its threads, by pieces of 16 bytes.

    Returns
    -------
    (blocks, pieces, threads, 16 // itemsize) array
    """
    piece = 16 // kernel.stored.itemsize
    shape = blocks, -(-kernel.line_points * numbers // piece), kernel.threads, piece
    return device.xp.zeros(shape, kernel.stored)


def joined_streams(
    device: Device, kernel: CudaKernel, parts: Sequence[tuple[Any, NDArray[np.float64]]]
) -> Any:
    """Streams that have at each point the numbers of several, each times a factor.

    Parameters
    ----------
    device : Device
    kernel : CudaKernel
    parts : sequence of (array, (k,) float64)
        Streams of k numbers a point, and their factors.
    """
    if len(parts) == 1 and (parts[0][1] == 1.0).all():
        return parts[0][0]
    blocks, _, threads, piece = parts[0][0].shape
    line = kernel.line_points
    counts = [len(factors) for _, factors in parts]
    whole = device.xp.zeros((blocks, threads, line, sum(counts)), kernel.stored)
    for (part, factors), end in zip(parts, accumulate(counts), strict=True):
        lines = part.swapaxes(1, 2).reshape(blocks, threads, -1)[:, :, : line * len(factors)]
        numbers = lines.reshape(blocks, threads, line, len(factors))
        whole[..., end - len(factors) : end] = numbers * device.upload(factors)
    out = streams(device, kernel, sum(counts), blocks)
    padded = device.xp.zeros((blocks, threads, out.shape[1] * piece), kernel.stored)
    padded[:, :, : line * sum(counts)] = whole.reshape(blocks, threads, -1)
    out[:] = padded.reshape(blocks, threads, -1, piece).swapaxes(1, 2)
    return out


def host_streams(device: Device, kernel: CudaKernel, points: NDArray[Any], order: Order) -> Any:
    """Streams of numbers that were computed on the host."""
    group, lines, numbers = (
        kernel.shape.elements,
        kernel.lines,
        kernel.line_points * points.shape[2],
    )
    out = streams(device, kernel, points.shape[2], order.blocks)
    blocks, pieces, _, piece = out.shape
    each = max(1, _BLOCK // (group * lines * pieces * 16))
    for begin in range(0, blocks, each):
        end = min(begin + each, blocks)
        values = order.taken(device, points, begin * group, end * group)
        padded = device.xp.zeros((len(values), lines, pieces * piece), kernel.stored)
        padded[:, :, :numbers] = values.reshape(-1, lines, numbers)
        part = padded.reshape(end - begin, group * lines, pieces, piece)
        out[begin:end] = part.swapaxes(1, 2)
    return out
