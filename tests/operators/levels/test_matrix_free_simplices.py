"""Level matrix-free on triangles and tetrahedra: the geometry by tables, from modes of the maps."""

import numpy as np
import pytest

import femops
from femops.basis import PointRule, simplex_rule
from femops.errors import OperatorError
from femops.operators.levels.auto import measure_levels
from femops_meshes.coordinates.simplices import mirrored
from support.oracles import simplices as oracle
from support.simplex_meshes import MESHES, curved

DEGREES = [(dim, degree) for dim in (2, 3) for degree in range(1, 7)]


def error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def vector(space, seed=0):
    """Values over eight orders of magnitude."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(space.size) * 10.0 ** rng.uniform(-8, 0, space.size)


def everything(u, x):
    value = x[0] * u + u.grad[0]
    return {"value": value, "grad": (1 + x[-1] ** 2) * u.grad + u * np.ones(len(u.grad))}


@pytest.mark.parametrize(("dim", "degree"), DEGREES)
def test_maps_of_all_degrees_against_dense_sums(dim, degree):
    mesh = curved(dim, degree, n=1 if dim == 3 else 3)
    assert 0 < mirrored(mesh.coordinates).sum() < mesh.num_elements
    V = femops.H1(mesh, 2)
    u, rule = vector(V), simplex_rule(dim, 7)
    A = femops.form(everything, V, level="matrix-free", quadrature=rule)

    def dense(value, slope, x):
        first = x[:, :1] * value + slope[..., 0]
        return first, (1 + x[:, -1, None, None] ** 2) * slope + value[..., None]

    expected = oracle.product(V, dense, u, rule=(rule.points, rule.weights))
    assert error(A @ u, expected) < 1e-12  # by round-off of the oracle's monomials
    assert error(A @ u, A.at_level("full") @ u) < 5e-14
    assert error(A.T @ u, A.assemble().T @ u) < 5e-14
    assert error(A.diagonal(), A.assemble().diagonal()) < 5e-14
    assert A.cost().stored_bytes < 100 or degree == 1


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("dim", [2, 3])
def test_determinants_in_each_power(name, dim):
    """Of the weights alone, of cofactors, of both: for spaces that differ, and functions alone."""
    mesh = MESHES[name](dim)
    V, L = femops.H1(mesh, 3), femops.L2(mesh, 1)
    u, p = vector(V), vector(L, 1)
    for A, x in (
        (femops.mass(V, level="matrix-free"), u),
        (femops.convection(V, np.arange(1.0, dim + 1), level="matrix-free"), u),
        (femops.diffusion(V, level="matrix-free"), u),
        (femops.mass(L, lambda x: x[0] - 0.3, level="matrix-free"), p),
    ):
        assert error(A @ x, A.at_level("full") @ x) < 1e-13
        assert error(A.at_level("partial") @ x, A @ x) < 1e-13


@pytest.mark.parametrize("dim", [2, 3])
def test_fields_vectors_and_types(dim):
    mesh = curved(dim)
    W = femops.Product(u=femops.H1(mesh, 2, ncomp=dim), p=femops.H1(mesh, 1))

    def stokes(u, p):
        strain = u.grad - p * np.eye(dim)
        return {"u": {"grad": strain}, "p": {"value": np.trace(u.grad), "grad": p.grad}}

    w = vector(W)
    A = femops.form(stokes, W, level="matrix-free")
    assert error(A @ w, A.at_level("full") @ w) < 1e-13
    V = femops.H1(mesh, 2)
    X = np.stack([vector(V, seed) for seed in range(19)], axis=1)
    B = femops.form(everything, V, level="matrix-free")
    assert error(B @ X, B.at_level("full") @ X) < 1e-13
    single = femops.form(everything, V, level="matrix-free", dtype="float32")
    assert error(single @ X[:, 0].astype(np.float32), B @ X[:, 0]) < 1e-6
    F = femops.residual(lambda u: {"value": u**3, "grad": (1 + u**2) * u.grad}, V)
    J = F.jacobian(X[:, 0]).at_level("matrix-free")
    assert error(J @ X[:, 1], J.at_level("full") @ X[:, 1]) < 1e-13
    assert {"matrix-free", "partial"} & measure_levels(B.summands).keys()


def test_rules_of_points_on_cubes_are_refused_by_name():
    V = femops.H1(femops.box((2, 2)), 1)
    points, weights = np.stack(np.meshgrid([0.2, 0.8], [0.2, 0.8]), axis=-1), np.full(4, 0.25)
    rule = PointRule(points.reshape(4, 2), weights)
    with pytest.raises(OperatorError, match=r"rules of points.* on quadrilaterals"):
        femops.mass(V, quadrature=rule, level="matrix-free")
