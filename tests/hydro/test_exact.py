"""Density beside exact solutions."""

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.hydro import Blast, Lagrangian, ShockTube, Simulation, Snapshot, built_in, problem
from support import fixtures

one_thread = fixtures.one_thread


def test_constants_of_the_exact_solutions():
    # Kamm and Timmes give energies at which the shock has a radius at t = 1, to three digits or
    # more; in one dimension that of one side
    for dim, energy, radius in ((1, 2 * 0.0673185, 0.5), (2, 0.311357, 0.75), (3, 0.851072, 1.0)):
        assert Blast(dim, energy).shock(1.0) == pytest.approx(radius, rel=2e-4)
    tube = ShockTube()
    x = np.linspace(0.0, 1.0, 20001)
    rho = tube.density(x, 0.2)
    assert rho[0] == 1.0
    assert rho[-1] == 0.1
    assert np.trapezoid(rho, x) == pytest.approx(0.55, abs=1e-4)  # mass is conserved


def test_the_blast_conserves_mass_and_energy_scales():
    for dim, area in ((2, 2 * np.pi), (3, 4 * np.pi)):
        blast = Blast(dim, energy=2.0)
        front = blast.shock(0.5)
        r = np.linspace(0.0, front * (1 - 1e-12), 200_001)
        mass = area * np.trapezoid(blast.density(r, 0.5) * r ** (dim - 1), r)
        assert mass == pytest.approx(area / dim * front**dim, rel=1e-3)
        assert blast.shock(1.0) / front == pytest.approx(2 ** (2 / (dim + 2)))


def test_a_blast_has_its_energy_in_any_gas():
    mesh = built_in("square01_quad")
    for density in (4.0, lambda x: 2.0 + x[0]):
        equations = Lagrangian(replace(problem("sedov"), density=density), mesh)
        energy = equations.total_energy(equations.initial())
        assert energy == pytest.approx(0.25, rel=1e-13)


def test_runs_are_the_same_in_other_units():
    """Powers of two cost no digits. Also where all velocity gradients are below 1e-12."""
    mesh, found = built_in("square01_quad").refine(1), []
    for length, velocity in ((1.0, 1.0), (2.0**40, 1.0), (2.0**20, 2.0**-40)):
        case = problem("sedov", blast=velocity**2 * length**2)
        scaled = mesh.mapped(lambda x, length=length: length * x)
        run = Simulation.begin(Lagrangian(case, scaled))
        run.run(1e30, max_steps=12)
        energy = run.equations.parts(run.state)["energy"] / velocity**2
        found.append([run.t * velocity / length, *energy])
    np.testing.assert_allclose(found[1:], found[:1] * 2, rtol=1e-9, atol=1e-9)


def test_a_flow_in_one_direction_is_the_same_in_large_units_of_velocity():
    """Across the flow velocities are round-off, which must not switch the viscosity."""
    case, found = problem("sod"), []
    mesh = built_in("square01_quad").refine(1)
    for unit in (1.0, 2.0**30):
        scaled = replace(case, energy=lambda x, unit=unit: unit**2 * case.energy(x))
        run = Simulation.begin(Lagrangian(scaled, mesh, 3, 1, cg_tol=1e-13))
        run.run(1e30, max_steps=15)
        parts = run.equations.parts(run.state)
        found.append(np.concatenate([parts["velocity"] / unit, parts["energy"] / unit**2]))
    across = found[1][1 : run.equations.V.size : 2]
    assert abs(across).max() < 1e-12
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_fields_on_a_mesh_of_another_degree_than_positions(order):
    def bent(x):
        return x + 0.05 * np.prod(np.sin(np.pi * x), axis=0)

    mesh = built_in("square01_quad").refine(1).mapped(bent, order=3)
    run = Simulation.begin(Lagrangian(problem("sedov"), mesh, order, order - 1))
    run.run(1.0, max_steps=2)
    density = Snapshot.of(run).density
    assert np.isclose(femops.integrate(density.space, density.vector), 1.0, rtol=1e-13)


def errors(name, dim, t_final, exact, refinements):
    case = problem(name)
    for refine in refinements:
        run = Simulation.begin(Lagrangian(case, built_in(case.mesh[dim]).refine(refine)))
        run.run(t_final)
        rho = Snapshot.of(run).density
        yield femops.l2_error(rho.space, rho.vector, exact)


def test_density_of_the_tube_converges():
    exact = ShockTube()
    coarse, middle, fine = errors("sod", 1, 0.2, lambda x: exact.density(x[0], 0.2), (2, 3, 4))
    assert fine < 0.75 * middle < 0.75 * 0.75 * coarse
    assert fine < 0.03


@pytest.mark.exhaustive  # one such run is beside the exact blast in ale/test_runs.py
def test_density_of_the_blast_converges():
    exact = Blast(2)
    coarse, fine = errors("sedov", 2, 0.5, lambda x: exact.density(np.hypot(*x), 0.5), (1, 2))
    assert fine < 0.8 * coarse
