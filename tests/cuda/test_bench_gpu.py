"""What the benchmark of a GPU returns, on the host as a GPU; how fast it is is not tested."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from cuda.host_device import HostDevice, HostFunction, host_device
from femops.bench import gpu
from femops.bench.gpu import GpuSettings, run_gpu, run_tuning, tuning
from femops.bench.gpu import run as running
from femops.bench.gpu.agreement import FORMS, agreement
from femops.bench.gpu.rows import KEYS
from femops.bench.gpu.setup import GpuCase
from femops.cli import main
from femops.errors import OperatorError
from femops_kernels.cuda import cupy_device, shapes
from femops_kernels.cuda.rates import Amounts

TINY = Amounts(copied=1024, added=64, rounds=16, repeats=1)
QUICK: dict[str, Any] = {"forms": ("mass",), "dims": (2,), "seconds": 0.0, "amounts": TINY}


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A user's table of launch shapes in a folder of its own."""
    path = tmp_path / "cuda_shapes.json"
    for module in (shapes, running):
        monkeypatch.setattr(module, "users_table", lambda: path)
    return path


@pytest.fixture(scope="module")
def shared() -> HostDevice:
    return host_device()


@pytest.fixture(scope="module")
def result(shared: HostDevice) -> dict[str, Any]:
    """Two problems of two orders."""
    settings = GpuSettings(
        (1, 2), ("bp1", "bp5"), ("multilinear",), dofs=60, device=shared, **QUICK
    )
    return run_gpu(settings)


def test_a_row_for_each_level(result: dict[str, Any]) -> None:
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    rows = result["rows"]
    assert all(tuple(row) == KEYS for row in rows)
    assert [(row["problem"], row["order"], row["level"]) for row in rows] == [
        (problem, order, level)
        for problem in ("bp1", "bp5")
        for order in (1, 2)
        for level in ("none", "partial")
    ]
    assert {row["q1d"] - row["order"] for row in rows if row["problem"] == "bp5"} == {1}
    assert [note for note in result["notes"] if not note.startswith("cg")] == []
    assert result["device"]["name"] == HostDevice.name
    assert result["seconds"] > 0


def test_limits_are_of_what_is_counted(result: dict[str, Any]) -> None:
    rates = result["rates"]
    assert set(rates) == {"copied_bytes", "shared_bytes", "flops", "atomics"}
    per_dof = ("bytes_per_dof", "shared_bytes_per_dof", "flops_per_dof", "atomics_per_dof")
    for row in result["rows"]:
        counted = [row[name] / rate for name, rate in zip(per_dof, rates.values(), strict=True)]
        parts = [row[f"seconds_{name}"] for name in ("memory", "shared", "flops", "atomics")]
        assert parts == pytest.approx([row["dofs"] * each for each in counted])
        assert row["limit"] == pytest.approx(row["dofs"] / max(parts))
        assert row[f"seconds_{row['bound']}"] == max(parts)
        assert row["dofs_per_second"] == pytest.approx(row["dofs"] / row["seconds_median"])
        assert row["fraction_of_limit"] == pytest.approx(row["dofs_per_second"] / row["limit"])


def test_the_better_level_is_marked(result: dict[str, Any]) -> None:
    rows = result["rows"]
    for pair in zip(rows[::2], rows[1::2], strict=True):
        faster = min(pair, key=lambda row: row["seconds_median"])
        assert [row["best"] for row in pair] == [row is faster for row in pair]
        assert all(0 <= row["off_other_level"] < 1e-13 for row in pair)
    assert result["agrees"]


def test_every_form_of_the_library_is_compared() -> None:
    from femops import forms

    names = " ".join(FORMS).replace("form of two fields", "")
    public = set(forms.__all__) - {"nonlinear_form"}  # which neo_hookean and p_laplacian are
    assert all(name in names for name in public)


