"""The study of scaling on boxes of a few elements."""

import json
import mmap
import os
import sys
from contextlib import ExitStack, closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from femops import launchers
from femops.bench.drawing import draw
from femops.bench.scaling import Settings, run_scaling, study
from femops.bench.scaling.study import Task, World, started
from femops.bench.scaling.worker import peak_of
from femops.errors import MissingExtraError, OperatorError
from femops.parallel import cores, launch
from femops_meshes import box, partition
from support import mpi_runs

mpi = pytest.mark.skipif(mpi_runs.why_not() is not None, reason=str(mpi_runs.why_not()))
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells memory")
SMALL: dict[str, Any] = {"order": 2, "dofs": 700.0, "rounds": 1, "seconds": 0.0}


# --- on ranks -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def worlds():
    """Tests share their ranks, which take seconds to start."""
    found = {}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        @contextmanager
        def shared(ranks):
            if ranks not in found:
                found[ranks] = stack.enter_context(started(ranks))
            yield found[ranks]
            found[ranks].ask("forget")

        patch.setattr(study, "started", shared)
        yield found


@pytest.fixture(scope="module")
def result():
    """Measure on one rank, and count on more than there are cores."""
    settings = Settings(
        ranks=(1, 2), problems=("bp1", "bp4"), meshes=("multilinear",), level="partial", **SMALL
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cores, "own", lambda: [0])
        return run_scaling(settings)


@mpi
def test_rows(result, tmp_path):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    rows = result["rows"]
    cases = [(row["ranks"], row["problem"]) for row in rows]
    assert cases == list(product((1, 2), ("bp1", "bp4")))
    for row in rows:
        assert row["timed"] == (row["ranks"] == 1)
        assert list(row) == list(rows[0])
        speeds = [row[key] for key in ("seconds", "speedup", "efficiency", "dofs_per_second")]
        assert all(s is None or s > 0 for s in speeds)
        assert (speeds[0] is None) == (row["ranks"] > 1)
    assert {row["level"] for row in rows if row["problem"] == "bp1"} == {rows[0]["level"]}
    assert draw(tmp_path / "s.png", "ranks", rows).stat().st_size > 1000
    with pytest.raises(OperatorError, match="nothing was measured"):
        draw(tmp_path / "no.png", "ranks", [row for row in rows if not row["timed"]])


@mpi
def test_many_vectors_by_three_methods():
    """One message a neighbour carries all vectors at once; one by one takes as many as vectors."""
    settings = Settings((1, 2), problems=("bp1",), meshes=("multilinear",), nvec=9, **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cores, "own", lambda: [0, 1])
        rows = {(row["method"], row["ranks"]): row for row in run_scaling(settings)["rows"]}
    assert len(rows) == 6
    fused, cells, single = (rows[name, 2] for name in ("at once", "cell matrices", "one by one"))
    assert cells["level"] == "element"
    assert fused["bytes"] == cells["bytes"] == single["bytes"] > 0
    assert single["messages"] == 9 * fused["messages"] == 9 * cells["messages"] > 0
    for row in rows.values():
        assert row["nvec"] == 9
        assert row["dofs_per_second"] == pytest.approx(9 * row["dofs"] / row["seconds"])


@mpi
def test_messages_are_those_of_the_partition(result):
    for row in result["rows"]:
        n = round(row["elements"] ** (1 / 3))
        ncomp = {"bp1": 1, "bp4": 3}[row["problem"]]
        assert row["dofs"] == ncomp * (2 * n + 1) ** 3
        messages, dofs = partition(box((n, n, n)), row["ranks"]).exchange(2)
        # to those who touch a dof, and back to who owns it
        assert (row["messages"], row["bytes"]) == (2 * messages, 2 * dofs * ncomp * 8)
        assert (row["least_messages"], row["least_bytes"]) == (row["messages"], row["bytes"])
        assert (row["messages"] > 0) == (row["ranks"] == 2)


@mpi
@pytest.mark.skipif(len(cores.own()) < 2, reason="needs two cores")
def test_two_ranks_take_turns_with_one():
    settings = Settings(ranks=(1, 2), problems=("bp3",), meshes=("cartesian",), weak=True, **SMALL)
    one, two = run_scaling(settings)["rows"]
    assert one["level"] == two["level"] != "auto"
    assert (one["ranks"], one["wait"], one["messages"]) == (1, None, 0)
    assert two["dofs"] > 1.5 * one["dofs"]
    assert two["scaling"] == "weak"
    assert 0 < two["wait"] < two["seconds"] * 2
    assert two["wait_without_overlap"] > 0
    assert two["seconds_without_overlap"] > 0
    assert (two["messages"], two["bytes"]) == (two["least_messages"], two["least_bytes"])


@mpi
@linux
def test_memory_of_each_rank():
    settings = Settings(problems=("bp1",), meshes=("cartesian",), order=4, dofs=60_000)
    study.rank_memory(settings, (1,), lambda _: None)  # compiles kernels, which takes memory too
    one, two = study.rank_memory(settings, (1, 2), lambda _: None)
    assert one["dofs"] == two["dofs"]
    assert one["times_share"] == 1
    # vectors and numbers of nodes alone
    assert one["bytes"] > 2 * 8 * one["dofs"]
    assert two["bytes"] < one["bytes"]
    assert two["bytes"] <= two["sum"] <= 2 * two["bytes"]


