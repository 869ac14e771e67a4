"""The host as a device whose arrays are no NumPy arrays: what moves to the host or back shows."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, final

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from femops_kernels.cuda.device import cupy_device
from femops_kernels.device import Device, Network, StagingBuffer
from femops_kernels.errors import KernelValueError
from support.cuda.host_device import HostDevice, host_device
from support.cuda.nccl import network_of


@final
class GuardedArray(NDArrayOperatorsMixin):
    """An array of a `GuardedDevice`, as CuPy's are: NumPy can't have its numbers unasked."""

    def __init__(self, device: GuardedDevice, host: NDArray[Any]) -> None:
        self.device, self.host = device, host

    def get(self) -> NDArray[Any]:
        """A copy on the host."""
        return self.device.download(self)

    # --- what NumPy asks ----------------------------------------------------------------------

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError("an array of the device became one of the host unasked: call get()")

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        return self.device.call(getattr(ufunc, method), *given, **options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.host.__array_interface__)

    # --- what arrays have ---------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # as __array_interface__, by which NumPy would take the numbers
            raise AttributeError(name)
        found = getattr(self.host, name)
        if name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "flags", "strides"):
            return found
        if callable(found):
            return lambda *given, **options: self.device.call(found, *given, **options)
        return self.device.call(lambda: found)

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, key: Any) -> Any:
        return self.device.call(self.host.__getitem__, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.device.call(self.host.__setitem__, key, value)

    def __bool__(self) -> bool:
        self.device.looks += 1
        return bool(self.host)

    def __float__(self) -> float:
        self.device.looks += 1
        return float(self.host)

    def __int__(self) -> int:
        self.device.looks += 1
        return int(self.host)


@final
class _Functions(ModuleType):
    """NumPy's functions for the arrays of a device."""

    def __init__(self, device: GuardedDevice, module: ModuleType = np) -> None:
        super().__init__("guarded")
        self._device, self._module = device, module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return _Functions(self._device, found)
        if not callable(found) or isinstance(found, type):
            return found
        return lambda *given, **options: self._device.call(found, *given, **options)

    def may_share_memory(self, a: Any, b: Any) -> Any:
        """CuPy's says no if the arrays' memory was not allocated, or lent, as one."""
        raise AssertionError("CuPy knows nothing of memory that other libraries lend")

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        """As CuPy's, which copies what is on the host."""
        if not self._device.owns(array):
            array = self._device.upload(np.asarray(array))
        return array if dtype is None else array.astype(dtype, copy=False)


def _as_host(name: str) -> Any:
    """The method of a device's host, which is given the memory of the device's arrays."""

    def method(self: GuardedDevice, *given: Any, **options: Any) -> Any:
        return getattr(self.host, name)(*map(self._inside, given), **options)

    return method


@final
class GuardedDevice(Device):
    """A `HostDevice` with arrays of its own.

    Attributes
    ----------
    looks : int
        How often a number was looked at from the host, as ``if`` does.
    made : int
        How many arrays were made there.
    """

    function, clear, address = map(_as_host, ("function", "clear", "address"))
    download, download_later = map(_as_host, ("download", "download_later"))
    synchronize, repeatable, seconds = map(_as_host, ("synchronize", "repeatable", "seconds"))

    def __init__(self, host: HostDevice) -> None:
        self.host, self.looks, self.made = host, 0, 0
        self.name, self.arch, self.processors = "the guarded host", host.arch, host.processors
        self.shared_bytes: int = host.shared_bytes
        self.copies_blocks = host.copies_blocks
        self._functions = _Functions(self)

    @property
    def xp(self) -> ModuleType:
        return self._functions

    def call(self, function: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """A function of NumPy on arrays of the device; no array of the host may be among them."""
        inside = [self._inside(value) for value in given]
        result = function(*inside, **{name: self._inside(v) for name, v in options.items()})
        if not isinstance(result, np.ndarray | np.generic) or isinstance(result, np.dtype):
            return result
        for value, array in zip((*given, *options.values()), inside, strict=False):
            if result is array:
                return value
        self.made += isinstance(result, np.ndarray) and result.base is None
        return GuardedArray(self, np.asarray(result))

    def _inside(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._inside(part) for part in value)
        if isinstance(value, GuardedArray):
            assert value.device is self, "an array of another device"
            return value.host
        assert not isinstance(value, np.ndarray), "an array of the host among those of the device"
        return value

    def upload(self, array: NDArray[Any], stream: Any = None) -> GuardedArray:
        assert isinstance(array, np.ndarray)
        return GuardedArray(self, self.host.upload(array, stream))

    def owns(self, array: Any) -> bool:
        return isinstance(array, GuardedArray) and array.device is self

    def adopt(self, array: Any) -> GuardedArray:
        if isinstance(array, GuardedArray):
            raise KernelValueError("the array lies on another device")
        return GuardedArray(self, self.host.adopt(array))

    def staging_buffer(
        self, size: int, dtype: np.dtype[Any], *, direct: bool
    ) -> GuardedStagingBuffer:
        return GuardedStagingBuffer(
            self, self.host.staging_buffer(size, dtype, direct=direct), direct=direct
        )

    def network(self) -> Network:
        return network_of(self, self.host)

    def __reduce__(self) -> tuple[Any, ...]:
        """As of a GPU: a copy is the object itself."""
        _guarded[id(self)] = self
        return _same, (id(self),)


@final
class GuardedStagingBuffer(StagingBuffer):
    """That of the host, with an array of the device at one end, or at both."""

    def __init__(self, device: GuardedDevice, way: StagingBuffer, *, direct: bool) -> None:
        self.there = GuardedArray(device, way.there)
        self.here = self.there if direct else way.here
        self._way = way

    def depart(self) -> None:
        self._way.depart()

    def wait(self) -> None:
        self._way.wait()

    def enter(self) -> None:
        self._way.enter()


def _same(key: int) -> GuardedDevice:
    return _guarded[key]


_guarded: weakref.WeakValueDictionary[int, GuardedDevice] = weakref.WeakValueDictionary()


def guarded_device(**options: Any) -> GuardedDevice:
    """A device for a test; see `host_device`."""
    return GuardedDevice(host_device(**options))


def _small() -> GuardedDevice:
    return guarded_device(shared_bytes=12 * 1024)


@pytest.fixture(scope="module")
def small_device() -> GuardedDevice:
    """With little shared memory: even small meshes take several blocks."""
    return _small()


def gpu() -> Device:
    """A GPU; the test is skipped where there is none."""
    if not cupy_device.describe()["devices"]:
        pytest.skip("there is no GPU")
    return cupy_device.open_device("cuda")


@pytest.fixture(scope="module", params=["the host as a GPU", "a GPU"])
def any_device(request: pytest.FixtureRequest) -> Device:
    """Device as `small_device`, and a GPU where there is one."""
    return gpu() if request.param == "a GPU" else _small()
