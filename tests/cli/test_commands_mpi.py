"""Commands on many ranks: the same answers, printed once; and one error where there is one."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

import femops
from femops.cli import main
from femops.cli.options import load_mesh, share_mesh
from femops.cli.problems.base import solve
from femops.cli.problems.elasticity import Elasticity
from femops.cli.problems.helmholtz import Helmholtz
from femops.cli.problems.neo_hookean import NeoHookean
from femops.cli.problems.poisson import Poisson
from femops.cli.problems.stokes import Stokes
from femops.cli.ranks import refuse_ranks
from femops.cli.solve import _check_paths
from femops.parallel import Serial
from support.mpi_runs import launch, why_not

needs_ranks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

MAKE = {
    "poisson": Poisson,
    "helmholtz": Helmholtz,
    "elasticity": partial(Elasticity, lam=1.0, mu=1.0),
    "neohookean": partial(NeoHookean, lam=1.0, mu=1.0),
    "stokes": Stokes,
}
CASES = [
    ("poisson", "disc.mesh", 3, []),
    ("poisson", "periodic.mesh", 2, []),
    ("poisson", "2x1", 2, []),  # fewer elements than ranks
    ("helmholtz", "5x4", 3, []),
    ("elasticity", "3x2x2", 2, ["--level", "full"]),
    ("neohookean", "disc.mesh", 2, []),
    ("stokes", "disc.mesh", 2, []),
]
METIS = [
    ("poisson", "6x5", 2, ["--partition", "metis"]),
    ("stokes", "disc.mesh", 2, ["--partition", "metis"]),
]


def command(comm, capsys, *arguments):
    """What ranks print: rank 0 what it has, the others nothing."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert comm.rank == 0 or not out
    return out


def compare(comm, capsys, problem, mesh, order, options):
    out = command(comm, capsys, "solve", problem, mesh, "--order", order, *options, "--json")
    if comm.rank > 0:
        return
    found = json.loads(out)
    alone = solve(MAKE[problem], load_mesh(mesh), order, 1e-10).facts()
    assert (found.pop("mesh"), found.pop("order")) == (mesh, order)
    assert found.pop("elements") == load_mesh(mesh).num_elements
    assert found.pop("run")["ranks"] == found.pop("ranks", 1) == comm.size
    assert set(found) == set(alone)
    assert found.get("preconditioner") == alone.get("preconditioner")
    same = [name for name in found if name not in ("seconds", "level", "preconditioner")]
    counts = [name for name in same if "iterations" in name]
    others = [name for name in same if name not in counts]
    assert {n: found[n] for n in others} == pytest.approx({n: alone[n] for n in others}, rel=1e-8)
    # round-off decides whether the last iteration is needed
    assert all(abs(found[n] - alone[n]) <= 1 for n in counts)


@pytest.mark.parallel(3)
@pytest.mark.parametrize(("problem", "mesh", "order", "options"), CASES)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_the_answers_are_those_of_one_process(comm, capsys, problem, mesh, order, options):
    compare(comm, capsys, problem, mesh, order, options)


@pytest.mark.parallel(3)
@pytest.mark.parametrize(("problem", "mesh", "order", "options"), METIS)
def test_partitions_by_metis(comm, capsys, problem, mesh, order, options):
    pytest.importorskip("pymetis", reason="needs the extra metis")
    compare(comm, capsys, problem, mesh, order, options)


@pytest.mark.parallel(3)
@pytest.mark.parametrize("problem", MAKE)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_reproducible_answers(comm, problem):
    """The last bit too."""
    shared = [share_mesh("disc.mesh", 0, ranks, reproducible=True) for ranks in (Serial(), comm)]
    alone, found = (solve(MAKE[problem], mesh, 2, 1e-10).facts() for mesh in shared)
    assert alone.pop("seconds") > 0 < found.pop("seconds")
    assert found == alone


@pytest.mark.parallel(3)
@pytest.mark.parametrize("name", ["u.vtu", "u.pvtu"])
def test_files(comm, capsys, tmp_path, name):
    folder = comm.broadcast(str(tmp_path))
    path = f"{folder}/{name}"
    out = command(comm, capsys, "solve", "poisson", "4x4", "--order", 2, "--save", path)
    if comm.rank == 0:
        assert f"wrote {path}" in out
        assert out.count("iterations") == 1
        text = (tmp_path / name).read_bytes()
        assert text.count(b"<Piece") == comm.size


# --- what is refused ------------------------------------------------------------------------------


@needs_ranks
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["solve", "poisson", "nothing.mesh"], 1, "femops: 'nothing.mesh' does not exist"),
        (["solve", "stokes", "4x4", "--order", "1"], 1, "give --order 2"),
        (["bench", "bp1"], 1, "'femops bench' is for one process, and 2 were started"),
        (["solve", "poisson", "4x4", "--order", "0"], 2, "give a whole number >= 1"),
        (["--version"], 0, f"femops {femops.__version__}"),
    ],
)
def test_one_error_ends_all(tmp_path, arguments, code, text):
    ended, printed = launch(2, [sys.executable, "-m", "femops", *arguments], 60, tmp_path)
    assert bool(ended) == bool(code), printed
    assert printed.count(text) == 1, printed
    assert "Traceback" not in printed
    assert "still running" not in printed
    assert not any(tmp_path.iterdir())


@pytest.mark.parallel(3)
def test_paths_are_checked_before_the_work(comm):
    for save, picture, text in [
        (None, Path("no/u.png"), "there is no folder 'no'"),
        (Path("no/u.vtu"), None, "there is no folder 'no'"),
        (Path("u.txt"), None, "does not end in .vtu or .pvtu"),
    ]:
        with pytest.raises(femops.errors.FileError, match=text):
            _check_paths(save, picture, comm)


@needs_ranks
def test_ranks_with_other_arguments():
    other = [":", "-n", "1", sys.executable, "-m", "femops", "info", "--json"]
    code, text = launch(1, [sys.executable, "-m", "femops", "info", *other], 60)
    assert code
    assert text.count("ranks disagree about the command: its arguments is ['info'] on rank 0") == 1


@pytest.mark.parametrize("name", ["demo", "mesh", "bench", "cost", "warmup"])
def test_commands_of_one_process(monkeypatch, name):
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(femops.errors.CommunicatorError, match=f"'femops {name}' .* 4 were started"):
        refuse_ranks(name)
    monkeypatch.setenv("PMI_SIZE", "1")
    refuse_ranks(name)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--partition", "metis", "--reproducible"], "leave out one of them"),
        (["--partition", "halves"], "'curve', 'metis'"),
    ],
)
def test_options_of_ranks(capsys, options, text):
    with pytest.raises(SystemExit) as stop:
        main(["solve", "poisson", "4x4", *options])
    assert stop.value.code
    assert text in capsys.readouterr().err
