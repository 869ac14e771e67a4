"""The command that benchmarks a GPU, on the host as a GPU."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from typing import Any

import pytest

from femops.bench import gpu
from femops.bench.gpu import GpuSettings
from femops.bench.gpu.operators import GpuCase
from femops.cli import main
from femops_kernels.cuda.device import cupy_device
from support.cuda import gpu_bench
from support.cuda.gpu_bench import QUICK

table = gpu_bench.table
shared = gpu_bench.shared
few_shapes = gpu_bench.few_shapes


@pytest.fixture
def bench(shared, monkeypatch, capsys, tmp_path):
    """The command where the host is a GPU, in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cupy_device, "open_device", lambda _: shared)
    monkeypatch.setattr(gpu, "GpuSettings", partial(GpuSettings, **QUICK))
    few = ("--order", "2", "--dofs", "60", "--mesh", "multilinear", "--level", "matrix-free")

    def call(*words: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["bench", "gpu", *few, *words])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_command(bench, tmp_path) -> None:
    code, out, err = bench("--problem", "bp1", "--json", "--plot")
    assert code == 0
    (row,) = json.loads(out)["rows"]
    assert row["problem"] == "bp1"
    assert (tmp_path / "bench.png").stat().st_size > 1000
    line = r"^ +\d+\.\d s  bp1, multilinear, order 2, matrix-free: .* dofs/s"
    assert re.search(line, err, re.MULTILINE)


def test_command_prints_tables_and_fails_where_results_differ(bench, monkeypatch) -> None:
    monkeypatch.setattr("femops.bench.gpu.operators.off_cpu", lambda *_: 1e-9)
    code, out, _ = bench("--problem", "bp1")
    assert code == 1
    for words in (
        *("the host, as a GPU (host), 4 multiprocessors", "matrix-free *", "atomics"),
        "results differ by more than round-off",
    ):
        assert words in out


def test_command_fails_where_a_part_fails(bench, monkeypatch) -> None:
    def broken(_: GpuCase) -> None:
        raise RuntimeError("too many resources")

    monkeypatch.setattr(GpuCase, "apply", broken)
    code, out, _ = bench("--problem", "bp1")
    assert code == 1
    name = "bp1, multilinear, order 2, matrix-free"
    assert f"failed: {name}: RuntimeError: too many resources" in out


@pytest.mark.usefixtures("few_shapes")
def test_command_tries_shapes(bench, table) -> None:
    code, out, _ = bench("--problem", "bp1", "--sweep")
    assert code == 0
    assert f"written to {table}" in out


def test_command_refuses_what_it_has_no_use_for(bench) -> None:
    for words, told in {
        ("--sweep", "--plot"): "give --sweep or --plot, not both",
        ("--sweep", "--into", "results"): "give --sweep or --into",
        ("--threads", "1"): "No such option: --threads",
        ("--footprint", "ram"): "No such option: --footprint",
        ("--ranks", "2"): "No such option: --ranks",
    }.items():
        code, _, err = bench(*words)
        assert code == 2
        assert told in err


def test_no_gpu_is_one_clear_error(capsys, monkeypatch) -> None:
    """Whatever is missing here: CuPy, the driver or the GPU."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit) as stop:
        main(["bench", "gpu", "--json"])
    out, err = capsys.readouterr()
    assert stop.value.code == 1
    assert out == ""
    assert err.startswith("femops: ")
    assert err.count("\n") == 1
    assert 'pip install "cupy-cuda13x[ctk]"' in err
