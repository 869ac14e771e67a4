"""What this machine offers the kernels: lane width and threads."""

from __future__ import annotations

import os
import platform
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops_kernels.errors import KernelValueError
from femops_kernels.lanes import WIDTHS

# Bytes of the widest SIMD register, by LLVM's name of the feature that brings it.
_REGISTER_BYTES = (("avx512f", 64), ("avx", 32), ("sve", 16), ("neon", 16), ("sse2", 16))


@cache
def register_bytes() -> int:
    """Bytes of this processor's widest SIMD register (16 where LLVM names none that is known here)."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return next((size for name, size in _REGISTER_BYTES if features.get(name)), 16)


def lane_width(dtype: DTypeLike = np.float64, width: int | None = None) -> int:
    """Slots of a lane vector for numbers of a type.

    Parameters
    ----------
    dtype : dtype
        float64 or float32.
    width : int, optional
        An explicit wish; else the environment variable ``FEMOPS_LANES``, else what fills a register.

    Raises
    ------
    KernelValueError
        If the width is not 2, 4, 8 or 16.
    """
    asked: Any = os.environ.get("FEMOPS_LANES") if width is None else width
    if asked is None or asked == "":
        return register_bytes() // np.dtype(dtype).itemsize
    try:
        number = int(asked)
    except ValueError:
        number = 0
    if number not in WIDTHS:
        raise KernelValueError(f"lanes are {asked!r} wide: set FEMOPS_LANES to one of {WIDTHS}")
    return number


@cache
def _threading() -> None:
    """Choose numba's threading layer before it starts.

    GNU OpenMP ends a forked child that uses it, so the layer is one that survives a fork; that it can't take calls from
    two Python threads at once is mended by a lock (see ``femops_kernels.sweep``).
    """
    import numba

    if "NUMBA_THREADING_LAYER" not in os.environ:
        numba.config.THREADING_LAYER = "forksafe"


def get_threads() -> int:
    """Threads that the next call of this Python thread uses: ``set_threads``, else FEMOPS_THREADS, else the cores."""
    import numba

    _threading()
    _apply_environment()
    return int(numba.get_num_threads())


@cache
def _apply_environment() -> None:
    asked = os.environ.get("FEMOPS_THREADS")
    if asked:
        set_threads(int(asked) if asked.isdigit() else 0)


def max_threads() -> int:
    """Most threads there can be (numba's ``NUMBA_NUM_THREADS``, by default the cores this process may use)."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)


def set_threads(count: int) -> None:
    """Set how many threads this Python thread's calls use.

    Raises
    ------
    KernelValueError
        If the count is not between 1 and ``max_threads()``.
    """
    import numba

    if not 1 <= count <= max_threads():
        raise KernelValueError(
            f"{count} threads: choose 1 to {max_threads()} (NUMBA_NUM_THREADS, set before Python starts, allows more)"
        )
    numba.set_num_threads(count)


def describe() -> dict[str, Any]:
    """Facts about the machine that decide how kernels run.

    Returns
    -------
    dict
        ``processor``, ``architecture``, ``cores``, ``threads``, ``threading_layer``, ``lanes_float64``,
        ``lanes_float32``, ``llvm_cpu``, ``numba``, ``llvmlite``.
    """
    import llvmlite
    import llvmlite.binding as llvm
    import numba

    layer = numba.config.THREADING_LAYER if get_threads() > 1 else "serial"
    return {
        "processor": _processor_name(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": get_threads(),
        "threading_layer": layer,
        "lanes_float64": lane_width(np.float64),
        "lanes_float32": lane_width(np.float32),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
    }


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
