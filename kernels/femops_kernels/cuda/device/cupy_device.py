"""Devices by CuPy, which allocates, copies, loads and launches; it compiles nothing of ours."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.compiler.cubins import Cubin, cubin
from femops_kernels.cuda.compiler.report import ENTRY
from femops_kernels.cuda.device.device import Device, Function, Network, StagingBuffer
from femops_kernels.cuda.device.interchange import view
from femops_kernels.cuda.device.nccl import NcclNetwork, library
from femops_kernels.cuda.device.residency import Multiprocessor
from femops_kernels.errors import DeviceError, KernelValueError

_FREE_SHARED_BYTES = 48 * 1024  # dynamic shared memory of a block that need not be asked for
_NO_DRIVER, _NO_DEVICE = 35, 100  # cudaErrorInsufficientDriver, cudaErrorNoDevice
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT

_devices: dict[int, Device] = {}
_lock = threading.RLock()


def open_device(name: str) -> Device:
    """GPU of a name, CuPy's current device from now on; always the same object in a process.

    Parameters
    ----------
    name : str
        ``"cuda"``, CuPy's current device (at first the first one), or ``"cuda:1"``, the second.

    Raises
    ------
    DeviceError
        If there is no CuPy, no driver, no GPU, or no device of this name; or it is taken.
    """
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    if match is None:
        raise DeviceError(
            f'no device is called {name!r}: choose "cuda", or of several "cuda:1"; '
            "leave it out for the host"
        )
    cupy = _cupy()
    count = _count(cupy)
    ordinal = int(cupy.cuda.runtime.getDevice() if match[1] is None else match[1])
    if ordinal >= count:
        there = ", ".join(f'"cuda:{k}"' for k in range(count))
        raise DeviceError(f"there is no GPU {name!r} here: choose {there}")
    _asked(cupy.cuda.Device(ordinal).use)  # arrays that are made, or computed with, must be there
    return _device(cupy, ordinal)


def _device(cupy: Any, ordinal: int) -> Device:
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = CudaDevice(cupy, ordinal)
        return _devices[ordinal]


def adopt(array: Any) -> tuple[Any, Device]:
    """CuPy's array on the memory of any library's array, without a copy, and its device.

    Raises
    ------
    DeviceError
        There is no CuPy.
    KernelValueError
        It is no array of a GPU, or is not handed over.
    """
    cupy = _cupy()
    try:
        adopted = view(cupy, array)
    except (RuntimeError, BufferError, TypeError, ValueError) as error:
        raise KernelValueError(f"a {type(array).__name__} can't be used: {error}") from error
    return adopted, _device(cupy, adopted.device.id)


def take_device(place: int) -> Device:
    """GPU of one of several processes that share a machine, CuPy's current one from now on.

    Parameters
    ----------
    place : int
        Index of the process; there may be more processes than GPUs.

    Returns
    -------
    Device

    Raises
    ------
    DeviceError
        See `open_device`.
    """
    cupy = _cupy()
    return open_device(f"cuda:{place % _count(cupy)}")


def describe() -> dict[str, Any]:
    """Facts about the GPUs.

    Returns
    -------
    dict
        ``devices`` (a list of ``name``, ``arch``, ``processors``, ``memory_bytes``), ``missing``
        (why there is none, or None), ``nvrtc`` (version of the compiler, or None).
    """
    try:
        version: str | None = ".".join(map(str, nvrtc.version()))
    except DeviceError:
        version = None
    facts: dict[str, Any] = {"devices": [], "missing": None, "nvrtc": version}
    try:
        cupy = _cupy()
        facts["devices"] = [_facts(cupy, ordinal) for ordinal in range(_count(cupy))]
    except DeviceError as error:
        facts["missing"] = str(error)
    return facts


def _facts(cupy: Any, ordinal: int) -> dict[str, Any]:
    found = cupy.cuda.runtime.getDeviceProperties(ordinal)
    return {
        "name": found["name"].decode(),
        "arch": f"sm_{found['major']}{found['minor']}",
        "processors": found["multiProcessorCount"],
        "memory_bytes": found["totalGlobalMem"],
    }


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise DeviceError(f"GPUs need CuPy, which is not installed: {nvrtc.INSTALL}") from error
        why = re.sub(r"[=\s]+", " ", str(error)).strip()  # CuPy frames what it says
        raise DeviceError(f"CuPy can't be imported ({why}): {nvrtc.INSTALL}") from error
    return cupy


def _count(cupy: Any) -> int:
    return int(_asked(cupy.cuda.runtime.getDeviceCount))


def _asked(call: Callable[[], Any]) -> Any:
    """Return the answer of a CUDA call; the first call starts CUDA."""
    try:
        return call()
    except (RuntimeError, ImportError, OSError) as error:
        raise DeviceError(_why(getattr(error, "status", None), str(error))) from error


def _why(status: int | None, message: str) -> str:
    if status == _NO_DEVICE:
        return (
            "there is no GPU that CUDA can use: see what nvidia-smi lists, "
            "and whether CUDA_VISIBLE_DEVICES hides it"
        )
    driver = nvrtc.driver_version()
    if status == _NO_DRIVER and driver is None:
        return "there is no NVIDIA driver on this machine, GPUs need one: install it"
    if status == _NO_DRIVER and driver is not None:
        return f"CuPy is too new: {nvrtc.for_driver(driver)}"
    return f"CUDA can't be started: {' '.join(message.split())}"


def copies_blocks(arch: str) -> bool:
    """True if `Device.copies_blocks` is of devices of an architecture."""
    return int(arch.removeprefix("sm_")) >= 90


@cache
def _prelude() -> str:
    return (Path(__file__).parents[1] / "src" / "device.cuh").read_text(encoding="utf-8")


@final
class CudaDevice(Device):
    """NVIDIA's GPU; see `open_device`.

    Parameters
    ----------
    cupy : module
    ordinal : int
        CUDA's number of the device.
    """

    def __init__(self, cupy: Any, ordinal: int) -> None:
        found, facts = cupy.cuda.runtime.getDeviceProperties(ordinal), _facts(cupy, ordinal)
        self._cupy: ModuleType = cupy
        self.name: str = facts["name"]
        self.arch: str = facts["arch"]
        self.copies_blocks = copies_blocks(self.arch)
        self.processors: int = facts["processors"]
        self.shared_bytes: int = found["sharedMemPerBlockOptin"]
        self.multiprocessor = Multiprocessor.of(found)
        self.current: Any = cupy.cuda.Device(ordinal)
        self.bus = str(cupy.cuda.runtime.deviceGetPCIBusId(ordinal))
        """Context manager in which CuPy uses this device."""
        self._functions: dict[str, Function] = {}
        self._flying: list[tuple[Any, tuple[Any, ...]]] = []

    @property
    def xp(self) -> ModuleType:
        """CuPy, which uses this device from now on in the thread that asks.

        Each thread has a current device of its own, which is the first one to begin with.
        """
        self.current.use()
        return self._cupy

    def __repr__(self) -> str:
        return f"CudaDevice({self.name}, cuda:{self.current.id}, {self.arch})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is the object itself; in another process, the device of that number there."""
        return open_device, (f"cuda:{self.current.id}",)

    def function(self, source: str) -> Function:
        """Compile a kernel, or take it from memory or disk."""
        if source not in self._functions:
            compiled = cubin(_prelude() + source, self.arch)  # several threads, several kernels
            with _lock:
                if source not in self._functions:
                    self._functions[source] = CudaFunction(self, compiled)
        return self._functions[source]

    def clear(self, array: Any) -> None:
        """Set an array to zero on CuPy's current stream."""
        with self.current:  # CuPy takes the current device's stream, wherever the array is
            array.fill(0)

    def upload(self, array: NDArray[Any], stream: Any = None) -> Any:
        """Copy of a host's array in a new array of the device."""
        with self.current:
            if stream is None:
                return self._cupy.array(array, order="C")
            pinned = self._pinned(array.shape, array.dtype)
            pinned[...] = array
            with stream:  # whose memory the new array is
                made = self._cupy.empty(array.shape, array.dtype)
                made.set(pinned, stream=stream)
                self._keep(stream, pinned)
        return made

    def download(self, array: Any, stream: Any = None) -> NDArray[Any]:
        """Copy of an array on the host, when CuPy's current stream has done its work."""
        with self.current:
            if stream is None:
                copy: NDArray[Any] = array.get()
                return copy
            launched = self._cupy.cuda.Event(disable_timing=True)
            launched.record()
            stream.wait_event(launched)
            copy = self._pinned(array.shape, array.dtype)
            array.get(stream=stream, out=copy, blocking=False)
            self._keep(stream, copy, array)
        return copy

    def _pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Memory of the host that the GPU reads and writes by itself."""
        count = math.prod(shape)
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, count * dtype.itemsize))
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def _keep(self, stream: Any, *arrays: Any) -> Any:
        """Keep arrays until a stream has done its work, which the event tells that is returned.

        CuPy would give their memory to others while the GPU still reads or writes there.
        """
        done = self._cupy.cuda.Event(disable_timing=True)
        if stream is None:
            done.record()
        else:
            stream.record(done)
        with _lock:  # none is lost where several threads copy
            left = [flying for flying in self._flying if not flying[0].done]
            self._flying = [*left, (done, arrays)]
        return done

    def download_later(self, array: Any) -> Callable[[], NDArray[Any]]:
        """Begin a copy to the host on CuPy's current stream."""
        with self.current:
            copy = self._pinned(array.shape, array.dtype)
            array.get(out=copy, blocking=False)
            done = self._keep(None, copy)

        def wait() -> NDArray[Any]:
            done.synchronize()
            return copy

        return wait

    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work as a CUDA graph, for CuPy's current stream."""
        with self.current:
            stream = self._cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()
                try:
                    work()
                finally:
                    graph = stream.end_capture()

        def replay() -> None:
            with self.current:
                graph.launch()

        return replay

    def owns(self, array: Any) -> bool:
        """True if something is a CuPy array of this device."""
        return isinstance(array, self._cupy.ndarray) and array.device.id == self.current.id

    def adopt(self, array: Any) -> Any:
        """CuPy array on the memory of another library's array; no copy."""
        try:
            with self.current:
                adopted = view(self._cupy, array)
        except (RuntimeError, BufferError, TypeError, ValueError) as error:
            kind = type(array).__name__
            raise KernelValueError(f"a {kind} can't be used on {self.name}: {error}") from error
        if not self.owns(adopted):
            raise KernelValueError(
                f"a {type(array).__name__} lies on cuda:{adopted.device.id}, "
                f"it is needed on cuda:{self.current.id}: copy it there"
            )
        return adopted

    def address(self, array: Any) -> int:
        """Address of the first entry of an array."""
        return int(array.data.ptr)

    def staging_buffer(self, size: int, dtype: np.dtype[Any], *, direct: bool) -> StagingBuffer:
        """Make one; memory of the host is pinned, so that copies need not be waited for."""
        return CudaStagingBuffer(self, size, dtype, direct=direct)

    def network(self) -> Network:
        """Begin one by NCCL."""
        return NcclNetwork(self, self.current, self._cupy.cuda, library())

    def synchronize(self) -> None:
        """Wait until all streams of the device have done their work."""
        self.current.synchronize()

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds between two events in CuPy's current stream, before and after a call."""
        with self.current:
            begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
            begin.record()
            call()
            end.record()
            end.synchronize()
            return float(self._cupy.cuda.get_elapsed_time(begin, end)) * 1e-3


