"""Operators on many vectors in the benchmark of a GPU."""

from __future__ import annotations

import json

import pytest

from femops.bench import gpu
from femops.bench.bounds import Demand
from femops.bench.gpu import GpuSettings
from femops.bench.gpu.record import Record
from femops.operators.operator import Operator
from support.cuda import gpu_bench
from support.cuda.gpu_bench import QUICK, TINY
from support.cuda.host_device import HostDevice

table = gpu_bench.table
shared = gpu_bench.shared


@pytest.fixture
def settings(shared: HostDevice) -> GpuSettings:
    given = {"vectors": QUICK["vectors"], "amounts": TINY}
    return GpuSettings(seconds=0.0, device=shared, **given)


def test_many_vectors_beside_one(settings: GpuSettings, tmp_path) -> None:
    file = tmp_path / "vectors.json"
    result = gpu.run_gpu(settings, None, Record(file), ("vectors",))
    (row,) = result["vectors"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["failures"] == result["notes"] == []
    assert result["agrees"]
    assert 0 <= row["off_one"] < 1e-13
    assert (row["problem"], row["order"], row["nvec"]) == ("bp3", 2, 5)
    assert row["dofs_per_second"] == row["dofs"] * 5 / row["seconds_median"]
    assert row["over_one_by_one"] == 5 * row["seconds_one"] / row["seconds_median"]
    assert gpu.run_gpu(settings, None, Record.of(file), ("vectors",))["vectors"] == [row]


def test_wrong_vectors_are_told(settings: GpuSettings, monkeypatch) -> None:
    sound = HostDevice.function

    def function(self, source):
        if "MANY = true" in source:
            source = source.replace("a.alpha * line[n]", "a.alpha * line[n] * T(1.000001)")
        return sound(self, source)

    monkeypatch.setattr(HostDevice, "function", function)
    result = gpu.run_gpu(settings, works=("vectors",))
    assert result["vectors"][0]["off_one"] > 1e-10
    assert not result["agrees"]


def test_vectors_that_are_no_numbers_are_told(settings: GpuSettings, monkeypatch) -> None:
    def broken(operator, many, out):
        out.panels[...] = float("nan")
        return out

    monkeypatch.setattr(Operator, "apply_many", broken)
    result = gpu.run_gpu(settings, works=("vectors",))
    assert result["vectors"] == []
    assert [one["message"] for one in result["failures"]] == [
        "OperatorError: results are not finite"
    ]


def test_what_is_stored_is_read_once() -> None:
    one = Demand(read=100.0 + 80.0, written=80.0, shared=7.0, flops=5.0, atomics=3.0)
    assert one.of_vectors(4, 10) == Demand(100.0 + 320.0, 320.0, 28.0, 20.0, 12.0)
