"""Conjugate gradients for many right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import femops
from femops.errors import ConvergenceWarning, SolverError, VectorError
from femops.solvers import Info
from support.cases.kernels import bend, smooth
from support.cuda import guarded

DRIVER: Any = import_module("femops.solvers.cg")  # `femops.solvers.cg` is the function

device = guarded.small_device
MESH = femops.box((4, 3), order=2, mapping=bend)


def operator(device: Any = None, dtype: str = "float64") -> Any:
    V = femops.H1(MESH, 3, device=device)
    A = femops.diffusion(V, smooth, dtype=dtype) + femops.mass(V, dtype=dtype)
    return A.constrained(V.boundary_dofs([1]))


A = operator()
MATRIX = A.assemble().toarray()
ROWS = A.shape[0]


def noise(columns: int, seed: int = 0) -> Any:
    B = np.random.default_rng(seed).standard_normal((ROWS, columns))
    B[A.constrained_dofs] = 0.0
    return B


PRECONDITIONERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda A: None,
    "Jacobi's": femops.jacobi,
    "SciPy's": lambda A: aslinearoperator(np.diag(1.0 / np.diag(MATRIX))),
    "multigrid": femops.multigrid,
}


@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_solutions(name: str) -> None:
    B, M = noise(5), PRECONDITIONERS[name](A)
    before = B.copy()
    X, info = femops.cg(A, B, M=M, rtol=1e-11)
    np.testing.assert_array_equal(B, before)
    assert info.converged
    np.testing.assert_allclose(X, np.linalg.solve(MATRIX, B), rtol=0, atol=1e-9 * abs(X).max())
    alone = [femops.cg(A, B[:, j].copy(), M=M, rtol=1e-11)[1].iterations for j in range(5)]
    assert info.iterations <= max(alone)
    again, none = femops.cg(A, B, X, M=M, rtol=1e-9)
    assert none.iterations == 0
    np.testing.assert_array_equal(again, X)


@settings(max_examples=6, deadline=None)
@given(
    exponents=st.lists(st.integers(-140, 140), min_size=2, max_size=6),
    seed=st.integers(0, 1000),
)
def test_columns_of_all_sizes_and_dependent_ones(exponents: list[int], seed: int) -> None:
    B = noise(len(exponents), seed) * 10.0 ** np.array(exponents)
    B = np.concatenate([B, np.zeros((ROWS, 1)), -3.0 * B[:, :1], B[:, :1] + B[:, 1:2]], axis=1)
    X, info = femops.cg(A, B, M=femops.jacobi(A), rtol=1e-9)
    assert info.converged
    sizes = np.linalg.norm(B, axis=0)
    off = np.linalg.norm(MATRIX @ X - B, axis=0)
    assert (off <= 1e-8 * sizes).all()


def test_columns_that_are_close_in_float32() -> None:
    """Their difference is more than the round-off of that type, its square is less."""
    V = femops.L2(femops.box((5, 6)), 2, family="gll")
    mass = femops.mass(V, dtype="float32")
    for seed in range(12):
        one, other = np.random.default_rng(seed).standard_normal((2, V.size))
        B = np.stack([one, one + 1e-4 * other], axis=1).astype("float32")
        X, info = femops.cg(mass, B, M=femops.jacobi(mass), rtol=1e-5)
        assert info.converged
        np.testing.assert_allclose(mass @ X, B, rtol=0, atol=2e-4)


@pytest.mark.parametrize("values", [0.0, 2.0, "x"])
def test_right_hand_sides_with_essential_values(device: Any, values: Any) -> None:
    for where, put in ((None, np.array), (device, device.upload)):
        B, V = operator(where), femops.H1(MESH, 3, device=where)
        loads = np.random.default_rng(1).random((ROWS, 3))
        g = put(femops.H1(MESH, 3).interpolate(lambda x: x[0])) if values == "x" else values
        many = B.rhs(put(loads), g)
        for j in range(3):
            alone = B.rhs(put(loads[:, j].copy()), g)
            np.testing.assert_array_equal(V.memory.get(many[:, j]), V.memory.get(alone))
    with pytest.raises(VectorError, match="the load is not finite"):
        A.rhs(np.full((ROWS, 2), np.inf))


def test_many_columns_are_solved_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, solve = [], DRIVER.solve_block

    def counted(problems: Any, watch: Any) -> Any:
        sizes.append(len(problems))
        return solve(problems, watch)

    monkeypatch.setattr(DRIVER, "solve_block", counted)
    B = noise(37)
    X, info = femops.cg(A, B, M=femops.jacobi(A), rtol=1e-11)
    assert info.converged
    assert sizes == [12, 12, 13]  # no lone column, which would take far longer
    np.testing.assert_allclose(X, np.linalg.solve(MATRIX, B), rtol=0, atol=1e-9 * abs(X).max())


def test_the_report() -> None:
    B, seen = noise(3), []
    report: Any = {"history": True, "progress": lambda *given: seen.append(given)}
    X, info = femops.cg(A, B, rtol=1e-6, **report)
    off, bounds = np.linalg.norm(B - A @ X, axis=0), 1e-6 * np.linalg.norm(B, axis=0)
    far = np.argmax(off / bounds)
    assert (info.residual, info.tolerance) == pytest.approx((off[far], bounds[far]), rel=1e-6)
    assert len(info.residuals) == info.iterations + 1
    assert seen[-1][0] == info.iterations
    with pytest.warns(ConvergenceWarning, match="after 3 iterations"):
        _, info = femops.cg(A, B, rtol=1e-9, maxiter=3)
    assert not info.converged
    assert info.iterations == 3
    assert femops.cg(A, B, rtol=0.0, atol=1e-5, warn=False)[1].tolerance == 1e-5
    X, info = femops.cg(A, B, rtol=0.0, warn=False)  # it ends
    np.testing.assert_allclose(X, np.linalg.solve(MATRIX, B), rtol=0, atol=1e-12 * abs(X).max())


def test_one_iteration_too_few_has_not_converged() -> None:
    """Only round-off may leave a residual above the tolerance."""
    B = noise(3)
    _, info = femops.cg(A, B, rtol=1e-6)
    with pytest.warns(ConvergenceWarning, match="or a larger maxiter"):
        _, less = femops.cg(A, B, rtol=1e-6, maxiter=info.iterations - 1)
    assert not less.converged
    assert 1.0 < less.residual / less.tolerance < 10.0


@pytest.mark.parametrize("make", [femops.jacobi, femops.multigrid])
def test_many_columns_warn_once(make: Any) -> None:
    B = noise(18) * np.where(np.arange(18) == 17, 0.0, 1.0)
    with pytest.warns(ConvergenceWarning, match="after 1 iterations") as warned:
        femops.cg(A, B, M=make(A), rtol=1e-9, maxiter=1)
    assert [one.filename for one in warned] == [__file__]


def test_columns_solved_one_by_one_have_converged_if_all_have(monkeypatch: Any) -> None:
    """One ends with round-off above its tolerance, the other at the limit."""
    infos = iter([Info(True, 5, 3.0, 1.0), Info(False, 9, 2.0, 1.0)])
    monkeypatch.setattr(DRIVER.Driver, "solve", lambda _, given, *__: (given.right, next(infos)))
    _, info = femops.cg(A, noise(2), M=femops.multigrid(A), warn=False)
    assert (info.converged, info.iterations, info.residual) == (False, 9, 2.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_on_a_device(device: Any, dtype: str) -> None:
    there, here = operator(device, dtype), operator(None, dtype)
    B = noise(4).astype(dtype) * (1e-30 if dtype == "float32" else 1.0)
    rtol = 1e-5 if dtype == "float32" else 1e-10
    X, info = femops.cg(there, device.upload(B), M=femops.jacobi(there), rtol=rtol)
    Y, expected = femops.cg(here, B, M=femops.jacobi(here), rtol=rtol)
    assert info.converged
    assert abs(info.iterations - expected.iterations) <= 1
    np.testing.assert_allclose(X.get(), Y, rtol=0, atol=1e3 * rtol * abs(Y).max())


def test_what_is_refused() -> None:
    for B, options, message in (
        (noise(2), {"merged": True}, "leave out callback, merged"),
        (noise(2), {"callback": print}, "leave out callback, merged"),
        (noise(0), {}, "no columns"),
        (noise(2), {"x0": noise(3)}, r"x0 \(130, 3\)"),
        (noise(2)[1:], {}, "has 129 entries"),
        (noise(2).astype("float32"), {}, "type float32"),
        (noise(2) * np.array([1.0, np.nan]), {}, "not finite"),
        (noise(2) * np.array([1.0, 1e-200]), {}, "underflow"),
        (noise(2), {"M": -np.eye(ROWS)}, "M is found not to be positive"),
        (noise(2), {"M": np.nan * np.eye(ROWS)}, "M are not finite"),
    ):
        with pytest.raises((SolverError, VectorError), match=message):
            femops.cg(A, B, **options)
    with pytest.raises(SolverError, match="not to be positive definite"):
        femops.cg(-1.0 * A, noise(2))


@pytest.mark.parametrize("seed", range(3))
def test_the_cause_is_that_of_the_column_without_a_solution(seed: int) -> None:
    A = femops.diffusion(femops.H1(femops.box((1, 1)), order=3))
    B = np.zeros((A.shape[0], 3))
    B[:, 2] = np.random.default_rng(seed).standard_normal(A.shape[0])
    with pytest.raises(SolverError, match="b has a part along them"):
        femops.cg(A, B, M=femops.jacobi(A), rtol=1e-9)


def test_a_guess_far_from_the_solutions_of_a_singular_operator_is_named() -> None:
    A = femops.diffusion(femops.H1(femops.box((4, 4)), order=3))
    rng = np.random.default_rng(0)
    b = 1e-9 * (A @ rng.standard_normal(A.shape[0]))
    with pytest.raises(SolverError, match="Round-off ends it: give a first guess"):
        femops.cg(A, b, 1e3 * rng.standard_normal(A.shape[0]), rtol=1e-6)


def test_a_singular_operator_is_told() -> None:
    V = femops.H1(MESH, 3)
    with pytest.raises(SolverError, match="constants"):
        femops.cg(femops.diffusion(V), np.ones((V.size, 2)), rtol=1e-10)