@final
class CudaFunction(Function):
    """A kernel that a GPU has loaded.

    Parameters
    ----------
    device : CudaDevice
    compiled : Cubin

    Raises
    ------
    DeviceError
        If the driver can't load it.
    """

    def __init__(self, device: CudaDevice, compiled: Cubin) -> None:
        self.registers = compiled.report.registers
        self.local_bytes = compiled.report.local_bytes
        self._device, self._path = device, compiled.path
        self._allowed, self._shape, self._carveout = _FREE_SHARED_BYTES, (0, 0), -1
        cuda = device.xp.cuda
        self._driver, module = cuda.driver, cuda.function.Module()
        self._errors = (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError)
        try:
            with device.current:
                module.load(compiled.code)
                self._kernel = module.get_function(ENTRY)
        except self._errors as error:
            raise DeviceError(
                f"{device.name} can't load {self._path}: {error}; is the driver older than the "
                f"compiler? {nvrtc.INSTALL}"
            ) from error

    def resident(self, threads: int, shared_bytes: int) -> int:
        """The number of blocks that registers, threads and shared memory suffice for."""
        return self._device.multiprocessor.resident(threads, self.registers, shared_bytes)

    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """Run the kernel on CuPy's current stream."""
        if blocks == 0:
            return  # CuPy would run one
        try:
            with self._device.current:
                self._prepare(threads, shared_bytes)
                # CuPy takes the address; of a structure NumPy would list the fields for that
                whole = arguments.view(f"V{arguments.nbytes}")
                self._kernel((blocks,), (threads,), (whole,), shared_mem=shared_bytes)
        except self._errors as error:
            raise DeviceError(
                f"{self._device.name} can't run {self._path} ({self.registers} registers) in "
                f"{blocks} blocks of {threads} threads with {shared_bytes} bytes of shared memory, "
                f"of which a block can have {self._device.shared_bytes}: {error}"
            ) from error

    def _prepare(self, threads: int, shared_bytes: int) -> None:
        """Ask for shared memory, and for as much of it in all as the blocks need."""
        if shared_bytes == 0 or self._shape == (threads, shared_bytes):
            return
        if shared_bytes > self._allowed:
            self._driver.funcSetAttribute(self._kernel.ptr, _MOST_SHARED, shared_bytes)
            self._allowed = shared_bytes
        multiprocessor = self._device.multiprocessor
        carveout = multiprocessor.carveout(threads, self.registers, shared_bytes)
        if carveout != self._carveout:
            self._driver.funcSetAttribute(self._kernel.ptr, _CARVEOUT, carveout)
        self._shape, self._carveout = (threads, shared_bytes), carveout


