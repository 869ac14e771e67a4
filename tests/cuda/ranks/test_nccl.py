"""Messages between GPUs, as CuPy and NCCL are asked for them."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from femops_kernels.cuda.device import cupy_device
from femops_kernels.cuda.device import nccl as door
from femops_kernels.cuda.device.cupy_device import CudaDevice
from femops_kernels.cuda.device.nccl import NcclNetwork
from femops_kernels.errors import DeviceError
from support.cuda.logged_cupy import LoggedCuda


class FakeNcclError(RuntimeError):
    """As of ``cupy.cuda.nccl``."""


class FakeCuPy(LoggedCuda):
    """What ``cupy.cuda`` and ``cupy.cuda.nccl`` are asked for, in order."""

    NCCL_UINT8, NcclError = 1, FakeNcclError

    def get_unique_id(self):
        return b"k" * 128

    def NcclCommunicator(self, *given):
        self.log.append(("joins", *given))
        return SimpleNamespace(
            send=lambda *message: self.log.append(("sends", *message)),
            recv=lambda *message: self.log.append(("receives", *message)),
        )

    def groupStart(self):
        self.log.append("group")

    def groupEnd(self):
        self.log.append("end")


@pytest.fixture
def fake():
    return FakeCuPy()


@pytest.fixture
def network(fake):
    """Rank 1 of 4."""
    device = SimpleNamespace(xp=np, address=lambda array: array.ctypes.data, name="a GPU")
    network = NcclNetwork(device, nullcontext(), fake, fake)
    network.join(network.key(), 1, 4)
    return network


def test_messages_are_in_the_order_of_streams_and_the_host_waits_for_nothing(fake, network):
    assert fake.log == [("joins", 4, b"k" * 128, 1)]
    channel = network.channel({3: 2, 0: 5}, {0: 1, 2: 0, 3: 4}, np.dtype(np.float32))
    fake.log.clear()
    channel.ready()
    channel.start()
    channel.finish()
    out, into = channel.outgoing.ctypes.data, channel.incoming.ctypes.data
    assert fake.log == [
        ("kernels", "records", "kernels 0"),
        ("messages", "waits for", "kernels 0"),
        "group",
        ("receives", into, 4, 1, 0, 99),
        ("receives", into + 4, 16, 1, 3, 99),
        ("sends", out, 20, 1, 0, 99),
        ("sends", out + 20, 8, 1, 3, 99),
        "end",
        ("messages", "records", "messages 8"),
        ("kernels", "waits for", "messages 8"),
    ]


def test_without_messages_nothing_is_asked_for(fake, network):
    channel = network.channel({}, {2: 0}, np.dtype(np.float64))
    fake.log.clear()
    for work in (channel.ready, channel.start, channel.finish):
        work()
    assert channel.outgoing.size == channel.incoming.size == len(fake.log) == 0


def test_errors_name_nccl_and_groups_end(fake, network):
    channel = network.channel({2: 1}, {}, np.dtype(np.float64))

    def fail(*_):
        raise FakeNcclError("NCCL_ERROR_REMOTE_ERROR: a rank is gone")

    network._ranks.send = fail
    with pytest.raises(DeviceError, match="NCCL failed on a GPU: NCCL_ERROR_REMOTE_ERROR: a rank"):
        channel.ready()
    assert fake.log[-1] == "end"


def test_a_gpu_begins_its_network_with_what_cupy_has(fake, monkeypatch):
    monkeypatch.setattr(cupy_device, "library", lambda: fake)
    device = object.__new__(CudaDevice)
    device.current, device._cupy = nullcontext(), SimpleNamespace(cuda=fake)
    network = device.network()
    network.join(network.key(), 0, 2)
    assert fake.log == [("joins", 2, b"k" * 128, 0)]


def test_cupy_without_nccl_is_refused_with_the_fix(monkeypatch):
    cuda = SimpleNamespace(nccl=SimpleNamespace(available=False))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    fix = r"CuPy finds no NCCL.*: pip install nvidia-nccl-cu13, or nv"
    with pytest.raises(DeviceError, match=fix):
        door.library()


def test_the_real_cupy_takes_what_it_is_given():
    """It needs no GPU for that: without a communicator NCCL refuses messages of the right form."""
    pytest.importorskip("cupy")
    try:
        nccl = door.library()
    except DeviceError as error:
        pytest.skip(str(error))
    assert len(nccl.get_unique_id()) == 128
    assert nccl.NCCL_UINT8 == 1
    none = nccl.NcclCommunicator.__new__(nccl.NcclCommunicator)
    for message in (none.send, none.recv):
        nccl.groupStart()
        with pytest.raises(nccl.NcclError, match="INVALID_ARGUMENT"):
            message(0, 8, nccl.NCCL_UINT8, 1, 0)
        with pytest.raises(nccl.NcclError, match="INVALID_ARGUMENT"):
            nccl.groupEnd()
    with pytest.raises((nccl.NcclError, ValueError), match=r"128|CUDA"):
        nccl.NcclCommunicator(2, b"short", 0)
