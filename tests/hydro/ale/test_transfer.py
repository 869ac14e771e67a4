"""Transfer of the fields of a gas: what is kept, and what does not change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from femops.errors import HydroError
from femops.hydro import Lagrangian, Simulation, built_in, problem
from femops.hydro.ale.run import (
    PointFields,
    WallMomentum,
    _Carrier,
    _heat,
    share_within,
    transferred,
)
from femops.parallel import Serial
from tests.hydro.ale.test_relaxation import bent

ENERGIES = "internal", "kinetic", "potential"
CASES = {  # problem, dimension, orders
    "line": ("sod", 1, (3, 2)),
    "cube": ("sedov", 3, (2, 1)),
    "constant energy": ("sod", 2, (1, 0)),
    "gases": ("triple-point", 2, (2, 1)),
    "vortex": ("gresho", 2, (3, 2)),
    "layers": ("rayleigh-taylor", 2, (4, 3)),
    "layers in space": ("rayleigh-taylor", 3, (2, 1)),
    "few points": ("gresho", 3, (3, 0)),
    "high order": ("gresho", 2, (8, 7)),
}


def advanced(name, dim, orders, steps=5):
    """A run after a few steps."""
    case, refine = problem(name), int(max(orders) < 8 and (dim, orders) != (3, (3, 0)))
    mesh = built_in(case.mesh[dim]).refine(refine)
    run = Simulation.begin(Lagrangian(case, mesh, *orders), "rk4")
    run.run(1.0, max_steps=steps)
    return run


@pytest.mark.parametrize("name", CASES)
def test_mass_momentum_and_energy_are_kept(name):
    run = advanced(*CASES[name])
    equations, position = run.equations, run.equations.V.interpolate(lambda x: x)
    after, state, steps = transferred(equations, run.state, position)
    before, found = (
        PointFields.of(*of).totals(equations.comm)
        for of in ((equations, run.state), (after, state))
    )
    total, kept = (sum(of[name] for name in ENERGIES) for of in (before, found))
    assert steps >= 1
    assert abs(found["mass"] / before["mass"] - 1.0) < 1e-14
    assert abs(kept - total) < 1e-14 * total
    fields = PointFields.of(equations, run.state)
    size = np.einsum("eq,eqi->i", fields.volume, np.abs(fields.momentum)).max() + 1e-300
    assert np.abs(np.subtract(found["momentum"], before["momentum"])).max() < 1e-13 * size
    assert abs(after.total_energy(state) / total - 1.0) < 1e-12
    assert abs(after.total_energy(state) - equations.total_energy(run.state)) < 1e-12 * total
    np.testing.assert_array_equal(after.parts(state)["position"], position)
    assert (state[after.space.slice("velocity")][after.walls] == 0.0).all()


@pytest.mark.parametrize("name", ["gases", "vortex"])
def test_bounds_of_density_and_of_gamma(name):
    run = advanced(*CASES[name], steps=15)
    equations = run.equations
    position = equations.V.interpolate(lambda x: x)
    after, state, _ = transferred(equations, run.state, position)
    old, new = PointFields.of(equations, run.state), PointFields.of(after, state)
    for field in ("density", "inverse"):
        least, largest = getattr(old, field).min(), getattr(old, field).max()
        assert getattr(new, field).min() >= least * (1.0 - 1e-12)
        assert getattr(new, field).max() <= largest * (1.0 + 1e-12)
    assert new.energy.min() >= min(0.0, old.energy.min())


def test_a_second_transfer_to_the_same_place_changes_only_what_is_limited(monkeypatch):
    monkeypatch.setattr(_Carrier, "_limited", lambda _, u, *__: u)
    run = advanced(*CASES["vortex"])
    position = run.equations.V.interpolate(lambda x: x)
    after, state, _ = transferred(run.equations, run.state, position)
    again, same, steps = transferred(after, state, position)
    assert steps == 1
    for name, size in (("position", 1e-14), ("velocity", 1e-10), ("energy", 1e-10)):
        found, wanted = again.parts(same)[name], after.parts(state)[name]
        np.testing.assert_allclose(found, wanted, atol=size * np.abs(wanted).max())


def test_a_mesh_of_a_higher_degree_than_positions_keeps_mass_and_energy():
    case = problem("sedov")
    mesh = built_in(case.mesh[2]).refine(1).mapped(bent, order=3)
    run = Simulation.begin(Lagrangian(case, mesh, 2, 1), "rk4")
    run.run(1.0, max_steps=5)
    equations = run.equations
    position = equations.V.interpolate(lambda x: x)
    after, state, _ = transferred(equations, run.state, position)
    one = equations.V.interpolate((1.0, 1.0))
    mass, kept = (of.momentum_of(one).sum() for of in (equations, after))
    energy = equations.total_energy(run.state)
    assert abs(kept / mass - 1.0) < 1e-14
    assert abs(after.total_energy(state) / energy - 1.0) < 1e-12
    assert PointFields.of(equations, run.state).totals(equations.comm)["mass"] == pytest.approx(
        mass / 2, rel=1e-13
    )


def test_a_gas_at_rest_stays_at_rest():
    """Of constant density and energy, whatever the displacement."""
    case = problem("taylor-green")
    equations = Lagrangian(case, built_in(case.mesh[2]).refine(1), 2, 1)
    rest = equations.on_host.join(
        position=equations.V.interpolate(lambda x: x),
        velocity=equations.V.zeros(),
        energy=equations.E.interpolate(lambda x: 2.0 + 0.0 * x[0]),
    )
    after, state, _ = transferred(equations, rest, equations.V.interpolate(bent))
    parts = after.parts(state)
    assert np.abs(parts["velocity"]).max() < 1e-13
    np.testing.assert_allclose(parts["energy"], 2.0, rtol=1e-12)
    np.testing.assert_allclose(PointFields.of(after, state).density, 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", ["rayleigh-taylor", "upside down"])
def test_elements_are_heated_by_the_potential_energy_that_they_lose(name):
    """Wherever height is zero. Heavy gas that is mixed into light gas below it heats both."""
    case, found = problem("rayleigh-taylor"), []
    if name == "upside down":
        case = replace(case, density=lambda x: 3.0 - problem("rayleigh-taylor").density(x))
    for height in (0.0, 7.0):
        raised = case_at_height(case, height)
        mesh = built_in("rt2D").refine(1).mapped(lambda x, h=height: x + np.array([[0.0], [h]]))
        equations = Lagrangian(raised, mesh, 3, 2)
        V, rest = equations.V, equations.initial()
        rest[equations.space.slice("velocity")] = 0.0
        low, high = (f(V.dof_coordinates()[:, 1]) for f in (np.min, np.max))
        wave = lambda x, a=low, b=high: np.sin(np.pi * (x[1] - a) / (b - a)) * np.cos(6.0 * x[0])  # noqa: E731
        moved = V.interpolate(lambda x, wave=wave: x + 0.05 * wave(x) * np.array([[0.0], [1.0]]))
        after, state, _ = transferred(equations, rest, moved)
        of = (equations, rest), (after, state)
        before, end = (PointFields.of(*one).totals(equations.comm) for one in of)
        change = {key: end[key] - before[key] for key in ENERGIES}
        size = before["internal"] + abs(before["potential"])
        assert abs(sum(change.values())) < 1e-14 * size
        assert change["kinetic"] == 0.0
        assert (change["potential"] < -1e-4) == (name == "rayleigh-taylor")
        assert abs(change["potential"]) > 1e-4
        found.append(after.parts(state)["energy"])
    np.testing.assert_allclose(*found, rtol=1e-11)


def case_at_height(case, height):
    """A problem that is raised by a height."""

    def below(f):
        return lambda x: f(x - np.array([[0.0], [height]]))

    return replace(case, density=below(case.density), energy=below(case.energy))


def test_heat_is_found_where_it_is():
    """Elements give at most their room; first the gains are used, then the room of all."""
    heat = lambda *given: _heat(*map(np.array, given), Serial())  # noqa: E731
    np.testing.assert_array_equal(heat([1.0, -0.5], [0.0, 0.5]), [1.0, -0.5])
    np.testing.assert_allclose(heat([1.0, -0.5], [0.0, 0.1]), [0.6, -0.1])
    np.testing.assert_allclose(heat([0.1, -0.5], [1.0, 0.1]), [-0.3, -0.1])
    with pytest.raises(HydroError, match=r"the remap needs 0\.3 more"):
        heat([0.1, -0.5], [0.0, 0.1])


def test_the_share_of_a_deviation_that_bounds_allow():
    mean, away = np.array([[0.5], [1.0]]), np.array([[-0.5, 3.5, -1.5], [0.0, 0.0, 0.0]])
    least, largest = np.full((2, 3), -0.5), np.full((2, 3), 2.0)
    share = share_within(away, least, largest, mean)
    np.testing.assert_allclose(share[:, 0], [1.5 / 3.5, 1.0])
    assert share_within(away, least + 0.75, largest + 7.0, mean)[0, 0] == 0.25 / 1.5


def test_momentum_at_walls_goes_inwards():
    run = advanced(*CASES["gases"])
    equations = run.equations
    momentum = np.random.default_rng(0).random(equations.V.size)
    velocity = WallMomentum(equations).velocity(momentum)
    assert (velocity[equations.walls] == 0.0).all()
    found = equations.V.components(equations.momentum_of(velocity)).sum(axis=0)
    np.testing.assert_allclose(found, equations.V.components(momentum).sum(axis=0), rtol=1e-13)
