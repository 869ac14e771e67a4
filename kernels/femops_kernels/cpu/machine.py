"""Properties of this machine that kernels use: lane width and threads."""

from __future__ import annotations

import os
import platform
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops_kernels.cpu import thread_pool
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.lanes import WIDTHS
from femops_kernels.tuning.database import TuningKey

# Bytes of the widest SIMD register, by LLVM's name of the feature that brings it.
_REGISTER_BYTES = (("avx512f", 64), ("avx", 32), ("sve", 16), ("neon", 16), ("sse2", 16))


@cache
def register_bytes() -> int:
    """Bytes of this processor's widest SIMD register (16 where LLVM names none known here)."""
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
        An explicit wish; else the environment variable ``FEMOPS_LANES``, else what fills a
        register.

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


_shares: list[int] = []  # what `share_threads` said
_here = threading.local()  # what `set_threads` said in a Python thread


@cache
def cores() -> int:
    """The number of cores that this process may use, as when it was first asked."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _asked() -> int | None:
    """Number of threads that FEMOPS_THREADS asks for; None if it is not set.

    Raises
    ------
    KernelValueError
        If that is no number of threads.
    """
    asked = os.environ.get("FEMOPS_THREADS")
    if not asked:
        return None
    _check_threads(int(asked) if asked.isdigit() else asked, thread_pool.MOST)
    return int(asked)


def _check_threads(count: int | str, most: int) -> None:
    if not isinstance(count, int) or not 1 <= count <= most:
        raise KernelValueError(
            f"{count!r} threads: choose 1 to {most} (the environment variable FEMOPS_THREADS "
            "allows more than there are cores)"
        )


def get_threads() -> int:
    """Threads that the next call of this Python thread uses.

    What ``set_threads`` said, else the environment variable ``FEMOPS_THREADS``, else the cores, or
    the share of them that ``share_threads`` said.

    Raises
    ------
    KernelValueError
        If FEMOPS_THREADS is no number of threads.
    """
    if not thread_pool.POSIX:
        return 1
    here = getattr(_here, "threads", None)
    if here is not None:
        return int(here)
    asked = _asked()
    return min([cores(), *_shares]) if asked is None else asked


def max_threads() -> int:
    """Most threads that ``set_threads`` takes: the cores of this process, or FEMOPS_THREADS."""
    return max(cores(), _asked() or 1)


def set_threads(count: int) -> None:
    """Set how many threads this Python thread's calls use.

    Raises
    ------
    KernelValueError
        If the count is not between 1 and ``max_threads()``.
    """
    _check_threads(count, max_threads())
    _here.threads = count


def share_threads(count: int) -> None:
    """Take no more threads than a share of the cores, the least share so far.

    If ``FEMOPS_THREADS`` or ``set_threads``, before or after, ask for a number, they get it.
    """
    _shares.append(count)


def team_of(threads: int, *, strict: bool = False) -> int:
    """Address of the team that so many threads are; see `thread_pool.team_address`."""
    return thread_pool.team_address(threads, strict=strict)


def thread_ids() -> list[int]:
    """The operating system's number of each thread that the next call uses, in their order.

    Loops over chunks give each thread an equal part, in this order; who is done helps the others.

    Raises
    ------
    KernelValueError
        A system without ``gettid``.
    """
    return thread_pool.system_numbers(get_threads())


def describe() -> dict[str, Any]:
    """Facts about the machine that decide how kernels run.

    Returns
    -------
    dict
        ``processor``, ``architecture``, ``cores``, ``threads``, ``lanes_float64``,
        ``lanes_float32``, ``llvm_cpu``, ``numba``, ``llvmlite``.
    """
    import llvmlite
    import llvmlite.binding as llvm
    import numba

    return {
        "processor": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": get_threads(),
        "lanes_float64": lane_width(np.float64),
        "lanes_float32": lane_width(np.float32),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
    }


def tuning_key(kernel: str) -> TuningKey:
    """Key of settings for work on this processor, described in words."""
    return TuningKey(processor(), kernel)


@cache
def processor() -> str:
    """Name of the processor, as the system tells it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
