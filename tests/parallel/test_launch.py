"""How ranks are started, and how one that fails ends all: programs under a launcher, or none."""

import json
import os
import subprocess
import sys
import types

import pytest

import femops
from femops.parallel import Serial, world
from femops.parallel.launch import launched
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

# How long ranks wait for those that go first: a busy machine must not change the order.
PATIENT = "launch._PRECEDENCE = 1000, 1000"


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
@pytest.mark.parametrize(
    "where", ["comm.barrier()", "comm.exchange({0: np.zeros(9)})", "comm.sum(1)"]
)
def test_an_uncaught_error_ends_all_ranks(where):
    """The others wait for its messages: they would forever."""
    code, text = program(
        3, f"if comm.rank == 2: raise ValueError('too bad')\n{where}\nprint('went on')"
    )
    assert code != 0
    assert text.count("femops: rank 2 of 3 failed, which ends all ranks:\nTraceback") == 1
    assert text.count("Traceback") == text.count("ValueError: too bad") == 1
    assert "went on" not in text


@needs_ranks
def test_of_the_same_error_on_all_ranks_the_lowest_reports():
    code, text = program(3, f"{PATIENT}\nraise ValueError('too bad')")
    assert code != 0
    assert "rank 0 of 3 failed, which ends all ranks:\nTraceback" in text


@needs_ranks
def test_the_rank_that_failed_inside_check_reports():
    code, text = program(
        3,
        "launch._FOLLOWING = 1000\n"
        "with check(comm):\n    if comm.rank == 1: raise KeyError('no such thing')\ncomm.barrier()",
    )
    assert code != 0
    assert text.count("rank 1 of 3 failed, which ends all ranks:\nTraceback") == 1
    assert text.count("Traceback") == 1
    assert "RankError" not in text


@needs_ranks
def test_whoever_was_told_ends_all_ranks_if_the_one_that_failed_goes_on():
    code, text = program(
        2,
        "try:\n"
        "    with check(comm):\n"
        "        if comm.rank == 1: raise KeyError('no such thing')\n"
        "except KeyError:\n    pass\n"
        "comm.barrier()",
    )
    assert code != 0
    assert "RankError: rank 1 of 2 failed: KeyError: 'no such thing'" in text


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


@needs_ranks
def test_a_single_rank_is_left_alone():
    code, text = program(
        1, "assert sys.excepthook is sys.__excepthook__\nraise ValueError('too bad')"
    )
    assert code != 0
    assert text.count("Traceback") == text.count("ValueError: too bad") == 1
    assert "femops: rank" not in text


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
    ],
    ids=str,
)
def test_what_launchers_say(no_launcher, monkeypatch, environment, count):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched()[0] == count
    if count == 1:
        assert isinstance(world(), Serial)


def broken():
    """A package mpi4py that finds no library of MPI."""
    module = types.ModuleType("mpi4py")

    def lookup(name):
        raise RuntimeError("cannot load MPI library") if name == "MPI" else AttributeError(name)

    module.__getattr__ = lookup
    return module


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("module", "why"), [(None, "mpi4py"), (broken(), "cannot load MPI library")]
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


@needs_ranks
def test_a_nonowned_launcher_is_told():
    """It gives every process a world of one."""
    env = {k: v for k, v in os.environ.items() if k not in NAMES} | {"MV2_COMM_WORLD_SIZE": "4"}
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert "the launcher started 4 processes (MV2_COMM_WORLD_SIZE), but each is alone" in last
    assert "mpiexec" in last
    own = START.replace("(MPI.COMM_WORLD)", "(MPI.COMM_SELF)")  # alone on purpose
    subprocess.run([sys.executable, "-c", own], env=env, timeout=60, check=True)


# --- femops info ----------------------------------------------------------------------------------


@needs_ranks
def test_info_tells_ranks_threads_and_cores_once():
    from mpi4py import __version__

    arguments = [sys.executable, "-m", "femops", "info", "--json"]
    code, text = launch(3, arguments, 60, FEMOPS_THREADS="2")
    assert code == 0, text
    facts = json.loads(text)["parallel"]
    assert (facts["ranks"], facts["nodes"], facts["threads"]) == (3, 1, [2, 2, 2])
    assert facts["cores"] >= 1
    assert facts["mpi4py"] == __version__
    assert facts["mpi"]
    assert "\n" not in facts["mpi"]

    code, text = launch(2, arguments[:-1], 60, FEMOPS_THREADS="1")
    assert code == 0, text
    assert text.count("Ranks") == text.count("2 x 1 = 2") == text.count(facts["mpi"]) == 1
