"""What the benchmark of a GPU returns, on the host as a GPU; how fast it is is not tested."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from femops.bench.gpu import GpuSettings, run_gpu, works
from femops.bench.gpu import operators as operator_rows
from femops.bench.gpu.operators import GpuCase
from femops.bench.gpu.run import Record
from femops.errors import OperatorError
from femops_kernels.cuda.rates import Rates
from femops_kernels.errors import CacheWarning
from support.cuda import gpu_bench
from support.cuda.gpu_bench import measured, small
from support.cuda.host_device import HostDevice, HostFunction, host_device, plant_a_factor

table = gpu_bench.table
shared = gpu_bench.shared
few_shapes = gpu_bench.few_shapes

FREE = {"levels": ("matrix-free",)}
KEYS = (
    "name problem mesh order level dofs dofs_per_second limit bound fraction_of_limit "
    "bytes_per_dof q1d seconds_min seconds_median seconds_launch seconds_setup "
    "shared_bytes_per_dof flops_per_dof atomics_per_dof "
    "seconds_memory seconds_shared seconds_flops seconds_atomics elements blocks staged "
    "persistent threads "
    "registers local_bytes clock_mhz memory_clock_mhz celsius watts throttled "
    "off_other_level off_cpu best limit_of_levels"
)
"""Keys of a row, in order."""


@pytest.fixture(scope="module")
def result(shared: HostDevice) -> dict[str, Any]:
    """Two problems of two orders."""
    found = run_gpu(small(shared, (1, 2), "bp1", "bp5"))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["notes"] == found["failures"] == []
    return found


def test_a_row_for_each_level(result: dict[str, Any]) -> None:
    rows = result["rows"]
    assert all(" ".join(row) == KEYS for row in rows)
    assert [(row["problem"], row["order"], row["level"]) for row in rows] == [
        (problem, order, level)
        for problem in ("bp1", "bp5")
        for order in (1, 2)
        for level in ("matrix-free", "partial")
    ]
    assert {row["q1d"] - row["order"] for row in rows if row["problem"] == "bp5"} == {1}
    assert result["device"]["name"] == HostDevice.name
    assert result["seconds"] > 0


def test_limits_are_of_what_is_counted(result: dict[str, Any]) -> None:
    rates = result["rates"]
    assert set(rates) == {"copied_bytes", "read_bytes", "shared_bytes", "flops", "atomics"}
    for row in result["rows"]:
        counted = [16 / rates["copied_bytes"] + (row["bytes_per_dof"] - 16) / rates["read_bytes"]]
        for name in ("shared", "flops", "atomics"):
            per_dof = f"{name}_bytes" if name == "shared" else name
            counted.append(row[f"{per_dof}_per_dof"] / rates[per_dof])
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
        assert all(0 < row["off_cpu"] < 1e-13 for row in pair)
    assert result["agrees"]


def test_a_wrong_kernel_that_is_measured_is_found(monkeypatch) -> None:
    """Though both levels are wrong alike."""
    plant_a_factor(monkeypatch)
    result = run_gpu(small(host_device(), (2,)))
    assert [row["off_cpu"] for row in result["rows"]] == [pytest.approx(1e-6, rel=1e-3)] * 2
    assert all(row["off_other_level"] < 1e-13 for row in result["rows"])
    assert not result["agrees"]


def test_conjugate_gradients_by_the_iteration(shared: HostDevice, monkeypatch) -> None:
    monkeypatch.setattr(operator_rows, "_ROUNDS", 1)
    monkeypatch.setattr(operator_rows, "_MANY", 32)
    result = run_gpu(small(shared, (3,), "bp1", "bp2", "bp3", levels=("partial",)))
    assert [row["problem"] for row in result["cg"]] == ["bp1", "bp3"]
    alone = {row["problem"]: row for row in result["rows"]}
    for row in result["cg"]:
        assert row["dofs_per_second"] == pytest.approx(row["dofs"] / row["seconds_iteration"])
        assert row["fraction_of_limit"] == pytest.approx(row["dofs_per_second"] / row["limit"])
        more = row["bytes_per_dof"] - alone[row["problem"]]["bytes_per_dof"]
        assert more >= 5 * 8  # vectors; and marks of what is constrained
    assert result["notes"] == []


def test_solves_with_multigrid_beside_jacobi(shared: HostDevice, tmp_path) -> None:
    settings = small(shared, (2,), "bp3", **FREE, dofs=300)
    few, many = measured(settings, tmp_path / "solves.json", "solves")["solves"]
    assert (few["preconditioner"], many["preconditioner"]) == ("multigrid", "jacobi")
    assert few["name"] == "solves, multilinear, order 2, matrix-free, multigrid"
    assert few["device"] == many["device"] == shared.name
    assert few["iterations"] < many["iterations"]
    assert few["faster_than_jacobi"] == many["seconds_solve"] / few["seconds_solve"]


def test_levels_that_are_one_kernel_are_timed_once(shared: HostDevice) -> None:
    result = run_gpu(small(shared, (2,), "bp3", meshes=("cartesian",)))
    (row,) = result["rows"]
    assert (row["level"], row["best"], row["off_other_level"]) == ("partial", True, None)
    assert row["off_cpu"] < 1e-13
    assert result["failures"] == []


# --- what fails, and what has no time -------------------------------------------------------------


def failing(monkeypatch, method: str, message: str, *cases: tuple[str, str]) -> list[str]:
    """Have a method of cases (problem, level) raise an error; returns the names of those."""
    sound, failed = getattr(GpuCase, method), list[str]()

    def broken(case: GpuCase) -> None:
        if (case.problem.name, case.level) in cases:
            failed.append(case.name)
            raise RuntimeError(message)
        sound(case)

    monkeypatch.setattr(GpuCase, method, broken)
    return failed


def test_what_fails_is_told_and_the_rest_goes_on(shared: HostDevice, monkeypatch) -> None:
    make = GpuCase.make

    def full(problem: Any, mesh: str, level: str, space: Any) -> GpuCase:
        if (problem.name, level) == ("bp1", "partial"):
            raise MemoryError("out of it")
        return make(problem, mesh, level, space)

    monkeypatch.setattr(GpuCase, "make", staticmethod(full))
    failing(monkeypatch, "apply", "cudaErrorUnknown:\nunknown error", ("bp5", "matrix-free"))
    result = run_gpu(small(shared, (1,), "bp1", "bp5"))
    rows = [(row["problem"], row["level"], row["best"]) for row in result["rows"]]
    assert rows == [("bp1", "matrix-free", True), ("bp5", "partial", True)]
    assert [row["off_other_level"] for row in result["rows"]] == [None, None]
    assert [(failure["what"], failure["message"]) for failure in result["failures"]] == [
        ("bp1, multilinear, order 1, partial", "there is no room for it (out of it)"),
        ("bp5, multilinear, order 1, matrix-free", "RuntimeError: cudaErrorUnknown: unknown error"),
    ]
    assert all("Traceback" in failure["traceback"] for failure in result["failures"])


def test_nothing_is_tried_on_a_gpu_that_answers_no_more(shared: HostDevice, monkeypatch) -> None:
    def dead(_: HostDevice) -> None:
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(HostDevice, "synchronize", dead)
    result = run_gpu(small(shared, (2, 1), **FREE))
    assert {row["order"] for row in result["rows"]} == {2}
    (failure,) = result["failures"]
    assert failure["what"] == "all that follows"
    assert "cudaErrorIllegalAddress" in failure["message"]


def test_the_first_that_kills_a_device_is_blamed(shared: HostDevice, monkeypatch) -> None:
    """All that follows in that process would fail too, and is not tried."""
    error, kills = "cudaErrorIllegalAddress", ("bp1", "partial")
    dead = failing(monkeypatch, "apply", error, kills, ("bp5", "partial"), ("bp5", "matrix-free"))

    def synchronize(_: HostDevice) -> None:
        if dead:
            raise RuntimeError(error)

    monkeypatch.setattr(HostDevice, "synchronize", synchronize)
    result = run_gpu(small(shared, (1,), "bp1", "bp5"))
    assert [row["name"] for row in result["rows"]] == ["bp1, multilinear, order 1, matrix-free"]
    assert dead == ["bp1, multilinear, order 1, partial"]
    assert [failure["what"] for failure in result["failures"]] == [*dead, "all that follows"]


def test_results_that_are_no_numbers_are_told(shared: HostDevice, monkeypatch) -> None:
    """And JSON, which has no others, can be written."""
    apply = GpuCase.apply

    def wrong(case: GpuCase) -> None:
        apply(case)
        case.y[0] = np.nan

    monkeypatch.setattr(GpuCase, "apply", wrong)
    result = run_gpu(small(shared, (1,)))
    json.dumps(result, allow_nan=False)
    assert [row["off_other_level"] for row in result["rows"]] == [None, None]
    assert {f["message"] for f in result["failures"]} == {"OperatorError: results are not finite"}


def test_without_limits_nothing_is_measured(shared: HostDevice, monkeypatch) -> None:
    def of(*_: Any) -> Rates:
        raise MemoryError("8 GB")

    monkeypatch.setattr(Rates, "of", staticmethod(of))
    result = run_gpu(small(shared, (1,)))
    assert (result["rates"], result["rates_after"], result["rows"]) == (None, None, [])
    (failure,) = result["failures"]
    assert failure["what"] == "limits of the device"
    assert failure["message"] == "there is no room for it (8 GB)"


def test_what_has_no_time_is_noted(shared: HostDevice) -> None:
    result = run_gpu(small(shared, (2, 1), meshes=("cartesian",), budget=0.0))
    assert {row["order"] for row in result["rows"]} == {2}
    assert result["notes"] == [
        "order 1, bp1, cartesian, matrix-free, partial: not measured, 0 s are too few",
        "limits at the end: not measured, 0 s are too few",
    ]


def test_what_was_found_is_kept_and_not_measured_again(shared: HostDevice, tmp_path) -> None:
    file, lines = tmp_path / "rows.json", []
    first = run_gpu(small(shared, (2,), **FREE), None, Record(file))
    kept = json.loads(file.read_text())
    assert kept["tables"]["rows"][0].items() <= first["rows"][0].items()
    assert (kept["complete"], kept["begun"]) == (True, "")
    both = run_gpu(small(shared, (2, 1), **FREE), lines.append, Record.of(file))
    assert [row["order"] for row in both["rows"]] == [1, 2]
    assert both["rows"][1] == first["rows"][0]
    assert not any("order 2, matrix-free" in line for line in lines)
    assert any(line.startswith("bp1, multilinear, order 1, matrix-free: ") for line in lines)
    assert set(both["rates_after"]) == set(first["rates"])


def test_a_case_in_which_a_process_ended_has_failed(tmp_path) -> None:
    file = tmp_path / "rows.json"
    record = Record(file, begun="bp1, multilinear, order 2, partial", notes=["late"])
    record.keep()
    again = Record.of(file)
    assert [failure["what"] for failure in again.failures] == [record.begun]
    assert "process ended" in again.failures[0]["message"]
    assert again.known(record.begun)
    assert (again.begun, again.notes) == ("", [])


# --- settings -------------------------------------------------------------------------------------


def test_phases_have_what_was_asked_for() -> None:
    steps = {work: works.WORKS[work](GpuSettings()) for work in works.PHASES}
    assert [step.name for step in steps["first"]][:2] == [
        f"order {order}, bp3, bp1, multilinear, matrix-free, partial" for order in (6, 4)
    ]
    assert {step.name.split(", ")[2] for step in steps["first solves"]} == {"order 4", "order 6"}
    assert all(step.name.startswith("tuned, order ") for step in steps["tuned"])
    few = GpuSettings((2,), ("bp3",), ("cartesian",))
    left = [work for work in works.PHASES if works.WORKS[work](few)]
    assert left[:6] == ["products", "gas", "vectors", "faces", "refined", "simplices"]
    assert left[6:] == ["operators", "limits"]


def test_sizes_shrink_where_meshes_are_large() -> None:
    sizes = {each.order: each for each in GpuSettings().sizes()}
    assert list(sizes) == [6, 4, 8, 3, 2, 5, 7, 1]
    assert [sizes[order].dofs for order in (1, 2, 3)] == [1.25e6, 5e6, 1e7]
    assert GpuSettings((1,), dofs=3e6).sizes()[0].dofs == 3e6
    assert sizes[3].effort > sizes[8].effort


def test_wrong_settings() -> None:
    for given, message in (
        ({"orders": ()}, "orders are"),
        ({"problems": ("bp9",)}, "problem 'bp9'"),
        ({"meshes": ("round",)}, "mesh 'round'"),
        ({"levels": ("full",)}, "level 'full' on a GPU: choose one of partial, matrix-free"),
        ({"levels": ()}, "nothing to measure"),
        ({"dofs": 0.0}, "0 dofs"),
    ):
        with pytest.raises(OperatorError, match=message):
            run_gpu(GpuSettings(**given))


def test_a_damaged_table_is_told_once(shared: HostDevice, table) -> None:
    table.write_text("[")
    with pytest.warns(CacheWarning, match=r"tuning.json can't be read") as told:
        assert run_gpu(small(shared, (1,)))["rows"]
    assert len(told) == 1


@pytest.mark.usefixtures("few_shapes")
def test_the_sweep_writes_a_table_that_is_used(shared: HostDevice, table) -> None:
    (row,) = run_gpu(small(shared, (2,), **FREE), works=("shapes",))["shapes"]
    (entry,) = json.loads(table.read_text())
    assert entry["machine"] == shared.name
    assert entry["kernel"].startswith("3-D, 4 points; 1 x 3 nodes, value; 1 x 3 nodes, value;")
    assert entry["settings"] == {"elements": row["elements"], "blocks": row["blocks"]}
    assert row["tried"] == 4  # the three, and the model's
    assert row["seconds"] <= row["seconds_before"]
    another = 3 if row["elements"] != 3 else 2
    table.write_text(json.dumps([entry | {"settings": {"elements": another, "blocks": 1}}]))
    (again,) = run_gpu(small(shared, (2,), **FREE))["rows"]
    assert (again["elements"], again["blocks"]) == (another, 1)


@pytest.mark.usefixtures("few_shapes")
def test_shapes_that_spill_are_not_tried(shared: HostDevice, monkeypatch) -> None:
    monkeypatch.setattr(
        HostFunction, "local_bytes", property(lambda self: 72 * ("BLOCKS = 1;" not in self.source))
    )
    (row,) = run_gpu(small(shared, (2,), **FREE), works=("shapes",))["shapes"]
    assert row["blocks"] == row["blocks_before"] == 1
