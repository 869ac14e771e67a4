"""Products of small matrices beside cuBLAS, in the benchmark of a GPU."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from femops.bench import gpu
from femops.bench.gpu import GpuSettings
from femops.bench.gpu.record import Record
from femops.cli import main
from femops.errors import TensorError
from femops_kernels.cuda.device import cupy_device
from support.cuda import gpu_bench
from support.cuda.gpu_bench import TINY
from support.cuda.host_device import HostDevice

table = gpu_bench.table
shared = gpu_bench.shared
WORKS = ("products",)


def test_products_beside_cublas(shared: HostDevice, tmp_path) -> None:
    products = gpu.Products((2, 3), (7, 40), ("float64", "complex64"))
    settings = GpuSettings(products=products, seconds=0.0, amounts=TINY, device=shared)
    file = tmp_path / "products.json"
    result = gpu.run_gpu(settings, None, Record(file), WORKS)
    rows = result["products"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["failures"] == result["notes"] == []
    assert {(row["n"], row["members"], row["dtype"]) for row in rows} == {
        (n, members, dtype) for n in (2, 3) for members in (7, 40) for dtype in products.dtypes
    }
    ways = [(row["implementation"], row["layout"]) for row in rows[:3]]
    assert ways == [("cublas", "contiguous"), ("femops", "contiguous"), ("femops", "interleaved")]
    ours = [row for row in rows if row["implementation"] == "femops"]
    assert all(0 <= row["off_peer"] < 1e-6 and row["over_best_peer"] > 0 for row in ours)
    first = rows[0]
    nbytes, rates = 8 * 7 * 2**2, result["rates"]
    memory = 2 * nbytes / rates["copied_bytes"] + nbytes / rates["read_bytes"]
    least = max(memory, 2 * 2**3 * 7 / rates["flops"])
    assert first["limit_gflops"] == pytest.approx(2 * 2**3 * 7 / least * 1e-9)
    assert gpu.run_gpu(settings, None, Record.of(file), WORKS)["products"] == rows
    late = gpu.run_gpu(dataclasses.replace(settings, budget=-1.0), works=WORKS)
    assert len(late["notes"]) == 7
    assert len(late["products"]) == 3  # the first is always measured
    with pytest.raises(TensorError, match="layout 'sparse'"):
        gpu.run_gpu(dataclasses.replace(settings, products=gpu.Products(layouts=("sparse",))))


def test_products_are_measured_where_cublas_fails(shared: HostDevice, monkeypatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no workspace")

    monkeypatch.setattr(np, "matmul", broken)
    given: dict[str, Any] = {"seconds": 0.0, "amounts": TINY, "device": shared}
    products = gpu.Products((2,), (7,), layouts=("contiguous",))
    result = gpu.run_gpu(GpuSettings(products=products, **given), works=WORKS)
    (row,), (failure,) = result["products"], result["failures"]
    assert (row["implementation"], row["over_best_peer"], row["off_peer"]) == ("femops", None, None)
    assert failure["what"] == "products, float64, n = 2, 7 members, cublas, contiguous"
    assert result["products_over_best_peer"] is None


def test_command_of_products(shared, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(cupy_device, "open_device", lambda _: shared)
    monkeypatch.setattr(gpu, "GpuSettings", partial(GpuSettings, amounts=TINY))
    monkeypatch.setattr("femops.cli.bench.gemm._ROUND", 0.0)
    words = ["--device", "cuda", "--size", "3", "--members", "20", "--rounds", "1"]
    with pytest.raises(SystemExit) as stop:
        main(["bench", "gemm", *words, "--plot", str(tmp_path / "gemm.png")])
    out = capsys.readouterr().out
    assert not stop.value.code
    assert (tmp_path / "gemm.png").stat().st_size > 1000
    for text in ("the host, as a GPU (host)", "cublas", "/ cuBLAS", "times cuBLAS on average"):
        assert text in out
    with pytest.raises(SystemExit) as stop:
        main(["bench", "gemm", "--device", "cuda", "--threads", "2"])
    assert stop.value.code == 2
    assert "no use for --threads" in capsys.readouterr().err
