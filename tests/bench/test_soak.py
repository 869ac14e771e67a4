"""The soak says what grows and what changes, and its own work does neither."""

import gc
import itertools
import os
import threading

import numpy as np
import pytest

from femops.bench import soak

KEPT = []
linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux")  # noqa: PTH112


def steady(_):
    yield np.arange(3.0)


def other_bits(cycle):
    yield np.arange(3.0) + (0.0, np.finfo(float).eps)[cycle == 4]


def files(_):
    KEPT.append(os.open(os.devnull, os.O_RDONLY))
    yield np.arange(3.0)


def threads(_):
    event = threading.Event()
    threading.Thread(target=event.wait).start()
    KEPT.append(event)
    yield np.arange(3.0)


def memory(_):
    KEPT.append(np.full(2**21, 1.0))
    yield np.arange(3.0)


@pytest.fixture(autouse=True)
def released():
    yield
    for each in KEPT:
        if isinstance(each, int):
            os.close(each)
        elif isinstance(each, threading.Event):
            each.set()
    KEPT.clear()
    gc.collect()


@linux
@pytest.mark.parametrize("work", [other_bits, files, threads, memory])
def test_soak_tells_what_grows_or_changes(work, monkeypatch):
    monkeypatch.setattr(soak, "WORKS", {"steady": steady, "other": work})
    monkeypatch.setitem(soak.BOUNDS, "memory", 8.0)
    result = soak.run_soak(0.0)
    assert result["cycles"] == 6
    what = "other has other bits from cycle 5 on" if work is other_bits else f"{work.__name__} grew"
    assert any(line.startswith(what) for line in result["failures"])
    differs = {row["work"]: row["differs"] for row in result["rows"]}
    assert differs == {"steady": None, "other": 5 if work is other_bits else None}


@linux
@pytest.mark.parametrize("name", soak.WORKS)
def test_works_repeat_their_bits(name):
    hashes = {soak._hash(soak.WORKS[name](cycle)) for cycle in range(2)}
    assert len(hashes) == 1


def test_soak_lasts(monkeypatch):
    """No cycle begins after the given minutes."""
    monkeypatch.setattr(soak, "WORKS", {"steady": steady})
    ticks = itertools.count(0, 15)
    monkeypatch.setattr(soak, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(soak, "_size", lambda: dict.fromkeys(soak.BOUNDS, 0.0))
    assert soak.run_soak(8.0)["cycles"] == 13
