"""The benchmark of whole solves; how fast anything is is not tested."""

import inspect

import pytest

import femops
from femops.bench.drawing import draw
from femops.bench.peers.interface import SOLVERS, why_not
from femops.bench.solvers import multigrid
from femops.bench.solvers.multigrid import MESHES, mesh_of, run_beside, run_solve
from femops.cli.bench import group as command
from femops.cli.options import names, numbers
from femops.errors import OperatorError


def test_both_preconditioners_on_each_mesh(tmp_path):
    meshes = ("multilinear", "fichera")
    rows = run_solve((2,), 3000, 1, meshes=meshes, rounds=1, seconds=0.0)["rows"]
    assert [(row["mesh"], row["preconditioner"]) for row in rows] == [
        (mesh, name) for mesh in meshes for name in ("multigrid", "jacobi")
    ]
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        assert few["converged"]
        assert many["converged"]
        assert few["iterations"] <= 12 < many["iterations"]
        assert few["faster_than_jacobi"] == many["seconds_solve"] / few["seconds_solve"]
        assert few["solve_applications"] == few["seconds_solve"] / few["seconds_apply"]
    assert draw(tmp_path / "solve.png", "solve", rows).stat().st_size > 10_000


def test_meshes_have_about_as_many_dofs():
    for name in MESHES:
        mesh = mesh_of(name, 4, 4e4)
        assert 4e4 / 8 < femops.H1(mesh, 4).size < 8 * 4e4, name
        assert mesh.coarser is not None, name


BAD = (
    *({"orders": ()}, {"dofs": 0.5}, {"meshes": ("round",)}, {"meshes": ()}, {"rounds": 0}),
    *({"peers": ("none",)}, {"peers": ("mfem",), "device": "cuda"}),
)


def test_bad_input():
    for changed in BAD:
        with pytest.raises(OperatorError):
            run_solve(**({"orders": (1,), "dofs": 100} | changed))


def test_defaults_of_the_command_are_those_of_the_library():
    assert names(command.MESHES) == list(MESHES)
    stated, own = (inspect.signature(each).parameters for each in (command.solve, run_solve))
    assert numbers(stated["order"].default) == list(own["orders"].default)
    assert stated["rounds"].default == own["rounds"].default


def test_peers_beside(monkeypatch):
    """A peer that solves, and one that does not; the process of a real one if it is installed."""

    def solved(name, order, dofs):
        if name == "mfem":
            return "mfem: no module"
        seconds = {"seconds_setup": 2.0, "seconds_solve": 1.0}
        return {"label": name, "dofs": 8, "iterations": 5, "integral": 1.0} | seconds

    monkeypatch.setattr(multigrid, "peer_solve", solved)
    rows, notes = run_beside(2, 1000, ("ngsolve", "mfem"), rounds=2)
    assert [row["label"] for row in rows] == ["femops multigrid", "ngsolve"]
    assert rows[0]["times_as_long"] == 1.0
    own = rows[0]["seconds_setup"] + rows[0]["seconds_solve"]
    assert rows[1]["times_as_long"] == pytest.approx(3.0 / own)
    assert notes[0] == "order 2: mfem: no module"
    assert "ngsolve's solution differs" in notes[1]


@pytest.mark.parametrize("name", SOLVERS)
def test_a_peer_solves_the_same_problem(name):
    if why_not(name, 2, solving=True):
        pytest.skip(why_not(name, 2, solving=True))
    rows, notes = run_beside(2, 1000, (name,), rounds=1)
    assert notes == []
    assert rows[0]["dofs"] == rows[1]["dofs"]
