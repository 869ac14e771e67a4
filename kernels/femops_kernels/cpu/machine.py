"""Lane width, threads and processor of this machine."""

from __future__ import annotations

import os
import platform
import re
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops_kernels.cpu import thread_pool
from femops_kernels.cpu.thread_pool import system_threads
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.lanes import WIDTHS
from femops_kernels.tuning.database import TuningKey

# Bytes of the widest SIMD register, by LLVM's name of the feature that brings it.
_REGISTER_BYTES = (("avx512f", 64), ("avx", 32), ("sve", 16), ("neon", 16), ("sse2", 16))

_FACTS = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20}


@cache
def register_bytes() -> int:
    """Bytes of this processor's widest SIMD register (16 if LLVM reports no listed feature)."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return next((size for name, size in _REGISTER_BYTES if features.get(name)), 16)


def cache_bytes(caches: Path = _CACHES) -> int:
    """Bytes of a core's largest cache, which other cores may share; 0 where Linux does not tell."""
    texts = [file.read_text(encoding="ascii").strip() for file in caches.glob("index*/size")]
    sizes = [re.fullmatch(r"(\d+)([KM])", text) for text in texts]
    return max((int(size[1]) * _UNITS[size[2]] for size in sizes if size), default=0)


def lane_width(dtype: DTypeLike = np.float64, width: int | None = None) -> int:
    """Slots of a lane vector for numbers of a type."""
    asked: Any = os.environ.get("FEMOPS_LANES") if width is None else width
    if asked is None or asked == "":
        return register_bytes() // np.dtype(dtype).itemsize
    try:
        number = int(asked)
    except ValueError:
        number = 0
    if number not in WIDTHS:
        remedy = "set FEMOPS_LANES to" if width is None else "choose"
        raise KernelValueError(f"lanes are {asked!r} wide: {remedy} one of {WIDTHS}")
    return number


_shares: list[int] = []  # counts passed to `share_threads`
_here = threading.local()  # the count passed to `set_threads` in this Python thread


@cache
def cores() -> int:
    """Number of cores that this process may use, as found by the first call."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _asked() -> int | None:
    """Number of threads that FEMOPS_THREADS asks for; None if it is not set."""
    asked = os.environ.get("FEMOPS_THREADS")
    if not asked:
        return None
    count = int(asked) if re.fullmatch("[0-9]{1,9}", asked) else asked
    _check_threads(count, thread_pool.MOST)
    return int(count)


def _check_threads(count: int | str, most: int) -> None:
    if not isinstance(count, int) or not 1 <= count <= most:
        raise KernelValueError(
            f"{count!r} threads: choose 1 to {most} (the environment variable FEMOPS_THREADS "
            "allows more than there are cores)"
        )


def get_threads() -> int:
    """Number of threads that the next call of this Python thread uses.

    The first of these that is set: the count of ``set_threads``, the environment variable
    ``FEMOPS_THREADS``, the count of ``share_threads`` (at most the number of cores), the number of
    cores.
    """
    if system_threads() is None:
        return 1
    here = getattr(_here, "threads", None)
    if here is not None:
        return int(here)
    asked = _asked()
    return min([cores(), *_shares]) if asked is None else asked


def max_threads() -> int:
    """Largest count that ``set_threads`` accepts: the cores, or FEMOPS_THREADS if it is larger."""
    return max(cores(), _asked() or 1)


def set_threads(count: int) -> None:
    """Set how many threads this Python thread's calls use."""
    _check_threads(count, max_threads())
    _here.threads = count


def share_threads(count: int) -> None:
    """Limit the threads of this process to ``count``. The smallest count of all calls holds.

    ``FEMOPS_THREADS`` and ``set_threads`` take precedence, whether set before or afterwards.
    """
    _shares.append(count)


def team_of(threads: int, *, strict: bool = False) -> int:
    """Address of the team of ``threads`` threads; see `thread_pool.team_address`."""
    return thread_pool.team_address(threads, strict=strict)


def thread_ids() -> list[int]:
    """Operating system's ids of the threads that the next call uses.

    Loops give each thread an equal share of the chunks, in the order of the ids.  A thread that has
    finished its share helps the others.
    """
    return thread_pool.system_numbers(get_threads())


def describe() -> dict[str, Any]:
    """Facts about the machine that decide how kernels run."""
    import llvmlite
    import llvmlite.binding as llvm

    return {
        "processor": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": get_threads(),
        "lanes_float64": lane_width(np.float64),
        "lanes_float32": lane_width(np.float32),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "llvmlite": llvmlite.__version__,
    }


def tuning_key(kernel: str) -> TuningKey:
    """Key in the tuning database of a kernel, described in words, on this processor."""
    return TuningKey(processor(), kernel)


@cache
def processor(facts: Path = _FACTS) -> str:
    """Name of the processor as Linux reports it, or where it does not (ARM) as LLVM does."""
    try:
        with facts.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    import llvmlite.binding as llvm

    return f"{platform.machine()} {llvm.get_host_cpu_name()}"
