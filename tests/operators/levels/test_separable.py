"""Boxes with constant coefficients: element matrices by 1-D mass and stiffness matrices."""

import pickle

import numpy as np
import pytest

import femops
from support.cases.kernels import bend, kernels, random_vector, shear, smooth, turned
from support.cases.levels import convection, diffusion, elasticity, mass
from support.oracles.forms import AtPoints, FormOracle

TOLERANCE = {"float64": 1e-13, "float32": 1e-5}
TENSOR = np.array([[2.0, 0.5], [0.5, 1.0]])


def stretched(x):
    """A box of uneven elements."""
    return x + 0.3 * x**2


def separable(A):
    return kernels(A) == ["SeparableKernel"]


def check(A, dense):
    u = random_vector(A.space, str(A.dtype))
    assert dense.error(A.apply(u), u) < TOLERANCE[str(A.dtype)]


@pytest.mark.parametrize(
    ("dim", "order", "ncomp", "dtype", "q1d", "level"),
    [
        (1, 4, 2, "float64", 6, "matrix-free"),
        (2, 3, 3, "float64", 4, "partial"),
        (3, 1, 2, "float64", 3, "matrix-free"),
        (3, 2, 1, "float32", 5, "partial"),
    ],
)
def test_mass_diffusion_and_their_sum(dim, order, ncomp, dtype, q1d, level):
    mesh = turned(femops.box((5, 3, 1)[:dim], mapping=stretched))
    V = femops.H1(mesh, order, ncomp=ncomp)
    oracle = FormOracle.of(V, q1d=q1d)
    options = {"quadrature": q1d, "dtype": dtype, "level": level}
    M, K = femops.mass(V, 3.0, **options), femops.diffusion(V, 0.5, **options)
    m, k = oracle.matrix(mass, c=3.0), oracle.matrix(diffusion, c=0.5)
    for A, dense in ((M, m), (K, k), (2.0 * K - 0.25 * M, 2.0 * k + (-0.25) * m)):
        assert separable(A)
        check(A, dense)
        held = np.arange(0, V.size, 3)
        fixed = dense.eliminated(held, held)
        fixed.matrix[held, held] = 1.0
        check(A.constrained(held), fixed)


def test_collocated_points():
    """With the nodes as points the mass matrix is diagonal, and done as such."""
    V = femops.H1(femops.box((3, 2)), 4)
    rule = femops.basis.lobatto(5)
    A = femops.diffusion(V, quadrature=rule) + femops.mass(V, quadrature=rule)
    oracle = FormOracle.of(V, rule_name="lobatto", q1d=5)
    assert separable(A)
    check(A, oracle.matrix(diffusion, c=1.0) + oracle.matrix(mass, c=1.0))


def test_between_spaces_of_different_orders():
    mesh = femops.box((3, 2), mapping=stretched)
    V, W = femops.H1(mesh, 3), femops.L2(mesh, 1)
    A = femops.form(mass, V, test=W, c=2.0)
    dense = FormOracle.of(V, W).matrix(mass, c=2.0)
    assert separable(A)
    check(A, dense)
    u = random_vector(W, "float64")
    assert dense.T.error(A.T.apply(u), u) < 1e-13


def test_materials():
    """What is constant in each element need not be the same in all."""
    box = femops.box((4, 3), mapping=stretched)
    mesh = box.with_attributes(1 + (box.element_centers()[:, 0] > 0.5))
    V = femops.H1(mesh, 2)
    A = femops.diffusion(V, femops.by_attribute(mesh, {1: 1.0, 2: 100.0}))
    values = np.where(mesh.element_attributes == 1, 1.0, 100.0)
    assert separable(A)
    oracle = FormOracle.of(V)
    check(A, oracle.matrix(diffusion, c=AtPoints(np.repeat(values[:, None], 16, axis=1))))


def outflow(u, c):
    """Values times derivatives of test functions."""
    return {"grad": np.multiply.outer(u, c) if np.ndim(u) else u * c}


