"""What a GPU's benchmark compares and measures, how it takes times, and what it makes of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from femops.bench.gpu import GpuSettings, timing
from femops.bench.gpu.agreement import FORMS
from femops.bench.gpu.targets import verdicts


@pytest.mark.parametrize(("launching", "captured"), [(1e-3, 0), (0.0, 0), (0.08, 1)])
def test_launches_that_take_long_become_one(monkeypatch, launching: float, captured: int) -> None:
    """On a device that takes 0.1 s for a call, by a clock that only calls turn on."""
    now, asked = [0.0], []

    def call() -> None:
        now[0] += launching

    class Device:
        def seconds(self, work: Any) -> float:
            work()
            return 0.1

        def repeatable(self, work: Any) -> Any:
            asked.append(work)
            return work

    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    times = timing.batch_times(Device(), call, 0.0)  # type: ignore[arg-type]
    assert (times.seconds, times.median, len(asked)) == ([0.1] * 3, 0.1, captured)
    assert times.launch == pytest.approx(launching)


def row(order: int, fraction: float, **more: Any) -> dict[str, Any]:
    same = {"problem": "bp3", "mesh": "multilinear", "best": True, "order": order}
    speed = {"dofs_per_second": 4.1e9, "limit_of_levels": 8.2e9, "off_cpu": 2e-15}
    return same | {"fraction_of_limit": fraction} | speed | more


FORM = {"error": 1e-15, "limit": 1e-12, "agrees": True}
ALL = [row(order, 0.61) for order in range(1, 9)]


@pytest.mark.parametrize(
    ("place", "found", "verdict", "measured"),
    [
        (
            0,
            {"agreement": [FORM, FORM | {"limit": 1e-4, "error": 1e-5}]},
            "met",
            "1 of 1 .* 1.0e-15",
        ),
        (0, {"agreement": [FORM, FORM | {"error": 2e-12}]}, "missed", "2 of 2 .* 2.0e-12"),
        (0, {"agreement": [FORM, FORM | {"error": None}]}, "missed", "1 of 2"),
        (0, {}, "not measured", ""),
        (0, {"agreement": [FORM], "rows": ALL}, "met", "9 of 9 .* 2.0e-15"),
        (0, {"agreement": [FORM], "rows": [row(2, 0.5, off_cpu=1e-6)]}, "missed", "1.0e-06"),
        (0, {"agreement": [FORM], "rows": [row(2, 0.5, off_cpu=None)]}, "missed", "1 of 2"),
        (1, {"rows": ALL}, "met", "^p = 2 61%, .* p = 8 61%; 50% to 50% of"),
        (1, {"rows": ALL[2:]}, "not measured", "p = 3 61%"),
        (1, {"rows": [*ALL[2:], row(2, 0.59)]}, "missed", "p = 2 59%"),
        (1, {"rows": [row(2, 0.59)]}, "missed", "p = 2 59%"),
        (1, {"rows": [*ALL, row(2, 0.2, best=False), row(2, 0.2, mesh="cartesian")]}, "met", ""),
        (2, {"rows": ALL}, "not measured", ""),
        (2, {"rows": [row(p, 0.45, problem="bp1") for p in range(2, 9)]}, "met", "p = 2 45%"),
        (3, {"cg": [row(3, 0.1), row(3, 0.1, dofs_per_second=3e9)]}, "met", "4.1 GDoF/s"),
        (3, {"cg": [row(6, 0.1), row(3, 0.1, problem="bp1")]}, "not measured", ""),
        (4, {"cg": [row(6, 0.1)]}, "missed", "4.1 GDoF/s"),
    ],
)
def test_what_is_to_be_reached(place: int, found: Any, verdict: str, measured: str) -> None:
    told = verdicts({"agreement": [], "rows": [], "cg": []} | found)[place]
    assert told["verdict"] == verdict
    assert re.search(measured, told["measured"])


def test_sizes_shrink_where_meshes_are_large() -> None:
    settings = GpuSettings()
    assert [settings.sizes(order).dofs for order in (1, 2, 3)] == [1.25e6, 5e6, 1e7]
    assert GpuSettings(dofs=3e6).sizes(1).dofs == 3e6
    works = [settings.sizes(order).work for order in (3, 8)]
    assert works[0] > works[1]


def test_every_form_of_the_library_is_compared() -> None:
    from femops import forms

    names = " ".join(FORMS).replace("form of two fields", "")
    public = set(forms.__all__) - {"nonlinear_form"}  # which neo_hookean and p_laplacian are
    assert all(name in names for name in public)
