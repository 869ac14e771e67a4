"""How times are taken; of candidates, which is the fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from femops.bench import timing
from femops.bench.timing import Fastest, fastest


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


# --- of candidates, which is the fastest ----------------------------------------------------------


def clock(*seconds: float) -> Callable[[], float]:
    """A candidate that takes these times in turn."""
    times = iter(seconds * 100)
    return lambda: next(times)


def test_the_fastest_is_found() -> None:
    assert fastest({"a": clock(3.0), "b": clock(2.0), "c": clock(2.5)}, 5) == Fastest("b", 1.5, 3)


def test_the_first_stays_where_none_is_clearly_ahead() -> None:
    slightly = clock(0.99)
    seldom = clock(0.5, 1.2, 1.2, 0.5, 1.2)
    assert fastest({"a": clock(1.0), "b": slightly, "c": seldom}, 10) == Fastest("a", 1.0, 3)


def test_a_disturbed_round_changes_nothing() -> None:
    """Another program slows two candidates down that run next to each other."""
    slow = [9.0 if k in (2, 5) else 1.0 for k in range(10)]
    assert fastest({"a": clock(*slow), "b": clock(*(0.9 * s for s in slow))}, 10).best == "b"


def test_who_is_far_behind_runs_three_times() -> None:
    found = fastest({"a": clock(1.0), "b": clock(2.0)}, 9)
    assert [len(times) for times in found.seconds.values()] == [9, 3]
