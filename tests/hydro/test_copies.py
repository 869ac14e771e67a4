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
