"""Runs: rates of convergence, mass and bounds over many steps, remap, published values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.hydro.remap import PUBLISHED, Advection, Box, advection_mesh, verify_advection
from tests.hydro.remap.cases import Step, Swirl, Wave

EXACT = {"ho": 3, "lo": 0, "fct": 0}


def nodal(run, problem):
    """Coefficients of the interpolant of the initial function, which has the full order."""
    return run.space.interpolate(lambda x: problem.initial(None, x))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_high_order_converges_at_the_order_plus_one(order, monkeypatch):
    errors = []
    for count in (4, 8):
        mesh = femops.box((count, count), periodic=True)
        run = Advection(Wave(), mesh, order, 0.25, 0.02 / count, **EXACT)
        monkeypatch.setattr(Advection, "initial", lambda self: nodal(self, Wave()))
        found = run.run()
        errors.append(
            femops.l2_error(
                run.space,
                found.coefficients,
                lambda x: np.sin(2 * np.pi * (x[0] - 0.25)) * np.cos(2 * np.pi * (x[1] - 0.25)),
            )
        )
    assert np.log2(errors[0] / errors[1]) > order + 0.75


@pytest.mark.parametrize("steps", [400, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_mass_and_bounds_over_many_steps(steps):
    mesh, extremes = femops.box((8,), periodic=True), []
    run = Advection(Step(), mesh, 2, 0.005 * steps, 0.005, ho=3, lo=2)
    found = run.run(lambda _, u: extremes.append((u.min(), u.max())))
    assert found.steps == len(extremes) == steps
    assert np.min(extremes) >= -1e-13
    assert np.max(extremes) <= 1.0 + 1e-13
    assert abs(found.mass / found.mass_before - 1.0) < 1e-13


@pytest.mark.parametrize("lo", [2, 4])
def test_the_last_step_is_as_long_as_the_time_that_is_left(lo):
    times = []
    run = Advection(Step(), femops.box((8,), periodic=True), 2, 0.0125, 0.005, lo=lo)
    assert run.run(lambda t, _: times.append(t)).steps == 3
    np.testing.assert_allclose(times, [0.005, 0.01, 0.0125], rtol=1e-12)


def test_remap_keeps_constants_and_moves_the_mesh():
    run = Advection(Swirl(), femops.box((4, 4)), 3, 0.2, 0.02, ho=3, lo=4)
    found = run.run()
    assert abs(found.minimum - 1.0) < 1e-11
    assert abs(found.maximum - 1.0) < 1e-11
    assert abs(found.mass - 1.0) < 1e-11
    moved = run.function(found)
    assert abs(femops.integrate(moved.space, moved.vector) - found.mass) < 1e-11
    assert (
        np.abs(moved.space.mesh.coordinates - femops.box((4, 4), order=2).coordinates).max() > 0.1
    )


def test_periodic_meshes_have_no_boundary():
    for name in ("periodic-square", "periodic-hexagon", "periodic-cube"):
        mesh = advection_mesh(name)
        assert (mesh.topology.faces[:, 1] >= 0).all(), name
        assert not mesh.continuous, name


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", PUBLISHED)
def test_published_runs(number):
    assert verify_advection(number)["agrees"]


def test_a_published_run_begins_as_recorded(monkeypatch):
    """The whole run is as published. One with another mass or maximum is told apart."""
    told = []
    early = replace(PUBLISHED[5], t_final=0.05, maximum=1.0)
    for run, agrees in (
        (early, True),
        (replace(early, mass=0.1623263889), False),
        (replace(early, maximum=1.0 - 2e-8), False),
    ):
        monkeypatch.setitem(PUBLISHED, 5, run)
        told.clear()
        found = verify_advection(5, lambda t, u: told.append(np.linalg.norm(u)))
        assert found["agrees"] == agrees
        assert found["steps"] == len(told) == 10
        assert abs(found["mass_change"]) < 1e-13
        assert told[-1] == pytest.approx(15.72949777229187, rel=1e-9)


def test_coordinates_run_from_minus_one_to_one_in_a_box():
    box = Box(np.array([1.0, -2.0]), np.array([3.0, 4.0]))
    found = box.centred(np.array([[1.0, 2.0, 3.0], [-2.0, 1.0, 4.0]]))
    np.testing.assert_allclose(found, [[-1.0, 0.0, 1.0]] * 2)
