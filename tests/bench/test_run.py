"""What benchmarks return; how fast anything is is not tested."""

from itertools import product
from unittest.mock import Mock

import pytest

from femops.bench import PROBLEMS, auto_check, operators, run, run_all
from femops.bench.drawing import draw
from femops.errors import OperatorError
from femops_kernels.cpu import machine
from femops_kernels.errors import KernelValueError

QUICK = {"rounds": 1, "seconds": 0.0}
KEYS = (
    "problem mesh order q1d dofs level threads seconds_min seconds_median dofs_per_second "
    "bytes_per_dof flops_per_dof roofline implementation asked footprint least_bytes_per_dof "
    "least_level bandwidth_gbytes_per_second fma_gflops_per_second limit bound "
    "fraction_of_limit fraction_of_fma_peak"
)
"""Keys of a row, in order."""


@pytest.fixture(scope="module")
def levels():
    """A small run with levels side by side."""
    names = ("auto", "full", "matrix-free")
    return run("bp5", (1,), 400, 1, meshes=("multilinear",), levels=names, **QUICK)


def test_a_row_for_each_level(levels):
    rows = levels["rows"]
    assert [row["asked"] for row in rows] == ["auto", "full", "matrix-free"]
    assert [row["level"] for row in rows][1:] == ["full", "matrix-free"]
    assert rows[0]["level"] != "auto"
    assert all(" ".join(row) == KEYS for row in rows)


def test_fractions_are_those_of_the_row(levels):
    for row in levels["rows"]:
        speed = row["dofs_per_second"]
        assert speed == pytest.approx(row["dofs"] / row["seconds_median"])
        assert row["fraction_of_limit"] == pytest.approx(speed / row["limit"])
        flops = row["flops_per_dof"] * speed
        peak = row["fma_gflops_per_second"] * 1e9
        assert row["fraction_of_fma_peak"] == pytest.approx(flops / peak)
        memory = row["bandwidth_gbytes_per_second"] * 1e9 / row["least_bytes_per_dof"]
        assert row["limit"] == pytest.approx(min(memory, peak / row["flops_per_dof"]))
        assert row["bound"] == ("memory" if row["limit"] == pytest.approx(memory) else "arithmetic")
        assert row["footprint"] == "given"
        assert row["q1d"] == 2  # collocated


def test_limits_stand_for_each_number_of_threads(levels):
    (limits,), found = levels["limits"], levels["machine"]
    assert limits["threads"] == found["threads"] == levels["rows"][0]["threads"] == 1
    for key in ("triad_gbytes_per_second", "fma_gflops_per_second"):
        assert found[key] == limits[key] > 0
    assert machine.get_threads() == machine.max_threads()  # as before


def fake(asked, level, seconds, **more):
    same = dict.fromkeys(("problem", "mesh", "order", "dofs", "threads", "footprint"), 1)
    row = {"asked": asked, "level": level, "seconds_median": seconds, "implementation": "femops"}
    return same | row | more


def test_auto_beside_the_best_by_hand():
    rows = [
        fake("auto", "matrix-free", 9.0),
        fake("matrix-free", "matrix-free", 1.2),
        fake("full", "full", 1.0),
        fake("auto", "full", 1.0, mesh=2),
        fake("full", "full", 1.0, mesh=2),
        fake("auto", "matrix-free", 1.0, mesh=3),
        fake("matrix-free", "matrix-free", 1.0, mesh=3, implementation="peer"),
    ]
    first, second = auto_check(rows)
    assert (first["chosen"], first["best"], first["close"]) == ("matrix-free", "full", False)
    assert first["loss"] == pytest.approx(0.2)  # the level's own row counts
    assert (second["mesh"], second["loss"], second["close"]) == (2, 0.0, True)


def test_everything_has_each_problem_mesh_and_size(monkeypatch):
    def measured(bench, problem, order, size, beside):
        given = [
            (mesh, threads, level)
            for mesh, threads in product(bench.meshes, bench.threads)
            for level in bench.levels_of(threads, beside)
        ]
        same = {"problem": problem.name, "order": order, "dofs": size[0], "footprint": size[1]}
        bench.rows += [fake(a, "full", 1.0, mesh=m, threads=n) | same for m, n, a in given]

    monkeypatch.setattr(operators.Bench, "measure", measured)
    monkeypatch.setattr(operators, "Meter", lambda threads: Mock(threads=threads))
    result = run_all((1, 2, 2), dofs={"ram": 600.0, "cache": 60.0}, **QUICK)
    found = {(row["problem"], row["mesh"], row["footprint"]) for row in result["rows"]}
    assert len(found) == len(PROBLEMS) * 3 * 2
    for threads in (1, machine.get_threads()):
        rows = [row for row in result["rows"] if row["threads"] == threads]
        # at p = 1 four levels and auto on one thread
        assert len(rows) == ((5 if threads == 1 else 1) + 1) * len(found)
        assert {(row["footprint"], row["dofs"]) for row in rows} == {("ram", 600), ("cache", 60)}
    assert len(result["auto"]) == len(found)


def test_everything_is_measured_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(operators, "PROBLEMS", {"bp5": PROBLEMS["bp5"]})
    result = run_all((1,), 1, dofs={"ram": 60.0, "cache": 30.0}, **QUICK)
    assert len(result["rows"]) == 5 * 3 * 2
    assert all(" ".join(row) == KEYS for row in result["rows"])
    assert len(result["auto"]) == 3 * 2
    assert draw(tmp_path / "all.png", "operators", result["rows"]).stat().st_size > 10_000
    with pytest.raises(OperatorError, match="nothing to draw"):
        draw(tmp_path / "no.png", "operators", [])


NONSENSE = [
    ({"problem": "bp7"}, "choose one of bp1"),
    ({"meshes": ("ball",)}, "choose one of cartesian"),
    ({"meshes": ()}, "at least one mesh"),
    ({"levels": ("best",)}, "choose one of full"),
    ({"peers": ("nobody",)}, "choose one of libceed, mfem"),
    ({"footprint": "disk"}, "choose one of ram, cache"),
    ({"orders": ()}, "at least one, all from 1 to 32"),
    ({"orders": (0,)}, "at least one, all from 1 to 32"),
    ({"orders": (1, 99)}, "all from 1 to 32"),
    ({"rounds": 0}, "at least one round"),
    ({"dofs": 0}, "from 1 to 1e"),
    ({"dofs": float("nan")}, "from 1 to 1e"),
    ({"dofs": 1e30}, "from 1 to 1e"),
    ({"threads": 0}, "0 threads: choose 1 to"),
    ({"threads": 10_000}, "10000 threads: choose 1 to"),
]


def test_nonsense_is_refused():
    for options, words in NONSENSE:
        refused = pytest.raises((OperatorError, KernelValueError), match=words)
        with refused:
            run(**({"problem": "bp1", "orders": (1,), "dofs": 30} | options))
        if set(options) <= {"orders", "peers", "rounds", "threads"}:
            with refused:
                run_all(**({"orders": (1,)} | options))
    for dofs, words in (({"disk": 99.0}, "choose one of ram"), ({"ram": 0.0}, "from 1 to 1e")):
        with pytest.raises(OperatorError, match=words):
            run_all((1,), dofs=dofs)


def test_what_is_named_twice_is_measured_once():
    twice = {"meshes": ("curved", "cartesian") * 2, "levels": ("partial", "full", "partial")}
    rows = run("bp5", (1, 1), 60, 1, **twice, **QUICK)["rows"]
    found = [(row["mesh"], row["asked"]) for row in rows]
    assert found == list(product(("curved", "cartesian"), ("partial", "full")))
