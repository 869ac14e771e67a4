"""Fixtures: devices of ranks, and how messages get from one to others."""

from __future__ import annotations

from typing import Any

import pytest

from femops.parallel import gpus
from support.cuda.guarded import GuardedDevice, guarded_device

WAYS = ["staged", "direct", "nccl"]


@pytest.fixture(scope="module")
def device() -> GuardedDevice:
    """Of as little shared memory as conjugate gradients take: meshes take several blocks."""
    return guarded_device(shared_bytes=14 * 1024)


def sent(way: str, comm: Any, device: GuardedDevice, patch: pytest.MonkeyPatch) -> GuardedDevice:
    """The device of this rank, whose messages go this way."""
    patch.setattr(device, "bus", f"of rank {comm.rank}")
    patch.setenv(gpus.CUDA_AWARE, str(int(way == "direct")))
    patch.setenv(gpus.NCCL, str(int(way == "nccl")))
    return device


@pytest.fixture
def way(request: Any, monkeypatch: pytest.MonkeyPatch, comm: Any, device: GuardedDevice) -> str:
    """How messages get from a device to others."""
    sent(request.param, comm, device, monkeypatch)
    return str(request.param)


@pytest.fixture(params=["host", "staged", "nccl"])
def place(request: Any, monkeypatch: pytest.MonkeyPatch, comm: Any, device: GuardedDevice) -> Any:
    """Where ranks work: None for the host."""
    return None if request.param == "host" else sent(request.param, comm, device, monkeypatch)
