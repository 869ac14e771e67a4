"""Conjugate gradients for many right-hand sides."""

import contextlib
import copy
import functools
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse.linalg as sla

import femops
from femops.errors import SolverError
from femops_kernels.cpu import machine, sweep


@pytest.fixture(params=[1, 2**62], ids=["shared", "small"])
def effort(request, monkeypatch):
    """Threads share the work of each solve, or each solve is worked on by one of them."""
    monkeypatch.setattr(sweep, "PARALLEL_EFFORT", request.param)


@pytest.fixture
def one_thread_each(monkeypatch):
    """Compiled code solves several systems at once."""
    monkeypatch.setattr(sweep, "PARALLEL_EFFORT", 2**62)
    before = machine.get_threads()
    yield
    machine.set_threads(before)


NATURAL = pytest.mark.parametrize("natural", [False, True])


def masses(*counts, dtype="float64"):
    return [femops.mass(femops.H1(femops.box((n, n)), order=2), dtype=dtype) for n in counts]


def exact(A, b):
    return sla.spsolve(A.assemble().astype("float64").tocsc(), b.astype("float64"))


def noise(A, size=1.0):
    return (size * np.random.default_rng(0).standard_normal(A.shape[0])).astype(A.dtype)


@pytest.mark.usefixtures("effort")
@NATURAL
def test_each_solve_begins_anew(natural):
    V = femops.H1(femops.box((5, 4)), order=2)
    A = femops.mass(V).constrained(V.boundary_dofs(1))
    solver = femops.CGSolver(A, M=femops.jacobi(A), natural=natural)
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(3):
        b = rng.standard_normal(V.size)
        x, info = solver.solve(b, rtol=1e-13)
        assert np.abs(A @ x - b).max() < 1e-11
        counts.append(info.iterations)
        again, same = solver.solve(b, rtol=1e-13)
        assert same == replace(info, tolerance=pytest.approx(info.tolerance, rel=1e-14))
        assert np.array_equal(again, x)
        guessed, same = solver.solve(b, np.zeros(V.size), rtol=1e-13)
        assert same.iterations == info.iterations
        assert np.array_equal(guessed, x)
        assert solver.solve(b, x, rtol=1e-10)[1].iterations == 0
    assert 5 < min(counts) <= max(counts) < 60


@pytest.mark.parametrize("make", [femops.jacobi, femops.multigrid])
def test_a_load_of_zero_has_the_solution_zero_whatever_the_guess_is(make):
    """With multigrid it iterated until round-off, and warned."""
    V = femops.H1(femops.box((5, 4)), order=2)
    held = V.boundary_dofs(1)
    A = (femops.mass(V) + femops.diffusion(V)).constrained(held)
    b = V.zeros()
    b[held] = 3.0
    solver = femops.CGSolver(A, M=make(A))
    for _ in range(2):
        x, info = solver.solve(b, noise(A))
        assert info.converged
        assert info.iterations == 0
        assert np.array_equal(x, b)


def test_natural_norms_stop_where_the_preconditioned_residual_is_small():
    V = femops.H1(femops.box((6, 6), mapping=lambda x: x**2), order=2)
    A = femops.mass(V)
    M, b = femops.jacobi(A), noise(A)
    foreign = sla.LinearOperator(A.shape, matvec=lambda r: M @ r, dtype=A.dtype)
    for preconditioner in (M, foreign):
        solver = femops.CGSolver(A, M=preconditioner, natural=True)
        goal = 1e-6 * np.sqrt(b @ (M @ b))
        x, info = solver.solve(b, rtol=1e-6)
        y, fewer = solver.solve(b, rtol=1e-6, maxiter=info.iterations - 1, warn=False)
        sizes = [np.sqrt(r @ (M @ r)) for r in (b - A @ x, b - A @ y)]
        assert (info.residual, info.tolerance) == pytest.approx((sizes[0], goal), rel=1e-6)
        assert sizes[0] <= 1.001 * goal
        assert sizes[1] > goal
        assert (info.converged, fewer.converged) == (True, False)
        assert fewer.iterations == info.iterations - 1
        assert fewer.residual == pytest.approx(sizes[1], rel=1e-6)


@pytest.mark.usefixtures("one_thread_each")
@NATURAL
def test_several_systems_at_once_have_the_bits_of_each_alone(natural):
    V = femops.H1(femops.box((5, 4)), order=2)
    operators = [femops.mass(V).constrained(V.boundary_dofs(k)) for k in (1, 2, 3)]
    solvers = [femops.CGSolver(A, M=femops.jacobi(A), natural=natural) for A in operators]
    rights = list(np.random.default_rng(0).standard_normal((3, V.size)))
    rights[1] *= 0.0
    alone = [s.solve(b, rtol=1e-12) for s, b in zip(solvers, rights, strict=True)]
    for threads in (1, 2):
        machine.set_threads(threads)
        for _ in range(2):  # the second time it is known how long solves are
            together = femops.CGSolver.solve_all(solvers, rights, rtol=1e-12)
        for (x, info), (y, other) in zip(alone, together, strict=True):
            assert (info.iterations, info.residual) == (other.iterations, other.residual)
            assert np.array_equal(x, y)
    nothing, none = alone[1]
    assert none.converged
    assert none.iterations == none.residual == 0 < alone[0][1].iterations
    assert not nothing.any()


