"""A GPU that is not there: kernels are compiled for it, and not run."""

from __future__ import annotations

import re
from operator import index
from pathlib import Path
from typing import Any, final

from numpy.typing import NDArray

from femops_kernels.cuda.compiler import cubins
from femops_kernels.cuda.compiler.cubins import cubin
from femops_kernels.cuda.compiler.report import Report
from femops_kernels.cuda.device.cupy_device import Multiprocessor, copies_blocks
from femops_kernels.device import Function
from support.cuda.facts import FACTS
from support.cuda.host_device import NumpyDevice

SHARED_BYTES = {"sm_70": 98304, "sm_75": 65536, "sm_80": 166912, "sm_90": 232448}
"""Of a block, at most; from the programming guide."""

REGISTERS, MOST = 65536, 255
"""Of a multiprocessor, all of these architectures; of a thread, at most."""

THREADS = {"sm_75": 1024}
"""Of a multiprocessor, at most, where these are not 2048."""


@final
class PaperFunction(Function):
    """A compiled kernel.

    Attributes
    ----------
    shapes : set of (int, int)
        Threads and shared memory of the blocks that were asked for.
    """

    def __init__(self, source: str, report: Report, arch: str) -> None:
        self.source, self.report, self.arch = source, report, arch
        self.registers, self.local_bytes = report.registers, report.local_bytes
        self.shapes: set[tuple[int, int]] = set()

    def resident(self, threads: int, shared_bytes: int) -> int:
        """See `Function.resident`; of an H200."""
        return Multiprocessor.of(FACTS).resident(threads, self.registers, shared_bytes)

    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """Note how it is launched."""
        self.shapes.add((index(threads), index(shared_bytes)))  # which are whole numbers

    @property
    def bound(self) -> int:
        """Registers that a thread can have if as many blocks are to be there as it was told."""
        ((threads, _),) = self.shapes
        told = re.search(r"constexpr int BLOCKS = (\d+);", self.source)
        resident = (int(told[1]) if told else 1) * -(-threads // 32) * 32  # in whole warps
        if resident > THREADS.get(self.arch, 2048):
            return MOST  # there can't be so many: the compiler takes no notice
        return min(MOST, REGISTERS // resident)


@final
class PaperDevice(NumpyDevice):
    """A device of an architecture.

    Attributes
    ----------
    functions : dict
        What was compiled, by source.
    prelude : str
        What is put before each source.
    """

    processors = 100

    def __init__(self, arch: str) -> None:
        super().__init__(SHARED_BYTES[arch])
        self.arch, self.name, self.copies_blocks = arch, f"{arch} on paper", copies_blocks(arch)
        self.functions: dict[str, PaperFunction] = {}
        source = Path(cubins.__file__).parents[1] / "src" / "device.cuh"
        self.prelude = source.read_text(encoding="utf-8")

    def function(self, source: str) -> PaperFunction:
        if source not in self.functions:
            report = cubin(self.prelude + source, self.arch).report
            self.functions[source] = PaperFunction(source, report, self.arch)
        return self.functions[source]
