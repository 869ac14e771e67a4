"""GPUs of ranks: the choice of a GPU for each rank, and channels between GPUs."""

from __future__ import annotations

import ctypes
import os
import warnings
import zlib
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from femops.errors import CommunicatorError
from femops.parallel import launch
from femops.parallel.comm import Communicator, Kind, Sizes, check, check_same
from femops_kernels.device import Device, DeviceChannel, Network
from femops_kernels.exclusive import Derived

CUDA_AWARE = "FEMOPS_CUDA_AWARE_MPI"
"""Environment variable: 1 if MPI can send from memory of GPUs, 0 if not; detected if unset."""

NCCL = "FEMOPS_NCCL"
"""Environment variable: 1 for messages between GPUs by NCCL, 0 or unset for MPI."""

_devices = Derived[Communicator, Device]()
_networks = Derived[Communicator, Network]()


def rank_device(name: str, comm: Communicator) -> Device:
    """Return the GPU of a rank. Collective."""
    # CuPy is slow to import
    from femops_kernels.cuda.device.cupy_device import open_device

    if comm.size == 1:
        return open_device(name)
    if name != "cuda":
        with check(comm):
            return open_device(name)
    return _devices.get(comm, partial(_own_device, comm))


def _own_device(comm: Communicator) -> Device:
    """Choose one GPU per rank if there are enough. Else warn once that ranks share GPUs."""
    from femops_kernels.cuda.device.cupy_device import take_device

    with check(comm):
        device = take_device(comm.node.place)
    users = _users(device, comm)
    if len(users) < comm.size and comm.rank == 0:
        warnings.warn(
            f"{comm.size} ranks have {len(users)} GPUs, up to {max(users)} ranks share one: it "
            "works, but one rank per GPU is faster",
            stacklevel=2,
        )
    return device


def _users(device: Device, comm: Communicator) -> list[int]:
    """Number of ranks that use each GPU. Collective."""
    users = comm.gather_all(np.array([comm.node.first, zlib.crc32(device.bus.encode())]))
    counts: list[int] = np.unique(users, axis=0, return_counts=True)[1].tolist()
    return counts


def device_channel(
    device: Device, comm: Communicator, send: Sizes, receive: Sizes, dtype: Kind
) -> DeviceChannel:
    """Make a channel between the GPUs of ranks. Collective."""
    from femops_kernels.cuda.ranks.messages import StagedChannel

    if _asks_for_nccl(comm):
        network = _networks.get(comm, partial(_join, device, comm), device)
        return network.channel(send, receive, dtype)
    direct = takes_device_memory(comm)
    out, into = (
        device.staging_buffer(sum(sizes.values()), dtype, direct=direct)
        for sizes in (send, receive)
    )
    return StagedChannel(comm.channel(send, receive, dtype, (out.here, into.here)), out, into)


def _asks_for_nccl(comm: Communicator) -> bool:
    """True if all ranks request NCCL. Raise on all ranks if only some do. Collective."""
    asked = os.environ.get(NCCL) or "0"
    check_same(comm, "messages between GPUs", {NCCL: asked})
    if asked not in ("0", "1"):
        raise CommunicatorError(f"{NCCL} is {asked!r}: give 1 for messages by NCCL, 0 for MPI")
    return asked == "1" and comm.size > 1


def _join(device: Device, comm: Communicator) -> Network:
    """Make the NCCL network of all ranks' GPUs. Collective."""
    with check(comm):
        network = device.network()
        key = network.key() if comm.rank == 0 else b""
    users = _users(device, comm)
    if len(users) < comm.size:
        raise CommunicatorError(
            f"{NCCL} is 1, but {comm.size} ranks have {len(users)} GPUs and NCCL takes one rank of "
            f"each: start as many ranks as there are GPUs, or set {NCCL}=0 for messages by MPI"
        )
    # Not inside `check`: each rank waits for the others here
    network.join(comm.broadcast(key), comm.rank, comm.size)
    return network


def takes_device_memory(comm: Communicator) -> bool:
    """True if MPI can send from a GPU's memory and receive into it."""
    asked = os.environ.get(CUDA_AWARE)
    if asked not in (None, "", "0", "1"):
        raise CommunicatorError(
            f"{CUDA_AWARE} is {asked!r}: give 1 if MPI takes memory of GPUs, else 0"
        )
    if asked:
        return asked == "1"
    return comm.size > 1 and _is_cuda_aware()


@cache
def _is_cuda_aware() -> bool:
    """True if MPI reports that it is CUDA-aware, by MPI 4.1's memory kinds or by MPIX."""
    mpi = launch.mpi()
    info = mpi.COMM_WORLD.Get_info()
    kinds = info.Get("mpi_memory_alloc_kinds") or ""
    info.Free()
    if any(kind.split(":")[0] == "cuda" for kind in kinds.split(",")):
        return True
    return any(_says_so(path) for path in _libraries())


def _libraries() -> list[str]:
    """Paths of the MPI libraries that this process has loaded."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    # a path of another library may have any bytes
    lines = (line.split(maxsplit=5) for line in os.fsdecode(maps.read_bytes()).split("\n"))
    paths = {words[5] for words in lines if len(words) == 6}
    return sorted(path for path in paths if Path(path).name.startswith("libmpi"))


def _says_so(path: str) -> bool:
    try:
        query: Any = ctypes.CDLL(path).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return False
    return bool(query())
