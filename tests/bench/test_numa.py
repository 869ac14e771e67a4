"""Placement: what can be shown on any machine."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from femops.bench import numa
from femops.bench.drawing import draw
from femops.bench.numa import bind, memories, ranges
from femops.errors import OperatorError
from femops_kernels.cpu import machine

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux places pages")


def test_lists_of_the_kernel():
    assert ranges("0-3,8\n") == [0, 1, 2, 3, 8]
    assert ranges("\n") == []


@linux
def test_memories_with_cores_of_this_process(tmp_path):
    core = min(os.sched_getaffinity(0))
    for name, cores in (("node1", f"{core}"), ("node0", ""), ("node10", "4090-4095")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cores + "\n")
    assert memories(tmp_path) == {1: [core]}
    assert memories(tmp_path / "none") == {}


@linux
def test_threads_have_numbers_of_this_process():
    ids = machine.thread_ids()
    assert len(ids) == machine.get_threads()
    assert {str(number) for number in ids} <= {
        path.name for path in Path("/proc/self/task").iterdir()
    }


@pytest.fixture
def placed(monkeypatch):
    """Two memories made up of the cores there are, and a record of what would be moved."""
    cores = sorted(os.sched_getaffinity(0))
    found = {0: cores[:1], 1: cores[-1:]}
    moved = []
    monkeypatch.setattr(numa, "memories", lambda _: found)
    monkeypatch.setattr(machine, "max_threads", lambda: 3)
    monkeypatch.setattr(
        numa, "bind", lambda a, nodes, interleave=False: moved.append((nodes, interleave))
    )
    return moved


@linux
def test_three_placements_take_turns(placed, tmp_path):
    before, threads = os.sched_getaffinity(0), machine.get_threads()
    result = numa.run_numa((1, 2, 1), 300.0, rounds=1, seconds=0.0)
    names = [(row["placement"], row["order"]) for row in result["rows"]]
    assert names == [(name, p) for p in (1, 2) for name in numa.PLACEMENTS]
    assert result["notes"] == []
    places = [0, 1][: min(threads, 2)]  # one core in each
    # data, indices and two vectors of each operator; none where they stay as they are made
    expected = [(places[:1], False), (sorted(set(places)), True)]
    assert placed == [e for _ in (1, 2) for e in expected for _ in range(4)]
    assert (os.sched_getaffinity(0), machine.get_threads()) == (before, threads)
    assert draw(tmp_path / "numa.png", "numa", result["rows"]).stat().st_size > 1000


def test_one_memory_is_said(tmp_path):
    result = numa.run_numa((1,), 300.0, nodes=tmp_path)
    assert result["rows"] == []
    assert result["notes"] == [numa.ONE_MEMORY]
    with pytest.raises(OperatorError, match="nothing to draw"):
        draw(tmp_path / "no.png", "numa", [])


@linux
def test_pages_are_moved_and_keep_their_contents():
    node = next(iter(memories()), None)
    if node is None:
        pytest.skip("the kernel describes no memories")
    array = np.arange(100_000.0)
    try:
        bind(array, [node])
    except OperatorError as error:
        pytest.skip(str(error))  # containers may forbid it
    bind(array, [node], interleave=True)
    np.testing.assert_array_equal(array, np.arange(100_000.0))
    bind(array[:3], [1000])  # no whole page: nothing to move


@linux
def test_a_memory_that_is_not_there_is_refused():
    with pytest.raises(OperatorError, match="pages cannot be"):
        bind(np.zeros(100_000), [1000])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"orders": ()}, "at least one, all from 1 to 32"),
        ({"orders": (0,)}, "at least one, all from 1 to 32"),
        ({"dofs": 0.0}, "from 1 to 1e"),
        ({"rounds": 0}, "at least one round"),
    ],
)
def test_nonsense_is_refused(options, words):
    with pytest.raises(OperatorError, match=words):
        numa.run_numa(**({"orders": (1,)} | options))
