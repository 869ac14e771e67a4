"""Runs beside an independent reference, Laghos' published results, and what runs keep and tell."""

from dataclasses import replace

import numpy as np
import pytest

from femops.errors import HydroError
from femops.hydro import METHODS, RUNS, Lagrangian, Simulation, built_in, problem, verify
from femops.hydro.ale.run import PointFields
from support import fixtures
from tests.hydro.cases import blast, three_states, tube, two_layers, vortices
from tests.hydro.reference import Reference, refined

one_thread = fixtures.one_thread

HALVES = [0.0, 0.5, 1.0]
CASES = {
    1: (vortices(2), [refined(HALVES, 3)] * 2),
    2: (vortices(3), [refined(HALVES, 1)] * 3),
    3: (blast(1.0), [refined(HALVES, 3)] * 2),
    5: (tube(), [refined(HALVES, 5)]),
    6: (three_states(), [refined(range(8), 2), refined(range(4), 2)]),
    9: (two_layers(), [refined([0.0, 0.5], 1), refined([-1.0, -0.5, 0.0, 0.5, 1.0], 1)]),
}


@pytest.mark.parametrize("number", CASES)
def test_first_steps_are_those_of_the_reference(number):
    setup, lines = CASES[number]
    reference = RUNS[number]
    expected = Reference(lines, setup, *reference.orders).run(10.0, max_steps=3)
    run = reference.begin(cg_tol=1e-14)
    run.run(10.0, max_steps=3)
    assert (run.steps, run.t) == (3, pytest.approx(expected["t"], rel=1e-12))
    assert run.dt == pytest.approx(expected["dt"], rel=1e-12)
    assert run.e_norm == pytest.approx(expected["e_norm"], rel=1e-12)
    # the reference counts no potential energy
    potential = PointFields.of(run.equations, run.state).totals(run.equations.space.comm)[
        "potential"
    ]
    energy = run.equations.total_energy(run.state) - potential
    assert energy == pytest.approx(expected["energy"], rel=1e-12)


@pytest.mark.parametrize("number", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_the_reference_is_as_published(number):
    setup, lines = CASES[number]
    published = RUNS[number]
    found = Reference(lines, setup).run(published.t_final)
    assert found["steps"] == published.steps
    assert found["e_norm"] == pytest.approx(published.e_norm, rel=1e-10)


@pytest.mark.exhaustive  # run 5 is one of tests/cli/test_hydro.py
@pytest.mark.parametrize("number", RUNS)
def test_runs_are_as_published(number):
    found = verify(number)
    assert found["steps"] == found["steps_laghos"]
    assert f"{found['dt']:.6f}" == f"{found['dt_laghos']:.6f}"
    assert found["relative"] < 1e-9


# Steps, time, next step and norm of the energy of the begin of runs that end as published.
EARLY = {
    1: (20, 0.14268358953882923, 0.00606137841786295, 49.51980249250319),
    2: (20, 0.07663071573543756, 0.003492552727888575, 3389.8751509670933),
    3: (20, 0.012034695532516014, 0.0005403739720695731, 164.55216661587713),
    4: (5, 0.003282199264321111, 0.0006590242617337663, 857.0219909749776),
    6: (20, 0.15553647200187448, 0.0061802106119326445, 48.09690021041086),
    7: (5, 0.08957549659070599, 0.01827340130450402, 47.93618864559122),
    8: (20, 0.05323713796509193, 0.0024263574943875666, 409.8063026211438),
    9: (20, 0.07376947105773055, 0.004214410799941151, 118.39772090783966),
}


@pytest.mark.parametrize("number", EARLY)
def test_long_runs_begin_as_recorded(number):
    steps, *expected = EARLY[number]
    run = RUNS[number].begin()
    run.run(10.0, max_steps=steps)
    assert [run.t, run.dt, run.e_norm] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "dim", "ode"),
    [("sedov", 1, "rk4"), ("taylor-green", 2, "rk2avg"), ("sedov", 3, "rk4")],
)
def test_matrices_do_what_the_stress_at_points_does(name, dim, ode):
    found = []
    for assembly in ("partial", "full"):
        case = problem(name)
        mesh = built_in(case.mesh[dim]).refine(1).mapped(lambda x: x + 0.3 * x * (1.0 - x))
        run = Simulation.begin(Lagrangian(case, mesh, cg_tol=1e-14, assembly=assembly), ode)
        run.run(1.0, max_steps=3)
        found.append(run)
    assert found[0].t == pytest.approx(found[1].t, rel=1e-12)
    assert np.allclose(found[0].state, found[1].state, rtol=0.0, atol=1e-11)


def small(name, refine=1, **options):
    case = problem(name)
    dim = 2 if 2 in case.mesh else 1
    return Lagrangian(case, built_in(case.mesh[dim]).refine(refine), **options)


