"""Messages between the devices of ranks by NCCL: when they arrive, and what is refused."""

import numpy as np
import pytest

import femops
from femops.errors import CommunicatorError
from femops.parallel import gpus
from femops_kernels.cuda.device.nccl import NcclChannel
from femops_kernels.errors import DeviceError
from support.cuda.host_device import HostDevice


@pytest.fixture
def device(comm, monkeypatch):
    """Another one on each rank, whose messages go by NCCL."""
    monkeypatch.setenv(gpus.NCCL, "1")
    device = HostDevice()
    device.bus = f"of rank {comm.rank}"
    return device


def both_ways(comm, device, dtype=np.float64):
    """A channel to the next rank and from the one before; rank 2 sends two numbers."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sizes = {after: comm.rank}, {before: before}
    return gpus.device_channel(device, comm, *sizes, np.dtype(dtype))


@pytest.mark.parallel(2, 3, 4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_arrives_is_there_when_it_is_waited_for(comm, device, dtype):
    channel, before = both_ways(comm, device, dtype), (comm.rank - 1) % comm.size
    assert isinstance(channel, NcclChannel)
    assert channel.outgoing.dtype == channel.incoming.dtype == dtype
    for time in range(3):
        channel.outgoing[:] = time + comm.rank
        channel.ready()
        channel.start()
        assert np.isnan(channel.incoming).all()
        channel.finish()
        assert channel.incoming.tolist() == [time + before] * before


@pytest.mark.parallel(3)
def test_channels_of_all_types_share_a_stream(comm, device):
    first, second = both_ways(comm, device), both_ways(comm, device, np.float32)
    for channel in (first, second):
        channel.outgoing[:] = comm.rank
        channel.ready()
    for channel in (second, first):
        channel.finish()
        assert channel.incoming.tolist() == [(comm.rank - 1) % 3] * ((comm.rank - 1) % 3)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parallel(1)
def test_one_rank_has_nobody_to_send_to(comm, device):
    channel = gpus.device_channel(device, comm, {}, {}, np.dtype(np.float64))
    assert not isinstance(channel, NcclChannel)


@pytest.mark.parallel(3)
@pytest.mark.parametrize(
    ("values", "buses", "message"),
    [
        (["", "", "1"], [0, 1, 2], r"FEMOPS_NCCL is '0' on rank 0, but '1' on"),
        (["yes"] * 3, [0, 1, 2], "FEMOPS_NCCL is 'yes': give 1 for"),
        (["1"] * 3, [0, 0, 1], "3 ranks have 2 GPUs and NCCL takes one"),
    ],
)
def test_what_all_ranks_are_told(comm, device, monkeypatch, values, buses, message):
    monkeypatch.setenv(gpus.NCCL, values[comm.rank])
    device.bus = f"of rank {buses[comm.rank]}"
    with pytest.raises(CommunicatorError, match=message):
        both_ways(comm, device)


@pytest.mark.parallel(2)
def test_a_rank_without_nccl_is_an_error_on_all(comm, device, monkeypatch):
    def missing():
        raise DeviceError("CuPy finds no NCCL")

    if comm.rank == 1:
        monkeypatch.setattr(device, "network", missing)
    expected = DeviceError if comm.rank == 1 else femops.errors.RankError
    with pytest.raises(expected, match="CuPy finds no NCCL"):
        both_ways(comm, device)


@pytest.mark.parallel(2)
def test_an_operator_is_refused_too(comm, device, monkeypatch):
    device.bus = "the same"
    A = femops.mass(femops.H1(femops.box((4, 4), comm=comm), 2, device=device))
    with pytest.raises(CommunicatorError, match="2 ranks have 1 GPUs"):
        A.apply(A.space.zeros())
