"""Preconditioners of other libraries in femops' solvers, beside SciPy and direct solves."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

import femops
from femops.errors import ConvergenceWarning, SolverError
from support import fixtures
from support.cases.kernels import bend

one_thread = fixtures.one_thread

Array = np.ndarray
MESH = femops.box((6, 5), mapping=bend)
V = femops.H1(MESH, 2)
SOLVERS = pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])


class Shaped:
    """A preconditioner with the least that SciPy asks for."""

    def __init__(self, matrix: Any) -> None:
        self.shape, self._matrix = matrix.shape, matrix

    def matvec(self, x: Array) -> Array:
        return np.asarray(self._matrix @ x)


@cache
def system(dtype: str = "float64") -> tuple[Any, Array]:
    A = femops.diffusion(V, lambda x: 1.0 + x[0], dtype=dtype).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, lambda x: 1.0 + x[1], dtype=dtype))


@cache
def near() -> Array:
    """Inverse of the matrix without its last digits: symmetric and positive definite."""
    values, vectors = np.linalg.eigh(system()[0].assemble().toarray())
    changed = 1.0 / (values * (1.0 + 0.3 * np.sin(np.arange(len(values)))))
    return (vectors * changed) @ vectors.T


FORMS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda inverse: inverse,
    "sparse": sp.csr_matrix,
    "sparse array": sp.csr_array,
    "operator": spla.aslinearoperator,
    "column": lambda inverse: spla.LinearOperator(
        inverse.shape, lambda x: (inverse @ x.reshape(-1))[:, np.newaxis], dtype=float
    ),
    "shape and matvec": Shaped,
}


@SOLVERS
def test_whatever_scipy_takes(solver: Any) -> None:
    A, b = system()
    direct = spla.spsolve(A.assemble().tocsc(), b)
    _, plain = solver(A, b, rtol=1e-11)
    for form, make in FORMS.items():
        x, info = solver(A, b, M=make(near()), rtol=1e-11, history=True)
        assert info.converged, form
        np.testing.assert_allclose(x, direct, rtol=0, atol=1e-9 * abs(direct).max(), err_msg=form)
        assert len(info.residuals) == info.iterations + 1
        assert info.residual == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-3, abs=1e-15)
        assert info.iterations < plain.iterations / 2


def test_jacobi_as_a_matrix_has_the_iterates_of_the_compiled_loop() -> None:
    A, b = system()
    M = femops.jacobi(A)
    x, info = femops.cg(A, b, M=M, rtol=1e-8, history=True)
    y, other = femops.cg(A, b, M=sp.diags(M.inverse), rtol=1e-8, history=True)
    assert info.iterations == other.iterations
    assert info.merged
    assert not other.merged
    np.testing.assert_allclose(other.residuals, info.residuals, rtol=1e-4)
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-10 * abs(x).max())


def test_operators_sums_incomplete_factors_and_pyamg() -> None:
    """SciPy's arithmetic of preconditioners makes LinearOperators."""
    pyamg = pytest.importorskip("pyamg")
    A, b = system()
    matrix = A.assemble().tocsc()
    incomplete = spla.spilu(matrix, drop_tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyAMG
        amg = pyamg.smoothed_aggregation_solver(matrix.tocsr()).aspreconditioner()
    direct, (_, plain) = spla.spsolve(matrix, b), femops.cg(A, b, rtol=1e-9)
    for solver, M, most in (
        (femops.cg, 0.5 * femops.multigrid(A, dtype="float64") + 0.5 * femops.jacobi(A), 1.0),
        (femops.cg, femops.mass(V), np.inf),
        (femops.cg, amg, 0.5),
        (femops.gmres, spla.LinearOperator(A.shape, incomplete.solve), 0.5),
    ):
        x, info = solver(A, b, M=M, rtol=1e-9)
        assert info.converged
        assert info.iterations < most * plain.iterations
        np.testing.assert_allclose(x, direct, rtol=0, atol=1e-7 * abs(direct).max())


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_float32_with_a_matrix_of_float64(size: float) -> None:
    A, b = system("float32")
    M = near()
    for solver in (femops.cg, femops.minres, femops.gmres):
        if solver is not femops.cg and size != 1.0:
            continue  # squares are out of range
        x, info = solver(A, np.float32(size) * b, M=M, rtol=1e-4)
        assert x.dtype == np.float32
        assert info.converged
        assert np.linalg.norm(A @ (x / size) - b) < 1e-3 * np.linalg.norm(b)


def test_first_guesses_limits_and_callbacks() -> None:
    A, b = system()
    M, seen = near(), list[Array]()
    direct = spla.spsolve(A.assemble().tocsc(), b)
    x, info = femops.cg(A, b, direct, M=M, rtol=1e-9)
    assert info.iterations == 0
    x, info = femops.cg(A, b, M=M, rtol=1e-11, maxiter=3, warn=False, callback=seen.append)
    assert (info.converged, info.iterations, len(seen)) == (False, 3, 3)
    with pytest.warns(ConvergenceWarning, match="larger maxiter, or another M"):
        femops.cg(A, b, M=M, rtol=1e-11, maxiter=3)
    y, info = femops.cg(A, b, x, M=M, rtol=1e-11)
    np.testing.assert_allclose(y, direct, rtol=0, atol=1e-9 * abs(direct).max())
    x, info = femops.cg(A, 0.0 * b, M=M)
    assert info.converged
    assert not x.any()


# --- refusals -------------------------------------------------------------------------------------


def product(function: Callable[[Array], Any], dtype: Any = float) -> Any:
    return type(
        "Foreign", (), {"shape": (V.size, V.size), "matvec": staticmethod(function), "dtype": dtype}
    )()


@SOLVERS
def test_what_is_no_preconditioner(solver: Any) -> None:
    A, b = system()
    for M, words in (
        (3.0, "M is 3.0: give 'auto', .*femops.jacobi"),
        ("ilu", "M is 'ilu': give 'auto', 'multigrid', 'direct', 'jacobi', femops.jacobi"),
        (np.ones(V.size), r"M is an array of shape \(\d+,\): give 'auto', .*femops.jacobi"),
        (np.eye(3), "M is 3 x 3, A"),
        (sp.eye(V.size, dtype=complex), "M has type complex128, A float64: give a real"),
        (product(lambda x: x[:-1]), r"M times a vector of shape .* return"),
        (product(lambda x: 1j * x), "type complex128: return real numbers"),
        (product(lambda x: x + np.inf), "products with M are not finite"),
    ):
        with pytest.raises(SolverError, match=words):
            solver(A, b, M=M)


def test_conjugate_gradients_need_positive_symmetric_preconditioners() -> None:
    A, b = system()
    for M in (-np.eye(V.size), 0.0 * np.eye(V.size)):
        with pytest.raises(SolverError, match="M is found not to be positive definite"):
            femops.cg(A, b, M=M)
    indefinite = femops.helmholtz(V, 9.0).constrained(V.boundary_dofs())
    with pytest.raises(SolverError, match="operator is found not to be positive definite"):
        femops.cg(indefinite, b, M=np.eye(V.size))
    wind = femops.convection(V, [1.0, 2.0])
    for solver in (femops.cg, femops.minres):
        with pytest.raises(SolverError, match="M is not symmetric"):
            solver(A, b, M=wind)
    with pytest.raises(SolverError, match="merged = True, but M is not"):
        femops.cg(A, b, M=np.eye(V.size), merged=True)


# --- many right-hand sides ------------------------------------------------------------------------


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("make", ["dense", "multigrid"])
def test_many_right_hand_sides(make: str, natural: bool) -> None:
    A, b = system()
    M = femops.multigrid(A) if make == "multigrid" else near()
    solver = femops.CGSolver(A, M, natural=natural)
    direct = spla.splu(A.assemble().tocsc())
    for right in (b, 3.0 * b, A @ np.sin(b)):
        x, info = solver.solve(right, rtol=1e-11)
        expected = direct.solve(right)
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-8 * abs(expected).max())
        again, same = solver.solve(right, rtol=1e-11)
        assert same == info
        assert info.residual <= info.tolerance * (10 - 9 * natural)
        np.testing.assert_array_equal(again, x)
        assert solver.solve(right, x, rtol=1e-8)[1].iterations == 0
    with pytest.warns(ConvergenceWarning, match="1 of 1 systems"):
        solver.solve(b, rtol=1e-12, maxiter=1)


