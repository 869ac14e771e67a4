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
        Memory of a thread beside its registers; more than 0 means that these were too few.
    """

    registers: int
    local_bytes: int

    @abstractmethod
    def resident(self, threads: int, shared_bytes: int) -> int:
        """The number of blocks that a multiprocessor has room for at a time, at least one.

        Parameters
        ----------
        threads : int
            Threads per block.
        shared_bytes : int
            Dynamic shared memory of a block.
        """

    @abstractmethod
    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """Run the kernel, after all that was launched before it; does not wait for its end.

        Parameters
        ----------
        blocks : int
            With 0 nothing is run.
        threads : int
            Threads per block.
        shared_bytes : int
            Dynamic shared memory of a block.
        arguments : array, shape ()
            Structure that the entry point takes by value; see `Layout`.

        Raises
        ------
        DeviceError
            If the device can't run it in this shape.
        """


class StagingBuffer(ABC):
    """A staging buffer between a device and the messages of ranks.

    Copies are made beside kernels that run. Nothing is under way when `depart` is called again.

    Attributes
    ----------
    there : array
        Array of the device.
    here : array
        The same numbers in memory of the host; or `there` itself, if messages go from the device.
    """

    there: Any
    here: Any

    @abstractmethod
    def depart(self) -> None:
        """Begin to copy `there` to `here`, after all earlier launches."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until `here` is as `there` was when `depart` was called."""

    @abstractmethod
    def enter(self) -> None:
        """Copy `here` to `there`, for all that is launched later. Does not wait."""


class DeviceChannel(ABC):
    """A channel between arrays of ranks' devices: messages of fixed size, again and again.

    Attributes
    ----------
    outgoing, incoming : (n,) arrays
        Values that are sent, and that have arrived, on the device: a piece per rank, as of a
        `Channel`.
    """

    outgoing: Any
    incoming: Any

    @abstractmethod
    def ready(self) -> None:
        """All that is sent has been launched; what is launched from now on need not wait.

        It must not write what is sent, nor use what arrives, before `finish`.
        """

    @abstractmethod
    def start(self) -> None:
        """Send it as soon as it is there."""

    @abstractmethod
    def finish(self) -> None:
        """Have what arrives there for all that is launched from now on."""


class Network(ABC):
    """The devices of several ranks, which send to each other without their hosts."""

    @abstractmethod
    def key(self) -> bytes:
        """Make a key by which the ranks find each other; one of them does, for all.

        Raises
        ------
        DeviceError
            If the device can't.
        """

    @abstractmethod
    def join(self, key: bytes, rank: int, ranks: int) -> None:
        """Become one of them; each waits for all others, with a device that no other has.

        Parameters
        ----------
        key : bytes
        rank, ranks : int
            Number of this one, and of all.

        Raises
        ------
        DeviceError
            If the device can't.
        """

    @abstractmethod
    def channel(
        self, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
    ) -> DeviceChannel:
        """Make a channel, when this one has joined.

        Parameters
        ----------
        send, receive : mapping
            {rank: numbers for it, or from it}.
        dtype : numpy.dtype
        """


class Device(ABC):
    """A device that runs kernels of CUDA C++.

    Attributes
    ----------
    name : str
        "NVIDIA H200".
    arch : str
        "sm_90".
    processors : int
        Multiprocessors.
    shared_bytes : int
        Most dynamic shared memory that a block can have.
    bus : str
        Address in the machine, the same for all processes and the driver's tools; "" if none.
    copies_blocks : bool
        Whether one thread can have any number of bytes copied to shared memory, see
        ``device.cuh``.
    """

    name: str
    arch: str
    processors: int
    shared_bytes: int
    bus: str = ""
    copies_blocks: bool = False

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """NumPy's functions for arrays of the device, to be called by the thread that asks."""

    @abstractmethod
    def function(self, source: str) -> Function:
        """Compile a kernel, or take it from the cache.

        Parameters
        ----------
        source : str
            CUDA C++ without includes; its entry point is opened by ``ENTRY``.

        Raises
        ------
        CompileError
            If the compiler refuses it.
        """

    @abstractmethod
    def clear(self, array: Any) -> None:
        """Set an array of the device to zero, for all that is launched later. Does not wait."""

    @abstractmethod
    def upload(self, array: NDArray[Any], stream: Any = None) -> Any:
        """Copy of a host's array in a new array of the device.

        Parameters
        ----------
        array : array
        stream : object, optional
            One of the device's. The copy is of what the array has now, but is made when the stream
            comes to it; nothing waits for that.
        """

    @abstractmethod
    def download(self, array: Any, stream: Any = None) -> NDArray[Any]:
        """Copy of an array of the device on the host, when all launched before is done.

        Parameters
        ----------
        array : array
        stream : object, optional
            One of the device's. The copy is made when the stream comes to it, after what was
            launched before the call; nothing waits for that.
        """

    @abstractmethod
    def download_later(self, array: Any) -> Callable[[], NDArray[Any]]:
        """Begin to copy a small array to the host.

        Returns
        -------
        callable
            Waits until all that was launched before is done, and gives the array as it was then.
        """

    @abstractmethod
    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """Work that is going to be done often, in a form that takes the host less time.

        Parameters
        ----------
        work : callable
            Launches kernels that have been launched before, with the same arguments each time, and
            clears arrays; nothing else. It may be called at once, to see what it launches.

        Returns
        -------
        callable
            Does the work.
        """

    @abstractmethod
    def owns(self, array: Any) -> bool:
        """True if something is an array of this device, as it is."""

    @abstractmethod
    def adopt(self, array: Any) -> Any:
        """Array of the device on the memory of another library's array there; no copy.

        Parameters
        ----------
        array : object
            With ``__cuda_array_interface__`` or DLPack.

        Raises
        ------
        KernelValueError
            If it is no such object, or its memory is not this device's.
        """

    @abstractmethod
    def address(self, array: Any) -> int:
        """Address of the first entry of an array of the device."""

    @abstractmethod
    def staging_buffer(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> StagingBuffer:
        """Make a staging buffer for some numbers, which are zero.

        Parameters
        ----------
        size : int
        dtype : numpy.dtype
        direct : bool
            Whether `StagingBuffer.here` is the device's own array.
        """

    def network(self) -> Network:
        """Begin a network with the devices of other ranks, of which this one is to be a part.

        Raises
        ------
        DeviceError
            If there can be none; the message says what to install.
        """
        raise DeviceError(f"{self.name} can't send to other devices")

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all that was launched is done."""

    @abstractmethod
    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds that the device takes for the launches of a call; waits for their end."""
