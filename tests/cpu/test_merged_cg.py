"""Conjugate gradients with their updates in the operator's sweep, beside those without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops_kernels.compiled import BREAKDOWN, CONVERGED
from femops_kernels.cpu import cg as sweeps
from femops_kernels.cpu.cg import ConjugateGradients
from femops_kernels.cpu.machine import max_threads, set_threads
from support import fixtures
from support.cases.kernels import bend, smooth, turned

CASES = ["bare", "jacobi", "vector", "inside", "float32", "one chunk", "scaled", "many batches"]


one_thread = fixtures.one_thread


@cache
def problem(case):
    """Operator, right-hand side and preconditioner."""
    counts, p = {"one chunk": ((2, 2), 2), "many batches": ((100, 90), 1)}.get(case, ((9, 8), 3))
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    V = femops.H1(mesh, p, ncomp=2 if case == "vector" else 1)
    dtype = "float32" if case == "float32" else "float64"
    if case == "vector":
        A: Any = femops.elasticity(V).constrained(V.boundary_dofs(components=0))
    elif case == "scaled":
        A = 3.0 * femops.diffusion(V, level="matrix-free")  # nothing at points: batch by batch
        assert A.compiled.alphas[0] == 3.0
    elif case == "many batches":
        A = (femops.diffusion(V) + femops.mass(V)).at_level("matrix-free")
    else:
        A = femops.diffusion(V, smooth, dtype=dtype) + femops.mass(V, dtype=dtype)
    if case == "inside":
        A = A.constrained(np.arange(0, V.size, 5))
    elif case != "bare":
        A = A.constrained(V.boundary_dofs(1))
    b = np.random.default_rng(3).standard_normal(V.shape).astype(dtype)
    return A, A.rhs(b), None if case == "bare" else femops.jacobi(A)


def iterates(A, b, M, count):
    """By a textbook recursion in NumPy, from zero."""
    x, r = np.zeros(A.shape[0]), b.reshape(-1).astype(np.float64)
    inverse = np.ones_like(r) if M is None else M.inverse.astype(np.float64)
    z = inverse * r
    p, rho, found = z, r @ z, []
    for _ in range(count):
        v = (A @ p.astype(b.dtype)).astype(np.float64)
        alpha = rho / (p @ v)
        x, r = x + alpha * p, r - alpha * v
        z = inverse * r
        p, rho = z + (r @ z) / rho * p, r @ z
        found.append(x)
    return found


@pytest.mark.parametrize("case", CASES)
def test_iterates_and_the_same_bits_on_any_threads(case):
    A, b, M = problem(case)
    tolerance, rtol = (2e-4, 1e-4) if case == "float32" else (1e-10, 1e-9)
    expected = iterates(A, b, M, 12)
    seen: list[Any] = []
    given: dict[str, Any] = {"rtol": 0.0, "M": M, "warn": False}
    _, info = femops.cg(A, b, maxiter=12, callback=lambda x: seen.append(x.copy()), **given)
    assert info.merged
    assert info.iterations == len(seen) == 12
    for count in (1, 2, 7, 12):
        x, info = femops.cg(A, b, maxiter=count, **given)
        y, _ = femops.cg(A, b, maxiter=count, merged=False, **given)
        assert info.iterations == count
        scale = np.abs(expected[count - 1]).max()
        for other in (y, seen[count - 1], expected[count - 1].reshape(b.shape)):
            assert np.abs(x - other).max() <= tolerance * scale
    x, one = femops.cg(A, b, rtol=rtol, M=M)
    set_threads(max_threads())
    y, many = femops.cg(A, b, rtol=rtol, M=M)
    _, without = femops.cg(A, b, rtol=rtol, M=M, merged=False)
    assert np.array_equal(x, y)
    assert one.converged
    assert one == many
    assert abs(one.iterations - without.iterations) <= 1
    assert not without.merged
    assert one.residual <= 1.5 * one.tolerance


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_in_and_out_of_caches(case, monkeypatch):
    """The kernel for large vectors asks memory for the shared dofs."""
    A, b, M = problem(case)
    x, info = femops.cg(A, b, M=M, rtol=1e-5)
    asked = []
    monkeypatch.setattr(sweeps, "_cache_bytes", lambda: asked.append(None) or 0)
    y, out_of_cache = femops.cg(A, b, M=M, rtol=1e-5)
    assert asked
    assert info == out_of_cache
    assert info.merged
    assert np.array_equal(x, y)


def test_in_pieces_as_in_one_go_and_not_beyond_the_end():
    A, b, _ = problem("inside")
    whole, pieces = (ConjugateGradients(A.compiled, b, 0.0 * b, None, True) for _ in range(2))
    whole.advance(1e-9, 40, 40)
    for steps in (0, 1, 3, 2, 34):
        pieces.advance(1e-9, 40, steps, show=False)
    np.testing.assert_allclose(pieces.x, whole.x, rtol=0.0, atol=1e-12 * np.abs(whole.x).max())
    assert pieces.iterations == whole.iterations
    whole.advance(1e-8, 1000, 1000)
    assert whole.status == CONVERGED
    count, x = whole.iterations, whole.x.copy()
    whole.advance(1e-8, 1000, 10)
    assert whole.iterations == count
    assert np.array_equal(whole.x, x)


def test_scale_of_the_right_hand_side():
    A, b, M = problem("jacobi")
    y, _ = femops.cg(A, b, rtol=1e-8, M=M)
    for scale in (1e-140, 1e140):
        x, info = femops.cg(A, scale * b, rtol=1e-8, M=M)
        assert info.merged
        assert info.converged
        assert np.abs(x / scale - y).max() <= 1e-7 * np.abs(y).max()
    x, info = femops.cg(A, 0.0 * b, M=M)
    assert info.converged
    assert info.iterations == 0
    assert not x.any()
    exact, _ = femops.cg(A, b, rtol=1e-12, M=M)
    again, info = femops.cg(A, b, exact, rtol=1e-9, M=M)
    assert info.iterations == 0
    assert np.array_equal(again, exact)


def test_indefinite_and_singular_operators():
    A, b, _ = problem("inside")
    V = A.space
    for merged in (True, False):
        with pytest.raises(femops.errors.SolverError, match="positive definite"):
            femops.cg(femops.diffusion(V) + (-1e4) * femops.mass(V), b, merged=merged)
        cause = r"singular: it takes constants to zero\. Was constrained\(\) forgotten\?"
        with pytest.raises(
            (femops.errors.SolverError, femops.errors.ConvergenceWarning), match=cause
        ):
            femops.cg(femops.diffusion(V), np.ones(V.size), rtol=1e-12, merged=merged)


def test_where_it_is_not_one_sweep():
    A, b, M = problem("jacobi")
    V = A.space
    several = [
        femops.diffusion(V) + femops.mass(V, quadrature=7),
        femops.mass(V) + femops.boundary_mass(V),
    ]
    for B in several:
        with pytest.raises(femops.errors.SolverError, match="not one sweep"):
            femops.cg(B, b, merged=True)
        x, info = femops.cg(B, b, rtol=1e-9)
        assert info.converged
        assert not info.merged
        assert np.abs(B @ x - b).max() < 1e-7 * np.abs(b).max()
    for level in ("full", "element", "matrix-free"):
        _, info = femops.cg(A.at_level(level), b, rtol=1e-9, M=M)
        assert info.converged
        assert info.merged == (level != "full")


def test_solves_at_once():
    A, b, M = problem("jacobi")
    expected, _ = femops.cg(A, b, rtol=1e-10, M=M)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: femops.cg(A, b, rtol=1e-10, M=M)[0], range(6)))
    assert all(np.array_equal(x, expected) for x in found)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=2),
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 100.0),
    st.booleans(),
    st.integers(1, 25),
)
@settings(max_examples=15, deadline=None)
def test_any_box(counts, seed, kappa, preconditioned, limit):
    """Rounded differently, the two drift apart as any two do, but neither falls behind."""
    V = femops.H1(femops.box(counts, mapping=bend), 2)
    A = femops.diffusion(V, kappa) + femops.mass(V)
    b = np.random.default_rng(seed).standard_normal(V.size)
    M = femops.jacobi(A) if preconditioned else None
    x, info = femops.cg(A, b, rtol=1e-10, maxiter=limit, M=M, warn=False)
    y, other = femops.cg(A, b, rtol=1e-10, maxiter=max(limit - 2, 0), M=M, warn=False, merged=False)
    assert info.merged
    assert not other.merged
    assert info.iterations <= limit
    matrix = A.assemble().toarray()
    solution = np.linalg.solve(matrix, b)

    def distance(iterate):
        """In the norm that every iteration makes smaller."""
        return float(np.sqrt((iterate - solution) @ matrix @ (iterate - solution)))

    assert distance(x) <= distance(y) * (1.0 + 1e-12) + 1e-9 * distance(0.0 * b)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-18), ("float32", 1e-10)])
def test_tolerance_that_is_too_small(dtype, rtol):
    """The recursion goes on as it does without, and ends as soon: copies of dofs do not drift."""
    V = femops.H1(femops.box((9, 8)), 3)
    b = np.random.default_rng(0).standard_normal(V.size).astype(dtype)
    mass = femops.mass(V, dtype=dtype)
    for A in (mass, (femops.diffusion(V, dtype=dtype)).constrained(V.boundary_dofs())):
        b = A.rhs(b)
        (x, one), (y, other) = (
            femops.cg(A, b, rtol=rtol, maxiter=2000, merged=m, warn=False) for m in (True, False)
        )
        assert one.merged
        assert one.iterations <= 1.1 * other.iterations + 1
        assert one.residual <= 4.0 * other.residual
        assert np.abs(x - y).max() <= 200 * np.finfo(dtype).eps * np.abs(y).max()


def test_squares_that_overflow():
    V = femops.H1(femops.box((9, 8)), 3)
    A = femops.diffusion(V, dtype="float32").constrained(V.boundary_dofs())
    b = 1e18 * np.random.default_rng(0).standard_normal(V.size)
    b = A.rhs(b.astype("float32"))
    _, info = femops.cg(A, b, rtol=1e-3)
    _, other = femops.cg(A, b, rtol=1e-3, merged=False)
    assert info.converged
    assert abs(info.iterations - other.iterations) <= 1


def test_other_dimensions_and_spaces():
    line, cube = femops.box((5,)), femops.box((5,) * 3, mapping=bend)
    for V in (
        femops.L2(line, 1),
        femops.H1(line, 2),
        femops.H1(cube, 2, ncomp=3),
        femops.L2(cube, 1),
    ):
        A = femops.mass(V)
        b = A @ np.random.default_rng(1).standard_normal(V.shape)
        x, info = femops.cg(A, b, rtol=1e-12)
        y, other = femops.cg(A, b, rtol=1e-12, merged=False)
        assert info.merged
        assert abs(info.iterations - other.iterations) <= 1
        assert np.abs(x - y).max() <= 1e-9 * np.abs(y).max()


def test_natural_norms():
    """The recursion's norm is sqrt(r . M r) in each iteration, merged or not."""
    A, b, M = problem("jacobi")
    inverse = M.inverse
    for merged in (True, False):
        solve = ConjugateGradients(A.compiled, b, None, inverse, merged, natural=True)
        for count in range(8):
            solve.advance(0.0, 100, 0 if count == 0 else 1)
            r = b - A @ solve.x
            assert solve.iterations == count
            assert solve.residual == pytest.approx(np.sqrt(r @ (inverse * r)), rel=1e-8)


@pytest.mark.parametrize("merged", [True, False])
def test_begun_anew(merged):
    """With the bits of a first solve, whatever was left by the last one."""
    A, b, M = problem("inside")
    found = []
    solve = ConjugateGradients(A.compiled, np.full_like(b, np.inf), None, M.inverse, merged)
    solve.advance(1e-9, 1000, 1000)
    assert solve.status == BREAKDOWN
    for guess in (None, np.cos(b)):
        first = ConjugateGradients(A.compiled, b, guess, M.inverse, merged)
        solve.restart(b, guess)
        for one in (first, solve):
            one.advance(1e-9, 1000, 1000)
            assert one.status == CONVERGED
            found.append((one.iterations, one.residual, one.x.copy()))
        (count, residual, x), (again, same, y) = found[-2:]
        assert (count, residual) == (again, same)
        assert np.array_equal(x, y)