def test_systems_of_solvers_of_both_kinds_at_once() -> None:
    A, b = system()
    solvers = [
        femops.CGSolver(A),
        femops.CGSolver(A, near()),
        femops.CGSolver(A, femops.jacobi(A)),
    ]
    alone = [solver.solve(b, rtol=1e-10) for solver in solvers]
    for (x, info), (y, same) in zip(
        femops.CGSolver.solve_all(solvers, [b, b, b], rtol=1e-10), alone, strict=True
    ):
        assert (info.iterations, info.residual) == (same.iterations, same.residual)
        np.testing.assert_array_equal(x, y)
    other = pickle.loads(pickle.dumps(solvers[1]))
    np.testing.assert_array_equal(other.solve(b, rtol=1e-10)[0], alone[1][0])
    np.testing.assert_array_equal(copy.deepcopy(other).solve(b, rtol=1e-10)[0], alone[1][0])


def test_copies_leave_out_the_module_that_scipy_keeps() -> None:
    """SciPy from 1.18 on keeps a module of arrays in each LinearOperator: none can be pickled."""
    A = femops.mass(femops.H1(femops.box((2, 2)), 2))
    b = np.arange(1.0, 26.0)
    for M in (femops.jacobi(A), -femops.jacobi(A)):
        M._xp = np
        for twin in (copy.deepcopy(M), pickle.loads(pickle.dumps(M))):
            np.testing.assert_array_equal(twin @ b, M @ b)
