"""Copies between a GPU and memory that MPI takes, as CuPy is asked for them; and their stand-in."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from femops_kernels.cuda.device import cupy_device
from femops_kernels.cuda.device.cupy_device import CudaStagingBuffer
from support.cuda.logged_cupy import LoggedCuda


class FakeCuda(LoggedCuda):
    """What CuPy's streams, events and copies are asked for, in order."""

    def alloc_pinned_memory(self, size):
        self.log.append(("the host", "pins", size))
        return bytearray(b"\1" * max(512, size))  # CuPy rounds up

    def zeros(self, size, dtype):
        def copied(way):
            return lambda place, nbytes, stream: self.log.append((stream.name, way, nbytes))

        data = SimpleNamespace(copy_to_host_async=copied("down"), copy_from_host_async=copied("up"))
        return SimpleNamespace(size=size, dtype=dtype, data=data)


def staging_buffer(size, *, direct):
    """One on a device that stands for a GPU, and its log."""
    cuda = FakeCuda()
    device = SimpleNamespace(xp=SimpleNamespace(cuda=cuda, zeros=cuda.zeros), current=nullcontext())
    return CudaStagingBuffer(device, size, np.dtype(np.float32), direct=direct), cuda.log


def test_copies_are_beside_kernels_and_behind_those_that_they_need():
    way, log = staging_buffer(5, direct=False)
    assert (way.here.dtype, way.here.tolist()) == (np.float32, [0.0] * 5)
    assert log == [("the host", "pins", 20)]
    log.clear()
    for work in (way.depart, way.wait, way.enter):
        work()
    assert log == [
        ("kernels", "records", "kernels 0"),
        ("copies", "waits for", "kernels 0"),
        ("copies", "down", 20),
        ("copies", "records", "copies 3"),
        ("the host", "waits for", "copies 3"),
        ("copies", "up", 20),
        ("copies", "records", "copies 6"),
        ("kernels", "waits for", "copies 6"),
    ]


@pytest.mark.parametrize(("size", "direct"), [(5, True), (0, False)])
def test_without_a_copy_the_host_still_waits(size, direct):
    way, log = staging_buffer(size, direct=direct)
    assert (way.here is way.there) == direct
    log.clear()
    for work in (way.depart, way.wait, way.enter):
        work()
    assert log == [
        ("kernels", "records", "kernels 0"),
        ("copies", "waits for", "kernels 0"),
        ("copies", "records", "copies 2"),
        ("the host", "waits for", "copies 2"),
    ]


def test_the_real_cupy_has_what_is_asked_for():
    cupy = pytest.importorskip("cupy")
    for name in ("Stream", "Event", "get_current_stream", "alloc_pinned_memory", "Device"):
        assert hasattr(cupy.cuda, name)
    assert hasattr(cupy.cuda.Stream, "wait_event")
    assert hasattr(cupy.cuda.Device, "use")
    assert hasattr(cupy.cuda.runtime, "deviceGetPCIBusId")
    for name in ("copy_to_host_async", "copy_from_host_async"):
        assert hasattr(cupy.cuda.MemoryPointer, name)


def test_numbers_come_back_from_a_gpu():
    """Where there is one: out, and in again."""
    if not cupy_device.describe()["devices"]:
        pytest.skip("there is no GPU")
    device = cupy_device.open_device("cuda")
    way = device.staging_buffer(1000, np.dtype(np.float64), direct=False)
    way.there[:] = device.upload(np.arange(1000.0))
    way.depart()
    way.wait()
    assert np.array_equal(way.here, np.arange(1000.0))
    way.here[:] += 1.0
    way.enter()
    assert np.array_equal(device.download(way.there), np.arange(1.0, 1001.0))
