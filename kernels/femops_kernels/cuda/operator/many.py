"""Kernels that apply an operator to many vectors at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from femops_kernels.cuda.operator.kernel import (
    CudaKernel,
    LineKernel,
    is_possible,
    unspilled,
)
from femops_kernels.cuda.operator.shapes import SPILLED, Shape
from femops_kernels.cuda.operator.table_kernel import TableKernel
from femops_kernels.device import Device

VECTORS = 8
"""Most vectors of a block: two sectors of memory, 64 bytes, of numbers in float64."""

_THREADS, _RESIDENT = 256, 1280  # threads of a block, and of a multiprocessor
_MOST_THREADS = 512  # threads of a block, where one element needs more than `_THREADS`


def for_many(kernel: CudaKernel, device: Device, nvec: int) -> CudaKernel:
    """Variant of a kernel for many vectors, with a launch shape of its own.

    A block works on eight vectors.  If there are fewer, or shared memory has no room, it works on
    four, two or one.  It has few elements, whose qdata are staged if the device can do that.
    """
    if isinstance(kernel, TableKernel):
        return kernel.for_many(device, nvec)
    assert isinstance(kernel, LineKernel)
    made = replace(kernel, entry="apply_many")
    for vectors in _groups(nvec):
        threads = kernel.lines * vectors
        if threads > _MOST_THREADS:
            continue
        for staged, elements in product((True, False), range(max(1, _THREADS // threads), 0, -1)):
            tried = replace(made, vectors=vectors, shape=Shape(elements, 1, staged))
            if is_possible(tried, device):
                return _crowded(tried, device)
    return unspilled(made, device)


def _groups(nvec: int) -> list[int]:
    """Possible numbers of vectors of a block, fastest first. A block costs one vector more."""
    sizes = [VECTORS, VECTORS // 2, VECTORS // 4]
    return sorted(sizes, key=lambda size: -(-nvec // size) * (size + 1))


def _crowded(kernel: CudaKernel, device: Device) -> CudaKernel:
    """Variant with as many blocks per multiprocessor as spill few registers."""
    warps = -(-kernel.threads // 32)
    for blocks in range(max(1, _RESIDENT // (32 * warps)), 0, -1):
        tried = replace(kernel, shape=replace(kernel.shape, blocks=blocks))
        if blocks == 1 or device.function(tried.text).local_bytes <= SPILLED:
            break
    return tried
