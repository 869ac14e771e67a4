"""Threads times ranks: never more than cores, unless asked."""

import sys
import threading

import pytest

from femops.parallel import cores
from femops_kernels.cpu import machine
from support.mpi_runs import launch, why_not


@pytest.mark.parametrize(
    ("masks", "shares"),
    [
        ([range(8)], [8]),
        ([range(8)] * 2, [4, 4]),
        ([range(8)] * 3, [2, 2, 2]),
        ([range(2)] * 4, [1, 1, 1, 1]),  # more ranks than cores
        ([range(4), range(4, 8)], [4, 4]),  # bound to cores of their own
        ([range(4), range(4, 8), range(4, 8)], [4, 2, 2]),
        ([[0], [0, 1, 2, 3]], [1, 3]),
        ([range(6), range(3, 9)], [4, 4]),
    ],
)
def test_share(masks, shares):
    assert [cores.share(masks, rank) for rank in range(len(masks))] == shares


def test_a_process_alone_has_all_its_cores():
    node = cores.Node.alone()
    assert (node.first, node.cores, node.share) == (0, len(cores.own()), len(cores.own()))


@pytest.mark.parallel(1, 2, 3)
def test_ranks_share_the_cores_of_their_node(comm, monkeypatch):
    from mpi4py import MPI

    said = []
    monkeypatch.setattr(machine, "share_threads", said.append)
    for own, share in [(range(6), 6 // comm.size), (range(4 * comm.rank, 4 * comm.rank + 4), 4)]:
        monkeypatch.setattr(cores, "own", lambda own=own: list(own))
        node = cores.Node.of(comm.raw, MPI.COMM_TYPE_SHARED)
        assert node.share == said.pop() == share
        assert node.first == 0
    assert node.cores == 4 * comm.size


@pytest.mark.parametrize(
    ("asked", "calls", "threads"),
    [
        (None, [], 4),
        (None, [("share", 2)], 2),
        (None, [("share", 2), ("share", 3)], 2),
        (None, [("get",), ("share", 3), ("share", 1)], 1),
        (None, [("share", 9)], 4),
        (None, [("set", 3), ("share", 2)], 3),
        (None, [("share", 2), ("set", 4)], 4),
        ("3", [("share", 1)], 3),
    ],
)
def test_a_share_is_kept_unless_threads_are_asked_for(asked, calls, threads, monkeypatch):
    monkeypatch.setattr(machine, "_shares", [])
    monkeypatch.setattr(machine, "_here", threading.local())
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.delenv("FEMOPS_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("FEMOPS_THREADS", asked)
    for name, *count in calls:
        getattr(machine, f"{name}_threads")(*count)
    assert machine.get_threads() == threads


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_threads_of_ranks():
    """As `mpiexec` starts them, bound to cores or not."""
    program = """
from mpi4py import MPI
from femops.parallel import communicator, cores
from femops_kernels.cpu import machine
machine.cores = lambda: 4
comm = communicator(MPI.COMM_WORLD)
assert comm.node.share <= max(1, len(cores.own()))
threads = comm.gather_all(__import__("numpy").array([machine.get_threads(), comm.node.cores]))
if comm.rank == 0: print(threads[:, 0].sum(), threads[0, 1])
"""
    code, text = launch(2, [sys.executable, "-c", program], 60, FEMOPS_THREADS="unset")
    assert code == 0, text
    threads, found = map(int, text.split())
    assert 2 <= threads <= max(2, found)
