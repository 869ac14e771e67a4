"""The study of scaling on boxes of a few elements, and its model against sums by hand."""

import json
import math
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from femops import launchers
from femops.bench.drawing import draw, model_rows
from femops.bench.scaling import Settings, halos, run_scaling, study
from femops.bench.scaling.halos import Halo, halo, least_exchange
from femops.bench.scaling.model import Model
from femops.bench.scaling.study import Task, Timing
from femops.bench.scaling.worker import peak_of
from femops.bench.scaling.worlds import started
from femops.errors import MissingExtraError, OperatorError
from femops.parallel import cores, launch
from femops_meshes import box, box_part, partition
from support import mpi_runs

mpi = pytest.mark.skipif(mpi_runs.why_not() is not None, reason=str(mpi_runs.why_not()))
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells memory")
SMALL: dict[str, Any] = {"order": 2, "dofs": 700.0, "rounds": 1, "seconds": 0.0}


# --- on ranks -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    """Of one rank, and of more than there are cores; with a model whose messages are given."""
    settings = Settings(
        ranks=(1, 3), problems=("bp1", "bp4"), meshes=("multilinear",), level="partial", **SMALL
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cores, "own", lambda: [0])
        patch.setattr(halos, "FITS", 11)  # boxes of the model are soon partitioned
        return run_scaling(settings, model=True, latency=1e-6, bandwidth=1e9)


@mpi
def test_rows(result):
    rows = result["rows"]
    assert [(row["problem"], row["ranks"]) for row in rows] == [
        ("bp1", 1),
        ("bp4", 1),
        ("bp1", 3),
        ("bp4", 3),
    ]
    for row in rows:
        assert row["timed"] == (row["ranks"] == 1)
        assert list(row) == list(rows[0])
        speeds = [row[key] for key in ("seconds", "speedup", "efficiency", "dofs_per_second")]
        assert all(s is None or s > 0 for s in speeds)
        assert (speeds[0] is None) == (row["ranks"] > 1)
    assert {row["level"] for row in rows if row["problem"] == "bp1"} == {rows[0]["level"]}


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


def test_a_model_of_many_vectors_is_refused():
    with pytest.raises(OperatorError, match="leave out --vectors or --model"):
        run_scaling(Settings(nvec=2, **SMALL), model=True)


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
        assert (row["messages"] > 0) == (row["ranks"] == 3)


@mpi
def test_the_model_is_drawn_with_what_was_measured(result, tmp_path):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    for table in result["model"]:
        assert (table["latency"], table["bandwidth"]) == (1e-6, 1e9)
        assert [each["rows"][-1]["ranks"] for each in table["strong"]] == [100_000] * 2
        assert table["strong"][0]["rows"][0]["efficiency"] == pytest.approx(1.0)
        assert table["weak"][0]["efficiency"] == pytest.approx(1.0)
        assert {row["halo"] for row in table["weak"]} == {"partition", "law"}
    rows = model_rows(result["model"], result["rows"])
    assert {row["kind"] for row in rows if row["ranks"] == 1} > {"measured, strong"}
    assert draw(tmp_path / "m.png", "model", rows).stat().st_size > 1000
    assert draw(tmp_path / "s.png", "ranks", result["rows"]).stat().st_size > 1000
    with pytest.raises(OperatorError, match="nothing was measured"):
        draw(tmp_path / "no.png", "ranks", [row for row in result["rows"] if not row["timed"]])


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
@pytest.mark.skipif(len(cores.own()) < 2, reason="needs two cores")
def test_ranks_have_their_cores_and_wait_asleep():
    with started(2) as world:
        links = world.ask("pingpong", seconds=0.0)
        assert 0 < links["latency"] < 1
        assert links["bandwidth"] > 0


@mpi
@linux
def test_memory_of_each_rank():
    settings = Settings(problems=("bp1",), meshes=("cartesian",), order=4, dofs=60_000)
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
    with started(3) as world:
        level = world.ask("prepare", name="a", level="auto", **what)["level"]
    assert level in {"full", "element", "partial", "matrix-free"}


