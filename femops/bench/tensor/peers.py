"""Libraries that multiply the matrices of a batch: NumPy, and MKL where it is installed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Update = Callable[[Array, Array, Array], None]
"""Adds products of all matrices: ``c += a b``."""

_NAMES = {"float64": "d", "float32": "s"}
_ROW_MAJOR, _PLAIN = 101, 111


def peers(dtype: str) -> dict[str, Update]:
    """Libraries to compare with, for numbers of a type."""
    found: dict[str, Update] = {"numpy": _numpy}
    if dtype in _NAMES and _mkl() is not None:
        found["mkl"] = _mkl_update
    return found


def _numpy(a: Array, b: Array, c: Array) -> None:
    c += a @ b


@cache
def _mkl() -> Any:
    """MKL's library, one thread a call; None where it is not installed.

    ``FEMOPS_MKL`` may name the file.
    """
    os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")
    for name in (os.environ.get("FEMOPS_MKL"), find_library("mkl_rt"), *_beside_python()):
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    return None


def _beside_python() -> list[str]:
    """Files of ``pip install mkl``."""
    import sys
    from pathlib import Path

    return [str(path) for path in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))]


def _mkl_update(a: Array, b: Array, c: Array) -> None:
    count, m, k = a.shape
    n = b.shape[2]
    kind = a.dtype.name
    real = ctypes.c_double if kind == "float64" else ctypes.c_float
    whole = ctypes.c_int
    operands: list[Any] = []
    for array in (a, b):
        operands += [ctypes.c_void_p(array.ctypes.data), whole(array.shape[2]), _stride(array)]
    output = [ctypes.c_void_p(c.ctypes.data), whole(n), _stride(c)]
    sizes = [whole(_ROW_MAJOR), whole(_PLAIN), whole(_PLAIN), whole(m), whole(n), whole(k)]
    multiply = getattr(_mkl(), f"cblas_{_NAMES[kind]}gemm_batch_strided")
    multiply(*sizes, real(1.0), *operands, real(1.0), *output, whole(count))


def _stride(array: Array) -> Any:
    return ctypes.c_int(array.strides[0] // array.itemsize)


def with_threads(update: Update, threads: int) -> Update:
    """The same on so many threads, each of which takes its part of the batch."""
    if threads == 1:
        return update
    pool = ThreadPoolExecutor(threads)

    def shared(a: Array, b: Array, c: Array) -> None:
        edges = np.linspace(0, len(a), threads + 1).astype(int)
        parts = (slice(*edge) for edge in pairwise(edges))
        for done in [pool.submit(update, a[part], b[part], c[part]) for part in parts]:
            done.result()

    return shared
