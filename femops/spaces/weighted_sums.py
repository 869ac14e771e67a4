"""Weighted sums of vectors: several in one pass over memory, on the host or on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import VectorError
from femops.spaces.memory import HOST, DeviceMemory, Memory
from femops_kernels.compiled import WeightedSum
from femops_kernels.device import Device
from femops_kernels.errors import KernelError

Vector = NDArray[Any]
Term = tuple[float, Vector]
Terms = Sequence[Term]

_add = np.add  # looked up once: updates of short vectors wait for Python
_SHORT = 30_000  # entries from which a compiled pass is faster than NumPy


def memory_of_array(array: Any) -> Memory:
    """Return the memory of an array of NumPy, CuPy or a similar library."""
    if not hasattr(array, "__cuda_array_interface__"):
        return HOST
    device = getattr(array, "device", None)
    if isinstance(device, Device) and device.owns(array):
        return DeviceMemory(device)
    from femops_kernels.cuda.device.cupy_device import adopt  # loads CuPy

    try:
        return DeviceMemory(adopt(array)[1])
    except KernelError as error:
        raise VectorError(str(error)) from error


def sums_of(memory: Memory, size: int) -> Callable[..., None]:
    """Return the function that sets vectors to weighted sums, one after the other in one pass."""
    if short(memory, size):
        return _by_numpy
    # compilers are loaded when they are used
    if memory.device is None:
        from femops_kernels.cpu.weighted_sums import set_sums as on_host

        return lambda *sums: on_host([_compact(*each) for each in sums])
    from femops_kernels.cuda.weighted_sums import set_sums as on_device

    device = memory.device
    return lambda *sums: on_device(device, [_compact(*each) for each in sums])


def short(memory: Memory, size: int) -> bool:
    """True if NumPy computes with vectors of ``size`` entries as fast as compiled code."""
    return memory.device is None and size < _SHORT


def _by_numpy(*sums: WeightedSum) -> None:
    """Set vectors to weighted sums by NumPy. Compiled code gives the same bits."""
    for out, terms, mean in sums:
        if len(terms) == 2:
            (a, u), (b, v) = terms
            _add(u if a == 1.0 else a * u, v if b == 1.0 else b * v, out)
        else:
            np.multiply(terms[0][1], terms[0][0], out)
            for weight, vector in terms[1:]:
                _add(out, weight * vector, out)
        if mean is not None:
            gap = mean[1] - out
            gap *= mean[0]
            _add(out, gap, out)


def _compact(out: Vector, terms: Terms, mean: Term | None) -> WeightedSum:
    """Weighted sum in which vectors with gaps, or not aligned to their numbers, are copied."""
    copied = [(weight, _contiguous(vector)) for weight, vector in terms]
    return out, copied, None if mean is None else (mean[0], _contiguous(mean[1]))


def _contiguous(vector: Vector) -> Vector:
    flags = vector.flags
    return vector if flags.c_contiguous and getattr(flags, "aligned", True) else vector.copy()
