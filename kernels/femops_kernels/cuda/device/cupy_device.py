"""GPUs through CuPy, which allocates, copies, loads and launches. NVRTC compiles our kernels."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.compiler.cubins import Cubin, cubin
from femops_kernels.cuda.compiler.report import ENTRY
from femops_kernels.cuda.device.ahead import Compilers
from femops_kernels.cuda.device.nccl import NcclNetwork, library
from femops_kernels.device import Device, Function, Network, StagingBuffer
from femops_kernels.errors import DeviceError, KernelValueError

_WARP = 32  # threads
_PARTS = 4  # parts of a multiprocessor, each with its own registers
_REGISTERS = 8  # registers of a thread are allocated in multiples of this


@final
@dataclass(frozen=True)
class Multiprocessor:
    """Registers, threads and memory that the blocks of a multiprocessor share."""

    # registers, threads and blocks: largest number of each
    registers: int
    threads: int
    blocks: int
    shared_bytes: int  # bytes of shared memory.  The part that kernels do not request is cache.
    reserved_bytes: int  # bytes of shared memory that CUDA takes for each block

    @staticmethod
    def of(properties: Mapping[str, Any]) -> Multiprocessor:
        """Multiprocessor of a device, from the properties that CUDA reports."""
        return Multiprocessor(
            registers=properties["regsPerMultiprocessor"],
            threads=properties["maxThreadsPerMultiProcessor"],
            blocks=properties["maxBlocksPerMultiProcessor"],
            shared_bytes=properties["sharedMemPerMultiprocessor"],
            reserved_bytes=properties["reservedSharedMemPerBlock"],
        )

    def room(self, threads: int, registers: int) -> int:
        """Number of blocks that fit the registers and threads, at least one."""
        warps = -(-threads // _WARP)
        each = max(-(-registers // _REGISTERS), 1) * _REGISTERS * _WARP
        most = min(_PARTS * (self.registers // _PARTS // each), self.threads // _WARP)
        return max(1, min(most // warps, self.blocks))

    def resident(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Number of blocks that fit the registers, threads and shared memory, at least one."""
        most = self.shared_bytes // (shared_bytes + self.reserved_bytes)
        return max(1, min(self.room(threads, registers), most))

    def carveout(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Percentage of a multiprocessor's shared memory that `room` blocks need, at most 100."""
        needed = self.room(threads, registers) * (shared_bytes + self.reserved_bytes)
        return min(100, -(-100 * needed // self.shared_bytes))


_ON_DEVICE = (2, 13)  # DLPack's kDLCUDA, kDLCUDAManaged
_ON_HOST = "it lies in the host's memory; cupy.asarray copies it"


def view(cupy: Any, array: Any) -> Any:
    """CuPy array on the memory of another library's array, on any device, without a copy.

    DLPack is preferred.  With it CuPy's current stream waits for all work that the other library
    has launched.  PyTorch's ``__cuda_array_interface__`` does not report its stream.
    """
    if isinstance(array, cupy.ndarray):
        return array
    place = getattr(array, "__dlpack_device__", None)
    if place is not None:
        if int(place()[0]) not in _ON_DEVICE:
            raise ValueError(_ON_HOST)
        return cupy.from_dlpack(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError("it has neither __cuda_array_interface__ nor DLPack; give a CuPy array")
    address = interface["data"][0]
    if not address:  # no entries
        return cupy.asarray(array)
    ordinal = cupy.cuda.runtime.pointerGetAttributes(address).device
    if ordinal < 0:
        raise ValueError(_ON_HOST)
    with cupy.cuda.Device(ordinal):  # on another device asarray would make a copy
        return cupy.asarray(array)


_FREE_SHARED_BYTES = 48 * 1024  # dynamic shared memory that a block has without a request
_NO_DRIVER, _NO_DEVICE = 35, 100  # cudaErrorInsufficientDriver, cudaErrorNoDevice
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT

_compilers = Compilers()
_devices: dict[int, Device] = {}
_lock = threading.RLock()


def open_device(name: str) -> Device:
    """Return the named GPU and make it CuPy's current device. A GPU is one object in a process."""
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
    _asked(cupy.cuda.Device(ordinal).use)  # CuPy makes arrays on its current device
    return _device(cupy, ordinal)


def _device(cupy: Any, ordinal: int) -> Device:
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = CudaDevice(cupy, ordinal)
        return _devices[ordinal]


def adopt(array: Any) -> tuple[Any, Device]:
    """CuPy array on the memory of any library's array, without a copy, and the array's device."""
    cupy = _cupy()
    try:
        adopted = view(cupy, array)
    except (RuntimeError, BufferError, TypeError, ValueError) as error:
        raise KernelValueError(f"a {type(array).__name__} can't be used: {error}") from error
    return adopted, _device(cupy, adopted.device.id)


def take_device(place: int) -> Device:
    """Choose a GPU for one of the processes on a machine, and make it CuPy's current device."""
    cupy = _cupy()
    return open_device(f"cuda:{place % _count(cupy)}")


def describe() -> dict[str, Any]:
    """Facts about the GPUs."""
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
    properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
    return {
        "name": properties["name"].decode(),
        "arch": f"sm_{properties['major']}{properties['minor']}",
        "processors": properties["multiProcessorCount"],
        "memory_bytes": properties["totalGlobalMem"],
    }


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise DeviceError(f"GPUs need CuPy, which is not installed: {nvrtc.INSTALL}") from error
        why = re.sub(r"[=\s]+", " ", str(error)).strip()  # CuPy frames its message with "="
        raise DeviceError(f"CuPy can't be imported ({why}): {nvrtc.INSTALL}") from error
    return cupy


def _count(cupy: Any) -> int:
    return int(_asked(cupy.cuda.runtime.getDeviceCount))


def _asked(call: Callable[[], Any]) -> Any:
    """Do a CUDA call and return its result. Raise a `DeviceError` that explains a failure."""
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
    """Value of `Device.copies_blocks` for devices of an architecture."""
    return int(arch.removeprefix("sm_")) >= 90


@cache
def _prelude() -> str:
    return (Path(__file__).parents[1] / "src" / "device.cuh").read_text(encoding="utf-8")


@final
class CudaDevice(Device):
    """A GPU of NVIDIA, used through CuPy; see `open_device`."""

    def __init__(self, cupy: Any, ordinal: int) -> None:
        found, facts = cupy.cuda.runtime.getDeviceProperties(ordinal), _facts(cupy, ordinal)
        self._cupy: ModuleType = cupy
        self.name: str = facts["name"]
        self.arch: str = facts["arch"]
        self.copies_blocks, self.compiles_later = copies_blocks(self.arch), True
        self.processors: int = facts["processors"]
        self.shared_bytes: int = found["sharedMemPerBlockOptin"]
        self.multiprocessor = Multiprocessor.of(found)
        self.current: Any = cupy.cuda.Device(ordinal)
        """Context manager in which CuPy uses this device."""
        self.bus = str(cupy.cuda.runtime.deviceGetPCIBusId(ordinal))
        self._functions: dict[str, Function] = {}
        self._flying: list[tuple[Any, tuple[Any, ...]]] = []

    @property
    def xp(self) -> ModuleType:
        """The module ``cupy``. Reading this makes the device current in the calling thread.

        Each thread has a current device of its own, at first GPU number 0.
        """
        self.current.use()
        return self._cupy

    def __repr__(self) -> str:
        return f"CudaDevice({self.name}, cuda:{self.current.id}, {self.arch})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the GPU's number. Another process opens its own GPU of this number."""
        return open_device, (f"cuda:{self.current.id}",)

    def function(self, source: str) -> Function:
        """See `Device.function`. Compiled kernels are kept in memory and on disk."""
        if source not in self._functions:
            compiled = cubin(_prelude() + source, self.arch)  # several threads, several kernels
            with _lock:
                if source not in self._functions:
                    self._functions[source] = CudaFunction(self, compiled)
        return self._functions[source]

    def compile_later(self, source: str) -> None:
        if source not in self._functions:
            _compilers.later((self.arch, source), partial(cubin, _prelude() + source, self.arch))

    def clear(self, array: Any) -> None:
        """Set an array to zero on CuPy's current stream."""
        with self.current:  # CuPy takes the current device's stream, wherever the array is
            array.fill(0)

    def upload(self, array: NDArray[Any], stream: Any = None) -> Any:
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
        """See `Device.download`. Without ``stream``, wait for CuPy's current stream."""
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
        """Array in pinned memory of the host, which the GPU reads and writes by itself."""
        count = math.prod(shape)
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, count * dtype.itemsize))
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def _keep(self, stream: Any, *arrays: Any) -> Any:
        """Keep arrays alive until a stream has done its work. Return the event that marks this.

        Else CuPy would reuse their memory while the GPU still reads or writes there.
        """
        done = self._cupy.cuda.Event(disable_timing=True)
        if stream is None:
            done.record()
        else:
            stream.record(done)
        with _lock:  # several threads may add to the list
            left = [flying for flying in self._flying if not flying[0].done]
            self._flying = [*left, (done, arrays)]
        return done

    def download_later(self, array: Any) -> Callable[[], NDArray[Any]]:
        """See `Device.download_later`. The copy runs on CuPy's current stream."""
        with self.current:
            copy = self._pinned(array.shape, array.dtype)
            array.get(out=copy, blocking=False)
            done = self._keep(None, copy)

        def wait() -> NDArray[Any]:
            done.synchronize()
            return copy

        return wait

    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """See `Device.repeatable`. Record the work as a CUDA graph for CuPy's current stream."""
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
        """True if the object is a CuPy array of this device."""
        return isinstance(array, self._cupy.ndarray) and array.device.id == self.current.id

    def adopt(self, array: Any) -> Any:
        """CuPy array on the memory of another library's array, without a copy."""
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
        """Make a staging buffer. Its host memory is pinned, so that copies are asynchronous."""
        return CudaStagingBuffer(self, size, dtype, direct=direct)

    def network(self) -> Network:
        """Begin a network that sends by NCCL."""
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
    """A kernel that a GPU has loaded."""

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
        """See `Function.resident`. Registers, threads and shared memory bound the number."""
        return self._device.multiprocessor.resident(threads, self.registers, shared_bytes)

    def launch(self, blocks: int, threads: int, shared_bytes: int, arguments: NDArray[Any]) -> None:
        """See `Function.launch`. The kernel runs on CuPy's current stream."""
        if blocks == 0:
            return  # CuPy would run one block
        try:
            with self._device.current:
                self._prepare(threads, shared_bytes)
                # CuPy takes the address; for a structure NumPy would first list the fields
                plain_bytes = arguments.view(f"V{arguments.nbytes}")
                self._kernel((blocks,), (threads,), (plain_bytes,), shared_mem=shared_bytes)
        except self._errors as error:
            raise DeviceError(
                f"{self._device.name} can't run {self._path} ({self.registers} registers) in "
                f"{blocks} blocks of {threads} threads with {shared_bytes} bytes of shared memory, "
                f"of which a block can have {self._device.shared_bytes}: {error}"
            ) from error

    def _prepare(self, threads: int, shared_bytes: int) -> None:
        """Ask the driver for the shared memory of a block, and of a multiprocessor's blocks."""
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
    """Staging buffer that copies in a stream of its own, or not at all if ``direct``."""

    def __init__(
        self, device: CudaDevice, size: int, dtype: np.dtype[Any], *, direct: bool
    ) -> None:
        self._device, self._cuda, self._direct = device, device.xp.cuda, direct
        with device.current:
            self.there: Any = device.xp.zeros(size, dtype)
            self.here: Any = self.there
            self._stream = self._cuda.Stream(non_blocking=True)
            # events in the stream of the kernels, and in the stream of the copies
            self._launched, self._copied = (self._cuda.Event(disable_timing=True) for _ in range(2))
            if not direct:
                memory = self._cuda.alloc_pinned_memory(max(1, size * dtype.itemsize))
                self.here = np.frombuffer(memory, dtype, size)
                self.here[:] = 0

    def depart(self) -> None:
        with self._device.current:
            self._launched.record(self._cuda.get_current_stream())
            self._stream.wait_event(self._launched)
            if not self._direct and self.here.size:
                to = self.here.ctypes.data, self.here.nbytes
                self.there.data.copy_to_host_async(*to, self._stream)
            self._copied.record(self._stream)

    def wait(self) -> None:
        self._copied.synchronize()

    def enter(self) -> None:
        if self._direct or not self.here.size:
            return
        with self._device.current:
            source = self.here.ctypes.data, self.here.nbytes
            self.there.data.copy_from_host_async(*source, self._stream)
            self._copied.record(self._stream)
            self._cuda.get_current_stream().wait_event(self._copied)