@mpi
def test_ranks_that_fail_say_why():
    with started(1) as world, pytest.raises(OperatorError, match=r"1 ranks failed.*KeyError: 'x'"):
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ranks": ()}, r"ranks are \[\]: give at least one"),
        ({"ranks": (0, 2)}, "all from 1 to 4096"),
        ({"problems": ("bp7",)}, "choose one of bp1"),
        ({"meshes": ("ball",)}, "choose one of cartesian"),
        ({"level": "best"}, "choose one of full"),
        ({"order": 0}, "all from 1 to 32"),
        ({"dofs": 0.0}, "from 1 to 1e"),
        ({"rounds": 0}, "at least one round"),
    ],
)
def test_nonsense_is_refused(options, words):
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


@mpi
def test_a_model_needs_times():
    few = Settings(ranks=(len(cores.own()) + 1,), **SMALL)  # refused before they are started
    with pytest.raises(OperatorError, match="a model needs times"):
        run_scaling(few, model=True)
    one = Settings(ranks=(1,), problems=("bp1",), meshes=("cartesian",), **SMALL)
    with pytest.raises(OperatorError, match="give --latency and --bandwidth"):
        run_scaling(one, model=True, latency=1e-6)


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
    def timing(ranks, seconds, calm):
        made = Timing(Task("bp1", "cartesian"), ranks, {"dofs": 100})
        more = {"wait": 0.0, "wait_without_overlap": 0.0, "seconds_without_overlap": 1.0}
        made.rounds = [{"seconds": s, "calm": c} | more for s, c in zip(seconds, calm, strict=True)]
        return made

    one = timing(1, (4.0, 4.0, 9.0), (5, 5, 0))
    two = timing(2, (2.0, 8.0, 2.0), (5, 2, 5))
    speeds = study._speeds(two, one)
    assert (speeds["speedup"], speeds["efficiency"], speeds["calm_rounds"]) == (2.0, 1.0, 1)
    assert speeds["seconds"] == 2.0
    assert speeds["dofs_per_second"] == 50.0
    two = timing(2, (2.0, 8.0, 2.0), (0, 0, 0))  # nothing else is left: the median of 2, 0.5, 4.5
    assert study._speeds(two, one)["speedup"] == 2.0


# --- the model ------------------------------------------------------------------------------------


def test_seconds_of_a_rank_between_sizes():
    made = Model(0.0, 1.0, [1, 100], [1e-3, 1e-2], 0.0, 1, 1, halo)
    assert made.work(10) == pytest.approx(math.sqrt(1e-3 * 1e-2))
    assert made.work(1000) == pytest.approx(1e-1)
    assert made.work(1) == pytest.approx(1e-3)


def model(**halo_of):
    def law(counts, ranks, order):
        return Halo(**halo_of) if ranks > 1 else Halo(0.0, 0.0, 0.0, "partition")

    # a microsecond an element
    return Model(1e-5, 1e8, [1, 1000], [1e-6, 1e-3], 5e-6, 3, 2, law)


def test_waits_by_hand():
    # 4 messages, 1000 dofs of two components: 40 us + 16000 bytes / 100 MB/s = 200 us each way;
    # 500 elements a rank take 500 us, half of them inside: 125 us behind each way
    row = model(messages=4, dofs=1000, near=0.5, source="law").predicted((10, 10, 10), 2)
    assert (row["elements"], row["messages"], row["bytes"]) == (500, 4, 16000)
    assert row["wait_without_overlap"] == pytest.approx(400e-6)
    assert row["wait"] == pytest.approx(2 * (200 - 125) * 1e-6)
    assert row["seconds"] == pytest.approx((500 + 5 + 150) * 1e-6)
    assert row["seconds_without_overlap"] == pytest.approx((500 + 5 + 400) * 1e-6)
    hidden = model(messages=1, dofs=10, near=0.1, source="law").predicted((10, 10, 10), 2)
    assert hidden["wait"] == 0


