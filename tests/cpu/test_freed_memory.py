"""Freed memory is given back to the system."""

from __future__ import annotations

import platform
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from femops_kernels.cpu.freed_memory import give_back


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_memory_that_threads_have_freed_is_given_back() -> None:
    """Of arrays that are too small for pages of their own."""

    def work() -> None:
        arrays = [np.ones(1000) for _ in range(4000)]  # 32 MB
        assert len(arrays) == 4000

    give_back()
    before = resident()
    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    give_back()
    assert resident() < before + 10e6
