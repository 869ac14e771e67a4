"""Devices that run kernels of CUDA C++, and functions compiled for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.errors import DeviceError


class Function(ABC):
    """A compiled kernel."""

    registers: int  # registers per thread
    # bytes of a thread's local memory.  More than 0 means that registers were too few.
    local_bytes: int

    @abstractmethod
    def resident(self, threads: int, shared_bytes: int) -> int:
        """Number of blocks that a multiprocessor has room for at a time, at least one."""

    @abstractmethod
    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """Launch the kernel after all earlier launches. Return before it is done."""


class StagingBuffer(ABC):
    """Buffer of messages: an array of the device, and one of the host to which it is copied.

    Copies run beside kernels.  All copies must be done before `depart` is called again.
    """

    there: Any  # array of the device
    # array of the host with the same numbers.  It is `there` itself if messages go directly from
    # the device.
    here: Any

    @abstractmethod
    def depart(self) -> None:
        """Begin to copy the device's array to the host, after all earlier launches."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the copy that `depart` began is done."""

    @abstractmethod
    def enter(self) -> None:
        """Copy the host's array to the device before all later launches. Do not wait."""


class DeviceChannel(ABC):
    """A channel between arrays of ranks' devices: messages of fixed size, again and again."""

    # outgoing and incoming are (n,): numbers to send, and numbers that arrived, on the device: a
    # piece per rank, as in `Channel`
    outgoing: Any
    incoming: Any

    @abstractmethod
    def ready(self) -> None:
        """Declare that all kernels that write ``outgoing`` have been launched.

        Later kernels run beside the messages.  Before `finish` they must not write ``outgoing`` nor
        read ``incoming``.
        """

    @abstractmethod
    def start(self) -> None:
        """Send ``outgoing`` as soon as the device has computed it."""

    @abstractmethod
    def finish(self) -> None:
        """Make all later launches wait until ``incoming`` has arrived."""


class Network(ABC):
    """The devices of several ranks, which send to each other without their hosts."""

    @abstractmethod
    def key(self) -> bytes:
        """Make the key by which the ranks find each other. One rank calls this for all."""

    @abstractmethod
    def join(self, key: bytes, rank: int, ranks: int) -> None:
        """Join the network, and wait for all other ranks. Each rank must have its own device."""

    @abstractmethod
    def channel(
        self, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
    ) -> DeviceChannel:
        """Make a channel between ranks that have joined the network."""


class Device(ABC):
    """A device that runs kernels of CUDA C++."""

    name: str  # name of the product, for example "NVIDIA H200"
    arch: str  # architecture, for example "sm_90"
    processors: int  # number of multiprocessors
    shared_bytes: int  # most dynamic shared memory that a block can have
    bus: str = ""  # PCI address, the same in all processes and in the driver's tools; "" if none
    # True if one thread can copy a block of memory to shared memory in one operation, see
    # ``device.cuh``
    copies_blocks: bool = False
    compiles_later: bool = False  # True if other threads compile kernels while the program goes on

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """Module with NumPy's functions for arrays of the device, for the calling thread."""

    @abstractmethod
    def function(self, source: str) -> Function:
        """Compile a kernel, or take it from the cache."""

    def compile_later(self, source: str) -> None:
        """Compile a kernel as `function` does, if `compiles_later` in another thread."""
        self.function(source)

    @abstractmethod
    def clear(self, array: Any) -> None:
        """Set an array of the device to zero before all later launches. Do not wait."""

    @abstractmethod
    def upload(self, array: NDArray[Any], stream: Any = None) -> Any:
        """Copy an array of the host to a new array of the device."""

    @abstractmethod
    def download(self, array: Any, stream: Any = None) -> NDArray[Any]:
        """Copy an array of the device to the host, after all earlier launches."""

    @abstractmethod
    def download_later(self, array: Any) -> Callable[[], NDArray[Any]]:
        """Begin to copy a small array of any shape to the host."""

    @abstractmethod
    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work that is done often, so that repeating it takes the host less time."""

    @abstractmethod
    def owns(self, array: Any) -> bool:
        """True if the object is an array of this device, of the device's own library."""

    @abstractmethod
    def adopt(self, array: Any) -> Any:
        """Array of the device on the memory of another library's array, without a copy."""

    @abstractmethod
    def address(self, array: Any) -> int:
        """Address of the first entry of an array of the device."""

    @abstractmethod
    def staging_buffer(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> StagingBuffer:
        """Make a staging buffer of ``size`` zeros."""

    def network(self) -> Network:
        """Make a network, which this device can then join together with other ranks' devices."""
        raise DeviceError(f"{self.name} can't send to other devices")

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all launches are done."""

    @abstractmethod
    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds that the device takes for the launches of a call. Wait for their end."""
