"""Runs with remaps on ranks: the bits of one process, restarts, and meshes that tangle."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import HydroError
from femops.hydro import Lagrangian, Simulation, built_in, load_run, problem, save_run
from femops.hydro.ale import ArbitraryLagrangianEulerian
from femops.hydro.ale.relaxation import Relaxation, quality
from femops.hydro.ale.run import WallMomentum, transferred
from femops.parallel import Serial
from support.cases.rank_operators import of_rank_0, own_piece

CASES = {  # problem, dimension, refinements, orders
    "sedov": ("sedov", 2, 2, (2, 1)),
    "gases": ("triple-point", 2, 1, (2, 1)),
    "vortex": ("gresho", 2, 2, (2, 1)),
    "cube": ("sedov", 3, 1, (2, 1)),
    "line": ("sod", 1, 5, (3, 2)),
}


def begun(comm, name, every=2, *, reproducible=True, **options):
    case, dim, refine, orders = CASES[name]
    case = problem(case)
    mesh = built_in(case.mesh[dim]).refine(refine) if comm.rank == 0 else None
    mesh = femops.distribute(mesh, comm, reproducible=reproducible)
    equations = Lagrangian(case, mesh, *orders, **options)
    return ArbitraryLagrangianEulerian(Simulation.begin(equations), every)


def facts(ale):
    """Numbers of a run, what is kept of remaps, and its fields."""
    run, fluid = ale.run, ale.run.equations.fluid
    fields = run.equations.parts(run.state)
    fields |= {name: getattr(fluid, name).vector for name in ("density", "gamma")}
    return (run.t, run.dt, run.e_norm), ale.remaps, fields


def assert_same_bits(mine, alone):
    """A run on ranks, beside the facts of one of one process. Remaps are compared from the last."""
    (numbers, remaps, fields), (others, few, whole) = facts(mine), alone
    assert numbers == others
    assert remaps[-len(few) :] == few
    equations = mine.run.equations
    spaces = dict(equations.on_host.spaces)
    spaces |= {name: getattr(equations.fluid, name).space for name in ("density", "gamma")}
    assert set(spaces) == set(fields) == set(whole)
    for name, space in spaces.items():
        assert np.array_equal(fields[name], whole[name][own_piece(space)])


@pytest.mark.parallel(2, 3, 4, timeout=240)
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("sedov", 5, marks=pytest.mark.exhaustive),  # the next test has such a run
        *(("gases", 2), ("cube", 2), ("line", 2)),
    ],
)
def test_reproducible_runs_have_the_same_bits(comm, name, steps):
    mine = begun(comm, name)
    mine.advance(1.0, max_steps=steps)
    assert len(mine.remaps) == steps // 2

    def one_process():
        alone = begun(Serial(), name)
        alone.advance(1.0, max_steps=steps)
        assert len(alone.remaps) == steps // 2
        return facts(alone)

    assert_same_bits(mine, of_rank_0(comm, one_process))


@pytest.mark.parallel(2, timeout=240)
def test_a_run_goes_on_on_another_number_of_ranks(comm, tmp_path):
    path = comm.broadcast(tmp_path / "half.state")
    run = begun(comm, "sedov")
    run.advance(1.0, max_steps=3)
    save_run(path, run.run)
    run.advance(1.0, max_steps=5)
    assert [remap["step"] for remap in run.remaps] == [2, 4]

    def one_process():
        fresh = begun(Serial(), "sedov").run.equations
        alone = ArbitraryLagrangianEulerian(load_run(path, fresh), 2)
        alone.advance(1.0, max_steps=5)
        assert len(alone.remaps) == 1
        return facts(alone)

    assert_same_bits(run, of_rank_0(comm, one_process))


@pytest.mark.parallel(3, timeout=240)
def test_other_meshes_agree_to_round_off(comm):

    def advanced(ranks):
        run = begun(ranks, "vortex", reproducible=False, cg_tol=1e-14)
        run.advance(1.0, max_steps=3)
        return run.run.e_norm, run.remaps

    (e_norm, (remap,)), (expected, (other,)) = (
        advanced(comm),
        of_rank_0(comm, lambda: advanced(Serial())),
    )
    assert e_norm == pytest.approx(expected, rel=1e-12)
    for when in ("before", "after"):
        size = other["before"]["mass"]
        for name, value in other[when].items():
            assert remap[when][name] == pytest.approx(value, rel=1e-12, abs=1e-12 * size)
    before, after = remap["before"], remap["after"]
    assert abs(after["mass"] / before["mass"] - 1.0) < 1e-13
    assert np.abs(np.subtract(after["momentum"], before["momentum"])).max() < 1e-13


@pytest.mark.parallel(3, timeout=240)
def test_a_mesh_that_tangles_on_one_rank_ends_all(comm, monkeypatch):
    """With the error of one process, and the state before the remap."""

    def folded(self, position):
        """Move the corner of the domain across its element, which the last but one rank has."""
        found = position.copy()
        at = self._V.dof_coordinates().sum(axis=1)
        self._V.components(found)[at > 1.99] = 0.3
        return found

    monkeypatch.setattr(Relaxation, "relaxed", folded)

    def messages(ranks):
        run = begun(ranks, "sedov")
        with pytest.raises(HydroError, match=r"the mesh tangles|makes new extremes") as error:
            run.advance(1.0)
        first = str(error.value)
        assert (run.run.steps, run.remaps, run.run.equations.fluid) == (2, [], None)
        state = run.run.state.copy()
        run.run.run(1.0, max_steps=3)  # it goes on from there
        state[run.run.equations.space.slice("position")] = folded(
            run._relaxation, run.run.equations.parts(state)["position"]
        )
        with pytest.raises(HydroError, match=r"tangles at t = 0: 1 element\(s\) .* 47;") as error:
            transferred(run.run.equations, state, run.run.equations.parts(state)["position"])
        return first, str(error.value)

    assert messages(comm) == of_rank_0(comm, lambda: messages(Serial()))


@pytest.mark.parallel(2, timeout=240)
def test_a_mesh_that_cannot_be_relaxed_on_one_rank_ends_all(comm):
    run = begun(comm, "sedov")
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
def test_momentum_at_walls_goes_inwards(comm):
    """Also to nodes of other ranks."""
    case = problem("sedov")
    mesh = built_in(case.mesh[2]).refine(2)
    weights = np.random.default_rng(4).random(mesh.num_elements) + 0.1

    def integrals(ranks):
        """Of the velocity's third power; and to how many other ranks momentum goes."""
        equations = Lagrangian(case, femops.distribute(mesh, ranks, weights=weights), 1, 0)
        V, walls = equations.V, WallMomentum(equations)
        x = V.dof_coordinates()
        momentum = np.stack([1.0 + x[:, 0] ** 2, np.cos(3.0 * x[:, 1] - x[:, 0])], axis=1)
        velocity = walls.velocity(momentum.reshape(-1))
        total = V.components(equations.momentum_of(velocity)).sum(axis=0)
        np.testing.assert_allclose(ranks.sum(total), ranks.sum(momentum.sum(axis=0)), rtol=1e-13)
        assert (velocity[equations.walls] == 0.0).all()
        other = [rank for rank, sent in walls._send.items() if len(sent) and rank != ranks.rank]
        return femops.integrate(V, velocity**3), ranks.max(len(other))

    mine, crossed = integrals(comm)
    alone, _ = of_rank_0(comm, lambda: integrals(Serial()))
    assert crossed
    np.testing.assert_allclose(mine, alone, rtol=1e-11)
