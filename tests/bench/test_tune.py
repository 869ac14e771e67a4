"""``femops tune``: what it finds is used, an interrupted run goes on, ties change nothing."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import femops
from femops.bench import tune
from femops.bench.tensor import search
from femops.bench.timing import Fastest
from femops.bench.tune import TuneSettings, run_tune
from femops.operators.levels import auto
from femops_kernels.cpu.kernels import PREFETCH_BYTES
from femops_kernels.cpu.machine import processor, tuning_key
from femops_kernels.cpu.tensor.contraction import ContractionKernel
from femops_kernels.tuning import database

SMALL: dict[str, Any] = {"orders": (2,), "problems": ("bp3",), "levels": ("partial",)}
SMALL |= {"dofs": 60.0, "rounds": 1}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    path = tmp_path / "tuning.json"
    for module in (database, tune):
        monkeypatch.setattr(module, "users_table", lambda: path)
    for name in ("_PREFETCH", "_CHUNKS", "_ROWS"):  # each candidate is compiled
        monkeypatch.setattr(tune, name, getattr(tune, name)[-1:])
    return path


def searched(**given: Any) -> dict[str, Any]:
    return run_tune(TuneSettings(**(SMALL | given)), lambda _: None, lambda _: None)


def last(candidates: dict[Any, Any], _: int) -> Fastest[Any]:
    """The last candidate wins, though all are run."""
    assert min(run() for run in candidates.values()) > 0.0
    return Fastest(list(candidates)[-1], 1.5, len(candidates))


def test_settings_are_kept_and_used(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the longest distance wins: kernels made from now on have it, to the same result."""
    V = femops.H1(femops.ball(1), 2)
    u = V.interpolate(lambda x: x[0] * x[1])
    before = femops.diffusion(V)
    monkeypatch.setattr(tune, "fastest", last)
    result = searched(settings=("prefetch", "chunks", "vectors"))
    assert [row["setting"] for row in result["rows"]] == ["prefetch", "chunks", "vectors"]
    entries = {row["kernel"]: row["settings"] for row in json.loads(table.read_text())}
    kernel = before.compiled.sweeps[0].kernel
    assert entries[kernel.words] == {"prefetch_bytes": 2**17} != {"prefetch_bytes": PREFETCH_BYTES}
    after = femops.diffusion(V)
    assert after.compiled.sweeps[0].kernel.constants()["FAR"] == 2**17
    np.testing.assert_array_equal(after @ u, before @ u)


def test_variants_of_products_are_kept_and_used(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the last variant wins: products made from now on have it, to the same result."""
    monkeypatch.setattr(tune, "_MEMBERS", 30)
    monkeypatch.setattr(search, "fastest", last)
    steps: list[str] = []
    asked = TuneSettings(settings=("products",), sizes=(3, 5))
    result = run_tune(asked, steps.append, lambda count: steps.append(f"{count}"))
    assert steps == ["2", "C += A B, n = 3", "C += A B, n = 5"]
    assert [(row["case"], row["setting"]) for row in result["rows"]] == [
        ("C += A B, n = 3", "products"),
        ("C += A B, n = 5", "products"),
    ]
    kernel = ContractionKernel(search.square(5, "float64"), True)
    assert kernel.variant == kernel.candidates()[-1] != kernel.candidates()[0]
    a, b = np.random.default_rng(0).standard_normal((2, 9, 5, 5))
    np.testing.assert_allclose(femops.tensor.gemm(a, b), a @ b, atol=1e-14)
    again = run_tune(asked, steps.append, lambda _: None)
    assert (again["rows"], again["known"]) == ([], 2)


def test_a_level_is_kept_and_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"partial": 2.0, "element": 1.0, "matrix-free": 3.0}
    monkeypatch.setattr(tune, "measure_levels", lambda _: times)
    (row,) = searched(settings=("level",), rounds=6)["rows"]
    assert (row["found"], row["gain"]) == ("element", 2.0)
    monkeypatch.setattr(auto, "_choices", {})  # those of earlier tests
    monkeypatch.setattr(auto, "measure_levels", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(auto, "get_threads", lambda: 1)
    A = tune._operator(tune.PROBLEMS["bp3"], "multilinear", 2, 60.0, "auto")
    assert A.level == "element"


def test_what_is_known_is_left_unless_asked_for_again(table: Path) -> None:
    first = searched(settings=("chunks",))
    assert (len(first["rows"]), first["known"]) == (1, 0)
    written = table.read_text()
    again = searched(settings=("chunks",))
    assert (again["rows"], again["known"], table.read_text()) == ([], 1, written)
    assert len(searched(settings=("chunks",), again=True)["rows"]) == 1


def test_an_interrupted_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    find, done = tune.fastest, []

    def interrupted(*given: Any) -> Any:
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(given)
        return find(*given)

    monkeypatch.setattr(tune, "fastest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        searched(settings=("prefetch", "chunks"))
    monkeypatch.setattr(tune, "fastest", find)
    result = searched(settings=("prefetch", "chunks"))
    assert ([row["setting"] for row in result["rows"]], result["known"]) == (["chunks"], 1)


def test_settings_that_are_tried_go_first_and_end(table: Path) -> None:
    key = tuning_key("a kernel")
    database.record({key: {"n": 1}})
    with database.trying(key, {"n": 2}):
        assert database.find(key) == {"n": 2}
        with database.trying(key, {"n": 3}):
            assert database.find(key) == {"n": 3}
        assert database.find(key) == {"n": 2}
    assert database.find(key) == {"n": 1}


def test_wrong_settings() -> None:
    for given, message in (
        ({"settings": ("lanes",)}, "setting 'lanes': choose one of prefetch"),
        ({"levels": ("full",)}, "level 'full': choose one of partial"),
        ({"problems": ("bp9",)}, "bp9"),
        ({"orders": ()}, "order"),
        ({"sizes": (4, 0)}, "at least 1"),
        ({"rounds": 0}, "round"),
    ):
        with pytest.raises(femops.errors.OperatorError, match=message):
            searched(**given)


def test_settings_are_kept_by_a_name_of_the_processor_on_arm_too(tmp_path):
    """Linux has no model name there: all such machines were 'unknown'."""
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
    )
    named = processor(tmp_path / "cpuinfo")
    assert named == f"{platform.machine()} {llvm.get_host_cpu_name()}"
