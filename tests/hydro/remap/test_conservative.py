"""Remap of several functions: integrals, bounds, constants, and the error in smooth functions."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import HydroError
from femops.hydro.remap.conservative import ConservativeRemap

CASES = {  # mesh, degree of the mesh
    "line": (femops.box((8,)), 2),
    "square": (femops.box((5, 4)), 2),
    "cubic": (femops.box((3, 3)), 3),
    "cube": (femops.box((3, 2, 2)), 1),
}


def moved(mesh, degree, size=0.04):
    """Nodes, and a displacement that slides along the boundary of the unit box."""
    nodes = mesh.curved(degree).coordinates
    sines, cosines = np.sin(np.pi * nodes), np.cos(np.pi * nodes)
    others = [np.prod(np.delete(cosines, d, axis=-1), axis=-1) for d in range(mesh.dim)]
    return nodes, size * sines * np.stack(others, axis=-1)


def coefficients(remap, f, end=False):
    """Coefficients (ne, n) of the projection of a function to the mesh before or after."""
    tables, flow = remap._tables, remap._flow
    x = np.matmul(tables.inside.values, flow.nodes(float(end)))
    volume = tables.weights * np.linalg.det(tables.inside.jacobians(flow.nodes(float(end))))
    mass = np.einsum("eq,qi,qj->eij", volume, tables.shapes, tables.shapes)
    right = (volume * f(x)) @ tables.shapes
    return np.linalg.solve(mass, right[..., np.newaxis])[..., 0], mass.sum(axis=-1)


def no_moments(mesh):
    return np.zeros((0, mesh.num_elements))


@pytest.mark.parametrize("name", ["square", "cubic", "cube"])
def test_moments_follow_the_fluxes(name):
    """Those of a constant are exact. Those of a jump sum to the same, in bounds of the elements."""
    mesh, degree = CASES[name]
    remap = ConservativeRemap(mesh, *moved(mesh, degree), 2)
    one = np.ones((mesh.num_elements, 3**mesh.dim))
    jump = (np.arange(mesh.num_elements)[:, np.newaxis] % 2) * one

    def moments(u, end):
        tables, nodes = remap._tables, remap._flow.nodes(float(end))
        volume = tables.weights * np.linalg.det(tables.inside.jacobians(nodes))
        return (
            volume * np.matmul(tables.inside.values, nodes)[..., 1] * (u @ tables.shapes.T)
        ).sum(-1)

    before = np.stack([moments(u, end=False) for u in (one, jump)])
    fields, _, after = remap.run(np.stack([one, jump]), before, 1)
    np.testing.assert_allclose(after[0], moments(one, end=True), atol=1e-14)
    for k in range(2):
        assert abs(after[k].sum() - before[k].sum()) < 1e-14
    assert np.abs(after[1] - before[1]).max() > 1e-4
    assert np.abs(after[1] - moments(fields[1], end=True)).max() < 0.02 * np.abs(after).max()


@pytest.mark.parametrize(("dim", "order", "most"), [(2, 3, 6), (2, 8, 24), (3, 3, 10)])
def test_the_number_of_steps_does_not_explode_with_the_order(dim, order, most):
    mesh = femops.box((2,) * dim)
    assert ConservativeRemap(mesh, *moved(mesh, order), order).num_steps <= most


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_integrals_bounds_and_constants(name, order):
    mesh, degree = CASES[name]
    remap = ConservativeRemap(mesh, *moved(mesh, degree), order)
    before = coefficients(remap, lambda x: np.ones(x.shape[:-1]))[1]
    one = np.ones_like(before)
    after = coefficients(remap, lambda x: np.ones(x.shape[:-1]), end=True)[1]
    jump = (np.arange(mesh.num_elements)[:, np.newaxis] % 2) * one
    smooth = coefficients(remap, lambda x: 1e6 * np.exp(-(x**2).sum(axis=-1)))[0]
    fields = np.stack([one, jump, smooth])
    found, integrals, _ = remap.run(fields, no_moments(mesh), 0)
    np.testing.assert_allclose(integrals, (after * found).sum(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(found[0], 1.0, rtol=1e-13)
    for k in range(3):
        total = (before * fields[k]).sum()
        assert abs((after * found[k]).sum() - total) < 1e-14 * np.abs(before * fields[k]).sum()
    assert found[1].min() > -1e-14
    assert found[1].max() < 1.0 + 1e-14
    assert np.abs(found[1] - jump).max() > 1e-3  # something has moved


def test_the_error_in_smooth_functions_falls():
    errors = []
    for count in (6, 12):
        remap = ConservativeRemap(
            femops.box((count, count)), *moved(femops.box((count, count)), 2), 2
        )
        f = lambda x: 2.0 + x[..., 0] + 0.5 * x[..., 1]  # noqa: E731
        start, _ = coefficients(remap, f)
        wanted, lumped = coefficients(remap, f, end=True)
        found = remap.run(start[np.newaxis], np.zeros((0, count**2)), 0)[0][0]
        errors.append(np.sqrt((lumped * (found - wanted) ** 2).sum()))
    assert errors[1] < 0.3 * errors[0]


def test_a_step_that_is_too_long():
    mesh = femops.box((8,))
    remap = ConservativeRemap(mesh, *moved(mesh, 1, 0.3), 1)
    jump = (np.arange(8)[:, np.newaxis] % 2) * np.ones((8, 2))
    remap.num_steps = 1
    with pytest.raises(HydroError, match="a step of 1 makes new extremes: here the limit is 0"):
        remap.run(jump[np.newaxis], no_moments(mesh), 0)
