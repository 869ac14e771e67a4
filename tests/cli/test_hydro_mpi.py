"""``femops hydro --ale`` and ``femops remap`` on ranks."""

import json

import pytest

import femops
from femops.cli import main
from femops.hydro import Lagrangian, Simulation, built_in, problem
from femops.hydro.ale import ArbitraryLagrangianEulerian
from femops.hydro.ale.relaxation import Relaxation
from femops.hydro.remap import Advection, advection_mesh, advection_problem
from femops.parallel import Serial
from tests.cli import test_commands_mpi
from tests.cli.test_commands_mpi import command

ended = test_commands_mpi.ended


@pytest.mark.parallel(2, timeout=240)
def test_runs_with_remaps(comm, capsys, tmp_path):
    """The document, of a run that was stopped, has the numbers of one process."""
    path = str(comm.broadcast(tmp_path / "run.state"))
    options = "--refine", "2", "--ale", "2", "--reproducible", "--checkpoint", path
    command(comm, capsys, "hydro", "sedov", *options, "--max-steps", "3")
    again = "--restart", path, "--max-steps", "5", "--json"
    out = command(comm, capsys, "hydro", "sedov", *options, *again)
    if comm.rank:
        return
    found, case = json.loads(out), problem("sedov")
    mesh = femops.distribute(built_in(case.mesh[2]).refine(2), Serial(), reproducible=True)
    alone = ArbitraryLagrangianEulerian(Simulation.begin(Lagrangian(case, mesh)), 2)
    alone.advance(1.0, max_steps=5)
    assert (found["t"], found["e_norm"]) == (alone.run.t, alone.run.e_norm)
    assert [remap["step"] for remap in alone.remaps] == [2, 4]
    assert found["remaps"] == alone.remaps[1:]


@pytest.mark.parallel(3, timeout=240)
def test_a_mesh_that_tangles_on_one_rank_leaves_the_last_good_state(
    comm, tmp_path, capsys, monkeypatch, ended
):
    def folded(self, position):  # the corner of the domain, which one rank has
        found = position.copy()
        self._V.components(found)[self._V.dof_coordinates().sum(axis=1) > 1.99] = 0.3
        return found

    monkeypatch.chdir(comm.broadcast(tmp_path))
    options = "hydro", "sedov", "--refine", "2"
    monkeypatch.setattr(Relaxation, "relaxed", folded)
    with pytest.raises(SystemExit):
        main([*options, "--ale", "3", "--reproducible"])
    assert len(ended) == 1
    text = "".join(capsys.readouterr())
    if comm.rank == 0:
        assert text.count("saved the last good state: sedov-last.state") == 1
        assert text.count("femops: the mesh tangles") == 1
    again = "--max-steps", "4", "--restart", "sedov-last.state", "--json"
    out = command(comm, capsys, *options, *again)
    assert comm.rank or json.loads(out)["steps"] == 4


@pytest.mark.parallel(2, timeout=240)
def test_advection(comm, capsys, tmp_path):
    picture = str(comm.broadcast(tmp_path / "u.png"))
    options = "--refine", "1", "--t-final", "0.006", "--picture", picture, "--json"
    out = command(comm, capsys, "remap", "5", *options)
    if comm.rank:
        return
    mesh = advection_mesh("periodic-square").refine(1)
    alone = Advection(advection_problem(5), mesh, 3, 0.006, 0.002)
    found, expected = json.loads(out), alone.run()
    assert (found["mass"], found["min"], found["max"]) == (
        expected.mass,
        expected.minimum,
        expected.maximum,
    )
    assert (found["dofs"], found["steps"]) == (alone.space.size, 3)
    assert (tmp_path / "u.png").exists()