@pytest.mark.parametrize(
    ("dim", "orders", "cfl", "steps"),
    [
        (2, (2, 1), 0.5, 40),
        *(
            pytest.param(2, (p, p - 1), cfl, 5, marks=pytest.mark.exhaustive)
            for p, cfl in ((6, 0.5), (14, 0.5), (20, 0.05))
        ),
        pytest.param(3, (8, 7), 0.5, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_averaged_velocities_conserve_the_energy(dim, orders, cfl, steps):
    mesh = built_in(problem("sedov").mesh[dim])
    equations = Lagrangian(problem("sedov"), mesh, *orders, cfl=cfl, cg_tol=1e-14)
    run = Simulation.begin(equations, "rk2avg")
    before = equations.total_energy(run.state)
    run.run(10.0, max_steps=steps)
    assert run.steps == steps
    assert abs(equations.parts(run.state)["velocity"]).max() > 0.1
    assert equations.total_energy(run.state) == pytest.approx(before, rel=1e-13)


def test_an_unstable_run_that_ends_early_is_an_error():
    """No energy is far below zero yet, but their sum has grown a million times."""
    mesh = built_in("segment01").refine(3)
    run = Simulation.begin(Lagrangian(problem("sedov"), mesh, 12, 11), "euler")
    with pytest.raises(HydroError, match=r"changed the sum of the energies from 0\.5 to"):
        run.run(0.8, max_steps=15)


@pytest.mark.exhaustive
def test_steps_too_large_for_the_orders_are_told():
    """Energy far below zero is compensated by other elements, so the sum would not tell."""
    equations = Lagrangian(problem("sedov"), built_in("square01_quad"), 20, 19)
    run = Simulation.begin(equations, "rk2avg")
    begin = run.equations.total_energy(run.state)
    with pytest.raises(HydroError, match=r"unstable: the energy .* gone to -"):
        run.run(10.0, max_steps=40)
    assert 0 < run.steps < 40
    assert run.equations.total_energy(run.state) == pytest.approx(begin, rel=1e-2)
    assert run.state[run.equations.space.slice("energy")].min() > -400.0


@pytest.mark.parametrize("name", METHODS)
def test_integrators_have_their_order(name):
    def state(steps):
        equations = small("taylor-green", cg_tol=1e-14)
        s, dt = equations.initial(), 0.04 / steps
        step = METHODS[name].step(equations)
        for _ in range(steps):
            s = step.run(s, dt, equations.forces(s)).state
        return s

    order = {"euler": 1, "rk2": 2, "rk3": 3, "rk4": 4, "rk6": 6, "rk2avg": 2}[name]
    few = (1, 2, 4) if order == 6 else (4, 8, 16)
    one, two, four = (state(n) for n in few)
    ratio = np.abs(one - two).max() / np.abs(two - four).max()
    assert np.log2(ratio) > order - 0.4


@pytest.mark.parametrize(
    ("name", "dim"), [("riemann-12", 2), ("riemann-6", 2), ("gresho", 3), ("rayleigh-taylor", 3)]
)
def test_other_problems_run(name, dim):
    case = problem(name)
    run = Simulation.begin(Lagrangian(case, built_in(case.mesh[dim])))
    if dim == 3:
        assert not run.equations.parts(run.state)["velocity"][2::3].any()
    run.run(1.0, max_steps=3)
    assert run.steps == 3
    assert np.isfinite(run.state).all()


def test_what_cannot_begin_is_told():
    tube = replace(problem("sod"), density=lambda x: x[0] - 0.5)
    with pytest.raises(HydroError, match=r"density .* is -0.* in element 0 at \(0\."):
        Lagrangian(tube, built_in("segment01"))
    for energy, words in (
        (lambda x: x[0] - 0.5, r"energy at the beginning is -0.* in element 0"),
        (lambda x: 0 * x[0], "nothing moves"),
    ):
        tube = Lagrangian(replace(problem("sod"), energy=energy), built_in("segment01"))
        with pytest.raises(HydroError, match=words):
            Simulation.begin(tube)


BROKEN = [
    ("position", 0.9, r"inverted, the worst in element \d+ at .* gone to -"),
    ("velocity", 1e300, r"waves cross elements too fast, fastest in element \d+ at"),
    ("velocity", np.nan, "velocity is not finite in"),
    ("energy", np.inf, r"the energy is not finite in element \d+ at"),
    ("energy", -1e3, r"unstable: the energy .* gone to -.* element \d+"),  # none was above 1e3
]


@pytest.mark.parametrize(("field", "values", "words"), BROKEN)
def test_what_breaks_a_run_is_told_and_the_last_state_kept(field, values, words):
    equations = small("sedov")
    run = Simulation.begin(equations)
    run.run(1.0, max_steps=2)
    space, before = equations.space.spaces[field], run.state.copy()
    part = equations.parts(before)[field]
    assert abs(part).max() < 1e3
    part[space.dof_coordinates().sum(axis=1).repeat(space.ncomp) > 1.5] = values
    run.state = before.copy()
    with pytest.raises(HydroError, match=f"step 3 at t = .*{words}"):
        run.run(1.0)
    assert run.steps == 2
    np.testing.assert_array_equal(run.state, before)