def test_what_is_refused():
    (A,) = masses(2)
    one, two = femops.CGSolver(A), femops.CGSolver(A)
    b = np.ones(A.shape[0])
    for solvers, rights, options, words in (
        ([], [], {}, "at least one solver, and each only once"),
        ([one, one], [b, 2 * b], {}, "at least one solver, and each only once"),
        ([one, two], [b], {}, "equally many"),
        ([one], [b], {"rtol": np.nan}, "rtol is"),
        ([one], [b], {"rtol": -1.0}, "rtol is"),
        ([femops.CGSolver(-1.0 * A)], [b], {}, "not to be positive definite"),
    ):
        with pytest.raises(SolverError, match=words):
            femops.CGSolver.solve_all(solvers, rights, **options)


def test_what_is_not_finite_and_what_overflows_are_told_apart():
    (A,) = masses(2)
    b = np.ones(A.shape[0])
    guess = np.where(np.arange(len(b)) == 3, np.nan, 0.0)
    for solve in (femops.CGSolver(A).solve, functools.partial(femops.cg, A)):
        with pytest.raises(SolverError, match="x0 has entries that are not finite"):
            solve(b, x0=guess)
        with pytest.raises(SolverError, match="b has entries that are not finite"):
            solve(guess)
        with (
            pytest.raises(SolverError, match="squares of the entries of b overflow"),
            np.errstate(over="ignore"),
        ):
            solve(1e200 * b)


@pytest.mark.usefixtures("one_thread_each")
def test_a_solve_that_was_refused_leaves_solvers_as_they_were():
    first, second = (femops.CGSolver(A, natural=True) for A in masses(3, 4))
    b, c = np.ones(49), np.ones(81)
    with pytest.raises(SolverError, match="not finite"):
        femops.CGSolver.solve_all([first, second], [b, np.nan * c])
    x, _ = femops.CGSolver.solve_all([first], [b], rtol=1e-12)[0]
    np.testing.assert_allclose(x, exact(masses(3)[0], b), rtol=1e-8)


@pytest.mark.usefixtures("one_thread_each")
def test_solvers_of_two_types_of_numbers():
    operators = [*masses(3), *masses(4, dtype="float32")]
    solvers = [femops.CGSolver(A, natural=True) for A in operators]
    rights = [noise(A) for A in operators]
    for _ in range(2):  # the second time there could be a group
        found = femops.CGSolver.solve_all(solvers, rights, rtol=1e-6)
        for A, b, (x, _) in zip(operators, rights, found, strict=True):
            expected = exact(A, b)
            np.testing.assert_allclose(x, expected, rtol=0, atol=1e-4 * abs(expected).max())


@pytest.mark.usefixtures("effort")
@NATURAL
def test_a_tolerance_is_that_of_the_call(natural):
    """Zero asks for all that can be had; a call before, and guesses, make no difference."""
    A, B = masses(6, 7)
    one, two = (femops.CGSolver(M, natural=natural) for M in (A, B))
    b, c = noise(A), noise(B)
    for rtol, error in ((1e-2, 1.0), (0.0, 1e-12), (1e-2, 1.0), (1e-10, 1e-8)):
        for solvers, rights in (([one, two], [b, c]), ([one], [b])):
            x, info = femops.CGSolver.solve_all(solvers, rights, rtol=rtol, warn=False)[0]
            assert np.linalg.norm(b - A @ x) <= error * np.linalg.norm(b)
            assert (info.iterations > 100) == (rtol == 0.0)
            assert info.converged == (info.residual <= info.tolerance) == (rtol > 0.0)


@pytest.mark.usefixtures("one_thread_each")
def test_threads_that_begin_to_pay_keep_the_tolerance(monkeypatch):
    (A,) = masses(6)
    solver, b = femops.CGSolver(A, natural=True), noise(A)
    for _ in range(2):
        femops.CGSolver.solve_all([solver], [b], rtol=1e-1)
    monkeypatch.setattr(sweep, "PARALLEL_EFFORT", 1)
    x, _ = femops.CGSolver.solve_all([solver], [b], rtol=1e-12)[0]
    assert np.linalg.norm(b - A @ x) <= 1e-10 * np.linalg.norm(b)


