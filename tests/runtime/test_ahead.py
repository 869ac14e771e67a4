"""Compilation by another process: it fills the cache, and nothing depends on it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import femops
from femops_kernels.codegen import ahead
from femops_kernels.cpu import machine

TWICE = """
from numba import njit

@njit("float64(float64)", cache=True)
def twice(x):
    return 2.0 * x
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is handed to another process, of which none is started; the machine is idle."""
    handed: list[Any] = []
    monkeypatch.setattr(ahead, "_run", lambda kernels, folder: handed.append((kernels, folder)))
    monkeypatch.setattr(ahead, "_begun", set())
    monkeypatch.setattr(ahead, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.3, 9.0, 9.0))
    monkeypatch.setattr(threading.Thread, "start", lambda thread: thread.run())
    return handed


def test_another_process_fills_the_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    ahead._run([("twice_1", TWICE), ("wrong_1", "1 / 0"), ("twice_2", TWICE)], tmp_path)
    assert (tmp_path / "twice_1.sha256").exists()
    assert list((tmp_path / "__pycache__").glob("twice_1.*.nbc"))
    # one that can't be compiled ends it
    assert not (tmp_path / "wrong_1.sha256").exists()
    assert not (tmp_path / "twice_2.sha256").exists()


def test_a_python_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    ahead._run([("twice_1", TWICE)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_begun_once(begun: list[Any], tmp_path: Path) -> None:
    (tmp_path / "here.sha256").touch()
    kernels = [("here", "1"), ("missing", "2")]
    ahead.compile_kernels_ahead(kernels, 2)
    assert begun == [([("missing", "2")], tmp_path)]
    ahead.compile_kernels_ahead(kernels, 2)
    assert len(begun) == 1


def test_no_core_is_idle(begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.compile_kernels_ahead([("missing", "2")], 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.2, 0.0, 0.0))
    ahead.compile_kernels_ahead([("missing", "2")], 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.3, 0.0, 0.0))
    monkeypatch.setattr(sys, "executable", "/usr/bin/paraview")
    ahead.compile_kernels_ahead([("missing", "2")], 2)
    assert begun == []


def test_operators_begin_what_their_solves_need(
    begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the names that a solve asks for; nothing if there is one thread."""
    monkeypatch.setattr(machine, "cores", lambda: 2)
    V = femops.H1(femops.box((2, 2)), 2)
    monkeypatch.setattr(machine, "get_threads", lambda: 1)
    A = femops.mass(V)
    assert begun == []
    monkeypatch.setattr(machine, "get_threads", lambda: 2)
    femops.mass(V)
    ((kernels, _),) = begun
    asked: list[str] = []
    from femops_kernels.codegen import specialize

    found = specialize.load
    monkeypatch.setattr(
        specialize, "load", lambda name, text: asked.append(name) or found(name, text)
    )
    _, info = femops.cg(A, femops.load(V, 1.0), M=femops.jacobi(A))
    assert info.merged
    assert {name for name, _ in kernels} <= set(asked)
    assert len(kernels) == 2
