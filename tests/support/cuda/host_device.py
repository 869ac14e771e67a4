"""A device that there is everywhere: kernels built by the host's C++ compiler, on NumPy arrays."""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from types import ModuleType
from typing import Any, final

import numpy as np
import pytest
from numpy.typing import NDArray

from femops_kernels.device import Device, Function, Network, StagingBuffer
from femops_kernels.errors import DeviceError, KernelValueError
from support.cuda.building import build, compiler
from support.cuda.launches import Launch, pointers_of
from support.cuda.nccl import network_of

SHARED = ("-shared", "-fPIC", "-nostdlib")
"""Options of the libraries of kernels."""


@final
class HostFunction(Function):
    """A kernel in a shared library; see ``blocks.hpp`` for how it is run."""

    registers = local_bytes = 0

    def __init__(self, device: HostDevice, source: str) -> None:
        self._device, self.source = device, source
        ctypes.CDLL("libstdc++.so.6", ctypes.RTLD_GLOBAL)  # that the linker is not told of
        library = ctypes.CDLL(str(build(source, *SHARED, *device.options)))
        self._launch = library.host_launch
        self._lock = threading.Lock()  # a library says in one place what went wrong

    def resident(self, threads: int, shared_bytes: int) -> int:
        """See `Function.resident`: what the device says."""
        return self._device.resident

    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """Run the kernel to its end.

        Raises
        ------
        DeviceError
            More threads or shared memory than there can be, a barrier that not all threads reach,
            shared memory written beside its ends, arguments of another size, or with an address
            that is in no array of the device that still lives.
        """
        device = self._device
        if shared_bytes > device.shared_bytes:
            raise DeviceError(f"{shared_bytes} bytes shared, a block has {device.shared_bytes}")
        if arguments.shape != () or not arguments.dtype.fields:
            raise DeviceError(f"arguments are {arguments.dtype} {arguments.shape}: no structure")
        with device.looking:
            pointers = pointers_of(arguments, device.arrays)
        again = partial(self.launch, blocks, threads, shared_bytes, arguments.copy())
        if device.captures(again):
            return
        device.launches += 1
        if device.recorded is not None:
            shape = (blocks, threads, shared_bytes)
            device.recorded.append(Launch.of(self.source, shape, arguments, pointers))
        text = ctypes.create_string_buffer(400)
        given = ctypes.c_void_p(arguments.ctypes.data), ctypes.c_size_t(arguments.nbytes)
        sizes = ctypes.c_uint(blocks), ctypes.c_uint(threads), ctypes.c_size_t(shared_bytes)
        turn, stacks = ctypes.c_int(device.backwards), _stacks()
        room = ctypes.c_size_t(len(stacks)), text, ctypes.c_size_t(len(text))
        with self._lock:
            failed = self._launch(*given, *sizes, turn, stacks, *room)
        if failed:
            raise DeviceError(text.value.decode())


_kept = threading.local()