@pytest.mark.usefixtures("one_thread_each")
def test_solvers_of_one_operator_do_not_work_at_once():
    """What its elements share is added in one place."""
    (A,) = masses(20)
    solvers = [femops.CGSolver(B, natural=True) for B in (A, A, 2.0 * A)]
    rights = list(np.random.default_rng(0).standard_normal((3, A.shape[0])))
    alone = [s.solve(b, rtol=1e-10)[0] for s, b in zip(solvers, rights, strict=True)]
    machine.set_threads(2)
    for _ in range(20):
        together = femops.CGSolver.solve_all(solvers, rights, rtol=1e-10)
        for x, (y, _) in zip(alone, together, strict=True):
            assert np.array_equal(x, y)


@pytest.mark.usefixtures("effort")
def test_threads_of_python_wait_for_each_other():
    A, B = masses(8, 9)
    one, two = (femops.CGSolver(M, natural=True) for M in (A, B))
    rights = [np.random.default_rng(k).standard_normal(A.shape[0]) for k in range(3)]
    other = noise(B)
    expected = [one.solve(b, rtol=1e-12)[0] for b in rights]

    def many(k):
        both = ([one, two], [two, one])[k % 2]
        for _ in range(20):
            assert np.array_equal(one.solve(rights[k], rtol=1e-12)[0], expected[k])
            given = [rights[k] if solver is one else other for solver in both]
            found = femops.CGSolver.solve_all(both, given, rtol=1e-12)[both.index(one)]
            assert np.array_equal(found[0], expected[k])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(many, range(3)))


@NATURAL
def test_single_precision_takes_right_hand_sides_of_any_size(natural):
    (A,) = masses(4, dtype="float32")
    solver = femops.CGSolver(A, M=femops.jacobi(A), natural=natural)
    expected, start = exact(A, noise(A)), 0.1 * noise(A)
    b = noise(A).astype("float64")
    norm = np.sqrt(b @ (femops.jacobi(A).inverse * b if natural else b))
    for k in (-110, -60, -19, 0, 19, 63, 118):
        b = np.ldexp(noise(A), k)
        x, info = solver.solve(b, rtol=1e-6)
        assert info.tolerance == pytest.approx(1e-6 * norm * 2.0**k, rel=1e-4)
        guessed = solver.solve(b, np.ldexp(start, k), rtol=1e-6)[0]
        for found in (x, guessed):
            relative = np.ldexp(found.astype("float64"), -k)
            np.testing.assert_allclose(relative, expected, atol=1e-4 * abs(expected).max())


@pytest.mark.parametrize("held", [False, True], ids=["all", "beside others that do not"])
def test_entries_that_underflow_are_told_of(held):
    """What is constrained is as large as b, the rest 1e15 times as small."""
    (A,) = masses(4, dtype="float32")
    A = 1e15 * A
    A = A.constrained(np.arange(0, A.shape[0], 3)) if held else A
    M, b = femops.jacobi(A), np.ones(A.shape[0], dtype="float32")
    for solve in (femops.CGSolver(A, M=M).solve, functools.partial(femops.cg, A, M=M)):
        x = solve(np.float32(1e-23) * b, rtol=1e-4)[0].astype("float64")
        assert np.linalg.norm(A.assemble() @ (1e23 * x) - 1.0) < 1e-3 * np.linalg.norm(b)
        with pytest.raises(SolverError, match="out of the range of float32"):
            solve(np.float32(1e-33) * b, rtol=1e-4)


def test_a_guess_whose_residual_overflows_is_blamed_for_it():
    for dtype, size in (("float32", 1e18), ("float64", 1e200)):
        A = size * masses(4, dtype=dtype)[0]
        for solve in (femops.CGSolver(A).solve, functools.partial(femops.cg, A)):
            with pytest.raises(SolverError, match="squares of the residual overflow"):
                solve(np.ones(A.shape[0], dtype), np.full(A.shape[0], 1e5, dtype))


def test_a_guess_whose_residual_has_an_energy_that_overflows_is_blamed_for_it():
    """A was said not to be positive definite."""
    V = femops.H1(femops.box((8, 4), upper=(1.0, 1e-3)), 2)
    A = femops.diffusion(V, 1e12, dtype="float32") + 1e11 * femops.mass(V, dtype="float32")
    b, far = noise(A), noise(A, 1.0)
    for solve in (femops.CGSolver(A).solve, functools.partial(femops.cg, A)):
        with pytest.raises(SolverError, match="or its energy does: give a first guess"):
            solve(b, far)


