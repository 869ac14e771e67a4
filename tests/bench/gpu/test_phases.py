"""Phases of the benchmark of a GPU: processes that may die, hang, or have no time."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from femops.bench.gpu import GpuSettings, Products, phases, run_phases
from femops.errors import DeviceError
from support.cuda import gpu_bench
from support.cuda.gpu_bench import QUICK

table = gpu_bench.table


WORKER = """
import os, sys
from femops.bench.gpu import phases
from femops.bench.gpu.operators import GpuCase
from femops_kernels.tuning import database
from femops.bench.gpu import works
from pathlib import Path
from support.cuda.host_device import host_device
table = lambda: Path("tuning.json")
database.users_table = works.users_table = table
works._THREADS, works._RESIDENT = (128,), (256,)
apply = GpuCase.apply

def deadly(case):
    if case.name == "bp1, multilinear, order 2, partial" and not Path("died").exists():
        Path("died").touch()
        os._exit(9)
    apply(case)

GpuCase.apply = deadly
phases.serve(host_device())
"""


@pytest.fixture
def in_phases(monkeypatch, tmp_path):
    """Run phases in processes for which the host is a GPU; takes seconds, returns the result."""
    monkeypatch.chdir(tmp_path)
    tests = str(Path(__file__).parents[2])
    given = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, *filter(None, [given])]))
    few = QUICK | {"products": Products(()), "gas": (), "vectors": (), "faces": ()}
    settings = GpuSettings((2,), ("bp1",), ("multilinear",), dofs=60, **few)
    results = tmp_path / "results"
    results.mkdir()

    def run(seconds: float) -> tuple[dict[str, Any], list[str]]:
        lines: list[str] = []
        command = (sys.executable, "-c", WORKER)
        given = dataclasses.replace(settings, budget=seconds)
        return run_phases(given, results, lines.append, command), lines

    return run


def test_a_phase_that_dies_goes_on_without_what_killed_it(in_phases, tmp_path) -> None:
    result, lines = in_phases(600.0)
    assert [row["name"] for row in result["rows"]] == [
        f"tuned, bp1, multilinear, order 2, {level}" for level in ("matrix-free", "partial")
    ]
    failures = {failure["what"]: failure["message"] for failure in result["failures"]}
    assert "process ended" in failures["bp1, multilinear, order 2, partial"]
    assert result["notes"] == []
    assert len(result["shapes"]) == 2  # which launch kernels without the operator
    assert json.loads((tmp_path / "results" / phases.RESULT).read_text()) == result
    assert sum(line.startswith("a process begins") for line in lines) == 2
    again, lines = in_phases(600.0)
    assert lines == []
    assert again == result


def test_what_there_was_no_time_for_is_noted(in_phases) -> None:
    with pytest.raises(DeviceError, match="nothing was measured"):
        in_phases(0.0)


def test_a_phase_in_which_nothing_opens_a_device_is_one_clear_error(tmp_path) -> None:
    command = (sys.executable, "-c", "print('no GPU'); raise SystemExit(3)")
    with pytest.raises(DeviceError, match="no GPU"):
        run_phases(GpuSettings(), tmp_path, command=command)


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(phases, "_LEAST", 0.0)
    monkeypatch.setattr(phases, "_GRACE", 0.1)
    command, lines = (sys.executable, "-c", "import time; time.sleep(600)"), []
    with pytest.raises(DeviceError, match="nothing was measured"):
        run_phases(GpuSettings(budget=1.0), tmp_path, lines.append, command)
    assert any("ended with code -9" in line for line in lines)
