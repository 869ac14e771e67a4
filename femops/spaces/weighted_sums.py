"""Weighted sums of vectors: several in one pass over memory, on the host or on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.spaces.memory import HOST, DeviceMemory, Memory
from femops_kernels.vector_updates import WeightedSum

Vector = NDArray[Any]
Term = tuple[float, Vector]
Terms = Sequence[Term]

SHORT = 30_000
"""Entries from which a compiled pass is faster than NumPy."""


def memory_of_array(array: Any) -> Memory:
    """Return the memory of an array of NumPy, CuPy or a similar library.

    Raises
    ------
    TensorError
        If the array is on a device that can't be used.
    """
    if not hasattr(array, "__cuda_array_interface__"):
        return HOST
    from femops.tensor.memory import located  # compilers are loaded when they are used

    _, device = located(array)
    return HOST if device is None else DeviceMemory(device)


def set_sums(memory: Memory, *sums: WeightedSum) -> None:
    """Set vectors to weighted sums, one after the other in one pass over memory.

    Parameters
    ----------
    memory : Memory
        Memory of the vectors.
    *sums : WeightedSum
        One or two sums of at most 8 terms. The first of two has at most 2, and no mean. All vectors
        have one type and length. Vectors that are set are contiguous. They may be terms of any sum.
        Otherwise no vector shares memory with one that is set.
    """
    if memory.device is None and sums[0][0].size < SHORT:
        for each in sums:
            _set_sum(*each)
        return
    compact = [_compact(*each) for each in sums]
    # compilers are loaded when they are used
    if memory.device is None:
        from femops_kernels.cpu.weighted_sums import set_sums as on_host

        on_host(compact)
    else:
        from femops_kernels.cuda.weighted_sums import set_sums as on_device

        on_device(memory.device, compact)


def _set_sum(out: Vector, terms: Terms, mean: Term | None) -> None:
    """Set a vector to a weighted sum by NumPy. Compiled code gives the same bits."""
    weight, vector = terms[0]
    if len(terms) == 1 and mean is None:
        np.multiply(vector, weight, out=out)
        return
    total = weight * vector
    for weight, vector in terms[1:-1]:
        total += vector if weight == 1.0 else weight * vector
    if len(terms) > 1:  # the sum may be written over the last vector
        weight, vector = terms[-1]
        result = out if mean is None else total
        np.add(total, vector if weight == 1.0 else weight * vector, out=result)
    if mean is not None:
        gap = mean[1] - total
        gap *= mean[0]
        np.add(total, gap, out=out)


def _compact(out: Vector, terms: Terms, mean: Term | None) -> WeightedSum:
    """Weighted sum in which vectors with gaps, or not aligned to their numbers, are copied."""
    copied = [(weight, _contiguous(vector)) for weight, vector in terms]
    return out, copied, None if mean is None else (mean[0], _contiguous(mean[1]))


def _contiguous(vector: Vector) -> Vector:
    flags = vector.flags
    return vector if flags.c_contiguous and getattr(flags, "aligned", True) else vector.copy()
