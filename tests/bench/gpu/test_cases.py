"""Gas dynamics, many vectors and products of small matrices in the benchmark of a GPU."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

from femops.bench import gpu
from femops.bench.bounds import Demand
from femops.bench.gpu import GpuSettings, cases
from femops.cli import main
from femops.errors import TensorError
from femops.operators.operator import Operator
from femops_kernels.cuda.device import cupy_device
from support.cuda import gpu_bench
from support.cuda.gpu_bench import QUICK, TINY, measured
from support.cuda.host_device import HostDevice, plant, plant_a_factor

table = gpu_bench.table
shared = gpu_bench.shared


@pytest.fixture
def settings(shared: HostDevice) -> GpuSettings:
    return GpuSettings(device=shared, **QUICK)


def test_steps_of_a_gas(settings: GpuSettings, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cases, "_STEPS", 1)
    monkeypatch.setattr(cases, "_COMPARED", 1)
    (row,) = measured(settings, tmp_path / "gas.json", "gas")["gas"]
    assert (row["order"], row["elements"], row["dofs"]) == (1, 8, 3 * 3**3 + 8)
    assert row["off_cpu"] < 1e-9
    assert min(row["seconds_step"], row["seconds_forces"], row["forces_points_per_second"]) > 0


# --- many vectors ---------------------------------------------------------------------------------


def test_many_vectors_beside_one(settings: GpuSettings, tmp_path) -> None:
    (row,) = measured(settings, tmp_path / "vectors.json", "vectors")["vectors"]
    assert 0 <= row["off_one"] < 1e-13
    assert (row["problem"], row["order"], row["nvec"]) == ("bp3", 2, 5)
    assert row["dofs_per_second"] == row["dofs"] * 5 / row["seconds_median"]
    assert row["over_one_by_one"] == 5 * row["seconds_one"] / row["seconds_median"]


def test_wrong_vectors_are_told(settings: GpuSettings, monkeypatch) -> None:
    plant_a_factor(monkeypatch, "MANY = true")
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
    (failure,) = result["failures"]
    assert failure["message"] == "OperatorError: results are not finite"


def test_faces_beside_the_host(settings: GpuSettings, tmp_path) -> None:
    (row,) = measured(settings, tmp_path / "faces.json", "faces")["faces"]
    assert 0 <= row["off_cpu"] < 1e-13
    assert (row["problem"], row["order"]) == ("advection gll", 1)
    assert row["dofs_per_second"] == row["dofs"] / row["seconds_median"]


def test_wrong_faces_are_told(settings: GpuSettings, monkeypatch) -> None:
    plant_a_factor(monkeypatch, "ON_FACES = true")
    result = gpu.run_gpu(settings, works=("faces",))
    assert result["faces"][0]["off_cpu"] > 1e-10
    assert not result["agrees"]


def test_refined_meshes_beside_the_host(settings: GpuSettings, tmp_path) -> None:
    (row,) = measured(settings, tmp_path / "refined.json", "refined")["refined"]
    assert 0 <= row["off_cpu"] < 1e-13
    assert (row["order"], row["level"]) == (1, "partial")
    assert 0 < row["hanging"] < 1
    assert row["over_uniform"] > 0
    assert row["seconds_diagonal"] > 0


def test_wrong_hanging_nodes_are_told(settings: GpuSettings, monkeypatch) -> None:
    plant(monkeypatch, "if (place >= 0) *own = value;", "if (place >= 0) *own = value * T(1.001);")
    result = gpu.run_gpu(settings, works=("refined",))
    assert result["refined"][0]["off_cpu"] > 1e-10
    assert not result["agrees"]


def test_simplices_beside_the_host(settings: GpuSettings, tmp_path) -> None:
    rows = measured(settings, tmp_path / "simplices.json", "simplices")["simplices"]
    points = {"tetrahedra": 4, "mixed": (9 * 4**3 + 36 * 18) / 45}  # 9 hexahedra, 36 prisms
    assert {row["cells"]: row["points"] for row in rows} == points
    for row in rows:
        assert 0 <= row["off_cpu"] < 1e-13
        assert (row["form"], row["order"]) == ("diffusion", 2)
        assert row["dofs_per_second"] == row["dofs"] / row["seconds_median"]
        assert row["bound"] in ("memory", "shared", "flops", "atomics")


def test_what_is_stored_is_read_once() -> None:
    one = Demand(read=100.0 + 80.0, written=80.0, shared=7.0, flops=5.0, atomics=3.0)
    assert one.of_vectors(4, 10) == Demand(100.0 + 320.0, 320.0, 28.0, 20.0, 12.0)


# --- products of small matrices -------------------------------------------------------------------


def test_products_beside_cublas(settings: GpuSettings, tmp_path) -> None:
    products = gpu.Products((2, 3), (7, 40), ("float64", "complex64"))
    settings = dataclasses.replace(settings, products=products)
    result = measured(settings, tmp_path / "products.json", "products")
    rows = result["products"]
    assert {(row["n"], row["members"], row["dtype"]) for row in rows} == {
        (n, members, dtype) for n in (2, 3) for members in (7, 40) for dtype in products.dtypes
    }
    ways = [(row["implementation"], row["layout"]) for row in rows[:3]]
    assert ways == [("cublas", "contiguous"), ("femops", "contiguous"), ("femops", "interleaved")]
    ours = [row for row in rows if row["implementation"] == "femops"]
    assert all(0 <= row["off_peer"] < 1e-6 and row["over_best_peer"] > 0 for row in ours)
    nbytes, rates = 8 * 7 * 2**2, result["rates"]
    memory = 2 * nbytes / rates["copied_bytes"] + nbytes / rates["read_bytes"]
    least = max(memory, 2 * 2**3 * 7 / rates["flops"])
    assert rows[0]["limit_gflops"] == pytest.approx(2 * 2**3 * 7 / least * 1e-9)
    late = gpu.run_gpu(dataclasses.replace(settings, budget=-1.0), works=("products",))
    assert (len(late["notes"]), len(late["products"])) == (7, 3)  # the first is always measured
    with pytest.raises(TensorError, match="layout 'sparse'"):
        gpu.run_gpu(dataclasses.replace(settings, products=gpu.Products(layouts=("sparse",))))


def test_products_are_measured_where_cublas_fails(settings: GpuSettings, monkeypatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no workspace")

    monkeypatch.setattr(np, "matmul", broken)
    result = gpu.run_gpu(settings, works=("products",))
    (row,), (failure,) = result["products"], result["failures"]
    assert (row["implementation"], row["over_best_peer"], row["off_peer"]) == ("femops", None, None)
    assert failure["what"] == "products, float64, n = 2, 20 members, cublas, contiguous"
    assert result["products_over_best_peer"] is None


def test_command_of_products(shared, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(cupy_device, "open_device", lambda _: shared)
    monkeypatch.setattr(gpu, "GpuSettings", partial(GpuSettings, amounts=TINY))
    monkeypatch.setattr("femops.cli.bench.group._ROUND", 0.0)
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
