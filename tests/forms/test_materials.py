"""Coefficients by element attribute, and coefficients that are constant in each element."""

import numpy as np
import pytest

import femops
from femops.operators.levels.dispatch import LEVELS
from support.cases.kernels import bend


def layered(**box):
    """Three materials: 1, 2 and 5, the last two by name."""
    mesh = femops.box((3, 2, 2), **box)
    x = mesh.element_centers()
    numbers = np.where(x[:, 0] < 0.4, 1, np.where(x[:, 1] < 0.5, 2, 5))
    return mesh.with_attributes(numbers).with_names(elements={"steel": 2, "rock": [2, 5]})


MESHES = {
    "affine": layered(),
    "multilinear": layered(mapping=bend),
    "curved": layered(mapping=bend, order=2),
}


@pytest.mark.parametrize(("kind", "level"), [*zip([*MESHES, "affine"], LEVELS, strict=True)])
def test_materials_are_the_values_at_points(kind, level):
    mesh = MESHES[kind]
    V = femops.H1(mesh, 2)
    kappa = femops.by_attribute(mesh, {1: 0.5, "rock": 3.0})
    values = np.where(mesh.element_attributes == 1, 0.5, 3.0)
    at_points = np.repeat(values[:, np.newaxis], 4**3, axis=1)
    u = np.random.default_rng(3).standard_normal(V.size)
    A = femops.diffusion(V, kappa, level=level) + femops.mass(V, kappa, level=level)
    B = femops.diffusion(V, at_points) + femops.mass(V, at_points)
    np.testing.assert_allclose(A @ u, B @ u, rtol=0, atol=1e-13 * np.abs(B @ u).max())


@pytest.mark.parametrize("kind", list(MESHES))
def test_nothing_is_kept_at_points_for_them(kind):
    mesh = MESHES[kind]
    V = femops.H1(mesh, 2)
    A = femops.diffusion(V, femops.by_attribute(mesh, {1: 0.5, "rock": 3.0}), level="matrix-free")
    points, ne = 4**3, mesh.num_elements
    assert A.cost().stored_bytes < ne * points * 8 / 2
    partial = A.at_level("partial").cost().stored_bytes
    assert (partial < ne * points * 8) == (kind == "affine")


def test_vectors_and_defaults():
    mesh = MESHES["curved"]
    V = femops.H1(mesh, 2)
    beta = femops.by_attribute(mesh, {"steel": (1.0, 2.0, 3.0)}, default=(0.0, 0.0, 1.0))
    C = femops.convection(V, beta)
    one = V.interpolate(lambda x: x[0])
    steel = femops.by_attribute(mesh, {"steel": 1.0}, default=0.0)
    assert np.isclose((C @ one).sum(), femops.mass(V, steel).apply(np.ones(V.size)).sum())
    assert femops.by_attribute(mesh, {}, default=2.0).vector.min() == 2.0


def test_update_keeps_them_for_elements():
    mesh = MESHES["multilinear"]
    V = femops.H1(mesh, 2)
    u = np.random.default_rng(3).standard_normal(V.size)
    first, second = (femops.by_attribute(mesh, {1: a, 2: 3.0, 5: 1.0}) for a in (0.5, 7.0))
    A = femops.mass(V, first, level="matrix-free").update(rho=second)
    B = femops.mass(V, second)
    np.testing.assert_allclose(A @ u, B @ u, rtol=0, atol=1e-13 * np.abs(B @ u).max())


@pytest.mark.parametrize(
    ("values", "default", "says"),
    [
        ({3: 1.0}, 1.0, "no element has the attribute 3"),
        ({"water": 1.0}, 1.0, "no element has the attribute 'water'"),
        ({2: 1.0, "rock": 2.0}, 1.0, "attribute 2 has two values"),
        ({1: 1.0}, None, "no value for the attribute 2, 'steel': give it one"),
        ({}, None, "no value for the attribute 1"),
        ({1: np.nan}, 1.0, "the value of 1 is not finite"),
        ({1: (1.0, 2.0), 2: 3.0}, (0.0, 0.0), "the value of 2 has shape"),
        ({1: "stiff"}, 1.0, "the value of 1 is 'stiff': give real numbers"),
        ({1: np.eye(2)}, 1.0, "give real numbers, or vectors .* such as the entries of matrices"),
        ({1: np.eye(3)}, np.eye(3), r"the default is an array of shape \(3, 3\)"),
    ],
)
def test_what_makes_no_sense_is_refused(values, default, says):
    with pytest.raises(femops.errors.OperatorError, match=says):
        femops.by_attribute(MESHES["affine"], values, default)


def test_loads_of_fields():
    mesh = MESHES["curved"]
    V, W = femops.H1(mesh, 2), femops.H1(mesh, 2, ncomp=3)
    heat = femops.by_attribute(mesh, {"steel": 2.0}, default=0.0)
    values = np.where(mesh.element_attributes == 2, 2.0, 0.0)
    at_points = np.repeat(values[:, np.newaxis], 4**3, axis=1)
    np.testing.assert_allclose(femops.load(V, heat), femops.load(V, at_points), atol=1e-15)
    np.testing.assert_allclose(femops.load(W, heat), femops.load(W, at_points), atol=1e-15)
    flow = femops.GridFunction(W, W.interpolate(lambda x: (x[1], x[0], 1.0 + x[2])))
    by_function = femops.load(V, flux=lambda x: (x[1], x[0], 1.0 + x[2]))
    # positions are of the degree of the space: the field is the function
    np.testing.assert_allclose(femops.load(V, flux=flow), by_function, atol=1e-14)
    on_boundary = femops.boundary_load(V, femops.GridFunction(V, np.ones(V.size)))
    np.testing.assert_allclose(on_boundary, femops.boundary_load(V, 1.0), atol=1e-14)
    with pytest.raises(femops.errors.OperatorError, match="another mesh"):
        femops.load(femops.H1(MESHES["affine"], 2), heat)