@pytest.mark.usefixtures("one_thread_each")
def test_copies_begin_solves_of_their_own():
    (A,) = masses(5)
    solver, b = femops.CGSolver(A, M=femops.jacobi(A), natural=True), noise(A)
    expected, _ = solver.solve(b, rtol=1e-12)
    for twin in (copy.copy(solver), copy.deepcopy(solver), pickle.loads(pickle.dumps(solver))):
        for _ in range(2):
            found = femops.CGSolver.solve_all([solver, twin], [2.0 * b, b], rtol=1e-12)
            np.testing.assert_array_equal(found[0][0], 2.0 * expected)
            np.testing.assert_array_equal(found[1][0], expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_guess_that_is_far_off_is_no_sign_of_a_singular_operator(dtype):
    (A,) = masses(4, dtype=dtype)
    far = np.full(A.shape[0], 1e9, dtype=dtype)
    b = noise(A, 1e-15)
    x, info = femops.cg(A, b, far, rtol=1e-5, atol=1e-30, warn=False)
    assert not info.converged
    residual = np.linalg.norm(b - A @ x)
    assert info.residual == pytest.approx(residual, rel=0.5)
    assert residual < 1e-3 * np.linalg.norm(A @ far)


def test_columns_and_complex_operators():
    V = femops.H1(femops.box((4, 3)), order=2)

    def hermitian(u):
        x, y = u.grad
        return {"value": 2.0 * u, "grad": [x + 0.5j * y, y - 0.5j * x]}

    rng = np.random.default_rng(2)
    real = femops.diffusion(V).constrained(V.boundary_dofs())
    turned = femops.form(hermitian, V, dtype="complex128").constrained(V.boundary_dofs())
    pairs = rng.random((V.size, 2))
    for A, b in ((turned, pairs[:, 0] + 1j * pairs[:, 1]), (real, pairs[:, 0].copy())):
        B = np.stack([A.rhs(b, b), 1e-30 * b, 0.0 * b, 1e30 * b], axis=1)
        exact = np.linalg.solve(A.assemble().toarray(), B)
        for M in (None, femops.jacobi(A), femops.multigrid(real)):
            solver = femops.CGSolver(A, M=M)
            X, info = solver.solve(B, rtol=1e-12)
            assert info.converged
            assert X.dtype == A.dtype
            errors, sizes = (np.linalg.norm(Y, axis=0) for Y in (X - exact, exact))
            assert (errors <= 1e-9 * sizes).all()
            again, _ = solver.solve(B[:, 0].copy(), X[:, 0].copy(), rtol=1e-12)
            assert again == pytest.approx(exact[:, 0], rel=1e-8)
        with pytest.warns(femops.errors.ConvergenceWarning, match="3 of 4 systems") as caught:
            femops.CGSolver(A).solve(B, maxiter=2)
        assert len(caught) == 1
    with pytest.raises(SolverError, match="not Hermitian"):
        femops.CGSolver(femops.form(lambda u: {"value": 1j * u}, V, dtype="complex128"))


def test_a_solve_ends_where_residuals_grow():
    A = femops.elasticity(femops.H1(femops.box((3, 2)), 2, ncomp=2))
    b = femops.load(A.space, (1.0, 0.0))
    with pytest.warns(femops.errors.ConvergenceWarning, match="constants of component 0"):
        _, info = femops.CGSolver(A).solve(b, maxiter=10**6)
    assert info.iterations < 2000


@pytest.mark.parametrize("load", [lambda x: 1.0, lambda x: x[0]])
@pytest.mark.parametrize("make", [None, femops.jacobi])
@pytest.mark.parametrize("rtol", [1e-2, 1e-8])
def test_a_recursion_that_converges_on_a_singular_operator_is_no_solution(load, make, rtol):
    V = femops.H1(femops.box((4, 4)), order=2)
    A = femops.diffusion(V)  # constants are in its null space, and the load has a part along them
    solver = femops.CGSolver(A, M=None if make is None else make(A))
    for _ in range(2):
        converged = True
        with contextlib.suppress(SolverError):
            converged = False
            _, info = solver.solve(femops.load(V, load), rtol=rtol, warn=False)
            converged = info.converged
        assert not converged


@NATURAL
@pytest.mark.parametrize("size", [1e9, 1e100])
def test_a_guess_that_leaves_its_round_off_has_not_converged(natural, size):
    V = femops.H1(femops.box((8, 8)), order=2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0), 0.0)
    solver = femops.CGSolver(A, M=femops.jacobi(A), natural=natural)
    for call in (
        lambda: solver.solve(b, noise(A, size), rtol=1e-6),
        lambda: femops.CGSolver.solve_all([solver], [b], [noise(A, size)], rtol=1e-6)[0],
    ):
        with pytest.warns(
            femops.errors.ConvergenceWarning, match="no longer decreases|first guess"
        ):
            x, info = call()
        r = b - A @ x
        found = np.sqrt(r @ (femops.jacobi(A) @ r)) if natural else np.linalg.norm(r)
        assert not info.converged
        assert info.residual == pytest.approx(found, rel=1e-6)
