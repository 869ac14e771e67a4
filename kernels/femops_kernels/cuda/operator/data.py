"""Qdata and other inputs of the q-functions of kernels, copied to a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.order import Order
from femops_kernels.device import Device
from femops_kernels.exclusive import Derived
from femops_kernels.pointwise.qdata import Data, element_values
from femops_kernels.spec import PointSpec

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
        given_there = kernel.by_element(elements)
        arrays["elements"] = device.upload(np.ascontiguousarray(given_there, dtype=kind))
    if given.mapped:
        modes = element_values(data.modes, count)
        arrays["modes"] = device.upload(np.ascontiguousarray(modes, dtype=kind))
    if given.constant:
        arrays["constants"] = device.upload(data.constants.astype(kind))
    return arrays


_tables = WeakKeyDictionary[PointSpec, dict[tuple[Device, str], Any]]()


def tables_of(device: Device, kernel: CudaKernel) -> dict[str, Any]:
    """Tables of a kernel on the device, uploaded once for a specification."""
    if "tables" not in (kernel.layout.dtype.names or ()):
        return {}
    if kernel.tables is None:
        return {"tables": None}
    there, key = _tables.setdefault(kernel.spec, {}), (device, kernel.entry)
    if key not in there:
        there[key] = device.upload(kernel.tables.astype(kernel.spec.dtype))
    return {"tables": there[key]}


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
    """Array of zeros for qdata with ``numbers`` numbers at each point, in the order of a kernel."""
    return device.xp.zeros(kernel.stream_shape(numbers, blocks), kernel.spec.stored)


def joined_streams(
    device: Device, kernel: CudaKernel, parts: Sequence[tuple[Any, NDArray[np.float64]]]
) -> Any:
    """Join several `streams` into one stream, and scale its numbers.

    A point of the joined stream has the numbers of all parts, one part after the other.
    """
    if len(parts) == 1 and (parts[0][1] == 1.0).all():
        return parts[0][0]
    blocks, counts = len(parts[0][0]), [len(factors) for _, factors in parts]
    shape = blocks * kernel.shape.elements, kernel.points, sum(counts)
    whole = device.xp.zeros(shape, kernel.spec.stored)
    for (part, factors), end in zip(parts, accumulate(counts), strict=True):
        numbers = kernel.unstreamed(part, len(factors))
        whole[..., end - len(factors) : end] = numbers * device.upload(factors)
    out = streams(device, kernel, sum(counts), blocks)
    out[:] = kernel.streamed(device.xp, whole)
    return out


def host_streams(device: Device, kernel: CudaKernel, points: NDArray[Any], order: Order) -> Any:
    """Copy qdata of the host, (nbatch, points, n, width), to `streams` in an order of elements."""
    group = kernel.shape.elements
    out = streams(device, kernel, points.shape[2], order.blocks)
    each = max(1, _BLOCK // max(out[:1].nbytes, 1))
    for begin in range(0, order.blocks, each):
        end = min(begin + each, order.blocks)
        values = order.taken(device, points, begin * group, end * group)
        out[begin:end] = kernel.streamed(device.xp, values)
    return out
