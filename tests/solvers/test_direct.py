"""Factors as preconditioners: exact, of singular and of unsymmetric matrices too."""

import copy
import pickle

import numpy as np
import pytest
from numpy.linalg import matrix_rank, norm, pinv

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
    with pytest.raises(SolverError, match="9 rows are zero, as no equation has 'p'"):
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


def two_squares():
    """Two bodies that do not touch: a square of two elements, and one beside it."""
    x = [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1], [4, 0], [5, 0], [4, 1], [5, 1]]
    corners = [[0, 1, 2, 3], [1, 4, 3, 5], [6, 7, 8, 9]]
    return femops.Mesh.from_arrays(np.array(x, float), np.array(corners))


def test_each_body_has_its_own_null_vectors():
    mesh = two_squares()
    V, U = femops.H1(mesh, 2), femops.H1(mesh, 2, ncomp=2)
    left = np.flatnonzero(V.dof_coordinates()[:, 0] < 1e-9)
    cases = {
        "constants in each of 2 bodies": femops.diffusion(V),
        "constants in 1 of 2 bodies": femops.diffusion(V).constrained(left),
        "rotations in each of 2 bodies": femops.elasticity(U, 1.0, 1.0),
        "constants of component 0 in 1 of 2 bodies": femops.elasticity(U, 1.0, 1.0).constrained(
            np.concatenate([2 * left, 2 * left + 1])
        ),
    }
    for name, A in cases.items():
        M = femops.direct(A)
        assert name in M.null
        inverse = pinv(A.assemble().toarray())
        assert norm(M @ np.eye(len(inverse)) - inverse) < 1e-10 * norm(inverse)


def carried(u):
    return {"value": u.grad[0], "grad": 0.1 * u.grad}


def exchange(a, b):
    return {"a": {"grad": a.grad, "value": a - 2 * b}, "b": {"grad": b.grad, "value": 2 * b - a}}


def stokes(u, p, nu):
    return {"u": {"grad": nu * u.grad - p * np.eye(2)}, "p": {"value": -u.div}}


def test_vectors_of_unknown_shape_are_found():
    """Left null vectors that are no constants, combinations of fields, and checkerboards."""
    mesh = femops.box((4, 4))
    V, U, P = femops.H1(mesh, 2), femops.H1(mesh, 1, ncomp=2), femops.L2(mesh, 0)
    R, W = femops.Product(a=V, b=V), femops.Product(u=U, p=P)
    checkers = femops.form(stokes, W, nu=1.0).constrained(W.positions(u=U.boundary_dofs()))
    for A, null in (
        (femops.form(carried, V), ("constants",)),
        (femops.form(exchange, R), ("constants of a with constants of b",)),
        (checkers, ("constants of p", "another vector, mostly of p")),
    ):
        M, dense = femops.direct(A), A.assemble().toarray()
        assert M.null == null
        assert matrix_rank(dense) == len(dense) - len(null)
        b = dense @ np.random.default_rng(0).standard_normal(len(dense))
        assert norm(dense @ (M @ b) - b) < 1e-12 * norm(b)
        _x, info = femops.gmres(A, b, M=M, rtol=1e-10)
        assert info.converged
        assert info.iterations == 1


@pytest.mark.parametrize("nu", [1e-21, 1e21])
def test_units_do_not_matter(nu):
    """Factors without scaling took minutes of larger problems, and pressures for null vectors."""
    W, held = (space := flow_space()), space.positions(u=space.spaces["u"].boundary_dofs())
    A = femops.form(stokes, W, nu=nu).constrained(held)
    M, same = femops.direct(A), femops.direct(femops.form(stokes, W, nu=1.0).constrained(held))
    assert M.null == ("constants of p",)
    assert M.stored_bytes < 1.1 * same.stored_bytes
    b = W.join(u=femops.load(W.spaces["u"], lambda x: (x[1] ** 2, -x[0])))
    b[held] = 0.0
    (u, p), (v, q) = W.split(M @ b), W.split(same @ b)
    assert norm(nu * u - v) < 1e-9 * norm(v)
    assert norm(p - q) < 1e-9 * norm(q)


def flow_space():
    mesh = femops.box((4, 4))
    return femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.H1(mesh, 1))


def test_any_numbers_and_eliminated_dofs():
    V = femops.H1(femops.box((4, 4)), 2)
    x = np.random.default_rng(0).standard_normal(V.size)
    for factor in (1e-200, 1e200):
        A = factor * femops.mass(V)
        assert norm(femops.direct(A) @ (A @ x) - x) < 1e-12 * norm(x)
    A = femops.diffusion(V).eliminated(V.boundary_dofs(), V.boundary_dofs())
    inverse = pinv(A.assemble().toarray())
    assert norm(femops.direct(A) @ np.eye(V.size) - inverse) < 1e-12 * norm(inverse)
