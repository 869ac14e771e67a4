from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.errors import GeometryError, OperatorError
from femops.geometry.jacobians import _beyond_center
from femops.operators.execution import host
from femops_meshes.coordinates.simplices import nodes
from support.cases.meshes import bend
from support.simplex_meshes import curved

FORMS = {
    "diffusion": lambda V, _: femops.diffusion(V),
    "mass in float32": lambda V, _: femops.mass(V, dtype="float32"),
    "a coefficient": lambda V, _: femops.diffusion(V, kappa=lambda x: 1 + x[0] ** 2),
    "elasticity": lambda _, W: femops.elasticity(W, 1.3, 0.7),
    "not symmetric": lambda V, _: femops.form(lambda u, x: {"value": x[0] * u.grad[1]}, V),
}


@pytest.fixture
def sweeps(monkeypatch):
    """Kernels compute the numbers from the first point on. The list has one entry per sweep."""
    runs, run = [], host._run
    monkeypatch.setattr(host, "_run", lambda *given: runs.append(run(*given)))
    monkeypatch.setattr(host, "_COMPILED_FROM", 0)
    return runs


@pytest.mark.parametrize(
    "make", [lambda: femops.box((3, 2, 3), mapping=bend, order=2), lambda: curved(3)]
)
@pytest.mark.parametrize("name", FORMS)
def test_sweeps_compute_what_numpy_keeps_of_linear_forms(name, make, sweeps, monkeypatch):
    mesh = make()
    spaces = femops.H1(mesh, 3), femops.H1(mesh, 2, 3)
    ((_, term),) = FORMS[name](*spaces).summands
    assert len(sweeps) == 1
    monkeypatch.setattr(host, "_COMPILED_FROM", 10**9)
    ((_, plain),) = FORMS[name](*spaces).summands
    assert len(sweeps) == 1
    found, expected = term.data.points, plain.data.points
    assert found.dtype == expected.dtype == term.dtype
    atol = 64 * np.finfo(term.dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_numbers_whose_sum_overflows_are_those_of_the_sweep(sweeps, monkeypatch):
    """A rank with fewer elements has a finite sum, and all must take the same numbers."""
    made, points = [], host.filled_points

    def filled(*given):
        made.append(points(*given))
        return made[-1]

    monkeypatch.setattr(host, "filled_points", filled)
    V = femops.H1(femops.box((2, 2), mapping=bend, order=2), 2)
    ((_, term),) = femops.mass(V, rho=1e39, dtype="float32").summands
    with np.errstate(over="ignore"):
        assert np.isfinite(term.data.points).all() > np.isfinite(term.data.points.sum())
    assert term.data.points is made[0]


def test_values_that_are_not_finite_are_named(sweeps):
    V = femops.H1(femops.box((2, 2), mapping=bend, order=2), 2)
    with pytest.raises(OperatorError, match=r"<lambda> is not finite at 64 quadrature points"):
        femops.form(lambda u, x: {"value": u.value / (x[0] - x[0])}, V)
    assert sweeps


def test_inverted_elements_are_named(sweeps):
    mesh = femops.box((4, 4), mapping=bend, order=2)
    coordinates = mesh.coordinates.copy()
    coordinates[3] = coordinates[3].reshape(3, 3, 2)[::-1].reshape(9, 2)  # past the reader's checks
    with pytest.raises(GeometryError, match=r"1 element has .* not positive .*: 3"):
        femops.diffusion(femops.H1(replace(mesh, coordinates=coordinates), 3))
    assert sweeps


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
@pytest.mark.parametrize("dim", [2, 3])
def test_bent_simplices_are_checked_at_the_points_if_no_bound_holds(dim, level, sweeps):
    """A node of an edge moves towards the opposite corner: far, then so far that it inverts."""
    mesh = femops.box((2,) * dim).simplices().curved(2)
    numbers = []
    for shift in (0.1, 0.27, 2.0):
        coordinates = mesh.coordinates.copy()
        middle = np.abs(mesh.cell.corners[1:3].mean(axis=0) - nodes(mesh.cell, 2)).sum(axis=1)
        coordinates[3, middle.argmin()] += shift * (coordinates[3, 0] - coordinates[3, 1])
        V = femops.H1(replace(mesh, coordinates=coordinates), 2)
        numbers.append(len(_beyond_center(V.mesh)))
        if shift > 1:
            with pytest.raises(GeometryError, match=r"1 element has .* not positive .*: 3"):
                femops.diffusion(V, level=level)
        else:
            femops.diffusion(V, level=level)
    assert numbers == [0, 1, 1]
