"""Runs with remaps on ranks: the bits of one process, restarts, and meshes that tangle."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import HydroError
from femops.hydro import Lagrangian, Simulation, built_in, load_run, problem, save_run
from femops.hydro.ale import ArbitraryLagrangianEulerian
from femops.hydro.ale.relaxation import Relaxation, quality
from femops.hydro.ale.walls import WallMomentum
from femops.parallel import Serial
from tests.hydro.test_hydro_mpi import piece

CASES = {  # problem, dimension, refinements, orders
    "sedov": ("sedov", 2, 2, (2, 1)),
    "gases": ("triple-point", 2, 1, (2, 1)),
    "vortex": ("gresho", 2, 2, (3, 2)),
    "cube": ("sedov", 3, 1, (2, 1)),
}


def begun(comm, name, every=3, *, reproducible=True, **options):
    case, dim, refine, orders = CASES[name]
    case = problem(case)
    mesh = built_in(case.mesh[dim]).refine(refine) if comm.rank == 0 else None
    mesh = femops.distribute(mesh, comm, reproducible=reproducible)
    equations = Lagrangian(case, mesh, *orders, **options)
    return ArbitraryLagrangianEulerian(Simulation.begin(equations), every)


def assert_same_bits(mine, alone):
    """State, fluid and account of remaps of a run on ranks, beside those of one process."""
    ours, theirs = mine.run.equations, alone.run.equations
    assert (mine.run.t, mine.run.dt, mine.run.e_norm) == (
        alone.run.t,
        alone.run.dt,
        alone.run.e_norm,
    )
    found, expected = ours.parts(mine.run.state), theirs.parts(alone.run.state)
    for name, space in ours.on_host.spaces.items():
        assert np.array_equal(found[name], piece(space, expected[name]))
    for name in ("density", "gamma"):
        field, other = getattr(ours.fluid, name), getattr(theirs.fluid, name)
        assert np.array_equal(field.vector, piece(field.space, other.vector))


@pytest.mark.parallel(2, 3, 4, timeout=240)
@pytest.mark.parametrize("name", ["sedov", "vortex"])
def test_reproducible_runs_have_the_same_bits(comm, name):
    mine, alone = begun(comm, name), begun(Serial(), name)
    for run in (mine, alone):
        run.advance(1.0, max_steps=7)
    assert len(mine.remaps) == 2
    assert mine.remaps == alone.remaps
    assert_same_bits(mine, alone)


@pytest.mark.parallel(3, timeout=240)
@pytest.mark.parametrize("name", ["gases", "cube"])
def test_gases_and_cubes_have_the_same_bits(comm, name):
    mine, alone = begun(comm, name, 2), begun(Serial(), name, 2)
    for run in (mine, alone):
        run.advance(1.0, max_steps=3)
    assert mine.remaps == alone.remaps != []
    assert_same_bits(mine, alone)


@pytest.mark.parallel(3, timeout=240)
def test_other_meshes_agree_to_round_off(comm):
    mine, alone = (
        begun(ranks, "vortex", reproducible=False, cg_tol=1e-14) for ranks in (comm, Serial())
    )
    for run in (mine, alone):
        run.advance(1.0, max_steps=4)
    assert mine.run.e_norm == pytest.approx(alone.run.e_norm, rel=1e-12)
    (remap,), (other,) = mine.remaps, alone.remaps
    for when in ("before", "after"):
        size = other["before"]["mass"]
        for name, value in other[when].items():
            assert remap[when][name] == pytest.approx(value, rel=1e-12, abs=1e-12 * size)
    before, after = remap["before"], remap["after"]
    assert abs(after["mass"] / before["mass"] - 1.0) < 1e-13
    assert np.abs(np.subtract(after["momentum"], before["momentum"])).max() < 1e-13


@pytest.mark.parallel(2, timeout=240)
def test_a_run_goes_on_on_another_number_of_ranks(comm, tmp_path):
    path = comm.broadcast(tmp_path / "half.state")
    run = begun(comm, "sedov")
    run.advance(1.0, max_steps=4)
    save_run(path, run.run)
    run.advance(1.0, max_steps=7)
    fresh = begun(Serial(), "sedov").run.equations
    alone = ArbitraryLagrangianEulerian(load_run(path, fresh), 3)
    alone.advance(1.0, max_steps=7)
    assert_same_bits(run, alone)


@pytest.mark.parallel(3, timeout=240)
def test_a_mesh_that_tangles_on_one_rank_ends_all(comm, monkeypatch):
    """With the error of one process, and the state before the remap."""

    def folded(self, position):
        """Move the corner of the last element, of the last rank, across that element."""
        found = position.copy()
        at = self._V.dof_coordinates().sum(axis=1)
        self._V.components(found)[at > 1.99] = 0.3
        return found

    monkeypatch.setattr(Relaxation, "relaxed", folded)
    messages = []
    for ranks in (comm, Serial()):
        run = begun(ranks, "sedov", 2)
        with pytest.raises(HydroError, match=r"the mesh tangles at .* 1 element\(s\)") as error:
            run.advance(1.0)
        messages.append(str(error.value))
        assert (run.run.steps, run.remaps, run.run.equations.fluid) == (2, [], None)
        run.run.run(1.0, max_steps=3)
    assert len(set(messages)) == 1


@pytest.mark.parallel(2, timeout=240)
def test_a_mesh_that_cannot_be_relaxed_on_one_rank_ends_all(comm):
    run = begun(comm, "sedov", 2)
    V = run.run.equations.V
    position = run.run.equations.parts(run.run.state)["position"].copy()
    assert quality(V, position) > 0.9
    V.components(position)[V.dof_coordinates().sum(axis=1) > 1.99] = -3.0
    worst = quality(V, position)
    assert worst < 0.0
    assert comm.max(worst) == worst
    with pytest.raises(HydroError, match="the relaxation "):
        Relaxation(run.run.equations, 1e-3).relaxed(position)


@pytest.mark.parallel(3, timeout=240)
@pytest.mark.parametrize("name", ["sedov", "cube"])
def test_momentum_at_walls_goes_inwards(comm, name):
    """Also to nodes of other ranks."""
    found, momentum = [], None
    for ranks in (comm, Serial()):
        equations = begun(ranks, name).run.equations
        whole = np.random.default_rng(0).random(equations.V.global_size)
        momentum = piece(equations.V, whole).copy()
        walls = WallMomentum(equations)
        sent = [rank for rank, mine in walls._send.items() if len(mine)]
        velocity = walls.velocity(momentum)
        total = equations.V.components(equations.momentum_of(velocity)).sum(axis=0)
        wanted = equations.V.components(whole).sum(axis=0)
        np.testing.assert_allclose(ranks.sum(total), wanted, rtol=1e-13)
        found.append((equations.V, velocity, ranks.max(int(any(r != ranks.rank for r in sent)))))
    (V, mine, crossed), (_, alone, _) = found
    assert crossed
    assert np.array_equal(mine, piece(V, alone))