@mpi
def test_ranks_choose_one_level():
    what = {"problem": "bp1", "mesh": "cartesian", "order": 1, "counts": [3, 3, 3]}
    with study.started(2) as world:
        level = world.ask("prepare", name="a", level="auto", **what)["level"]
    assert level in {"full", "element", "partial", "matrix-free"}


@mpi
def test_ranks_that_fail_say_why(worlds):
    why = pytest.raises(OperatorError, match=r"1 ranks failed.*KeyError: 'x'")
    with closing(worlds.pop(1, None) or World(1)) as world, why:  # of no use to others afterwards
        world.ask("time", name="x", seconds=0.0, overlap=True)


def test_a_message_too_many_is_a_defect(monkeypatch):
    class Liar:
        ranks = 2

        def ask(self, do, **_):
            return {"messages": 3.0, "bytes": 16.0}

    settings = Settings(order=1, dofs=27)
    with pytest.raises(OperatorError, match="sends 3 messages of 16 bytes, the partition asks for"):
        study.messages(Liar(), Task("bp1", "cartesian"), settings, "partial")
    known = study.messages(Liar(), Task("bp1", "cartesian"), settings, "full")
    assert known["least_messages"] is None  # a matrix has its own


# --- what is refused ------------------------------------------------------------------------------


NONSENSE = [
    ({"ranks": ()}, r"ranks are \[\]: give at least one"),
    ({"ranks": (0, 2)}, "all from 1 to 4096"),
    ({"problems": ("bp7",)}, "choose one of bp1"),
    ({"meshes": ("ball",)}, "choose one of cartesian"),
    ({"level": "best"}, "choose one of full"),
    ({"order": 0}, "all from 1 to 32"),
    ({"dofs": 0.0}, "from 1 to 1e"),
    ({"rounds": 0}, "at least one round"),
    ({"nvec": 0}, "0 vectors"),
]


def test_nonsense_is_refused():
    for options, words in NONSENSE:
        with pytest.raises(OperatorError, match=words):
            run_scaling(Settings(**options))


def test_without_mpi_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="without mpi4py: pip install mpi4py mpich"):
        run_scaling(Settings())
    monkeypatch.undo()
    monkeypatch.setattr(launch.shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(launch, "find_spec", lambda _: True)
    with pytest.raises(MissingExtraError, match="without mpiexec"):
        run_scaling(Settings())


@mpi
def test_under_mpiexec_it_says_so(monkeypatch):
    monkeypatch.setattr(launchers, "launched", lambda: (4, "PMI_SIZE"))
    with pytest.raises(OperatorError, match=r"is one of 4 \(PMI_SIZE\): run it without mpiexec"):
        run_scaling(Settings())


# --- memory and rounds ----------------------------------------------------------------------------


@linux
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks stay")
def test_the_peak_is_what_was_taken_inside():
    def taken(nbytes):  # from the system, whatever the process has left over
        with mmap.mmap(-1, nbytes) as memory:
            memory.write(bytes(nbytes))

    taken(200_000_000)  # before: not counted
    with peak_of() as peak:
        taken(40_000_000)
    assert 39e6 < peak[0] < 100e6  # zeros to copy from, too


def test_rounds_that_were_disturbed_are_left_out():
    def rounds(seconds, calm):
        return [{"seconds": s, "wait": 0.0, "calm": c} for s, c in zip(seconds, calm, strict=True)]

    one = rounds((4.0, 4.0, 9.0), (5, 5, 0))
    speeds = study.speeds(rounds((2.0, 8.0, 2.0), (5, 2, 5)), one)
    assert (speeds["speedup"], speeds["calm_rounds"], speeds["seconds"]) == (2.0, 1, 2.0)
    disturbed = rounds((2.0, 8.0, 2.0), (0, 0, 0))  # nothing else is left: of 2, 0.5, 4.5
    assert study.speeds(disturbed, one)["speedup"] == 2.0


def test_sizes_of_the_study():
    weak = Settings(order=4, dofs=125.0 * 64, weak=True)
    assert weak.counts(Task("bp1", "cartesian"), 1) == (5, 5, 5)
    assert weak.counts(Task("bp1", "cartesian"), 8) == (10, 10, 10)
    strong = Settings(order=4, dofs=125.0 * 64)
    assert strong.counts(Task("bp2", "cartesian"), 8) == (3, 3, 3)
    assert Settings(ranks=(1, 4096)).timed() == [1]


def test_example_on_ranks():
    if mpi_runs.why_not():
        pytest.skip(mpi_runs.why_not())
    example = Path(__file__).parents[2] / "examples" / "scaling_mpi.py"
    code, text = mpi_runs.launch(2, [sys.executable, str(example), "--elements", "4"], 100)
    rows = [line.split() for line in text.splitlines() if not line.startswith("femops compiles")]
    assert code == 0, text
    assert [row[0] for row in rows] == ["ranks", "1", "2"], text
    assert [row[1] for row in rows[1:]] == ["4913", "4913"]
    assert rows[1][3] == rows[2][3]
    assert rows[1][5] == "100.0%"
