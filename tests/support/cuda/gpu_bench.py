"""What tests of a GPU's benchmark share: settings that take no time, the host as a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from femops.bench import gpu
from femops.bench.gpu import phases, works
from femops.bench.gpu.run import Record
from femops_kernels.cuda.rates import Amounts
from femops_kernels.tuning import database
from support.cuda.host_device import HostDevice, host_device

TINY = Amounts(copied=1024, added=64, rounds=16, seconds=0.0)
QUICK: dict[str, Any] = {"seconds": 0.0, "amounts": TINY}
QUICK["products"] = gpu.Products((2,), (20,), layouts=("contiguous",))
QUICK["gas"] = (gpu.GasCase(1, 0),)
QUICK["vectors"] = (gpu.VectorsCase("bp3", 2, 5, 100),)
QUICK["faces"] = (gpu.FacesCase("advection gll", 1, 30),)
QUICK["refined"] = (gpu.RefinedCase(1, "partial", 300),)
QUICK["simplices"] = tuple(
    gpu.SimplicesCase("diffusion", 2, dofs=300, cells=cells) for cells in ("tetrahedra", "mixed")
)


def small(
    device: HostDevice, orders: tuple[int, ...], *problems: str, **more: Any
) -> gpu.GpuSettings:
    """Settings for few dofs of these orders and problems, on multilinear meshes unless told."""
    given = {"meshes": ("multilinear",), "dofs": 60, "device": device} | QUICK | more
    return gpu.GpuSettings(orders, problems or ("bp1",), **given)


def measured(settings: gpu.GpuSettings, file: Path, *work: str) -> dict[str, Any]:
    """The result of some kinds of work, of which nothing fails, and nothing is measured again."""
    result, lines = gpu.run_gpu(settings, None, Record(file), work), list[str]()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["failures"] == result["notes"] == []
    assert result["agrees"]
    again = gpu.run_gpu(settings, lines.append, Record.of(file), work)
    assert all(again[name] == result[name] for name in work)
    assert not any(": " in line for line in lines)
    return result


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A user's table of launch shapes in a folder of its own."""
    path = tmp_path / "tuning.json"
    for module in (database, works, phases):
        monkeypatch.setattr(module, "users_table", lambda: path)
    return path


@pytest.fixture(scope="module")
def shared() -> HostDevice:
    return host_device()


@pytest.fixture
def few_shapes(monkeypatch):
    """To be compiled."""
    for name in ("_THREADS", "_RESIDENT"):
        monkeypatch.setattr(works, name, getattr(works, name)[1:3])
    monkeypatch.setattr(works, "_STAGED", ())
