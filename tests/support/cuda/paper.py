"""A GPU that is not there: kernels are compiled for it, and not run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.compiler import cubins
from femops_kernels.cuda.compiler.cubins import cubin
from femops_kernels.cuda.compiler.report import Report
from femops_kernels.cuda.device.cupy_device import copies_blocks
from femops_kernels.cuda.device.device import Device, Function
from femops_kernels.cuda.device.residency import Multiprocessor
from support.cuda.facts import FACTS
from support.cuda.host_device import HostStagingBuffer

SHARED_BYTES = {"sm_70": 98304, "sm_75": 65536, "sm_80": 166912, "sm_90": 232448}
"""Of a block, at most; from the programming guide."""

REGISTERS, MOST = 65536, 255
"""Of a multiprocessor, all of these architectures; of a thread, at most."""

THREADS = {"sm_75": 1024}
"""Of a multiprocessor, at most, where these are not 2048."""


@final
class PaperFunction(Function):
    """A compiled kernel.

    Parameters
    ----------
    source : str
    report : Report
    arch : str

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
        self.shapes.add((threads, shared_bytes))

    @property
    def bound(self) -> int:
        """Registers that a thread can have if as many blocks are to be there as it was told."""
        ((threads, _),) = self.shapes
        told = re.search(r"constexpr int BLOCKS = (\d+);", self.source)
        blocks = int(told[1]) if told else 1
        if blocks * threads > THREADS.get(self.arch, 2048):
            return MOST  # there can't be so many: the compiler takes no notice
        return min(MOST, REGISTERS // (-(-threads // 32) * 32 * blocks))


@final
class PaperDevice(Device):
    """A device of an architecture.

    Parameters
    ----------
    arch : str

    Attributes
    ----------
    functions : dict
        What was compiled, by source.
    prelude : str
        What is put before each source.
    """

    xp: ModuleType = np
    processors = 100

    def __init__(self, arch: str) -> None:
        self.arch, self.name, self.shared_bytes = arch, f"{arch} on paper", SHARED_BYTES[arch]
        self.copies_blocks = copies_blocks(arch)
        self.functions: dict[str, PaperFunction] = {}
        self.prelude = (Path(cubins.__file__).parents[1] / "src" / "device.cuh").read_text(
            encoding="utf-8"
        )

    def function(self, source: str) -> PaperFunction:
        """See `Device.function`."""
        if source not in self.functions:
            report = cubin(self.prelude + source, self.arch).report
            self.functions[source] = PaperFunction(source, report, self.arch)
        return self.functions[source]

    def clear(self, array: NDArray[Any]) -> None:
        """See `Device.clear`."""
        array.fill(0)

    def upload(self, array: NDArray[Any], stream: Any = None) -> NDArray[Any]:
        """See `Device.upload`."""
        return np.array(array)

    def download(self, array: NDArray[Any], stream: Any = None) -> NDArray[Any]:
        """See `Device.download`."""
        return np.array(array)

    def download_later(self, array: NDArray[Any]) -> Callable[[], NDArray[Any]]:
        """See `Device.download_later`."""
        copy = np.array(array)
        return lambda: copy

    def owns(self, array: Any) -> bool:
        """See `Device.owns`."""
        return isinstance(array, np.ndarray)

    def adopt(self, array: Any) -> NDArray[Any]:
        """See `Device.adopt`."""
        return np.asarray(array)

    def address(self, array: NDArray[Any]) -> int:
        """See `Device.address`."""
        return array.ctypes.data

    def synchronize(self) -> None:
        """Nothing is run."""

    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """See `Device.repeatable`."""
        return work

    def seconds(self, call: Callable[[], object]) -> float:
        """No time passes."""
        return 0.0

    def staging_buffer(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> HostStagingBuffer:
        """See `Device.staging_buffer`."""
        return HostStagingBuffer(size, dtype, direct=direct)
