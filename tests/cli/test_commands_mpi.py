"""Commands on many ranks: the same answers, printed once; and one error where there is one."""

import json
from functools import partial
from importlib.util import find_spec
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
from femops.parallel import Serial, launch
from femops_kernels.cpu import machine
from support.cases.rank_operators import of_rank_0

MAKE = {
    "poisson": Poisson,
    "helmholtz": Helmholtz,
    "elasticity": partial(Elasticity, lam=1.0, mu=1.0),
    "neohookean": partial(NeoHookean, lam=1.0, mu=1.0),
    "stokes": Stokes,
}
needs_metis = pytest.mark.skipif(find_spec("pymetis") is None, reason="needs the extra metis")
CASES = [
    ("poisson", "disc.mesh", 2, []),
    pytest.param("poisson", "periodic.mesh", 2, [], marks=pytest.mark.exhaustive),
    ("poisson", "2x1", 2, []),  # fewer elements than ranks
    ("helmholtz", "5x4", 2, []),
    ("elasticity", "3x2x2", 2, ["--level", "full"]),
    ("neohookean", "disc.mesh", 2, []),
    ("stokes", "disc.mesh", 2, []),
    pytest.param("poisson", "6x5", 2, ["--partition", "metis"], marks=needs_metis),
]


def command(comm, capsys, *arguments):
    """What ranks print: rank 0 what it has, the others nothing."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert comm.rank == 0 or not out
    return out


@pytest.mark.parallel(3)
@pytest.mark.parametrize(("problem", "mesh", "order", "options"), CASES)
def test_the_answers_are_those_of_one_process(comm, capsys, problem, mesh, order, options):
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
@pytest.mark.parametrize("problem", ["poisson", "neohookean", "stokes"])
def test_reproducible_answers(comm, problem):
    """The last bit too."""

    def facts(ranks):
        mesh = share_mesh("disc.mesh", 0, ranks, reproducible=True)
        return solve(MAKE[problem], mesh, 2, 1e-10).facts()

    found, alone = facts(comm), of_rank_0(comm, lambda: facts(Serial()))
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


@pytest.mark.parallel(2)
def test_info_tells_ranks_threads_and_cores_once(comm, capsys, monkeypatch):
    from mpi4py import __version__

    monkeypatch.setattr(machine, "get_threads", lambda: 2 + comm.rank)
    out, said = (command(comm, capsys, "info", *options) for options in (["--json"], []))
    if comm.rank == 0:
        facts = json.loads(out)["parallel"]
        assert (facts["ranks"], facts["nodes"], facts["threads"]) == (2, 1, [2, 3])
        assert facts["cores"] >= 1
        assert facts["mpi4py"] == __version__
        assert facts["mpi"]
        assert "\n" not in facts["mpi"]
        assert said.count("Ranks") == said.count("2 x 2 to 3 = 5") == said.count(facts["mpi"]) == 1


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """Errors that end all ranks: here they do not, in `tests/parallel/test_launch.py` they do."""
    errors = []
    monkeypatch.setattr(launch, "end_all", lambda error, report: (errors.append(error), report()))
    monkeypatch.chdir(tmp_path)
    return errors


@pytest.mark.parallel(2)
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
def test_one_error_ends_all(comm, capsys, tmp_path, ended, arguments, code, text):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert (stop.value.code or 0, len(ended)) == (code, int(code == 1))
    printed = "".join(capsys.readouterr())
    assert printed.count(text) == 1 if comm.rank == 0 else bool(printed) == bool(ended)
    assert "Traceback" not in printed
    assert not any(tmp_path.iterdir())


@pytest.mark.parallel(2)
def test_ranks_with_other_arguments(comm, ended):
    with pytest.raises(SystemExit):
        main(["info", "--json"] if comm.rank else ["info"])
    text = "ranks disagree about the command: its arguments is ['info'] on rank 0"
    assert str(ended[0]).startswith(text)


@pytest.mark.parallel(3)
def test_paths_are_checked_before_the_work(comm):
    for save, picture, text in [
        (None, Path("no/u.png"), "there is no folder 'no'"),
        (Path("no/u.vtu"), None, "there is no folder 'no'"),
        (Path("u.txt"), None, "does not end in .vtu or .pvtu"),
    ]:
        with pytest.raises(femops.errors.FileError, match=text):
            _check_paths(save, picture, comm)


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
