"""Preconditioners of operators on several fields, beside dense matrices, and Stokes flow."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spla

import femops
from femops.errors import ConvergenceWarning, SolverError
from support import fixtures
from support.cases.kernels import bend
from support.cases.products import stokes, three

one_thread = fixtures.one_thread

Array = np.ndarray


def flow(n: int, *, bent: bool = True) -> tuple[Any, Array]:
    """Stokes' equations for a lid that moves, and the right-hand side."""
    mesh = femops.box((n, n), mapping=bend if bent else None)
    V, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=V, p=Q)
    A = femops.form(stokes, W, mu=1.0).constrained(W.positions(u=V.boundary_dofs()))
    return A, A.rhs(W.join(u=femops.load(V, lambda x: (x[1] ** 2, -x[0]))))


def fields(A: Any, sign: float = 1.0) -> dict[str, Any]:
    """Multigrid for the velocity, and for the pressure's mass."""
    u, mass = A["u", "u"], femops.mass(A.space.spaces["p"])
    double = {"dtype": "float64"} if sign > 0.0 else {}  # for MINRES
    return {"u": femops.multigrid(u, **double), "p": sign * femops.multigrid(mass, **double)}


def matrix_of(M: Any) -> Array:
    return np.stack([M @ unit for unit in np.eye(M.shape[0])], axis=1)


def inverse_of(matrix: Any) -> Any:
    return np.linalg.inv(matrix)


# --- beside dense matrices ------------------------------------------------------------------------


def three_fields() -> tuple[Any, dict[str, Array]]:
    """An operator that is not symmetric, and dense inverses of what is like its diagonal blocks."""
    mesh = femops.box((2, 2), mapping=bend)
    V, Q, T = femops.H1(mesh, 2, ncomp=2), femops.L2(mesh, 1), femops.H1(mesh, 1)
    W = femops.Product(u=V, p=Q, t=T)
    A = femops.form(three, W, c=0.3, rate=2.0).constrained(W.positions(u=V.boundary_dofs()))
    rng = np.random.default_rng(1)
    parts = {
        name: rng.standard_normal((space.size, space.size)) for name, space in W.spaces.items()
    }
    return A, parts


def test_block_diagonal_is_the_matrix_of_its_parts() -> None:
    A, parts = three_fields()
    W = A.space
    M = femops.block_diagonal(W, **parts)
    expected = np.zeros(A.shape)
    for name, part in parts.items():
        expected[W.slice(name), W.slice(name)] = part
    np.testing.assert_allclose(matrix_of(M), expected, atol=1e-13)
    np.testing.assert_allclose(matrix_of(M.T), expected.T, atol=1e-13)
    x = np.random.default_rng(0).standard_normal((W.size, 3))
    np.testing.assert_allclose(M @ x, expected @ x, atol=1e-12)
    np.testing.assert_allclose(M.rmatvec(x[:, 0]), expected.T @ x[:, 0], atol=1e-12)
    np.testing.assert_allclose(M.H @ x, expected.T @ x, atol=1e-12)


@pytest.mark.parametrize("order", ["tpu", "put"])
def test_block_triangular_solves_in_the_order_of_its_arguments(order: str) -> None:
    """The parts are inverses of D; the whole is that of the triangle with D on its diagonal."""
    A, parts = three_fields()
    W, matrix = A.space, A.assemble().toarray()
    M = femops.block_triangular(A, **{name: parts[name] for name in order})
    triangle = np.zeros(A.shape)
    for k, test in enumerate(order):
        triangle[W.slice(test), W.slice(test)] = inverse_of(parts[test])
        for trial in order[:k]:
            triangle[W.slice(test), W.slice(trial)] = matrix[W.slice(test), W.slice(trial)]
    expected = inverse_of(triangle)
    limit = {"rtol": 0, "atol": 1e-10 * abs(expected).max()}
    np.testing.assert_allclose(matrix_of(M), expected, **limit)
    np.testing.assert_allclose(matrix_of(M.T), expected.T, **limit)
    np.testing.assert_allclose(matrix_of(copy.deepcopy(M)), expected, **limit)
    np.testing.assert_allclose(matrix_of(pickle.loads(pickle.dumps(M))), expected, **limit)
    assert not M.symmetric


def test_the_schur_complement_makes_gmres_end_after_two_steps() -> None:
    """Murphy, Golub and Wathen (2000): exact parts, of either triangle."""
    A, b = flow(3)
    W, matrix = A.space, A.assemble().toarray()
    u, p = W.slice("u"), W.slice("p")
    inverse = inverse_of(matrix[u, u])
    schur = -np.linalg.pinv(matrix[p, u] @ inverse @ matrix[u, p], rcond=1e-12)
    b[p] -= b[p].mean()
    for parts in ({"u": inverse, "p": schur}, {"p": schur, "u": inverse}):
        x, info = femops.gmres(A, b, M=femops.block_triangular(A, **parts), rtol=1e-10)
        assert info.converged
        assert info.iterations <= 3
        np.testing.assert_allclose(A @ x, b, rtol=0, atol=1e-9 * np.linalg.norm(b))
    x, info = femops.minres(A, b, M=femops.block_diagonal(W, u=inverse, p=-schur), rtol=1e-8)
    assert info.converged
    assert info.iterations <= 8


# --- Stokes flow ----------------------------------------------------------------------------------


