"""Conjugate gradients for many right-hand sides."""

import functools

import numpy as np
import pytest

import femops


@pytest.mark.parametrize("natural", [False, True])
def test_each_solve_begins_anew(natural):
    V = femops.H1(femops.box((5, 4)), order=2)
    A = femops.mass(V).constrained(V.boundary_dofs(1))
    solver = femops.CGSolver(A, M=femops.jacobi(A), natural=natural)
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(3):
        b = rng.standard_normal(V.size)
        x, iterations = solver.solve(b, rtol=1e-13)
        assert np.abs(A @ x - b).max() < 1e-11
        counts.append(iterations)
        again, same = solver.solve(b, rtol=1e-13)
        assert same == iterations
        assert np.array_equal(again, x)
        guessed, same = solver.solve(b, np.zeros(V.size), rtol=1e-13)
        assert same == iterations
        assert np.array_equal(guessed, x)
    assert 5 < min(counts) <= max(counts) < 60


def test_a_good_guess_saves_iterations_and_zero_takes_none():
    V = femops.H1(femops.box((5, 4)), order=2)
    A = femops.mass(V)
    solver = femops.CGSolver(A, M=femops.jacobi(A), natural=True)
    b = A @ V.interpolate(lambda x: np.exp(x[0]))
    x, cold = solver.solve(b, rtol=1e-10)
    _, warm = solver.solve(b, x, rtol=1e-8)
    assert warm == 0 < cold
    nothing, none = solver.solve(np.zeros(V.size))
    assert none == 0
    assert not nothing.any()


def test_natural_norms_stop_where_the_preconditioned_residual_is_small():
    V = femops.H1(femops.box((6, 6), mapping=lambda x: x**2), order=2)
    A = femops.mass(V)
    M = femops.jacobi(A)
    b = np.random.default_rng(0).standard_normal(V.size)
    x, iterations = femops.CGSolver(A, M=M, natural=True).solve(b, rtol=1e-6)
    residual = b - A @ x
    assert np.sqrt(residual @ (M @ residual)) <= 1.001e-6 * np.sqrt(b @ (M @ b))
    x, fewer = femops.CGSolver(A, M=M, natural=True).solve(b, rtol=1e-6, maxiter=iterations - 1)
    residual = b - A @ x
    assert fewer == iterations - 1
    assert np.sqrt(residual @ (M @ residual)) > 1e-6 * np.sqrt(b @ (M @ b))


def test_operators_that_are_not_definite_are_refused():
    V = femops.H1(femops.box((3, 3)), order=2)
    A = femops.mass(V, rho=-1.0)
    with pytest.raises(femops.SolverError, match="not to be positive definite"):
        femops.CGSolver(A).solve(np.ones(V.size))


@pytest.mark.parametrize("natural", [False, True])
def test_several_systems_at_once_have_the_bits_of_each_alone(natural):
    from femops_kernels.cpu import machine

    V = femops.H1(femops.box((5, 4)), order=2)
    operators = [femops.mass(V).constrained(V.boundary_dofs(k)) for k in (1, 2, 3)]
    solvers = [femops.CGSolver(A, M=femops.jacobi(A), natural=natural) for A in operators]
    rights = list(np.random.default_rng(0).standard_normal((3, V.size)))
    rights[1] *= 0.0
    alone = [s.solve(b, rtol=1e-12) for s, b in zip(solvers, rights, strict=True)]
    before = machine.get_threads()
    try:
        for threads in (1, 2):
            machine.set_threads(threads)
            for _ in range(2):  # the second time it is known how long solves are
                together = femops.CGSolver.solve_all(solvers, rights, rtol=1e-12)
            for (x, iterations), (y, count) in zip(alone, together, strict=True):
                assert iterations == count
                assert np.array_equal(x, y)
    finally:
        machine.set_threads(before)
    assert alone[1][1] == 0 < alone[0][1]


def test_a_solver_given_twice_and_none_at_all_are_refused():
    V = femops.H1(femops.box((2, 2)), order=2)
    solver, b = femops.CGSolver(femops.mass(V)), np.ones(V.size)
    for solvers in ([], [solver, solver]):
        with pytest.raises(femops.SolverError, match="at least one solver, and each only once"):
            femops.CGSolver.solve_all(solvers, [b, 2 * b][: len(solvers)])


def test_what_is_not_finite_and_what_overflows_are_told_apart():
    V = femops.H1(femops.box((2, 2)), order=2)
    A, b = femops.mass(V), np.ones(V.size)
    guess = np.where(np.arange(V.size) == 3, np.nan, 0.0)
    for solve in (femops.CGSolver(A).solve, functools.partial(femops.cg, A)):
        with pytest.raises(femops.SolverError, match="x0 has entries that are not finite"):
            solve(b, x0=guess)
        with pytest.raises(femops.SolverError, match="b has entries that are not finite"):
            solve(guess)
        with (
            pytest.raises(femops.SolverError, match="squares of the entries of b overflow"),
            np.errstate(over="ignore"),
        ):
            solve(1e200 * b)
