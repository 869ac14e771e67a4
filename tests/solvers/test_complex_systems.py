"""Solves with complex operators against dense solves."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spla

import femops
from femops.errors import ConvergenceWarning, SolverError, VectorError
from support import fixtures
from support.cases.kernels import bend

one_thread = fixtures.one_thread

Array = np.ndarray
MESH = femops.box((4, 3), mapping=bend)
V = femops.H1(MESH, 3)
WALL = V.boundary_dofs()
DEFINITE = (femops.diffusion(V) + femops.mass(V, 40.0)).constrained(WALL)


def magnetic(u: Any, x: Any) -> Any:
    """Hermitian and positive definite."""
    potential = 3.0 * np.array([-x[1], x[0]])
    moved = u.grad - 1j * potential * u
    return {"grad": moved, "value": 1j * femops.inner(potential, moved) + u}


HERMITIAN = femops.form(magnetic, V, dtype=complex).constrained(WALL)


@cache
def damped() -> Any:
    """Neither Hermitian nor definite, with an absorbing wall."""

    def cells(u: Any) -> Any:
        return {"grad": u.grad, "value": -(60.0 + 5.0j) * u}

    def walls(u: Any) -> Any:
        return {"value": -8j * u}

    return femops.form({"cells": cells, "boundary": walls}, V, dtype=complex)


def random(seed: int = 0, *shape: int) -> Array:
    rng = np.random.default_rng(seed)
    shape = shape or (V.size,)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


@cache
def dense(A: Any) -> Array:
    matrix: Array = A.assemble().toarray()
    return matrix


def error(A: Any, x: Array, b: Array) -> float:
    exact = np.linalg.solve(dense(A), b)
    return float(abs(x - exact).max() / abs(exact).max())


class Matvec:
    """Preconditioner that has no `@`, as some of other libraries."""

    def __init__(self, diagonal: Array) -> None:
        self.diagonal, self.shape, self.dtype = diagonal, 2 * diagonal.shape, diagonal.dtype

    def matvec(self, r: Array) -> Array:
        return r / self.diagonal


PRECONDITIONERS = {
    "none": lambda A: None,
    "jacobi": femops.jacobi,
    "multigrid": lambda A: femops.multigrid(DEFINITE),
    "scipy": lambda A: spla.LinearOperator(A.shape, lambda r: r / A.diagonal(), dtype=complex),
    "matvec": lambda A: Matvec(A.diagonal()),
}


@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_gmres(name: str) -> None:
    A, b = damped(), random(1)
    M = PRECONDITIONERS[name](A)
    x, info = femops.gmres(A, b, M=M, rtol=1e-10, restart=200, history=True)
    assert info.converged
    assert error(A, x, b) < 1e-8
    assert abs(np.linalg.norm(b - A @ x) - info.residual) < 1e-12 * np.linalg.norm(b)
    if name == "multigrid":  # in float32, so a second round follows
        return
    # as many steps as in complex arithmetic, not those of a real system of twice the size
    norms: list[float] = []
    right = dense(A) if M is None else dense(A) / A.diagonal()
    report: Any = {"callback": norms.append, "callback_type": "pr_norm"}
    spla.gmres(right, b, rtol=1e-10, restart=200, **report)
    assert abs(info.iterations - len(norms)) <= 1


@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_hermitian(solver: Any, name: str) -> None:
    b = HERMITIAN.rhs(random(2), random(3))
    seen: list[Array] = []
    x, info = solver(
        HERMITIAN,
        b,
        random(4),
        M=PRECONDITIONERS[name](HERMITIAN),
        rtol=1e-11,
        callback=lambda x: seen.append(x.copy()),
    )
    assert info.converged
    assert error(HERMITIAN, x, b) < 1e-9
    assert np.allclose(seen[-1], x, atol=1e-8)
    assert seen[-1].dtype == complex


def test_multigrid_of_the_real_operator() -> None:
    x, info = femops.cg(HERMITIAN, random(5), M=femops.multigrid(HERMITIAN.real), rtol=1e-10)
    assert info.iterations < 12
    assert error(HERMITIAN, x, random(5)) < 1e-8


def test_restarts() -> None:
    A, b = damped(), random(6)
    x, info = femops.gmres(A, b, M=femops.jacobi(A), rtol=1e-8, restart=40)
    assert info.iterations > 40
    assert error(A, x, b) < 1e-5


def test_single_precision() -> None:
    A = femops.form(magnetic, V, dtype="complex64").constrained(WALL)
    b = random(7).astype("complex64")
    for solver in (femops.cg, femops.minres, femops.gmres):
        x, info = solver(A, b, rtol=1e-4)
        assert x.dtype == np.complex64
        assert info.converged
        assert error(HERMITIAN, x, b) < 1e-3


def test_many_right_hand_sides() -> None:
    B, X0 = random(8, V.size, 3), random(9, V.size, 3)
    for guess in (None, X0):
        X, info = femops.cg(HERMITIAN, B, guess, rtol=1e-11)
        assert info.converged
        assert X.shape == B.shape
        assert max(error(HERMITIAN, X[:, k], B[:, k]) for k in range(3)) < 1e-9


def test_scipy_takes_the_operator() -> None:
    A, b = damped(), random(10)
    x, failed = spla.gmres(A, b, M=femops.jacobi(A), rtol=1e-10, restart=200)
    assert not failed
    assert error(A, x, b) < 1e-8


def test_refused() -> None:
    A, b = damped(), random(11)
    nan = spla.LinearOperator(A.shape, lambda r: np.nan * r, dtype=complex)
    diagonal = np.diag(1.0 / A.diagonal())
    for words, call in (
        ("not Hermitian", lambda: femops.cg(A, b)),
        ("not Hermitian", lambda: femops.minres(A, b)),
        ("complex128 is needed", lambda: femops.gmres(A, b.real.copy())),
        ("entries", lambda: femops.gmres(A, b[:-1])),
        ("multigrid takes operators of real numbers", lambda: femops.multigrid(A)),
        ("M is 3 x 3", lambda: femops.gmres(A, b, M=np.eye(3))),
        ("not finite", lambda: femops.gmres(A, np.where(np.arange(V.size) == 3, np.nan, b))),
        ("products with M are not finite", lambda: femops.gmres(A, b, M=nan)),
        ("type complex128", lambda: femops.cg(DEFINITE, b.real.copy(), M=diagonal)),
        ("M is not symmetric", lambda: femops.cg(HERMITIAN, b, M=femops.jacobi(A))),
        ("M is not symmetric", lambda: femops.cg(HERMITIAN, b, M=A)),
    ):
        with pytest.raises((SolverError, VectorError), match=words):
            call()
    with pytest.warns(ConvergenceWarning, match=r"femops\.gmres has not converged"):
        femops.gmres(A, b, maxiter=3)


def test_a_preconditioner_may_write_into_its_argument() -> None:
    def doubled(r: Array) -> Array:
        r *= 2.0
        return r

    A, b = damped(), random(13)
    M = spla.LinearOperator(A.shape, doubled, dtype=complex)
    x, info = femops.gmres(A, b, M=M, rtol=1e-10, restart=200)
    assert info.converged
    assert error(A, x, b) < 1e-8
    real = spla.LinearOperator(A.shape, doubled, dtype=float)
    x, info = femops.gmres(DEFINITE, DEFINITE.rhs(b.real.copy()), M=real, restart=200)
    assert info.converged


def test_messages_have_the_sizes_of_complex_vectors() -> None:
    A, n = damped(), V.size
    rectangular = femops.form(lambda u: {"value": 1j * u}, V, femops.H1(MESH, 2), dtype=complex)
    with pytest.raises(SolverError, match=r"^ComplexOperator.* goes from one space to another"):
        femops.gmres(rectangular, random())
    with pytest.raises(VectorError, match=rf"b has {n + 1} entries, the space has {n}"):
        femops.gmres(A, random(0, n + 1))
    with pytest.raises(VectorError, match=rf"b has \({n}, 3\), x0 \({n}, 2\)"):
        femops.cg(HERMITIAN, random(0, n, 3), random(0, n, 2))
    with pytest.raises(VectorError, match="a MultiVector is no array"):
        femops.cg(HERMITIAN, femops.MultiVector.zeros(V, 3, dtype=complex))


def test_jacobi() -> None:
    A = damped()
    M = femops.jacobi(A)
    r = random(12)
    assert np.allclose(M @ r, r / A.diagonal(), rtol=1e-14)
    assert femops.jacobi(HERMITIAN).dtype == float
    held = A.eliminated(WALL, WALL)
    assert not (femops.jacobi(held) @ r)[WALL].any()
