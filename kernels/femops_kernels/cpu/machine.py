"""Properties of this machine that kernels use: lane width and threads."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops_kernels.errors import KernelValueError
from femops_kernels.simd.lanes import WIDTHS

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


_alone: set[int] = set()  # processes that must do with one thread: this one, if any
_wishes: dict[str, int] = {}  # of threads: how many were "asked" for, how many are a "share"


def _stay_alone() -> None:
    """Use one thread in a forked child: GNU OpenMP ends it if its parent has started threads."""
    with suppress(ValueError):  # none was started
        if _numba().threading_layer() == "omp":
            _alone.add(os.getpid())


@cache
def _numba() -> Any:
    """Numba, its threading layer chosen before it starts, and FEMOPS_THREADS obeyed.

    OpenMP's threads wait for work awake, for a while; to wake those of Numba's own work queue takes
    as long as half a million dofs do.
    """
    import numba

    if "NUMBA_THREADING_LAYER" not in os.environ:
        # numba makes its settings attributes when it is imported: types don't show them
        numba.config.THREADING_LAYER = "default"  # type: ignore[attr-defined]
        numba.config.THREADING_LAYER_PRIORITY = [  # type: ignore[attr-defined]
            "omp",
            "tbb",
            "workqueue",
        ]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_stay_alone)
    asked = os.environ.get("FEMOPS_THREADS")
    if asked:
        _set_threads(numba, int(asked) if asked.isdigit() else asked)
    _keep_to_share(numba)
    return numba


def get_threads() -> int:
    """Threads that the next call of this Python thread uses.

    The number that ``set_threads`` said, else ``FEMOPS_THREADS``, else the cores, or
    the share of them that ``share_threads`` said; one in a process forked from one that has started
    OpenMP's threads.
    """
    numba = _numba()
    return 1 if os.getpid() in _alone else int(numba.get_num_threads())


def max_threads() -> int:
    """Most threads there can be.

    Numba's ``NUMBA_NUM_THREADS``, by default the cores this process may use.
    """
    return int(_numba().config.NUMBA_NUM_THREADS)


def set_threads(count: int) -> None:
    """Set how many threads this Python thread's calls use.

    Raises
    ------
    KernelValueError
        If the count is not between 1 and ``max_threads()``; more than one in a process forked from
        one that has started OpenMP's threads.
    """
    numba = _numba()
    if os.getpid() in _alone and count != 1:
        raise KernelValueError(
            f"{count!r} threads in a forked process whose parent has used OpenMP's: take 1, start "
            'it by "spawn", or set NUMBA_THREADING_LAYER=workqueue'
        )
    _set_threads(numba, count)


def _set_threads(numba: Any, count: int | str) -> None:
    most = int(numba.config.NUMBA_NUM_THREADS)
    if not isinstance(count, int) or not 1 <= count <= most:
        raise KernelValueError(
            f"{count!r} threads: choose 1 to {most} "
            "(NUMBA_NUM_THREADS, set before Python starts, allows more)"
        )
    numba.set_num_threads(count)
    _wishes["asked"] = count


def share_threads(count: int) -> None:
    """Take no more threads than a share of the cores, the least share so far.

    If ``FEMOPS_THREADS`` or ``set_threads``, before or after, ask for a number, they get it.
    """
    _wishes["share"] = min(count, _wishes.get("share", count))
    if _numba.cache_info().currsize:
        _keep_to_share(_numba())


def _keep_to_share(numba: Any) -> None:
    if "share" in _wishes and "asked" not in _wishes:
        numba.set_num_threads(min(_wishes["share"], numba.get_num_threads()))


@cache
def waits_awake() -> bool:
    """True if idle threads are at hand at once; starts them."""
    _start_threads()
    return bool(_numba().threading_layer() == "omp")


def thread_ids() -> list[int]:
    """The operating system's number of each thread that the next call uses, in their order.

    Loops over chunks give each thread an equal part, in this order.

    Raises
    ------
    KernelValueError
        A system without ``gettid``.
    """
    import ctypes

    numba = _numba()
    gettid: Any = getattr(ctypes.CDLL(None), "gettid", None) if os.name == "posix" else None
    if gettid is None:
        raise KernelValueError("threads have no numbers here: this needs Linux with glibc >= 2.30")
    gettid.restype, gettid.argtypes = ctypes.c_int, []

    def ask(found: Any) -> None:
        for k in numba.prange(len(found)):
            found[k] = gettid()

    found = np.zeros(get_threads(), dtype=np.int64)
    numba.njit(parallel=len(found) > 1)(ask)(found)
    return [int(number) for number in found]


def describe() -> dict[str, Any]:
    """Facts about the machine that decide how kernels run.

    Returns
    -------
    dict
        ``processor``, ``architecture``, ``cores``, ``threads``, ``threading_layer``,
        ``lanes_float64``, ``lanes_float32``, ``llvm_cpu``, ``numba``, ``llvmlite``.
    """
    import llvmlite
    import llvmlite.binding as llvm

    numba = _numba()
    threads = get_threads()
    layer = "none"
    if threads > 1:
        _start_threads()
        layer = numba.threading_layer()
    return {
        "processor": _processor_name(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "threading_layer": layer,
        "lanes_float64": lane_width(np.float64),
        "lanes_float32": lane_width(np.float32),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
    }


def _start_threads() -> None:
    """Make numba start its threads, which is when the layer is known."""
    _numba()
    from numba.np.ufunc import parallel

    parallel._launch_threads()  # type: ignore[no-untyped-call]  # numba has no types


def _processor_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
