"""Given values at constrained dofs are solved for at once, and do not count in tolerances."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

import femops

Array = NDArray[Any]
V = femops.H1(femops.box((6, 5)), order=3)
HELD = V.boundary_dofs()


def time_step(dtype: str = "float64") -> tuple[femops.Operator, Array, Array]:
    """A step of heat conduction at 300 K, and its solution. The step brings 2 mK."""
    mass, heat = femops.mass(V, dtype=dtype), femops.diffusion(V, dtype=dtype)
    A = (mass + 1e-3 * heat).constrained(HELD)
    load = mass @ V.interpolate(300.0).astype(dtype) + 1e-3 * femops.load(V, 2.0).astype(dtype)
    b = A.rhs(load, 300.0)
    return A, b, spla.spsolve(A.assemble().astype(float).tocsc(), b.astype(float))


def by_solver(A: femops.Operator, b: Array, *guess: Array, rtol: float, M: Any = None) -> Any:
    return femops.CGSolver(A, M=M).solve(b, *guess, rtol=rtol)


def in_block(A: femops.Operator, b: Array, *guess: Array, rtol: float, M: Any = None) -> Any:
    guesses = [np.stack([x, x], axis=1) for x in guess]
    X, info = femops.cg(A, np.stack([b, b], axis=1), *guesses, rtol=rtol, M=M)
    return X[:, 1], info


SOLVERS = {
    "merged": partial(femops.cg, merged=True),
    "refined": partial(femops.cg, inner_dtype="float32"),
    "block": in_block,
    "CGSolver": by_solver,
    "minres": femops.minres,
    "gmres": femops.gmres,
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("make", [femops.jacobi, femops.multigrid])
def test_a_time_step_is_not_ended_by_large_given_values(name: str, make: Any) -> None:
    """The norm of b is 2000 times as large as that of its free entries."""
    A, b, exact = time_step()
    M = make(A) if name != "merged" else femops.jacobi(A)
    for guess in ([], [np.full(V.size, 7.0)]):  # wrong at the constrained dofs
        x, info = SOLVERS[name](A, b, *guess, rtol=1e-8, M=M)
        assert info.converged
        assert info.tolerance == pytest.approx(1e-8 * np.linalg.norm(np.delete(b, HELD)))
        np.testing.assert_array_equal(x[HELD], 300.0)
        np.testing.assert_allclose(x, exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("solve", [femops.cg, by_solver, in_block])
def test_values_out_of_the_range_of_squares(solve: Any) -> None:
    """float32 is scaled by the free entries; the values are kept to the last bit."""
    A, b, _ = time_step("float32")
    b *= np.float32(1e-25)
    x, info = solve(A, b, rtol=1e-5)
    assert info.converged
    np.testing.assert_array_equal(x[HELD], b[HELD])
    np.testing.assert_allclose(x, 300e-25, rtol=1e-3)


def test_factors_of_an_operator_divide_the_values() -> None:
    A, _, _ = time_step()
    double = 2.0 * A
    x, _ = femops.cg(double, double.rhs(femops.load(V, 1.0), 300.0), rtol=1e-10)
    np.testing.assert_array_equal(x[HELD], 300.0)
    assert np.linalg.norm(double @ x - double.rhs(femops.load(V, 1.0), 300.0)) < 1e-8


@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
def test_callbacks_see_the_values(solver: Any) -> None:
    A, b, _ = time_step()
    seen: list[Array] = []
    x, _ = solver(A, b, callback=seen.append)
    assert all((iterate[HELD] == 300.0).all() for iterate in seen)
    np.testing.assert_allclose(seen[-1], x, rtol=1e-14)


@pytest.mark.parametrize("solve", [femops.cg, femops.minres, femops.gmres, by_solver])
def test_values_that_are_not_finite_are_refused(solve: Any) -> None:
    A, b, _ = time_step()
    b[HELD[3]] = np.nan
    with pytest.raises(femops.errors.SolverError, match="not finite"):
        solve(A, b, rtol=1e-5)
