"""Compilation by another process: it fills the cache, and nothing depends on it."""

import io
import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

import femops
from femops_kernels.codegen import ahead, native, specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.multigrid import relaxation

TWICE = """
from femops_kernels.simd.compiling import *

@function
def twice(n) -> int:
    return 2 * n
"""


WRONG = "1 / 0"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Kernels that another process is asked for; none is started, the machine is idle."""
    handed = []
    monkeypatch.setattr(ahead.Compiler, "begin", lambda _: None)
    known = ahead.Compiler.compile

    def compile_kernels(compiler, kernels):
        known(compiler, kernels)
        handed.append(kernels)

    monkeypatch.setattr(ahead.Compiler, "compile", compile_kernels)
    monkeypatch.setattr(ahead, "_compilers", {})
    monkeypatch.setattr(ahead, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(ahead, "named", lambda *parts: parts)
    monkeypatch.setattr(ahead, "_running", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return handed


def ended(compiler):
    """Wait until the process has nothing to do and ends."""
    deadline = time.monotonic() + 120.0
    while compiler.alive:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_another_process_fills_the_cache(tmp_path):
    tmp_path.chmod(0o700)
    compiler = ahead.Compiler(tmp_path)
    compiler.begin()
    compiler.compile([("twice_1", TWICE), ("wrong_1", WRONG), ("twice_2", TWICE)])
    ended(compiler)
    assert (tmp_path / "twice_1.sha256").exists()
    assert native.loaded("twice_1", (tmp_path / "twice_1.kernel").read_bytes()).twice(3) == 6
    # one that can't be compiled ends it
    assert not list(tmp_path.glob("wrong_1.[ks]*"))
    assert not (tmp_path / "twice_2.sha256").exists()
    compiler.begin()  # another one is asked for what is missing
    missing = compiler.missing([("twice_1", TWICE), ("twice_3", TWICE)])
    assert missing == [("twice_3", TWICE)]
    compiler.compile([*missing, ("wrong_2", WRONG)])
    ended(compiler)
    assert (tmp_path / "twice_3.sha256").exists()


def test_another_python_imports_nothing_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "planted.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path, f"a{os.pathsep}b"])
    program = "import importlib.util as u; import femops; print(u.find_spec('planted'))"
    command = [sys.executable, "-c", program]
    environment = os.environ | ahead.same_imports()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    assert os.pathsep.join("ab") not in environment["PYTHONPATH"]


def test_the_latest_kernels_are_compiled_first(monkeypatch):
    asked = [[("cg", "1"), ("merged", "2")], [("transfer", "3"), ("operator", "4")]]
    lines = io.StringIO("".join(json.dumps(kernels) + "\n" for kernels in asked))
    monkeypatch.setattr(sys, "stdin", lines)
    work = ahead._Work()
    work.read()
    assert [name for name, _ in work] == ["transfer", "operator", "cg", "merged"]


def test_a_process_without_work_ends(monkeypatch):
    monkeypatch.setattr(ahead, "_IDLE_SECONDS", 0.01)
    assert list(ahead._Work()) == []


def test_a_python_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    compiler = ahead.Compiler(tmp_path)
    compiler.begin()
    compiler.compile([("twice_1", TWICE)])
    ended(compiler)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_asked_for_once(asked, tmp_path):
    (tmp_path / "here.sha256").touch()
    kernels = [("here", "1"), ("missing", "2")]
    ahead.compile_kernels_ahead(kernels, 2)
    assert asked == [[("missing", "2")]]
    ahead.compile_kernels_ahead(kernels, 2)
    assert len(asked) == 1


def test_no_core_is_idle(asked, monkeypatch):
    kernels = [("missing", "2")]
    ahead.compile_kernels_ahead(kernels, 1)
    monkeypatch.setattr(ahead, "_running", lambda: 2)
    ahead.compile_kernels_ahead(kernels, 2)
    monkeypatch.setattr(ahead, "_running", lambda: 1)
    monkeypatch.setattr(sys, "executable", "/usr/bin/paraview")
    ahead.compile_kernels_ahead(kernels, 2)
    assert asked == []


def test_threads_that_run_are_counted(tmp_path, monkeypatch):
    load = tmp_path / "loadavg"
    load.write_text("0.20 0.18 0.12 3/80 11206\n")
    monkeypatch.setattr(ahead, "_LOAD", load)
    assert ahead._running() == 3
    load.write_text("unknown")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.25, 9.0, 9.0))
    assert ahead._running() == 1.25
    monkeypatch.delattr(os, "getloadavg")
    assert ahead._running() == float("inf")


def names_asked(asked):
    return {name for kernels in asked for name, _ in kernels}


@pytest.fixture
def loaded(asked, monkeypatch):
    """Names of kernels that are loaded; two threads have two cores."""
    monkeypatch.setattr(ahead, "named", specialize.named)
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "get_threads", lambda: 2)
    names, found = set(), specialize.load

    def load(name, text):
        names.add(name)
        return found(name, text)

    monkeypatch.setattr(specialize, "load", load)
    return names


def test_operators_ask_for_what_their_solves_need(asked, loaded, monkeypatch):
    """Under the names that a solve asks for; nothing if there is one thread."""
    V = femops.H1(femops.box((2, 2)), 2)
    with monkeypatch.context() as alone:
        alone.setattr(machine, "get_threads", lambda: 1)
        A = femops.mass(V)
        assert asked == []
    femops.mass(V)
    kinds = {name.split("_")[0] for name in names_asked(asked)}
    assert kinds == {"driver", "chunk", "merged", "cg"}
    _, info = femops.cg(A, femops.load(V, 1.0), M=femops.jacobi(A))
    assert info.merged
    # the driver is loaded once in a process, by whichever test came first
    assert {name for name in names_asked(asked) if not name.startswith("driver")} <= loaded


def test_multigrid_asks_for_what_it_needs(asked, loaded):
    V = femops.H1(femops.box((2, 2)), 4)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    asked.clear()
    for cached in (relaxation._compiled, relaxation._vectors):
        cached.cache_clear()
    _, info = femops.cg(A, femops.load(V, 1.0), M=femops.multigrid(A))
    assert info.converged
    kinds = Counter(name.rsplit("_", 1)[0] for name in names_asked(asked))
    # transfers between two pairs of orders, and the operator of order 2
    assert kinds == {"batches": 5, "chunk": 1, "directions": 1, "inner_product": 2, "relaxation": 1}
    assert names_asked(asked) <= loaded