@final
class CudaStagingBuffer(StagingBuffer):
    """Copies in a stream of their own, or none.

    Parameters
    ----------
    device : CudaDevice
    size, dtype, direct
        See `Device.staging_buffer`.
    """

    def __init__(
        self, device: CudaDevice, size: int, dtype: np.dtype[Any], *, direct: bool
    ) -> None:
        self._device, self._cuda, self._direct = device, device.xp.cuda, direct
        with device.current:
            self.there: Any = device.xp.zeros(size, dtype)
            self.here: Any = self.there
            self._stream = self._cuda.Stream(non_blocking=True)
            # of the stream in which kernels run, and of that of the copies
            self._launched, self._copied = (self._cuda.Event(disable_timing=True) for _ in range(2))
            if not direct:
                memory = self._cuda.alloc_pinned_memory(max(1, size * dtype.itemsize))
                self.here = np.frombuffer(memory, dtype, size)
                self.here[:] = 0

    def depart(self) -> None:
        """See `StagingBuffer.depart`."""
        with self._device.current:
            self._launched.record(self._cuda.get_current_stream())
            self._stream.wait_event(self._launched)
            if not self._direct and self.here.size:
                to = self.here.ctypes.data, self.here.nbytes
                self.there.data.copy_to_host_async(*to, self._stream)
            self._copied.record(self._stream)

    def wait(self) -> None:
        """See `StagingBuffer.wait`."""
        self._copied.synchronize()

    def enter(self) -> None:
        """See `StagingBuffer.enter`."""
        if self._direct or not self.here.size:
            return
        with self._device.current:
            source = self.here.ctypes.data, self.here.nbytes
            self.there.data.copy_from_host_async(*source, self._stream)
            self._copied.record(self._stream)
            self._cuda.get_current_stream().wait_event(self._copied)
