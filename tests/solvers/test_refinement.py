"""Conjugate gradients in float32 with corrections in float64: the solutions of float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import ConvergenceWarning, OperatorError, SolverError
from support import fixtures
from support.cases.kernels import bend, smooth
from support.cuda.guarded import guarded_device

one_thread = fixtures.one_thread

MESH = femops.box((5, 4), mapping=bend)


def problem(order: int = 3, device: Any = None, scale: float = 1.0) -> tuple[Any, Any]:
    V = femops.H1(MESH, order, device=device)
    A = femops.diffusion(V, lambda x: scale * smooth(x)).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, lambda x: np.sin(7 * x[0]) + x[1]), V.interpolate(smooth))


@pytest.mark.sample(2)
@pytest.mark.parametrize("make", [lambda A: None, femops.jacobi, femops.multigrid])
@pytest.mark.parametrize("rtol", [1e-3, 1e-8, 1e-12])
def test_the_solution_of_float64(make: Any, rtol: float) -> None:
    A, b = problem()
    M = make(A)
    x, info = femops.cg(A, b, M=M, rtol=rtol, inner_dtype="float32", history=True)
    exact = np.linalg.solve(A.assemble().toarray(), b)
    assert x.dtype == np.float64
    assert info.converged
    assert info.residual <= info.tolerance
    assert abs(np.linalg.norm(b - A @ x) - info.residual) < 1e-12 * np.linalg.norm(b)
    assert abs(x - exact).max() < 200 * rtol * abs(exact).max()
    _, plain = femops.cg(A, b, M=M, rtol=rtol)
    assert info.iterations < 2 * plain.iterations + 10
    assert info.residuals[-1] == info.residual
    assert all(b < a for a, b in zip(info.residuals, info.residuals[1:], strict=False))
    assert len(info.residuals) <= 2 + np.log10(1.0 / rtol) / 3


def test_values_far_from_one() -> None:
    for scale in (1e-25, 1e25):
        A, b = problem(scale=scale)
        exact = np.linalg.solve(A.assemble().toarray(), b)
        x, info = femops.cg(A, b, rtol=1e-9, inner_dtype=np.float32)
        assert info.converged
        assert abs(x - exact).max() < 1e-6 * abs(exact).max()
    A, b = problem(scale=1e-45)
    with pytest.raises(SolverError, match="do not fit into float32"):
        femops.cg(A, b, inner_dtype="float32")
    A, b = problem()
    x, _ = femops.cg(A, 1e120 * b, rtol=1e-9, inner_dtype="float32")
    y, _ = femops.cg(A, b, rtol=1e-9, inner_dtype="float32")
    assert np.allclose(x / 1e120, y, rtol=1e-6)


def test_guesses_and_limits() -> None:
    A, b = problem()
    x, _ = femops.cg(A, b, rtol=1e-10)
    y, info = femops.cg(A, b, x, rtol=1e-8, inner_dtype="float32")
    assert info.iterations == 0
    assert np.allclose(x, y, rtol=1e-12)
    zero, info = femops.cg(A, 0.0 * b, inner_dtype="float32")
    assert info.converged
    assert not zero.any()
    with pytest.warns(ConvergenceWarning):
        _, info = femops.cg(A, b, rtol=1e-10, maxiter=20, inner_dtype="float32")
    assert info.iterations == 20
    told: list[tuple[int, float]] = []
    _, info = femops.cg(
        A, b, rtol=1e-10, inner_dtype="float32", progress=lambda *given: told.append(given)
    )
    assert [k for k, _ in told] == sorted(k for k, _ in told)
    assert told[0][1] <= np.linalg.norm(b)
    assert told[-1][1] < 2e-10 * np.linalg.norm(b)


def test_other_operators() -> None:
    V = femops.H1(MESH, 2)
    A = femops.form(lambda u: {"grad": u.grad, "value": u}, V, dtype="complex128")
    b = V.interpolate(lambda x: np.exp(2j * x[0]), dtype=complex)
    x, info = femops.cg(A, b, rtol=1e-10, inner_dtype="float32")
    assert info.converged
    assert np.linalg.norm(A @ x - b) < 2e-10 * np.linalg.norm(b)
    for level in ("full", "element", "matrix-free"):
        B = femops.mass(V, level=level)
        y, _ = femops.cg(B, b.real.copy(), rtol=1e-12, inner_dtype="float32")
        assert np.linalg.norm(B @ y - b.real) < 2e-12 * np.linalg.norm(b)


def test_on_a_device() -> None:
    A, b = problem(device=guarded_device())
    B, c = problem()
    x, info = femops.cg(A, b, rtol=1e-10, inner_dtype="float32")
    y, plain = femops.cg(B, c, rtol=1e-10, inner_dtype="float32")
    assert abs(info.iterations - plain.iterations) <= 3
    np.testing.assert_allclose(x.get(), y, atol=1e-8 * abs(y).max(), rtol=0)


def test_refused() -> None:
    A, b = problem()
    with pytest.raises(SolverError, match="A is float32 already"):
        femops.cg(femops.mass(A.space, dtype="float32"), b.astype("f4"), inner_dtype="float32")
    for wrong, error in (("float64", SolverError), ("int8", OperatorError)):
        with pytest.raises(error):
            femops.cg(A, b, inner_dtype=wrong)
    with pytest.raises(SolverError, match="without a callback"):
        femops.cg(A, b, inner_dtype="float32", callback=print)
    with pytest.raises(SolverError, match=r"float32, and M works in float64 \(as asked\): leave"):
        femops.cg(A, b, M=femops.multigrid(A, dtype="float64"), inner_dtype="float32")
    with pytest.raises(SolverError, match="leave out callback, merged and inner_dtype"):
        femops.cg(A, np.stack([b, b], axis=1), inner_dtype="float32")


def test_operators_that_float32_does_not_resolve() -> None:
    V = femops.H1(MESH, 3)
    A = femops.mass(V) + femops.diffusion(V, lambda x: np.where(x[0] < 0.5, 1e8, 1.0))
    b, options = femops.load(V, lambda x: x[0]), {"rtol": 1e-9, "M": femops.jacobi(A)}
    with pytest.warns(ConvergenceWarning, match="Leave inner_dtype out"):
        femops.cg(A, b, inner_dtype="float32", **options)
    B = femops.helmholtz(V, 9.0).constrained(V.boundary_dofs())
    with pytest.raises(SolverError, match=r"in float32: .* leave inner_dtype out"):
        femops.cg(B, B.rhs(b), inner_dtype="float32")
