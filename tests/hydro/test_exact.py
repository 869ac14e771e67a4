"""Density beside exact solutions."""

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
