"""Runs with remaps: beside the exact blast, past the end of a Lagrangian run, and restarted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from femops.errors import HydroError
from femops.hydro import (
    Blast,
    Lagrangian,
    Simulation,
    built_in,
    load_run,
    problem,
    run_options,
    save_run,
)
from femops.hydro.ale import ArbitraryLagrangianEulerian
from femops.hydro.ale.run import PointFields


def begun(name, refine, orders=(2, 1), every=10, **options):
    case = problem(name)
    equations = Lagrangian(case, built_in(case.mesh[2]).refine(refine), *orders)
    return ArbitraryLagrangianEulerian(Simulation.begin(equations, "rk4"), every, **options)


def change(remap):
    """Largest relative change of mass, momentum and energy by a remap."""
    before, after = remap["before"], remap["after"]
    energies = "internal", "kinetic", "potential"
    total, kept = (sum(of[name] for name in energies) for of in (before, after))
    energy = kept - total
    momentum = np.subtract(after["momentum"], before["momentum"])
    size = np.abs(before["momentum"]).max() + np.sqrt(before["kinetic"] * before["mass"])
    return max(
        abs(after["mass"] / before["mass"] - 1.0),
        abs(energy / total),
        np.abs(momentum / size).max(),
    )


def test_a_blast_is_where_the_exact_one_is():
    run = begun("sedov", 2, every=20)
    run.advance(0.3)
    assert len(run.remaps) >= 4
    assert max(map(change, run.remaps)) < 1e-13
    fields, equations = PointFields.of(run.run.equations, run.run.state), run.run.equations
    position = equations.parts(run.run.state)["position"]
    x = equations.V.values(position, equations.quadrature)
    r, exact = np.linalg.norm(x, axis=-1), Blast(2)
    peak = r[np.unravel_index(fields.density.argmax(), r.shape)]
    assert abs(peak - exact.shock(0.3)) < 0.1
    error = fields.volume * np.abs(
        fields.density - exact.density(r.reshape(-1), 0.3).reshape(r.shape)
    )
    assert error.sum() < 0.2


def test_gas_that_sinks_keeps_the_sum_with_potential_energy():
    """What the remaps of heavy gas above light gas take from potential energy becomes heat."""
    case = problem("rayleigh-taylor")
    equations = Lagrangian(case, built_in("rt2D"), 3, 2, cg_tol=1e-14)
    run = ArbitraryLagrangianEulerian(Simulation.begin(equations, "rk2avg"), 5)
    before = equations.total_energy(run.run.state)
    run.advance(4.0, max_steps=60)
    assert len(run.remaps) == 12
    assert max(map(change, run.remaps)) < 1e-13
    taken = sum(r["before"]["potential"] - r["after"]["potential"] for r in run.remaps)
    assert abs(taken) > 1e-6
    assert abs(run.run.equations.total_energy(run.run.state) - before) < 1e-12 * before


def test_the_steps_are_longer_than_those_of_the_lagrangian_run():
    """The triple point rolls up: the mesh of the Lagrangian run allows ever shorter steps."""
    run = begun("triple-point", 1, every=20)
    run.advance(1.5)
    other = begun("triple-point", 1).run
    other.run(1.5)
    assert run.run.steps < 0.6 * other.steps
    assert run.run.dt > 10 * other.dt
    assert max(map(change, run.remaps)) < 1e-13


def test_a_restarted_run_has_the_same_bits(tmp_path):
    run = begun("sedov", 1, every=4)
    run.advance(1.0, max_steps=6)
    path = save_run(tmp_path / "a.state", run.run)
    run.advance(1.0, max_steps=14)
    case = problem("sedov")
    fresh = Lagrangian(case, built_in(case.mesh[2]).refine(1))
    again = ArbitraryLagrangianEulerian(load_run(path, fresh), 4)
    again.advance(1.0, max_steps=14)
    assert run_options(path)["ale"] == again.run.options["ale"] == 4
    assert again.run.steps == run.run.steps == 14
    assert again.run.t == run.run.t
    np.testing.assert_array_equal(again.run.state, run.run.state)


def test_a_bad_mesh_is_relaxed_at_once():
    run = begun("gresho", 1, orders=(3, 2), every=10_000, least=0.9)
    run.advance(0.2)
    assert run.remaps
    assert all(remap["quality"][0] < 0.9 < remap["quality"][1] for remap in run.remaps)


def test_steps_that_make_energy_end_the_run():
    """Remaps keep the energy of an unstable run positive, so it has to be told by its sum."""
    equations = Lagrangian(problem("sedov"), built_in("segment01").refine(3), 8, 7)
    run = ArbitraryLagrangianEulerian(Simulation.begin(equations, "euler"), 3)
    with pytest.raises(HydroError, match=r"energies from 0\.5 to .* until step \d+: they are unst"):
        run.advance(0.8, max_steps=40)


def test_wrong_arguments():
    for options, message in (
        ({"every": 0}, "every is 0: give a whole number"),
        ({"length": 0.0}, "length is 0.0: give a number from 1e-06"),
        ({"least": -1.0}, "least is -1.0: give a number above 0"),
    ):
        with pytest.raises(HydroError, match=message):
            begun("sedov", 0, **options)
    with pytest.raises(HydroError, match="run is 3: give a run"):
        ArbitraryLagrangianEulerian(3)


def test_walls_that_are_not_flat_are_refused():
    """Nodes that slide along x = const would leave a wall that is not there."""
    bends = {
        "oblique": lambda x: [x[0] + 0.1 * x[1], x[1]],
        "bent": lambda x: [x[0] + 0.1 * np.sin(np.pi * x[1]), x[1]],
    }
    flat = built_in("square01_quad").refine(1)
    for bend in bends.values():
        run = Simulation.begin(Lagrangian(problem("taylor-green"), flat.mapped(bend, order=2)))
        with pytest.raises(HydroError, match=r"8 face\(s\) of walls are bent or oblique"):
            ArbitraryLagrangianEulerian(run)
    inside = flat.mapped(lambda x: x + 0.1 * np.sin(2 * np.pi * x) * np.sin(np.pi * x[::-1]))
    ArbitraryLagrangianEulerian(Simulation.begin(Lagrangian(problem("taylor-green"), inside)))


def test_devices_are_refused(monkeypatch):
    run = begun("sedov", 0).run
    monkeypatch.setattr(run.equations, "space", SimpleNamespace(device="cuda:0"))
    with pytest.raises(HydroError, match="remaps work on the host only"):
        ArbitraryLagrangianEulerian(run)
