"""How ranks are started, and how one that fails ends all: programs under a launcher, or none."""

import os
import subprocess
import sys
import types

import pytest

import femops
from femops.errors import RankError
from femops.launchers import launched
from femops.parallel import Serial, communicator, world
from femops.parallel import launch as launching
from support.mpi_runs import launch, why_not

NAMES = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
needs_ranks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

START = """
import sys, time
import numpy as np
from mpi4py import MPI
from femops.parallel import check, communicator
comm = communicator(MPI.COMM_WORLD)
from femops.parallel import launch
"""


def program(ranks, code, **environment):
    """(exit code, output) of START and this code on ranks."""
    code, text = launch(ranks, [sys.executable, "-c", START + code], 60, **environment)
    assert "still running" not in text
    return code, text


@pytest.fixture
def no_launcher(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


# --- One rank fails -------------------------------------------------------------------------------


@needs_ranks
def test_an_uncaught_error_ends_all_ranks():
    """The others wait for its messages, each in a call of its own: they would forever."""
    code, text = program(
        4,
        "if comm.rank == 2: raise ValueError('too bad')\n"
        "waits = comm.barrier, lambda: comm.exchange({2: np.zeros(9)}), None, lambda: comm.sum(1)\n"
        "waits[comm.rank]()\nprint('went on')",
    )
    assert code != 0
    assert text.count("femops: rank 2 of 4 failed, which ends all ranks:\nTraceback") == 1
    assert text.count("Traceback") == text.count("ValueError: too bad") == 1
    assert "went on" not in text


@needs_ranks
def test_the_rank_that_failed_inside_check_reports():
    code, text = program(
        3,
        "launch._FOLLOWING = 1000\n"  # a busy machine must not change the order
        "with check(comm):\n    if comm.rank == 1: raise KeyError('no such thing')\ncomm.barrier()",
    )
    assert code != 0
    assert text.count("rank 1 of 3 failed, which ends all ranks:\nTraceback") == 1
    assert text.count("Traceback") == 1
    assert "RankError" not in text


@pytest.mark.parametrize(
    ("rank", "error", "seconds"),
    [
        (0, ValueError(), 0.0),
        (2, ValueError(), 0.8),
        (9, ValueError(), 2.0),
        (0, RankError(), 3.0),
        (9, RankError(), 3.0),
    ],
    ids=repr,
)
def test_ranks_let_lower_ones_and_the_one_that_failed_report_first(
    monkeypatch, capsys, rank, error, seconds
):
    """Whoever has waited for them in vain ends all ranks."""
    slept, ends = [], []
    world = types.SimpleNamespace(rank=rank, size=10, Abort=ends.append)
    monkeypatch.setattr(launching, "_several", lambda: world)
    monkeypatch.setattr(launching.time, "sleep", slept.append)
    launching.end_all(error, lambda: sys.stderr.write("too bad\n"))
    assert slept == [pytest.approx(seconds), launching._DELIVERY]
    said = f"femops: rank {rank} of 10 failed, which ends all ranks:\ntoo bad\n"
    assert (capsys.readouterr().err, ends) == (said, [1])


@needs_ranks
def test_an_explained_error_of_a_command_ends_all_ranks():
    code, text = program(
        2,
        "launch._FOLLOWING = 1000\n"
        "import femops\n"
        "from femops.cli import main\n"
        "from femops.cli.problems.poisson import Poisson\n"
        "def fail(self): raise femops.errors.SpaceError('too bad')\n"
        "if comm.rank == 1: Poisson.prepare = fail\n"
        "main(['solve', 'poisson', '3x3', '--order', '1'])",
    )
    assert code != 0
    assert text.startswith("femops: rank 1 of 2 failed, which ends all ranks:\nfemops: too bad\n")
    assert "Traceback" not in text


@pytest.mark.parallel(1)
def test_a_single_rank_is_left_alone(comm, capsys):
    launching.end_all_on_errors()
    assert sys.excepthook is sys.__excepthook__
    launching.end_all(ValueError(), lambda: sys.stderr.write("too bad\n"))
    assert capsys.readouterr().err == "too bad\n"


# --- Launchers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 1),
        ({"PMI_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
        ({"MV2_COMM_WORLD_SIZE": "2"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "6"}, 6),  # mpiexec's own helpers are a step
        ({"SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "1"}, 1),
        ({"SLURM_NTASKS": "8"}, 1),  # a batch script
        ({"PMI_SIZE": "many"}, 1),
        ({"PMI_SIZE": "\xb2"}, 1),
        ({"PMI_SIZE": "9" * 5000}, 1),
    ],
    ids=str,
)
def test_what_launchers_say(no_launcher, monkeypatch, environment, count):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched()[0] == count
    if count == 1:
        assert isinstance(world(), Serial)


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize(
    ("environment", "count"),
    [({}, 0), ({"PMI_SIZE": "2", "PMI_RANK": "0"}, 1), ({"PMI_SIZE": "2", "PMI_RANK": "1"}, 0)],
    ids=str,
)
def test_whole_problems_on_each_rank_are_told_of_once(environment, count):
    program = "import femops\nfor n in (2, 3): femops.H1(femops.box((n, n)), 1)"
    given = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("a launcher started 2 processes (PMI_SIZE), but the mesh") == count


def broken():
    """A package mpi4py that finds no library of MPI."""
    module = types.ModuleType("mpi4py")

    def lookup(name):
        raise RuntimeError("cannot load MPI library") if name == "MPI" else AttributeError(name)

    module.__getattr__ = lookup
    return module


@pytest.mark.parametrize(
    ("name", "module", "why"),
    [
        ("PMI_SIZE", None, "mpi4py"),
        ("SLURM_STEP_NUM_TASKS", broken(), "cannot load MPI library"),
    ],
)
def test_missing_mpi4py_under_a_launcher(no_launcher, monkeypatch, capsys, name, module, why):
    monkeypatch.setenv(name, "4")
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(femops.errors.MissingExtraError) as caught:
        world()
    text = str(caught.value)
    assert f"4 processes were started ({name})" in text
    assert why in text
    assert "pip install mpi4py mpich" in text

    from femops.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["info"])
    assert stop.value.code == 1
    assert capsys.readouterr().err == f"femops: {text}\n"


@pytest.mark.parallel(1)
def test_a_nonowned_launcher_is_told(comm, no_launcher, monkeypatch):
    """It gives every process a world of one."""
    from mpi4py import MPI

    monkeypatch.setenv("MV2_COMM_WORLD_SIZE", "4")
    for use in (lambda: communicator(MPI.COMM_WORLD), world):
        with pytest.raises(
            femops.errors.CommunicatorError,
            match=r"started 4 processes \(MV2_COMM_WORLD_SIZE\), but each is alone .* mpiexec of",
        ):
            use()
    assert communicator(MPI.COMM_SELF).size == 1  # alone on purpose
