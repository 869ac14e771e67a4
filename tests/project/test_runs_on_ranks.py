"""What runs tests on ranks tells failures, hangs and skips apart, and where they were."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import mpi_runs

SUITE = """
import time
import pytest

pytestmark = pytest.mark.parallel(2)

def test_passes(comm, tmp_path):
    assert comm.sum(1) == 2

def test_fails_on_rank_1(comm):
    print("this is rank", comm.rank)
    assert comm.rank == 0, "that is odd"
    comm.barrier()

def test_passes_again(comm):
    assert comm.sum(1) == 2

@pytest.mark.parallel(2, timeout=1)
def test_hangs(comm):
    if comm.rank == 0:
        comm.barrier()

def test_skips(comm):
    pytest.skip("not today")

def test_dies(comm):
    if comm.rank == 1:
        import os
        os._exit(7)
    comm.barrier()

@pytest.mark.parametrize("k", [1, 2])
def test_passes_last(comm, k):
    assert comm.max(comm.rank * k) == k
"""


def run_suite(folder, suite):
    """What pytest prints of a module of tests."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -m 'not slow'\nmarkers = slow: no\n")
    (folder / "test_suite.py").write_text(suite)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "FEMOPS_TEST_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(mpi_runs.__file__).parents[1]), *sys.path])
    options = ["-p", "support.mpi_runs", "-p", "no:xdist", "-rfs"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.skipif(mpi_runs.why_not() is not None, reason=str(mpi_runs.why_not()))
def test_outcomes(tmp_path):
    text = run_suite(tmp_path, SUITE)
    assert "3 failed, 4 passed, 1 skipped" in text, text
    assert "not today" in text
    parts = {part.split(" ", 1)[0]: part for part in text.split("_ test_")[1:]}
    assert set(parts) == {"fails_on_rank_1[2", "hangs[2", "dies[2"}
    odd, hang, death = parts["fails_on_rank_1[2"], parts["hangs[2"], parts["dies[2"]
    assert "--- rank 1:" in odd
    assert "that is odd" in odd
    assert "this is rank 1" in odd
    assert "this is rank 0" not in odd
    assert "Timeout" in hang
    assert "in test_hangs" in hang  # the stack of rank 0
    assert "--- rank 1: did not come to the end" in death


@pytest.mark.skipif(mpi_runs.why_not() is not None, reason=str(mpi_runs.why_not()))
def test_ranks_that_do_not_start(tmp_path):
    """All of their tests fail, with the reason, and they are started once."""
    begun = f"""
import os
if "FEMOPS_TEST_FOLDER" in os.environ:
    with open({str(tmp_path / "begun")!r}, "a") as file:
        file.write("x")
    1 / 0
"""
    text = run_suite(tmp_path, begun + SUITE)
    assert "8 failed" in text, text
    assert text.count("2 ranks did not start; mpiexec ended with ") >= 8
    assert "ZeroDivisionError" in text
    assert (tmp_path / "begun").read_text() == "xx"


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(mpi_runs, "find_spec", lambda name: None)
    assert "extra mpi" in mpi_runs.why_not()
    monkeypatch.setattr(mpi_runs, "find_spec", lambda name: name)
    monkeypatch.setattr(mpi_runs, "mpiexec", lambda: None)
    assert "mpiexec is missing" in mpi_runs.why_not()


def test_a_program_that_takes_too_long_is_ended(monkeypatch, tmp_path):
    if mpi_runs.why_not():
        pytest.skip(mpi_runs.why_not())
    begun = tmp_path / "begun"
    program = f"""
import os, time
print(f'<{{os.getpid()}}>', flush=True)
with open({str(begun)!r}, "a") as file:
    file.write("x")
time.sleep(1000)
"""

    class Process(subprocess.Popen[str]):
        """One whose time is up as soon as all ranks have begun, however long that takes."""

        def communicate(self, text=None, timeout=None):
            if timeout == 2:
                while not (begun.exists() and len(begun.read_text()) == 2):
                    time.sleep(0.01)
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().communicate(text, timeout)

    monkeypatch.setattr(subprocess, "Popen", Process)
    code, text = mpi_runs.launch(2, [sys.executable, "-c", program], 2)
    assert code < 0
    assert text.endswith("still running after 2 seconds")
    numbers = [int(number) for number in re.findall(r"<(\d+)>", text)]
    assert len(numbers) == 2
    limit = time.monotonic() + 60
    while any(map(is_alive, numbers)):
        assert time.monotonic() < limit, "ranks are still there"
        time.sleep(0.05)


def is_alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