def test_forms_agree(shared: HostDevice) -> None:
    names = ("diffusion, constrained", "load, boundary_load", "divergence")
    rows = agreement(shared, names, (1, 2))
    assert [(row["form"], row["dim"]) for row in rows] == [
        *((name, 1) for name in names[:2]),  # the divergence is of a vector
        *((name, 2) for name in names),
    ]
    assert all(row["agrees"] and 0 <= row["error"] <= row["limit"] == 1e-12 for row in rows)
    with pytest.raises(OperatorError, match="form 'x': choose one of mass, mass, none"):
        agreement(shared, ("x",))


@pytest.mark.parametrize(
    ("planted", "error", "message"),
    [
        ("a.alpha * line[n] * T(1.000001)", 1e-6, ""),
        ("a.alpha * line[n] / T(0)", None, "not finite"),
        ("a.alpha * line[n] +", None, "error"),
    ],
)
def test_a_wrong_kernel_is_found(monkeypatch, planted: str, error: Any, message: str) -> None:
    device, sound = host_device(), HostDevice.function

    def function(self: HostDevice, source: str) -> HostFunction:
        assert "T value = a.alpha * line[n]" in source
        return sound(self, source.replace("a.alpha * line[n]", planted))

    monkeypatch.setattr(HostDevice, "function", function)
    (row,) = agreement(device, ("mass",), (2,))
    assert not row["agrees"]
    assert row["error"] == (error if error is None else pytest.approx(error, rel=1e-3))
    assert message in row["message"]


def test_conjugate_gradients_by_the_iteration(shared: HostDevice) -> None:
    pytest.importorskip("femops_kernels.cuda.krylov")
    settings = GpuSettings(
        (3,), ("bp1", "bp2", "bp3"), ("multilinear",), ("partial",), 60, device=shared, **QUICK
    )
    result = run_gpu(settings)
    assert [row["problem"] for row in result["cg"]] == ["bp1", "bp3"]
    alone = {row["problem"]: row for row in result["rows"]}
    for row in result["cg"]:
        assert row["dofs_per_second"] == pytest.approx(row["dofs"] / row["seconds_iteration"])
        assert row["fraction_of_limit"] == pytest.approx(row["dofs_per_second"] / row["limit"])
        more = row["bytes_per_dof"] - alone[row["problem"]]["bytes_per_dof"]
        assert more >= 5 * 8  # vectors; and marks of what is constrained
    assert result["notes"] == []


def test_what_has_no_time_is_noted(shared: HostDevice) -> None:
    settings = GpuSettings(
        (1, 2), ("bp1",), ("cartesian",), dofs=60, budget=0.0, device=shared, **QUICK
    )
    result = run_gpu(settings)
    assert {row["order"] for row in result["rows"]} == {2}
    assert result["notes"] == ["order 1: not measured, 0 s are too few"]


def test_what_has_no_room_is_noted(shared: HostDevice, monkeypatch) -> None:
    make = GpuCase.make

    def full(problem: Any, mesh: str, level: str, space: Any) -> GpuCase:
        if level == "partial":
            raise MemoryError("out of it")
        return make(problem, mesh, level, space)

    monkeypatch.setattr(GpuCase, "make", staticmethod(full))
    settings = GpuSettings((1,), ("bp1",), ("multilinear",), dofs=60, device=shared, **QUICK)
    result = run_gpu(settings)
    assert [row["level"] for row in result["rows"]] == ["none"]
    note = "bp1, multilinear, order 1, partial: not measured, there is no room for it (out of it)"
    assert result["notes"] == [note]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"orders": ()}, "orders are"),
        ({"problems": ("bp9",)}, "problem 'bp9'"),
        ({"meshes": ("round",)}, "mesh 'round'"),
        ({"levels": ("full",)}, "level 'full' on a GPU: choose of partial, none"),
        ({"levels": ()}, "nothing to measure"),
        ({"dofs": 0.0}, "0 dofs"),
    ],
)
def test_wrong_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        run_gpu(GpuSettings(**given))


def test_sizes_shrink_where_meshes_are_large() -> None:
    settings = GpuSettings()
    assert [settings.sizes(order).dofs for order in (1, 2, 3)] == [1.25e6, 5e6, 1e7]
    assert GpuSettings(dofs=3e6).sizes(1).dofs == 3e6
    works = [settings.sizes(order).work for order in (3, 8)]
    assert works[0] > works[1]


