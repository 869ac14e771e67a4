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
    """A compiled kernel.

    Attributes
    ----------
    registers : int
        Registers per thread.
    local_bytes : int
        Bytes of a thread's local memory.  More than 0 means that registers were too few.
    """

    registers: int
    local_bytes: int

    @abstractmethod
    def resident(self, threads: int, shared_bytes: int) -> int:
        """Number of blocks that a multiprocessor has room for at a time, at least one.

        Parameters
        ----------
        threads : int
            Threads per block.
        shared_bytes : int
            Dynamic shared memory of a block.
        """

    @abstractmethod
    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """Launch the kernel behind all earlier launches. Return before it is done.

        Parameters
        ----------
        blocks : int
            Number of blocks.  With 0 nothing is launched.
        threads : int
            Threads per block.
        shared_bytes : int
            Dynamic shared memory of a block.
        arguments : array, shape ()
            Structure that the kernel takes by value; see `Layout`.

        Raises
        ------
        DeviceError
            If the device can't run it in this shape.
        """


class StagingBuffer(ABC):
    """Buffer of messages: an array of the device, and one of the host to which it is copied.

    Copies run beside kernels.  All copies must be done before `depart` is called again.

    Attributes
    ----------
    there : array
        Array of the device.
    here : array
        Array of the host with the same numbers.  It is `there` itself if messages go directly from
        the device.
    """

    there: Any
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
    """A channel between arrays of ranks' devices: messages of fixed size, again and again.

    Attributes
    ----------
    outgoing, incoming : (n,) arrays
        Numbers to send, and numbers that arrived, on the device: a piece per rank, as in
        `Channel`.
    """

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
        """Make the key by which the ranks find each other. One rank calls this for all.

        Raises
        ------
        DeviceError
            If the device can't make a key.
        """

    @abstractmethod
    def join(self, key: bytes, rank: int, ranks: int) -> None:
        """Join the network, and wait for all other ranks. Each rank must have its own device.

        Parameters
        ----------
        key : bytes
        rank, ranks : int
            This rank, and the number of ranks.

        Raises
        ------
        DeviceError
            If the device can't join.
        """

    @abstractmethod
    def channel(
        self, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
    ) -> DeviceChannel:
        """Make a channel between ranks that have joined the network.

        Parameters
        ----------
        send, receive : mapping
            {rank: how many numbers this rank sends to it, or receives from it}.
        dtype : numpy.dtype
        """


class Device(ABC):
    """A device that runs kernels of CUDA C++.

    Attributes
    ----------
    name : str
        Name of the product, for example "NVIDIA H200".
    arch : str
        Architecture, for example "sm_90".
    processors : int
        Number of multiprocessors.
    shared_bytes : int
        Most dynamic shared memory that a block can have.
    bus : str
        PCI address, the same in all processes and in the driver's tools; "" if none.
    copies_blocks : bool
        True if one thread can copy a block of memory to shared memory in one operation, see
        ``device.cuh``.
    compiles_later : bool
        True if other threads compile kernels while the program goes on.
    """

    name: str
    arch: str
    processors: int
    shared_bytes: int
    bus: str = ""
    copies_blocks: bool = False
    compiles_later: bool = False

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """Module with NumPy's functions for arrays of the device, for the calling thread."""

    @abstractmethod
    def function(self, source: str) -> Function:
        """Compile a kernel, or take it from the cache.

        Parameters
        ----------
        source : str
            CUDA C++ without includes.  ``ENTRY`` begins its entry point.

        Raises
        ------
        CompileError
            If the compiler refuses it.
        """

    def compile_later(self, source: str) -> None:
        """Compile a kernel as `function` does, if `compiles_later` in another thread."""
        self.function(source)

    @abstractmethod
    def clear(self, array: Any) -> None:
        """Set an array of the device to zero before all later launches. Do not wait."""

    @abstractmethod
    def upload(self, array: NDArray[Any], stream: Any = None) -> Any:
        """Copy an array of the host to a new array of the device.

        Parameters
        ----------
        array : array of any shape
        stream : object, optional
            Stream of the device in which the copy runs.  The host does not wait for the copy, and
            may change ``array`` meanwhile.
        """

    @abstractmethod
    def download(self, array: Any, stream: Any = None) -> NDArray[Any]:
        """Copy an array of the device to the host, after all earlier launches.

        Parameters
        ----------
        array : array of any shape
        stream : object, optional
            Stream of the device in which the copy runs.  The host then does not wait for the copy.
        """

    @abstractmethod
    def download_later(self, array: Any) -> Callable[[], NDArray[Any]]:
        """Begin to copy a small array of any shape to the host.

        Returns
        -------
        callable
            Waits until all earlier launches are done, and returns the array as it was then.
        """

    @abstractmethod
    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work that is done often, so that repeating it takes the host less time.

        Parameters
        ----------
        work : callable
            Launches kernels, with the same arguments each time, and clears arrays, and does nothing
            else.  Each kernel must have been launched before.  ``work`` may be called at once, to
            record its launches.

        Returns
        -------
        callable
            Repeats the work.
        """

    @abstractmethod
    def owns(self, array: Any) -> bool:
        """True if the object is an array of this device, of the device's own library."""

    @abstractmethod
    def adopt(self, array: Any) -> Any:
        """Array of the device on the memory of another library's array, without a copy.

        Parameters
        ----------
        array : object
            Object with ``__cuda_array_interface__`` or DLPack.

        Raises
        ------
        KernelValueError
            If the object has neither interface, or its memory is not on this device.
        """

    @abstractmethod
    def address(self, array: Any) -> int:
        """Address of the first entry of an array of the device."""

    @abstractmethod
    def staging_buffer(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> StagingBuffer:
        """Make a staging buffer of ``size`` zeros.

        Parameters
        ----------
        size : int
        dtype : numpy.dtype
        direct : bool
            True if `StagingBuffer.here` is the device's own array.
        """

    def network(self) -> Network:
        """Make a network, which this device can then join together with other ranks' devices.

        Raises
        ------
        DeviceError
            If networks need software that is missing.  The message says what to install.
        """
        raise DeviceError(f"{self.name} can't send to other devices")

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all launches are done."""

    @abstractmethod
    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds that the device takes for the launches of a call. Wait for their end."""
