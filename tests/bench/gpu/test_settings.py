"""What a GPU's benchmark compares and measures, and how it takes times."""

from __future__ import annotations

from typing import Any

import pytest

from femops.bench import timing
from femops.bench.gpu import GpuSettings


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
    sizes = {each.order: each for each in settings.sizes()}
    assert list(sizes) == [6, 4, 8, 3, 2, 5, 7, 1]
    assert [sizes[order].dofs for order in (1, 2, 3)] == [1.25e6, 5e6, 1e7]
    assert GpuSettings((1,), dofs=3e6).sizes()[0].dofs == 3e6
    assert sizes[3].effort > sizes[8].effort
