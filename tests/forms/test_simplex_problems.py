"""Whole problems on triangles and tetrahedra with exact solutions: what users write."""

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import femops
from support.simplex_meshes import SIMPLEX_MESHES, renumbered

NAMES = ["curved triangles", "tetrahedra", "curved tetrahedra"]


@pytest.mark.parametrize("name", NAMES)
def test_boundary_forms_and_functionals(name):
    """By the divergence theorem, with the normals of curved and mirrored elements."""
    mesh = SIMPLEX_MESHES[name]()
    V = femops.H1(mesh, 2)
    one, x = np.ones(V.size), V.interpolate(lambda x: x[0])
    A = femops.form(lambda u, n: {"value": u * n[0]}, V, boundary="all")
    assert one @ (A @ x) == pytest.approx(mesh.volume())
    assert abs(one @ (A @ one)) < 1e-12
    J = femops.functional(lambda u, n: u**2 * n[0], V, boundary="all")
    due = femops.functional(lambda u: 2 * u, V)(x)
    assert J(x) == pytest.approx(due)
    F = femops.residual(lambda u: {"value": u**3}, V, boundary="all")
    np.testing.assert_allclose(
        F.jacobian(2 * one) @ x, 12 * (femops.boundary_mass(V) @ x), atol=1e-13
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "rtol"), [("complex128", 1e-12), ("complex64", 1e-5)])
def test_complex_operators(name, dtype, rtol):
    """Beside real operators of both parts."""
    V = femops.H1(SIMPLEX_MESHES[name](), 2)
    A = femops.form(
        {
            "cells": lambda u, k2: {"grad": u.grad, "value": -k2 * u},
            "boundary": lambda u, k: {"value": -1j * k * u},
        },
        V,
        boundary="all",
        dtype=dtype,
        k2=lambda x: 8.0 + 2.0j * x[0],
        k=9.0,
    )
    rng = np.random.default_rng(0)
    u = (rng.standard_normal(V.size) + 1j * rng.standard_normal(V.size)).astype(dtype)
    X = femops.form(lambda u: {"value": u}, V, boundary="all")
    re = femops.diffusion(V) - femops.form(lambda u, x: {"value": 8.0 * u}, V)
    im = femops.form(lambda u, x: {"value": x[0] * u}, V)
    real, imag = (np.ascontiguousarray(part, dtype=np.float64) for part in (u.real, u.imag))

    def times(v, w):
        return re @ v + 2 * (im @ w) + 9 * (X @ w), re @ w - 2 * (im @ v) - 9 * (X @ v)

    due = times(real, imag)
    scale = np.abs(due).max()
    np.testing.assert_allclose(A @ u, due[0] + 1j * due[1], atol=rtol * scale)
    np.testing.assert_allclose(A.assemble() @ u, A @ u, atol=rtol * scale)


@pytest.mark.parametrize("name", ["triangles", "tetrahedra"])
def test_stokes_with_taylor_hood(name):
    """Velocities of degree 2 and pressures of degree 1 are exact: u = (y², -x², ..), p = x - y."""
    mesh = SIMPLEX_MESHES[name]()
    dim = mesh.dim
    flow = femops.Product(u=femops.H1(mesh, 2, ncomp=dim), p=femops.H1(mesh, 1))
    S = femops.form(
        lambda u, p: {"u": {"grad": u.grad - p * np.eye(dim)}, "p": {"value": -u.div}}, flow
    )
    exact = flow.interpolate(
        u=lambda x: [x[1] ** 2, -(x[0] ** 2), *(0 * x[2:])], p=lambda x: x[0] - x[1] + 0.3
    )
    # -laplace(u) + grad p
    force = femops.load(flow.spaces["u"], lambda x: [-1 + 0 * x[0], 1 + 0 * x[0], *(0 * x[2:])])
    load = np.concatenate([force, np.zeros(flow.spaces["p"].size)])
    held = np.concatenate([flow.spaces["u"].boundary_dofs(), [flow.spaces["u"].size]])
    A = S.constrained(held)
    found = spsolve(A.assemble().tocsc(), A.rhs(load, exact))
    np.testing.assert_allclose(found, exact, atol=1e-10)
    u, info = femops.minres(A, A.rhs(load, exact), rtol=1e-12)
    assert info.converged
    np.testing.assert_allclose(u, exact, atol=1e-7)


def test_eigenvalues_of_the_unit_square():
    mesh = renumbered(femops.box((4, 4)).simplices())
    V = femops.H1(mesh, 5)
    A, B = (kind(V).constrained(V.boundary_dofs()) for kind in (femops.diffusion, femops.mass))
    found = femops.eigen.lobpcg(A, B, 4, preconditioner=femops.multigrid(A))
    due = np.pi**2 * np.array([2.0, 5.0, 5.0, 8.0])
    np.testing.assert_allclose(found.values, due, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_runge_kutta_with_a_mass_matrix(name):
    """A field that grows alike everywhere: du/dt = -u, and its heat is kept by diffusion."""
    V = femops.H1(SIMPLEX_MESHES[name](), 2)
    M, A = femops.mass(V), femops.diffusion(V)
    P = femops.jacobi(M)

    def slope(t, u):
        return femops.cg(M, -(M @ u) - 1e-3 * (A @ u), M=P, rtol=1e-13)[0]

    start = V.interpolate(lambda x: 2.0)
    end = femops.runge_kutta(slope, start, end=0.5, dt=0.05)
    np.testing.assert_allclose(end, 2 * np.exp(-0.5), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_float32_and_many_vectors(name):
    V = femops.H1(SIMPLEX_MESHES[name](), 3)
    X = np.random.default_rng(0).standard_normal((V.size, 9))
    for make in (femops.mass, femops.diffusion):
        A, B = make(V), make(V, dtype=np.float32)
        due = np.stack([A @ x for x in X.T.copy()], axis=1)
        scale = np.abs(due).max()
        np.testing.assert_allclose(A @ X, due, atol=1e-13 * scale)
        panels = A @ femops.MultiVector.from_columns(V, X)
        np.testing.assert_allclose(panels.columns(), due, atol=1e-13 * scale)
        np.testing.assert_allclose(B @ X.astype(np.float32), due, atol=3e-6 * scale)


def test_laws_of_numba():
    pytest.importorskip("numba", reason="needs the extra numba")
    import femops.numba

    @femops.numba.law
    def halved(s):
        while s > 0.1:
            s = 0.5 * s
        return s * s

    V = femops.H1(SIMPLEX_MESHES["curved triangles"](), 2)
    u = V.interpolate(lambda x: 0.2 + x[0])

    def plain(s):
        while s > 0.1:
            s = 0.5 * s
        return s * s

    J = femops.functional(lambda u: 2.0 * halved(u), V)
    rule = V.quadrature()
    geometry = femops.functional(
        lambda u, w: w * u, V, w=2.0 * np.vectorize(plain)(V.values(u, rule))
    )
    assert J(u) == pytest.approx(geometry(np.ones(V.size)))
