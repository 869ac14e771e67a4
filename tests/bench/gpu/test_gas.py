"""Steps of gas dynamics in the benchmark of a GPU."""

from __future__ import annotations

import json

from femops.bench import gpu
from femops.bench.gpu import GpuSettings
from femops.bench.gpu.record import Record
from support.cuda import gpu_bench
from support.cuda.gpu_bench import QUICK
from support.cuda.host_device import HostDevice

table = gpu_bench.table
shared = gpu_bench.shared


def test_steps_of_a_gas(shared: HostDevice, tmp_path) -> None:
    settings = GpuSettings(device=shared, **QUICK)
    file = tmp_path / "gas.json"
    result = gpu.run_gpu(settings, None, Record(file), ("gas",))
    (row,) = result["gas"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["failures"] == result["notes"] == []
    assert (row["order"], row["elements"], row["dofs"]) == (1, 8, 3 * 3**3 + 8)
    assert result["agrees"]
    assert row["off_cpu"] < 1e-9
    assert min(row["seconds_step"], row["seconds_forces"], row["forces_points_per_second"]) > 0
    assert gpu.run_gpu(settings, None, Record.of(file), ("gas",))["gas"] == [row]
