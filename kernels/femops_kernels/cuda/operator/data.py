"""Qdata and other inputs of the q-functions of kernels, copied to a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.order import Order
from femops_kernels.device import Device
from femops_kernels.exclusive import Derived
from femops_kernels.pointwise.qdata import Data, element_values

# Bytes of data that are copied at a time and then put into the order of a kernel on the device.
_BLOCK = 2**26


@final
@dataclass(frozen=True, eq=False)
class FilledData:
    """Inputs of a kernel whose qdata another launch computes or checks on the device."""

    data: Data  # all other inputs
    # takes a kernel and an order of elements.  Returns the qdata that the kernel reads, in the
    # layout of `streams`, or None if it reads none.
    fill: Callable[[CudaKernel, Order], Any]


_there = Derived[Data | FilledData, dict[str, Any]]()


def uploaded(
    device: Device, kernel: CudaKernel, data: Data | FilledData, count: int, order: Order
) -> dict[str, Any]:
    """Inputs of a kernel's q-function on the device, in the order in which the kernel reads them.

    Kernels with the same inputs and order share one copy.
    """
    places = order.group, order.elements.tobytes()
    copy = partial(copied, device, kernel, data, count, order)
    spec = kernel.spec
    kinds = spec.qfunction.numbers, spec.dtype, spec.stored
    return _there.get(data, copy, device, *places, *kinds)


def copied(
    device: Device, kernel: CudaKernel, source: Data | FilledData, count: int, order: Order
) -> dict[str, Any]:
    """Make a new copy of the inputs that `uploaded` shares, for a kernel that runs once."""
    given, kind = kernel.spec.qfunction.numbers, kernel.spec.dtype
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


def prefetched(device: Device, kernel: CudaKernel, order: Order, groups: int = 1) -> dict[str, int]:
    """Arguments that tell a block of a staged kernel which qdata it prefetches for a later block.

    A block prefetches for the block ``ahead`` positions behind it, if that is below ``behind``.
    ``ahead`` is the number of blocks that run at a time, so this later block takes its place.
    (A persistent block prefetches for its own next portion.)  The ``groups`` blocks that work on
    different vectors read the same qdata, and the first of them prefetches.
    """
    ahead = -(-device.processors * kernel.shape.blocks // groups)
    return {"ahead": ahead, "behind": order.blocks}


def streams(device: Device, kernel: CudaKernel, numbers: int, blocks: int) -> Any:
    """Array of zeros for qdata with ``numbers`` numbers at each point, in the order of a kernel.

    Each block has the numbers of its threads' points, in pieces of 16 bytes.

    Shapes: returned (blocks, pieces, threads, 16 // itemsize).
    """
    piece = 16 // kernel.spec.stored.itemsize
    shape = blocks, -(-kernel.line_points * numbers // piece), kernel.vector_threads, piece
    return device.xp.zeros(shape, kernel.spec.stored)


def joined_streams(
    device: Device, kernel: CudaKernel, parts: Sequence[tuple[Any, NDArray[np.float64]]]
) -> Any:
    """Join several `streams` into one stream, and scale its numbers.

    A point of the joined stream has the numbers of all parts, one part after the other.
    """
    if len(parts) == 1 and (parts[0][1] == 1.0).all():
        return parts[0][0]
    blocks, _, threads, piece = parts[0][0].shape
    line = kernel.line_points
    counts = [len(factors) for _, factors in parts]
    whole = device.xp.zeros((blocks, threads, line, sum(counts)), kernel.spec.stored)
    for (part, factors), end in zip(parts, accumulate(counts), strict=True):
        lines = part.swapaxes(1, 2).reshape(blocks, threads, -1)[:, :, : line * len(factors)]
        numbers = lines.reshape(blocks, threads, line, len(factors))
        whole[..., end - len(factors) : end] = numbers * device.upload(factors)
    out = streams(device, kernel, sum(counts), blocks)
    padded = device.xp.zeros((blocks, threads, out.shape[1] * piece), kernel.spec.stored)
    padded[:, :, : line * sum(counts)] = whole.reshape(blocks, threads, -1)
    out[:] = padded.reshape(blocks, threads, -1, piece).swapaxes(1, 2)
    return out


def host_streams(device: Device, kernel: CudaKernel, points: NDArray[Any], order: Order) -> Any:
    """Copy qdata of the host, (nbatch, points, n, width), to `streams` in an order of elements."""
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
        padded = device.xp.zeros((len(values), lines, pieces * piece), kernel.spec.stored)
        padded[:, :, :numbers] = values.reshape(-1, lines, numbers)
        part = padded.reshape(end - begin, group * lines, pieces, piece)
        out[begin:end] = part.swapaxes(1, 2)
    return out
