"""Copies of runs, and runs from a state, go on to the same bits."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from femops.hydro import Lagrangian, Simulation, built_in, problem
from support import fixtures

one_thread = fixtures.one_thread


def equations(name: str) -> Lagrangian:
    return Lagrangian(problem(name), built_in("square01_quad").refine(1))


@pytest.mark.parametrize(("name", "ode"), [("sedov", "rk4"), ("taylor-green", "rk2avg")])
def test_they_go_on_alike(name: str, ode: str) -> None:
    """Also as their first step is done by Python, and the others by compiled code."""
    run = Simulation.begin(equations(name), ode)
    run.run(10.0, max_steps=5)
    copied = copy.deepcopy(run)
    own = copy.deepcopy(run.equations)
    anew = Simulation(equations(name), run.state.copy(), run.t, run.dt, run.steps, ode)
    for other in (run, copied, anew):
        other.run(10.0, max_steps=12)
    assert run.steps == copied.steps == anew.steps == 12
    for other in (copied, anew):
        np.testing.assert_array_equal(run.state, other.state)
        assert (run.t, run.dt) == (other.t, other.dt)
    assert copied.equations is not run.equations
    assert 0 < copied.equations.clock.sweeps < run.equations.clock.sweeps
    assert own.clock.sweeps == 0
    assert own.total_energy(run.state) == run.equations.total_energy(run.state)


def test_a_state_that_users_set_has_forces_of_its_own() -> None:
    """What they add to its energy is no error of the time steps."""
    run = Simulation.begin(equations("sod"))
    run.run(10.0, max_steps=5)
    energy = run.equations.space.slice("energy")
    with pytest.raises(ValueError, match="read-only"):
        run.state[energy] *= 1.5
    with pytest.raises(ValueError, match="read-only"):
        copy.deepcopy(run).state[energy] *= 1.5
    changed = run.state.copy()
    changed[energy] *= 1.5
    anew = Simulation(equations("sod"), changed.copy(), run.t, run.dt, run.steps)
    run.state = changed
    for each in (run, anew):
        each.run(10.0, max_steps=7)
    np.testing.assert_array_equal(run.state, anew.state)


def test_a_source_of_energy_between_steps() -> None:
    def heated(run: Simulation) -> None:
        state = run.state.copy()
        state[run.equations.space.slice("energy")] *= 1.03
        run.state = state

    run = Simulation.begin(equations("sod"))
    begun = run.equations.total_energy(run.state)
    run.run(10.0, max_steps=10, watch=heated)
    assert run.equations.total_energy(run.state) > 1.2 * begun
