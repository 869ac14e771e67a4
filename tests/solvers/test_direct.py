"""Factors as preconditioners: exact, of singular and of unsymmetric matrices too."""

import copy
import pickle

import numpy as np
import pytest

import femops
from femops.errors import SolverError


def navier_stokes(u, p, nu):
    momentum = {"value": u.grad @ u.value, "grad": nu * u.grad - p * np.eye(2)}
    return {"u": momentum, "p": {"value": -u.div}}


def flow(ends=None, nu=0.05):
    """Jacobian of flow with inertia, whose pressure has a free constant unless an end is open."""
    mesh = femops.box((5, 4)).mapped(lambda x: (x[0] + 0.1 * x[1] ** 2, x[1]), order=2)
    U, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=U, p=Q)

    F = femops.residual(navier_stokes, W, nu=nu).constrained(W.positions(u=U.boundary_dofs(ends)))
    return F.jacobian(W.interpolate(u=lambda x: (x[1], x[0] * x[1])))


@pytest.mark.parametrize("ends", [None, [1, 2, 3]])
def test_solves_are_exact(ends):
    J = flow(ends)
    M = femops.direct(J)
    assert M.null == (("constants of p",) if ends is None else ())
    dense, rng = J.assemble().toarray(), np.random.default_rng(0)
    for A, inverse in ((dense, M), (dense.T, M.T)):
        b = A @ rng.standard_normal(len(A))
        assert np.linalg.norm(A @ (inverse @ b) - b) < 1e-12 * np.linalg.norm(b)
    if ends is not None:
        assert np.allclose(M @ b, np.linalg.solve(dense, b), atol=1e-10 * abs(b).max())
    same = pickle.loads(pickle.dumps(M)), copy.deepcopy(M)
    assert all(np.array_equal(other @ b, M @ b) for other in same)
    _x, info = femops.gmres(J, dense @ np.ones(len(dense)), M="direct", rtol=1e-12)
    assert info.converged
    assert info.iterations <= 2


def test_rigid_motions_are_left_out():
    V = femops.H1(femops.box((3, 2)), 2, ncomp=2)
    A = femops.elasticity(V, 1.0, 1.0)
    M = femops.direct(A)
    assert len(M.null) == 3
    assert M.symmetric
    assert "rotations" in repr(M)
    b = A @ np.random.default_rng(1).standard_normal(V.size)
    assert np.linalg.norm(A @ (M @ b) - b) < 1e-11 * np.linalg.norm(b)


def test_a_field_without_equation_is_told():
    V = femops.H1(femops.box((2, 2)), 1)
    W = femops.Product(u=V, p=V)
    A = femops.form(lambda u, p: {"u": {"value": u, "grad": u.grad}, "p": {}}, W)
    with pytest.raises(SolverError, match=r"singular, and has no factors: no equation has 'p'"):
        femops.direct(A)


def test_rectangular_operators_are_refused():
    mesh = femops.box((2, 2))
    A = femops.form(lambda u: {"value": u}, femops.H1(mesh, 2), test=femops.H1(mesh, 1))
    with pytest.raises(SolverError, match="from one space to another"):
        femops.direct(A)
    with pytest.raises(SolverError, match="from one space to another"):
        femops.preconditioner(A)


def test_bodies_on_meshes_of_several_shapes():
    """Advice on a failed solve looked for a restriction of the whole space."""
    V = femops.H1(femops.box((2, 2, 1), cells="prisms"), 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs([1]))
    M = femops.direct(A)
    b = A @ np.random.default_rng(0).standard_normal(V.size)
    assert M.null == ()
    assert np.linalg.norm(A @ (M @ b) - b) < 1e-12 * np.linalg.norm(b)