def test_iterations_for_stokes_flow_do_not_grow_with_refinement() -> None:
    """Measured on 16, 32, 64 and 128 squares along a side: 17, 18, 19, 20 of GMRES, u then p."""
    counts: dict[str, list[int]] = {"minres": [], "lower": [], "upper": []}
    for n in (32, 64):
        A, b = flow(n, bent=False)
        W, positive, signed = A.space, fields(A), fields(A, -1.0)
        reverse = {name: signed[name] for name in ("p", "u")}
        solves: dict[str, tuple[Any, Any]] = {
            "minres": (femops.minres, femops.block_diagonal(W, **positive)),
            "lower": (femops.gmres, femops.block_triangular(A, **signed)),
            "upper": (femops.gmres, femops.block_triangular(A, **reverse)),
        }
        for name, (solver, M) in solves.items():
            x, info = solver(A, b, M=M, rtol=1e-8)
            assert info.converged
            np.testing.assert_allclose(A @ x, b, rtol=0, atol=1e-7 * np.linalg.norm(b))
            counts[name].append(info.iterations)
    for name, most in (("minres", 44), ("lower", 22), ("upper", 20)):
        assert counts[name][1] <= min(most, 1.1 * counts[name][0]), counts


def test_stokes_flow_beside_a_direct_solve() -> None:
    A, b = flow(5)
    W = A.space
    A = A.constrained(W.positions(p=[0]))
    b[W.positions(p=[0])] = 0.0
    direct = spla.spsolve(A.assemble().tocsc(), b)
    M = femops.block_diagonal(W, **fields(A))
    x, info = femops.minres(A, b, M=M, rtol=1e-11)
    assert info.converged
    np.testing.assert_allclose(x, direct, rtol=0, atol=1e-7 * abs(direct).max())
    x, info = femops.gmres(A, b, M=femops.block_triangular(A, **fields(A, -1.0)), rtol=1e-11)
    assert info.converged
    np.testing.assert_allclose(x, direct, rtol=0, atol=1e-7 * abs(direct).max())
    y, status = spla.minres(A, b, M=M, rtol=1e-11)
    assert status == 0
    np.testing.assert_allclose(y, direct, rtol=0, atol=1e-6 * abs(direct).max())


def test_conjugate_gradients_on_a_product() -> None:
    mesh = femops.box((6, 6), mapping=bend)
    W = femops.Product(a=femops.H1(mesh, 3), b=femops.H1(mesh, 2))

    def coupled(a: Any, b: Any) -> Any:
        return {
            "a": {"grad": a.grad, "value": a + 0.5 * b},
            "b": {"grad": 2.0 * b.grad, "value": b + 0.5 * a},
        }

    A = femops.form(coupled, W)
    b = W.interpolate(a=lambda x: np.sin(9.0 * x[0]), b=1.0)
    M = femops.block_diagonal(W, a=femops.multigrid(A["a", "a"]), b=femops.multigrid(A["b", "b"]))
    x, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert info.converged
    assert info.iterations < 15
    np.testing.assert_allclose(x, spla.spsolve(A.assemble().tocsc(), b), rtol=0, atol=1e-6)
    with pytest.warns(ConvergenceWarning, match=r"femops.block_diagonal\(W, ...\)"):
        femops.cg(A, b, rtol=1e-9, maxiter=2)


def test_float32() -> None:
    mesh = femops.box((6, 6))
    U, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=U, p=Q)
    A = femops.form(stokes, W, mu=1.0, dtype="float32")
    A = A.constrained(W.positions(u=U.boundary_dofs()))
    b = A.rhs(
        W.join(
            u=femops.load(U, lambda x: (x[1] ** 2, -x[0]), dtype="float32"), p=Q.zeros("float32")
        )
    )
    velocity, mass = femops.multigrid(A["u", "u"]), femops.mass(Q).diagonal()
    for solver, M in (
        (femops.minres, femops.block_diagonal(W, u=velocity, p=np.diag(1.0 / mass))),
        (femops.gmres, femops.block_triangular(A, u=velocity, p=np.diag(-1.0 / mass))),
    ):
        x, info = solver(A, b, M=M, rtol=1e-4)
        assert info.converged
        assert x.dtype == np.float32


# --- refusals -------------------------------------------------------------------------------------


def test_refusals() -> None:
    A, b = flow(3)
    W, parts = A.space, fields(A)
    M = femops.block_triangular(A, **parts)
    for call, words in (
        (lambda: femops.block_diagonal(W, u=parts["u"]), "needs one for 'p': give u=..., p=..."),
        (lambda: femops.block_diagonal(W, u=parts["u"], p=None), "needs one for 'p'"),
        (lambda: femops.block_triangular(A), "needs one for 'u'"),
        (lambda: femops.block_diagonal(W, **parts, q=parts["p"]), "has no field 'q'"),
        (lambda: femops.block_diagonal(W, u=parts["p"], p=parts["p"]), "u is 16 x 16, A 98 x 98"),
        (lambda: femops.block_diagonal(W, u=parts["u"], p=1.0), "p is 1.0: give femops.jacobi"),
        (lambda: femops.block_diagonal(A, **parts), "give a product, as femops.Product"),
        (lambda: femops.block_triangular(W, **parts), "give a femops operator"),
        (lambda: femops.block_triangular(A["u", "u"], u=parts["u"]), "has no blocks: give"),
        (lambda: femops.minres(A, b, M=M), "M is not symmetric, as minres needs"),
        (lambda: femops.multigrid(A), r"make it of a block, as A\['u', 'u'\]"),
        (
            lambda: femops.minres(A, b, M=femops.block_diagonal(W, **fields(A, -1.0))),
            "not to be positive definite",
        ),
    ):
        with pytest.raises(SolverError, match=words):
            call()  # type: ignore[no-untyped-call]
