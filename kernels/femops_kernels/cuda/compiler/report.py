"""The assembler's report on a kernel: registers, spills and memory."""

from __future__ import annotations

import re
from typing import NamedTuple

from femops_kernels.errors import CompileError

ENTRY = "entry"
"""Name of every kernel's entry point."""


class Report(NamedTuple):
    """Registers and memory that a compiled kernel needs."""

    registers: int  # registers per thread
    # bytes of a thread's local memory: spilled registers, and arrays with indices that the
    # compiler does not know
    local_bytes: int
    spill_bytes: int  # bytes stored and loaded again because registers were too few
    # static shared memory of a block, without the dynamic shared memory of a launch
    shared_bytes: int
    # constant memory, with the arguments; 0 for architectures whose log does not report it
    constant_bytes: int


def report(log: str) -> Report:
    """Read the log of a compilation with ``--ptxas-options=-v``."""
    frame = re.search(
        rf"Function properties for {ENTRY}\n\D*(\d+) bytes stack frame, "
        r"(\d+) bytes spill stores, (\d+) bytes spill loads",
        log,
    )
    used = re.search(
        rf"Compiling entry function '{ENTRY}'(?:(?!Compiling).)*?Used (\d+) registers([^\n]*)",
        log,
        re.DOTALL,
    )
    if frame is None or used is None:
        error = CompileError(f"the compiler reports no entry point {ENTRY!r}: open one by ENTRY")
        error.add_note(log)
        raise error
    local, stores, loads = map(int, frame.groups())
    shared = re.findall(r"(\d+)(?:\+\d+)? bytes smem", used[2])
    constant = re.findall(r"(\d+) bytes cmem", used[2])
    return Report(
        int(used[1]), local, stores + loads, sum(map(int, shared)), sum(map(int, constant))
    )
