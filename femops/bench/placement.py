"""Which memories (NUMA nodes) a machine has, and arrays moved to some of them.

Linux only: pages are moved by the system call ``mbind``, whatever thread has touched them first.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError

NODES = Path("/sys/devices/system/node")
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259}
_BIND, _INTERLEAVE = 2, 3  # MPOL_BIND, MPOL_INTERLEAVE of linux/mempolicy.h
_MOVE = 2  # MPOL_MF_MOVE
_MASK_BITS = 1024


def ranges(text: str) -> list[int]:
    """Numbers of a kernel's list, as '0-3,8'."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def memories(folder: Path = NODES) -> dict[int, list[int]]:
    """The nodes that have memory and cores of this process, and those cores.

    Parameters
    ----------
    folder : pathlib.Path
        The kernel's description.

    Returns
    -------
    dict
        Empty where the kernel describes none.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    found: dict[int, list[int]] = {}
    for path in folder.glob("node[0-9]*"):
        listed = (path / "cpulist").read_text(encoding="ascii")
        cores = sorted(usable.intersection(ranges(listed)))
        if cores:
            found[int(path.name[4:])] = cores
    return dict(sorted(found.items()))


def bind(array: NDArray[Any], nodes: Sequence[int], interleave: bool = False) -> None:
    """Move the pages that lie within an array to nodes.

    Parameters
    ----------
    array : C-contiguous array
        A page that it shares with another array stays where it is.
    nodes : sequence of int
    interleave : bool
        Page by page in turns; else to any of them (so give one).

    Raises
    ------
    OperatorError
        The system call is not known here, or refuses.
    """
    start = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (array.ctypes.data + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    number = _MBIND.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        raise OperatorError("pages cannot be placed on this system: it takes Linux on 64 bits")
    if stop <= start:
        return
    mask = np.zeros(_MASK_BITS // 64, dtype=np.uint64)
    for node in nodes:
        mask[node // 64] |= np.uint64(1) << np.uint64(node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    pages = ctypes.c_ulong(start), ctypes.c_ulong(stop - start)
    mode = ctypes.c_int(_INTERLEAVE if interleave else _BIND)
    words = ctypes.c_void_p(mask.ctypes.data), ctypes.c_ulong(_MASK_BITS)
    if libc.syscall(ctypes.c_long(number), *pages, mode, *words, ctypes.c_uint(_MOVE)):
        reason = os.strerror(ctypes.get_errno())
        raise OperatorError(f"pages cannot be moved to nodes {list(nodes)}: {reason}")
