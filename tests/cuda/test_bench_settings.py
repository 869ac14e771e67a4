"""What a GPU's benchmark compares and measures, and how it takes times."""

from __future__ import annotations

from typing import Any

import pytest

from femops.bench import timing
from femops.bench.gpu import GpuSettings
from femops.bench.gpu.validation import FORMS


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


def test_sizes_shrink_where_meshes_are_large() -> None:
    settings = GpuSettings()
    assert [settings.sizes(order).dofs for order in (1, 2, 3)] == [1.25e6, 5e6, 1e7]
    assert GpuSettings(dofs=3e6).sizes(1).dofs == 3e6
    works = [settings.sizes(order).work for order in (3, 8)]
    assert works[0] > works[1]


def test_every_form_of_the_library_is_compared() -> None:
    from femops import forms

    names = " ".join(FORMS).replace("form of two fields", "")
    # neo_hookean and p_laplacian are nonlinear forms; coupled ones have no kernels for a device
    public = set(forms.__all__) - {"residual", "functional"}
    assert all(name in names for name in public)
