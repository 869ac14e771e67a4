"""Freed memory is given back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from threading import Thread

import numpy as np

from femops_kernels.cpu.freed_memory import give_back


def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def work():
    arrays = [np.ones(1000) for _ in range(4000)]  # 32 MB, too small for pages of their own
    last = np.ones(1000)
    del arrays
    sizes.append(megabytes())


before, sizes = megabytes(), []
thread = Thread(target=work)
thread.start()
thread.join()
give_back()
print(sizes[0] - before, megabytes() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_memory_that_a_thread_has_freed_is_given_back() -> None:
    """In a new process: an array behind the others keeps them from being given back at once."""
    program = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(program, capture_output=True, text=True, check=True)
    kept, given_back = map(float, ended.stdout.split())
    assert kept > 20.0
    assert given_back < 10.0
