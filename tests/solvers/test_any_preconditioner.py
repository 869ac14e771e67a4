"""Preconditioners of other libraries in femops' solvers, beside SciPy and direct solves."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

import femops
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


def system(dtype: str = "float64") -> tuple[Any, Array]:
    A = femops.diffusion(V, lambda x: 1.0 + x[0], dtype=dtype).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, lambda x: 1.0 + x[1], dtype=dtype))


def near(A: Any) -> Any:
    """Inverse of the matrix without its last digits: symmetric and positive definite."""
    values, vectors = np.linalg.eigh(A.assemble().toarray())
    return (
        vectors
        @ np.diag(1.0 / (values * (1.0 + 0.3 * np.sin(np.arange(len(values))))))
        @ (vectors.T)
    )


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


@pytest.mark.sample(3)
@SOLVERS
@pytest.mark.parametrize("form", FORMS)
def test_whatever_scipy_takes(solver: Any, form: str) -> None:
    A, b = system()
    inverse = near(A)
    x, info = solver(A, b, M=FORMS[form](inverse), rtol=1e-11, history=True)
    assert info.converged
    direct = spla.spsolve(A.assemble().tocsc(), b)
    np.testing.assert_allclose(x, direct, rtol=0, atol=1e-9 * abs(direct).max())
    assert len(info.residuals) == info.iterations + 1
    assert info.residual == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-3, abs=1e-15)
    _, plain = solver(A, b, rtol=1e-11)
    assert info.iterations < plain.iterations / 2


def test_as_many_iterations_as_scipy() -> None:
    A, b = system()
    counts: list[Array] = []
    M = spla.aslinearoperator(near(A))
    expected, status = spla.cg(A, b, M=M, rtol=1e-9, callback=counts.append)
    x, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert status == 0
    assert abs(info.iterations - len(counts)) <= 1
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-8 * abs(expected).max())


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


def test_another_operator_and_a_sum_are_preconditioners() -> None:
    """SciPy's arithmetic of preconditioners makes LinearOperators."""
    A, b = system()
    M = 0.5 * femops.multigrid(A, dtype="float64") + 0.5 * femops.jacobi(A)
    x, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert info.converged
    np.testing.assert_allclose(A @ x, b, rtol=0, atol=1e-8 * np.linalg.norm(b))
    assert femops.cg(A, b, M=femops.mass(V), rtol=1e-6)[1].converged


def test_incomplete_factors_and_pyamg() -> None:
    A, b = system()
    matrix = A.assemble().tocsc()
    factors = spla.spilu(matrix, drop_tol=1e-2)
    x, info = femops.gmres(A, b, M=spla.LinearOperator(A.shape, factors.solve), rtol=1e-9)
    assert info.converged
    pyamg = pytest.importorskip("pyamg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyAMG
        M = pyamg.smoothed_aggregation_solver(matrix.tocsr()).aspreconditioner()
    y, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert info.converged
    assert info.iterations < femops.cg(A, b, rtol=1e-9)[1].iterations / 2
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-7 * abs(x).max())


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_float32_with_a_matrix_of_float64(size: float) -> None:
    A, b = system("float32")
    M = near(A)
    for solver in (femops.cg, femops.minres, femops.gmres):
        if solver is not femops.cg and size != 1.0:
            continue  # squares are out of range
        x, info = solver(A, np.float32(size) * b, M=M, rtol=1e-4)
        assert x.dtype == np.float32
        assert info.converged
        assert np.linalg.norm(A @ (x / size) - b) < 1e-3 * np.linalg.norm(b)


def test_first_guesses_limits_and_callbacks() -> None:
    A, b = system()
    M, seen = near(A), list[Array]()
    direct = spla.spsolve(A.assemble().tocsc(), b)
    x, info = femops.cg(A, b, direct, M=M, rtol=1e-9)
    assert info.iterations == 0
    x, info = femops.cg(A, b, M=M, rtol=1e-11, maxiter=3, warn=False, callback=seen.append)
    assert (info.converged, info.iterations, len(seen)) == (False, 3, 3)
    with pytest.warns(femops.errors.ConvergenceWarning, match="larger maxiter, or another M"):
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
@pytest.mark.parametrize(
    ("M", "words"),
    [
        (3.0, "M is 3.0: give femops.jacobi"),
        ("multigrid", "M is 'multigrid': give femops.jacobi"),
        (np.ones(V.size), r"M is an array of shape \(\d+,\): give femops.jacobi"),
        (np.eye(3), "M is 3 x 3, A"),
        (sp.eye(V.size, dtype=complex), "M has type complex128, A float64: give a real"),
        (product(lambda x: x[:-1]), r"M times a vector of shape .* return"),
        (product(lambda x: 1j * x), "type complex128: return real numbers"),
        (product(lambda x: x + np.inf), "products with M are not finite"),
    ],
    ids=["number", "text", "vector", "small", "complex", "short", "complex product", "infinite"],
)
def test_what_is_no_preconditioner(solver: Any, M: Any, words: str) -> None:
    A, b = system()
    with pytest.raises(femops.errors.SolverError, match=words):
        solver(A, b, M=M)


def test_conjugate_gradients_need_positive_symmetric_preconditioners() -> None:
    A, b = system()
    for M in (-np.eye(V.size), 0.0 * np.eye(V.size)):
        with pytest.raises(
            femops.errors.SolverError, match="M is found not to be positive definite"
        ):
            femops.cg(A, b, M=M)
    indefinite = femops.helmholtz(V, 9.0).constrained(V.boundary_dofs())
    with pytest.raises(
        femops.errors.SolverError, match="operator is found not to be positive definite"
    ):
        femops.cg(indefinite, b, M=np.eye(V.size))
    wind = femops.convection(V, [1.0, 2.0])
    for solver in (femops.cg, femops.minres):
        with pytest.raises(femops.errors.SolverError, match="M is not symmetric"):
            solver(A, b, M=wind)
    with pytest.raises(femops.errors.SolverError, match="merged = True, but M is not"):
        femops.cg(A, b, M=np.eye(V.size), merged=True)


# --- many right-hand sides ------------------------------------------------------------------------


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("make", ["dense", "multigrid"])
def test_many_right_hand_sides(make: str, natural: bool) -> None:
    A, b = system()
    M = femops.multigrid(A) if make == "multigrid" else near(A)
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
    with pytest.warns(femops.errors.ConvergenceWarning, match="1 of 1 systems"):
        solver.solve(b, rtol=1e-12, maxiter=1)


def test_systems_of_solvers_of_both_kinds_at_once() -> None:
    A, b = system()
    solvers = [
        femops.CGSolver(A),
        femops.CGSolver(A, near(A)),
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