def _stacks() -> ctypes.Array[ctypes.c_char]:
    """Memory for the stacks of a block's threads, one for each thread of Python.

    Pages that one launch has touched serve the next: fresh ones take most of a short launch.
    """
    if not hasattr(_kept, "stacks"):
        _kept.stacks = (ctypes.c_char * _STACK_BYTES).from_buffer(
            mmap.mmap(-1, _STACK_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        )
    return _kept.stacks


_STACK_BYTES = 1024 * 2**19
"""Of the most threads of a block; see `STACK` in ``blocks.hpp``. Untouched pages take no memory."""


class NumpyDevice(Device):
    """A device whose memory is the host's.

    Attributes
    ----------
    uploads, downloads, late_downloads, synchronizations : int
        How often it was asked for these.
    arrays : mapping
        Those whose address was asked for, while they live, by where they begin.
    """

    xp: ModuleType = np

    def __init__(self, shared_bytes: int) -> None:
        self.shared_bytes = shared_bytes
        self.uploads = self.downloads = self.late_downloads = self.synchronizations = 0
        self.arrays: weakref.WeakValueDictionary[int, NDArray[Any]] = weakref.WeakValueDictionary()
        self.looking = threading.Lock()  # for an array, while other threads bring theirs
        self._captures = threading.local()  # `calls` of work that a thread wants to repeat

    def clear(self, array: NDArray[Any]) -> None:
        if not self.captures(lambda: array.fill(0)):
            array.fill(0)

    def upload(self, array: NDArray[Any], stream: HostStream | None = None) -> NDArray[Any]:
        self.uploads += 1
        self._moves()
        return np.array(array) if stream is None else stream.copy(np.array(array))

    def download(self, array: NDArray[Any], stream: HostStream | None = None) -> NDArray[Any]:
        self.downloads += 1
        self._moves()
        return np.array(array) if stream is None else stream.copy(array)

    def download_later(self, array: NDArray[Any]) -> Callable[[], NDArray[Any]]:
        self.late_downloads += 1
        self._moves()
        copy = np.array(array)
        return lambda: copy

    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """See `Device.repeatable`. As a CUDA graph, it repeats launches, and runs no Python."""
        self._captures.calls = calls = []
        try:
            work()
        finally:
            del self._captures.calls

        def repeat() -> None:
            for call in calls:
                call()

        return repeat

    def captures(self, call: Callable[[], None]) -> bool:
        """Whether a call was noted, to be repeated, instead of being made."""
        noted = hasattr(self._captures, "calls")
        if noted:
            self._captures.calls.append(call)
        return noted

    def _moves(self) -> None:
        assert not hasattr(self._captures, "calls"), "work to be repeated copies arrays, or waits"

    def owns(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def adopt(self, array: Any) -> NDArray[Any]:
        if isinstance(array, np.ndarray):
            return array
        if hasattr(array, "__cuda_array_interface__"):
            return np.asarray(_Memory(array))
        if hasattr(array, "__dlpack__"):
            return np.from_dlpack(array)
        raise KernelValueError(
            f"a {type(array).__name__} has neither __cuda_array_interface__ nor DLPack"
        )

    def address(self, array: NDArray[Any]) -> int:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        with self.looking:
            self.arrays[owner.ctypes.data] = owner
        return array.ctypes.data

    def staging_buffer(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> HostStagingBuffer:
        return HostStagingBuffer(size, dtype, direct=direct)

    def synchronize(self) -> None:
        """Nothing is under way."""
        self.synchronizations += 1
        self._moves()

    def seconds(self, call: Callable[[], object]) -> float:
        begin = perf_counter()
        call()
        return perf_counter() - begin


@final
class HostDevice(NumpyDevice):
    """A device that there is everywhere.

    Parameters
    ----------
    shared_bytes : int
        Most dynamic shared memory of a block.
    options : sequence of str
        To the compiler: ``-O1`` where launches take longer than to compile.

    Attributes
    ----------
    backwards : bool
        Whether blocks and threads are run the other way around.
    resident : int
        Blocks that a multiprocessor has room for at a time.
    launches : int
        How many there were.
    recorded : list of Launch or None
        See `recording`.
    """

    name, arch, processors, copies_blocks = "the host, as a GPU", "host", 4, True

    def __init__(self, shared_bytes: int = 48 * 1024, options: Sequence[str] = ()) -> None:
        super().__init__(shared_bytes)
        self.options, self.backwards, self.resident, self.launches = tuple(options), False, 1, 0
        self.recorded: list[Launch] | None = None
        self._functions: dict[str, HostFunction] = {}

    def function(self, source: str) -> HostFunction:
        if source not in self._functions:
            self._functions[source] = HostFunction(self, source)
        return self._functions[source]

    def network(self) -> Network:
        return network_of(self, self)

    @contextmanager
    def recording(self) -> Iterator[list[Launch]]:
        """Launches of the block are noted, with their arrays as they are before.

        They run as ever, and can be run again under sanitizers: `launches.replay`.
        """
        before, self.recorded = self.recorded, []
        try:
            yield self.recorded
        finally:
            self.recorded = before


@final
class HostStream:
    """A stream that works when it has to: what is used before that is zero."""

    def __init__(self) -> None:
        self._work: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def copy(self, source: NDArray[Any]) -> NDArray[Any]:
        """An array that becomes a copy."""
        made = np.zeros_like(source, order="C")
        self._work.append((made, source))
        return made

    def synchronize(self) -> None:
        """Work."""
        for made, source in self._work:
            made[...] = source
        self._work.clear()


@final
class HostStagingBuffer(StagingBuffer):
    """Copies are made at the last moment: what is written too early is seen.

    Attributes
    ----------
    departures, entries : int
        How often numbers were copied.
    """

    def __init__(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> None:
        self.there: NDArray[Any] = np.zeros(size, dtype)
        self.here: NDArray[Any] = self.there if direct else np.zeros(size, dtype)
        self.departures = self.entries = 0

    def depart(self) -> None:
        self.departures += 1

    def wait(self) -> None:
        self.here[:] = self.there

    def enter(self) -> None:
        self.entries += 1
        self.there[:] = self.here


def host_device(**options: Any) -> HostDevice:
    """A device for a test, which is skipped where there is no compiler."""
    if compiler() is None:
        pytest.skip("no C++ compiler (g++, c++): kernels were not run on the host")
    return HostDevice(**options)


def plant(monkeypatch: pytest.MonkeyPatch, before: str, after: str, where: str = "") -> None:
    """Plant a fault in the kernels whose source has the text ``where``, or else ``before``."""
    sound = HostDevice.function

    def function(self: HostDevice, source: str) -> HostFunction:
        if (where or before) in source:
            assert before in source
            source = source.replace(before, after)
        return sound(self, source)

    monkeypatch.setattr(HostDevice, "function", function)


def plant_a_factor(monkeypatch: pytest.MonkeyPatch, where: str = "") -> None:
    """Have operators multiply by 1.000001."""
    plant(monkeypatch, "a.alpha * line[n]", "a.alpha * line[n] * T(1.000001)", where)


class _Memory:
    """Memory of another library, in NumPy's words."""

    def __init__(self, array: Any) -> None:
        interface = array.__cuda_array_interface__
        # CuPy does not ask whether it may be written
        self.__array_interface__ = dict(interface) | {"data": (interface["data"][0], False)}
        self._alive = array


@pytest.fixture
def device() -> HostDevice:
    """One of this test's own."""
    return host_device()
