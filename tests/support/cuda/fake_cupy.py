"""A module that stands for CuPy on a machine with two GPUs, as far as tests of the door need it."""

import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from femops_kernels.cuda.device import cupy_device
from support.cuda.facts import FACTS


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"cudaError {status}")
        self.status = status


class CUDADriverError(RuntimeError):
    pass


class FakeArray(np.ndarray):
    """An array "on a GPU": NumPy's, with CuPy's attributes."""

    device = SimpleNamespace(id=0)
    data = SimpleNamespace(ptr=4096)

    def set(self, values, stream):
        assert stream.within  # whose memory it is
        FakeEvent.pending.append((self, values))

    def get(self, stream=None, out=None, blocking=True):
        if blocking:
            return np.array(self)
        assert type(out) is np.ndarray
        assert (out.dtype, out.shape) == (self.dtype, self.shape)
        FakeEvent.pending.append((out, np.array(self)))
        return out

    def fill(self, value):
        assert FakeDevice.current() == self.device.id  # by a stream of the current device
        super().fill(value)


class FakeDevice:
    """CuPy's Device, a context manager: each thread has a current one of its own, at first 0."""

    threads = threading.local()

    def __init__(self, ordinal):
        self.id = ordinal

    @staticmethod
    def current():
        return getattr(FakeDevice.threads, "ordinal", 0)

    def use(self):
        FakeDevice.threads.ordinal = self.id

    def __enter__(self):
        before = getattr(FakeDevice.threads, "before", [])
        FakeDevice.threads.before = [*before, FakeDevice.current()]
        self.use()

    def __exit__(self, *_):
        FakeDevice.threads.ordinal = FakeDevice.threads.before.pop()

    def synchronize(self):
        self.waited = True


class FakeStream:
    """CuPy's Stream: what is done while one captures is a graph; `launched` is on which device."""

    launched: ClassVar[list[int]] = []

    def __init__(self, non_blocking):
        assert non_blocking  # others can't capture beside the default stream
        self.within = self.capturing = False
        self.device_id = FakeDevice.current()

    def __enter__(self):
        assert self.device_id == FakeDevice.current()
        self.within = True

    def __exit__(self, *_):
        assert not self.capturing
        self.within = False

    def wait_event(self, event):
        self.waited_for = event

    def record(self, event):
        event.record()

    def begin_capture(self):
        assert self.within
        self.capturing = True

    def end_capture(self):
        self.capturing = False
        return SimpleNamespace(launch=lambda: FakeStream.launched.append(FakeDevice.current()))


class FakeEvent:
    """CuPy's Event: what is copied before it is there when it has been waited for."""

    pending: ClassVar[list[tuple[np.ndarray, np.ndarray]]] = []

    def __init__(self, disable_timing):
        assert disable_timing

    def record(self):
        self.copies, self.done = FakeEvent.pending[:], False
        FakeEvent.pending.clear()

    def synchronize(self):
        self.done = True
        for out, values in self.copies:
            out[:] = values


class FakeModule:
    """CuPy's Module: loads no cubin of another architecture; its function notes its launches."""

    ptr = 99

    def load(self, code):
        assert type(code) is bytes
        if code == b"other":
            raise CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU")

    def get_function(self, name):
        assert name == "entry"
        self.launches = []
        return self

    def __call__(self, grid, block, args, shared_mem):
        assert type(grid) is type(block) is tuple
        (structure,) = args
        assert type(structure) is np.ndarray
        assert structure.size == 1
        assert not structure.dtype.names, "CuPy asks for the address, NumPy lists all fields"
        if block[0] > 1024:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE")
        given = ctypes.string_at(structure.__array_interface__["data"][0], structure.nbytes)
        self.launches.append((grid, block, given, shared_mem, FakeDevice.current()))


PLACES = {0x100: 0, 0x200: 1, 0x300: -2}
"""Of addresses the device; CUDA says so of memory that it does not know."""


def on(ordinal, array):
    """An array on a device."""
    there = array.view(FakeArray)
    there.device = SimpleNamespace(id=ordinal)
    return there


def asarray(array):
    """As CuPy's, which copies what lies on another device than the current one."""
    memory, here = array.memory, FakeDevice.current()
    return memory if memory.device.id == here else on(here, memory.copy())


def pinned(size):
    """As CuPy's, which gives more than was asked for, and what stood there before."""
    return bytearray(b"\1" * max(512, 1 << (size - 1).bit_length()))


@pytest.fixture
def cupy(monkeypatch):
    """A module that stands for CuPy on a machine with two GPUs."""
    fake = ModuleType("cupy")
    fake.ndarray = FakeArray
    fake.array = lambda array, order: on(FakeDevice.current(), np.array(array, order=order))
    fake.empty = lambda shape, dtype: on(FakeDevice.current(), np.full(shape, 7, dtype))
    fake.asarray = asarray
    fake.from_dlpack = lambda array: array.memory
    fake.attributes = []
    fake.cuda = SimpleNamespace(
        Device=FakeDevice,
        runtime=SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=lambda: 2,
            getDevice=FakeDevice.current,
            getDeviceProperties=lambda ordinal: FACTS,
            deviceGetPCIBusId=lambda ordinal: f"0000:{ordinal:02d}:00.0",
            pointerGetAttributes=lambda address: SimpleNamespace(device=PLACES[address]),
        ),
        driver=SimpleNamespace(
            CUDADriverError=CUDADriverError,
            funcSetAttribute=lambda *asked: fake.attributes.append(asked),
        ),
        function=SimpleNamespace(Module=FakeModule),
        Stream=FakeStream,
        Event=FakeEvent,
        alloc_pinned_memory=pinned,
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(cupy_device, "_devices", {})
    monkeypatch.setattr(FakeDevice, "threads", threading.local())
    return fake