def test_efficiency_by_hand():
    made = model(messages=1, dofs=0, near=0.0, source="law")
    strong = made.strong((10, 10, 10), [1, 4, 3000])
    assert [row["elements"] for row in strong] == [1000, 250, 1]
    # 250 us, overhead 5, messages hidden; and 1 us, overhead 5, 2 x (10 - 1/2) us of messages
    assert [row["seconds"] for row in strong] == pytest.approx([1e-3, 255e-6, 25e-6])
    assert strong[1]["efficiency"] == pytest.approx(1000 / (4 * 255))
    assert strong[2]["speedup"] == pytest.approx(1000 / 25)
    measured = made.strong((10, 10, 10), [1, 4], one=0.9e-3)
    assert [row["speedup"] for row in measured] == pytest.approx([1.0, 900 / 255])
    weak = made.weak(lambda ranks: (10, 10, 10 * ranks), [1, 8], one=0.9e-6)
    assert [row["efficiency"] for row in weak] == pytest.approx([1.0, 900 / 1005])


# --- halos ----------------------------------------------------------------------------------------


def test_halo_of_two_halves_by_hand():
    counts = (2, 2, 4)
    parts = partition(box(counts), 2)
    assert parts.total_shared.tolist() == [9, 12, 4]  # a plane of 2 x 2 faces
    found = halo(counts, 2, 3)
    # 5 x 5 nodes in 9 vertices, 12 edges of 2, 4 faces of 4 at order 3
    assert (found.messages, found.dofs, found.source) == (1, 9 + 24 + 16, "partition")
    assert found.near == 0.5
    assert least_exchange(counts, 2, 3, 2) == (2, 2 * 49 * 2 * 8)
    assert halo(counts, 1, 3) == Halo(0.0, 0.0, 0.0, "partition")
    assert halo(counts, 1000, 3) == halo(counts, 16, 3)  # an element each


def test_the_busiest_rank_is_counted():
    counts, order = (4, 4, 4), 2
    parts = partition(box(counts), 5)
    sent, received = np.zeros((2, 5)), np.zeros((2, 5))
    for a, b, *entities in parts.copies.tolist():
        dofs = sum(entities)  # an inner node in each vertex, edge and face at order 2
        sent[:, a] += 1, dofs
        received[:, b] += 1, dofs
    found = halo(counts, 5, order)
    assert (found.messages, found.dofs) == tuple(np.maximum(sent, received).max(axis=1))


@pytest.mark.parametrize(("n", "ranks"), [(24, 64), (27, 200), (25, 2)])
def test_the_law_of_surfaces_holds_where_it_can_be_counted(monkeypatch, n, ranks):
    counts = (n, n, n)
    exact = halo(counts, ranks, 4)
    monkeypatch.setattr(halos, "FITS", 23)
    law = halo(counts, ranks, 4)
    assert (exact.source, law.source) == ("partition", "law")
    assert law.dofs == pytest.approx(exact.dofs, rel=0.2)
    assert law.messages == pytest.approx(exact.messages, rel=0.25)
    assert law.near == pytest.approx(exact.near, abs=0.1)


def test_the_law_holds_for_parts_of_a_large_box():
    """Faces between parts of a billion elements on 100,000 ranks, of which some are made."""
    n, ranks, order = 1000, 100_000, 4
    law = halo((n, n, n), ranks, order)
    assert law.source == "law"
    most = 0
    for rank in (12_345, 50_000, 77_777):
        part = box_part(rank, ranks, (n, n, n))
        most = max(most, len(part.interface))
    # a face has (p - 1)^2 nodes inside, two edges and a vertex: p^2 or so; each is sent at least
    # one way, and the busiest rank does so with most of its own
    assert 0.5 < law.dofs / (most * order**2) < 2.5


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
