"""Kernels of a GPU that are compiled ahead of need, by other threads."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.device.ahead import Compilers
from support.cases.kernels import bend, smooth
from support.cuda.host_device import HostDevice, host_device


class Asked:
    """Sources that a device was asked to compile later, and those it needed without being asked."""

    def __init__(self, device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts, self.missed, sound = set[str](), list[str](), HostDevice.function

        def function(self_: HostDevice, source: str) -> Any:
            if source not in self.texts and source not in self_._functions:
                self.missed.append(source)
            return sound(self_, source)

        monkeypatch.setattr(HostDevice, "function", function)
        monkeypatch.setattr(HostDevice, "compiles_later", True)
        monkeypatch.setattr(device, "compile_later", self.texts.add, raising=False)


def test_kernels_of_a_solve_are_asked_for_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of operators, transfers and sums. Those that clear vectors are short."""
    device = host_device()
    asked = Asked(device, monkeypatch)
    V = femops.L2(femops.box((4, 3), order=2, mapping=bend), 2, device=device)
    A = femops.interior_penalty(V, smooth)
    b = np.random.default_rng(0).standard_normal(V.size)
    _ = A @ b
    femops.cg(A, b, M=femops.multigrid(A), rtol=1e-3)
    operators = [text for text in device._functions if "constexpr int DIM" in text]
    assert len(operators) > 10
    assert asked.texts.issuperset(operators)
    assert len(asked.missed) < 4


def test_a_device_that_compiles_at_once_is_not_asked() -> None:
    device = host_device()
    V = femops.H1(femops.box((2, 2)), 2, device=device)
    A, texts = femops.mass(V), list[str]()
    device.compile_later = texts.append  # type: ignore[method-assign,assignment]
    _ = A @ np.ones(V.size)
    assert not texts


# --- threads --------------------------------------------------------------------------------------


def test_each_kernel_is_compiled_once_and_errors_are_dropped() -> None:
    compilers, done, seen = Compilers(), threading.Event(), list[str]()

    def fails() -> None:
        seen.append("fails")
        raise ValueError("no kernel")

    for name, work in (("a", fails), ("a", fails), ("b", lambda: seen.append("b"))):
        compilers.later(name, work)
    compilers.later("last", done.set)
    assert done.wait(20.0)
    for thread in list(compilers._threads):
        thread.join(20.0)
    assert sorted(seen) == ["b", "fails"]
    assert not compilers._threads  # threads without work end
    again = threading.Event()
    compilers.later("again", again.set)  # and others begin
    assert again.wait(20.0)


def test_a_program_that_ends_waits_for_no_other_kernel() -> None:
    """Those that are being compiled end, the others are dropped."""
    program = """
import time
from femops_kernels.cuda.device import ahead
ahead._MOST = 1
compilers = ahead.Compilers()
def work():
    print("begins", flush=True)
    time.sleep(0.5)
    print("ends", flush=True)
for k in range(50):
    compilers.later(k, work)
time.sleep(0.2)
"""
    begin = time.perf_counter()
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "begins\nends\n"
    assert time.perf_counter() - begin < 20.0