@pytest.fixture
def few_shapes(monkeypatch):
    """To be compiled."""
    for name in ("_THREADS", "_RESIDENT"):
        monkeypatch.setattr(tuning, name, getattr(tuning, name)[1:3])


@pytest.mark.usefixtures("few_shapes")
def test_the_sweep_writes_a_table_that_is_used(shared: HostDevice, table) -> None:
    settings = GpuSettings((2,), ("bp1",), ("multilinear",), ("none",), 60, 0.0, device=shared)
    (row,) = run_tuning(settings)["rows"]
    (entry,) = json.loads(table.read_text())
    assert entry["device"] == shared.name
    assert entry["kernel"].startswith("3-D, 4 points; 1 x 3 nodes, value; 1 x 3 nodes, value;")
    assert (entry["elements"], entry["blocks"]) == (row["elements"], row["blocks"])
    assert row["tried"] == 3
    assert row["seconds"] <= row["seconds_before"]
    another = 3 if row["elements"] != 3 else 2
    table.write_text(json.dumps([entry | {"elements": another, "blocks": 1}]))
    (again,) = run_gpu(
        GpuSettings((2,), ("bp1",), ("multilinear",), ("none",), 60, device=shared, **QUICK)
    )["rows"]
    assert (again["elements"], again["blocks"]) == (another, 1)


@pytest.mark.usefixtures("few_shapes")
def test_shapes_that_spill_are_not_tried(shared: HostDevice, monkeypatch) -> None:
    monkeypatch.setattr(
        HostFunction, "local_bytes", property(lambda self: 8 * ("BLOCKS = 1;" not in self.source))
    )
    settings = GpuSettings((2,), ("bp1",), ("multilinear",), ("none",), 60, 0.0, device=shared)
    (row,) = run_tuning(settings)["rows"]
    assert row["blocks"] == row["blocks_before"] == 1


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def bench(shared, monkeypatch, capsys, tmp_path):
    """The command where the host is a GPU, in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cupy_device, "open_device", lambda _: shared)
    monkeypatch.setattr(gpu, "GpuSettings", partial(GpuSettings, **QUICK))
    few = ("--order", "2", "--dofs", "60", "--mesh", "multilinear", "--level", "none")

    def call(*words: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["bench", "gpu", *few, *words])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_command(bench, tmp_path) -> None:
    code, out, err = bench("--problem", "bp1", "--json", "--plot")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)["rows"]
    assert row["problem"] == "bp1"
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_command_prints_tables(bench) -> None:
    code, out, _ = bench("--problem", "bp1")
    assert code == 0
    for words in ("the host, as a GPU (host), 4 multiprocessors", "none *", "atomics", "mass"):
        assert words in out


def test_command_fails_where_results_differ(bench, monkeypatch) -> None:
    wrong = {"mass": lambda mesh, place: [np.ones(3) * (2.0 if place else 1.0)]}
    monkeypatch.setattr("femops.bench.gpu.agreement.FORMS", wrong)
    code, out, _ = bench("--problem", "bp1")
    assert code == 1
    assert "differs" in out
    assert "results differ by more than round-off" in out


@pytest.mark.usefixtures("few_shapes")
def test_command_tries_shapes(bench, table) -> None:
    code, out, _ = bench("--problem", "bp1", "--sweep")
    assert code == 0
    assert f"written to {table}" in out
    code, _, err = bench("--sweep", "--plot")
    assert code == 2
    assert "give --sweep or --plot, not both" in err


@pytest.mark.parametrize("words", [("--threads", "1"), ("--footprint", "ram"), ("--ranks", "2")])
def test_command_refuses_what_it_has_no_use_for(bench, words) -> None:
    code, _, err = bench(*words)
    assert code == 2
    assert f"'bench gpu' takes no {words[0]}" in err


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
    assert 'pip install "femops[cuda13]"' in err
