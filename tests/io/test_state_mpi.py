"""Checkpoints over MPI: to and from any number of ranks; a rank that is killed leaves no ruin."""

import os
import sys

import pytest

import femops
from femops.io.checkpoint import state
from support.cases.rank_meshes import SAMPLES
from support.cases.rank_states import SPACES, bits, same, share
from support.mpi_runs import launch, why_not


@pytest.fixture
def folder(comm, tmp_path_factory):
    """One for all ranks."""
    return comm.broadcast(tmp_path_factory.mktemp("state") if comm.rank == 0 else None)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(state, "BLOCK", 500)


def shared(mesh, how, comm):
    """A mesh of which ranks hold parts."""
    if how == "metis":
        pytest.importorskip("pymetis")
        return femops.distribute(mesh, comm, method="metis")
    return femops.distribute(mesh, comm, reproducible=how == "reproducible")


@pytest.mark.parallel(1, 2, 3, 4)
@pytest.mark.parametrize(
    ("how", "kind"), [("curve", "f4"), ("reproducible", "f4"), ("metis", "f4"), ("metis", "c8")]
)
def test_to_ranks_and_back(comm, folder, how, kind):
    whole = SAMPLES["disc"]()
    mesh = shared(whole, how, comm)
    serial = {"u": SPACES["cubic"](whole), "p": SPACES["jumps"](whole)}
    spaces = {"u": SPACES["cubic"](mesh), "p": SPACES["jumps"](mesh)}
    vectors = {"u": bits(serial["u"].shape, "f8"), "p": bits(serial["p"].shape, kind)}
    mine = {name: share(serial[name], V, vectors[name]) for name, V in spaces.items()}
    path = folder / "run.state"
    given = {name: (V, mine[name]) for name, V in spaces.items()}
    assert femops.io.save_state(path, given, {"n": 1}) == path
    found = femops.io.load_state(path, spaces)
    again = femops.io.load_state(path, serial)
    for name in spaces:
        same(found.vectors[name], mine[name])
        same(again.vectors[name], vectors[name])
    assert found.values == again.values == {"n": 1}
    if comm.rank == 0:
        given = {name: (V, vectors[name]) for name, V in serial.items()}
        alone = femops.io.save_state(folder / "alone.state", given, {"n": 1})
        assert alone.read_bytes() == path.read_bytes()


@pytest.mark.parallel(3, 4)
def test_from_two_to_more(comm, folder):
    """On a communicator of some ranks, then on all."""
    from femops.parallel import communicator

    mesh, path = SAMPLES["cube"](), folder / "run.state"
    serial = femops.H1(mesh, 3)
    u = bits(serial.shape, "f8")
    half = comm.raw.Split(comm.rank % 2)
    if comm.rank % 2 == 0:
        V = femops.H1(shared(mesh, "curve", communicator(half)), 3)
        femops.io.save_state(path, {"u": (V, share(serial, V, u))})
    comm.barrier()
    V = femops.H1(shared(mesh, "reproducible", comm), 3)
    same(femops.io.load_state(path, {"u": V}).vectors["u"], share(serial, V, u))


PROGRAM = """
import os, signal
from mpi4py import MPI
import femops
from femops.io.checkpoint import state

V = femops.H1(femops.box((8, 8), comm=MPI.COMM_WORLD), 4)

def save(n):
    femops.io.save_state("run.state", {"u": (V, V.zeros() + n)}, {"n": n})

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

save(1)
if V.comm.rank == 1:
    state.write_rows = die
save(2)
"""


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_rank_is_killed(tmp_path):
    """Another than the one that gives the file its name: for that see `test_state.py`."""
    paths = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-c", PROGRAM]
    code, text = launch(2, arguments, 60, tmp_path, PYTHONPATH=paths)
    assert code not in (0, -14), text
    V = femops.H1(femops.box((8, 8)), 4)
    state = femops.io.load_state(tmp_path / "run.state", {"u": V})
    assert state.values == {"n": 1}
    assert (state.vectors["u"] == 1).all()
    femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
    assert list(tmp_path.iterdir()) == [tmp_path / "run.state"]