def outflow_and_mass(u, c):
    return {"value": 0.5 * u, **outflow(u, c)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", [convection, outflow, outflow_and_mass])
@pytest.mark.parametrize(
    ("dim", "orders", "ncomp", "q1d"), [(1, (3, 3), 1, 4), (2, (2, 4), 2, 5), (3, (3, 3), 1, 5)]
)
def test_convection_on_parallelepipeds(form, dim, orders, ncomp, q1d):
    """Values meet derivatives of one of the two functions; elements may be sheared."""
    mesh = turned(femops.box((5, 3, 2)[:dim], mapping=shear if dim > 1 else stretched))
    wind = np.array([1.0, -2.0, 3.0])[:dim]
    V, W = (femops.L2(mesh, order, ncomp=ncomp) for order in orders)
    A = femops.form(form, V, test=W, c=wind, quadrature=q1d)
    dense = FormOracle.of(V, W, q1d=q1d).matrix(form, c=wind)
    assert separable(A)
    check(A, dense)
    u = random_vector(W, "float64")
    assert dense.T.error(A.T.apply(u), u) < 1e-13
    many = A @ np.multiply.outer(random_vector(V, "float64"), np.arange(1.0, 12.0))
    np.testing.assert_allclose(many, np.outer(many[:, 0], np.arange(1.0, 12.0)), rtol=1e-12)
    if V is W:
        np.testing.assert_allclose(A.diagonal(), np.diag(dense.matrix), atol=1e-13)


def test_other_forms_and_elements_are_not_taken_for_it():
    box, sheared = femops.box((4, 3)), femops.box((4, 3), mapping=shear)
    V, W, S = femops.H1(box, 2), femops.H1(box, 2, ncomp=2), femops.H1(sheared, 2)
    wind = np.array([1.0, 2.0])
    cases = [
        (
            femops.convection(V, wind) + femops.diffusion(V),
            FormOracle.of(V).matrix(convection, c=wind) + FormOracle.of(V).matrix(diffusion, c=1.0),
        ),
        (
            femops.form(lambda u, b: {"grad": np.outer(u[::-1], b)}, W, b=wind),
            FormOracle.of(W).matrix(lambda u, c: {"grad": np.outer(u[::-1], c)}, c=wind),
        ),
        (
            femops.elasticity(W, mu=1.0, lam=2.0),
            FormOracle.of(W).matrix(elasticity, c=1.0, lam=2.0),
        ),
        (femops.mass(V, smooth), FormOracle.of(V).matrix(mass, c=smooth)),
        (femops.diffusion(S), FormOracle.of(S).matrix(diffusion, c=1.0)),
    ]
    for A, dense in cases:
        assert not separable(A)
        check(A, dense)
    bent = femops.mass(femops.H1(femops.box((4, 3), mapping=bend), 2))
    assert not separable(bent)
    assert separable(femops.mass(S))  # one number an element, whatever its shape


def test_update_changes_the_kernel_if_it_must():
    """A tensor along the axes is separable, another one is not."""
    V = femops.H1(femops.box((4, 3), mapping=stretched), 2)
    matrix = FormOracle.of(V).matrix
    A = femops.diffusion(V, kappa=np.eye(2))
    for kappa in (TENSOR, np.diag([2.0, 0.5])):
        A, dense = A.update(kappa=kappa), matrix(lambda u, c: {"grad": c @ u.grad}, c=kappa)
        assert separable(A) == (kappa is not TENSOR)
        check(A, dense)
        check(pickle.loads(pickle.dumps(A)), dense)


def test_counts_less_work_than_points_take():
    """By lines: 3 + 3 + 4 contractions of 5 nodes per direction, against lines of 6 points."""
    box, sheared = (
        femops.diffusion(femops.H1(femops.box((2, 2, 2), mapping=m), 4)) for m in (None, shear)
    )
    assert separable(box)
    assert not separable(sheared)
    even, n = 13 * 2 - 5 + 8, 5  # even-odd: 13 products, of them 5 without a sum; 8 sums
    lines = n * n * (2 * even + n) + n * n * (3 * even + 2 * n) + n * n * (2 * even + 2 * n)
    assert box.cost().flops == 8 * lines
    assert 2 * box.cost().flops < sheared.cost().flops
    assert box.cost().stored_bytes == 8 * 3 * 8
