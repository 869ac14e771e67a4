"""MINRES and GMRES: solutions, how they end, and what is told of the iterations of all solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spla

import femops
from femops.errors import ConvergenceWarning, SolverError, VectorError
from support import fixtures
from support.cases.kernels import bend
from support.cases.products import stokes

one_thread = fixtures.one_thread

Array = np.ndarray
System = tuple[Any, Array, Any]  # operator, right-hand side, preconditioner

MESH = femops.box((4, 3), mapping=bend)
V = femops.H1(MESH, 2)
INSIDE = np.setdiff1d(np.arange(V.size), V.boundary_dofs())


def helmholtz() -> System:
    """Symmetric, with eigenvalues of both signs."""
    A = femops.helmholtz(V, 9.0).constrained(V.boundary_dofs())
    values = np.linalg.eigvalsh(A.assemble().toarray())
    assert values[0] < -0.1 < 0.1 < values[-1]
    definite = femops.diffusion(V) + femops.mass(V, 81.0)
    M = femops.jacobi(definite.constrained(V.boundary_dofs()))
    return A, A.rhs(femops.load(V, lambda x: 1.0 + x[0])), M


def saddle() -> System:
    """Stokes' equations; one pressure is given."""
    U, Q = femops.H1(MESH, 2, ncomp=2), femops.H1(MESH, 1)
    W = femops.Product(u=U, p=Q)
    A = femops.form(stokes, W, mu=1.0).constrained(W.positions(u=U.boundary_dofs(), p=[0]))
    b = A.rhs(W.join(u=femops.load(U, lambda x: (x[1], 1.0))), W.interpolate(p=2.0))
    scale = W.join(u=A["u", "u"].diagonal(), p=femops.mass(Q).diagonal())
    return A, b, spla.LinearOperator(A.shape, lambda r: r / scale, dtype=float)


def flow() -> System:
    """Convection and diffusion: not symmetric."""
    A = femops.convection(V, [6.0, 2.0]) + femops.diffusion(V)
    A = A.constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, 1.0), V.interpolate(lambda x: x[1])), femops.jacobi(A)


@pytest.mark.sample(2)
@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize(
    ("solver", "system"),
    [
        (femops.minres, helmholtz),
        (femops.minres, saddle),
        (femops.gmres, helmholtz),
        (femops.gmres, saddle),
        (femops.gmres, flow),
    ],
)
def test_solutions(solver: Any, system: Callable[[], System], preconditioned: bool) -> None:
    """As SciPy's direct solver has them, from any first guess."""
    A, b, M = system()
    M = M if preconditioned else None
    options: dict[str, Any] = {"restart": A.shape[0]} if solver is femops.gmres else {}
    x, info = solver(A, b, rtol=1e-11, M=M, **options)
    assert info.converged, info
    goal = 1e-11 * np.linalg.norm(np.delete(b, A.constrained_dofs))
    assert info.residual <= info.tolerance == pytest.approx(goal, rel=1e-14)
    assert info.residual == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-6)
    direct = spla.spsolve(A.assemble().tocsc(), b)
    np.testing.assert_allclose(x, direct, rtol=0, atol=1e-7 * abs(direct).max())
    guess = np.random.default_rng(0).standard_normal(len(b))
    kept = guess.copy()
    y, other = solver(A, b, guess, rtol=0.0, atol=1e-9, M=M, **options)
    assert other.converged
    assert other.tolerance == 1e-9
    np.testing.assert_allclose(y, direct, rtol=0, atol=1e-6 * abs(direct).max())
    np.testing.assert_array_equal(guess, kept)


@pytest.mark.parametrize("solver", [femops.minres, femops.gmres])
def test_as_many_iterations_as_scipy(solver: Any) -> None:
    A, b, _ = helmholtz()
    counts = [0]

    def product(x: Array) -> Array:
        counts[0] += 1
        return A @ x

    counted = spla.LinearOperator(A.shape, product, dtype=float)
    options = {"restart": A.shape[0]} if solver is femops.gmres else {}
    _, info = solver(A, b, rtol=1e-8, **options)
    getattr(spla, solver.__name__)(counted, b, rtol=1e-8, **options)
    assert info.converged
    assert abs(info.iterations - counts[0]) <= 4


def test_a_preconditioner_that_is_the_inverse() -> None:
    for solver, (A, b, _) in ((femops.gmres, flow()), (femops.minres, positive())):
        factors = spla.splu(A.assemble().tocsc())
        M = spla.LinearOperator(A.shape, factors.solve, dtype=float)
        x, info = solver(A, b, M=M, rtol=1e-8)
        assert info.converged
        assert info.iterations <= 2
        np.testing.assert_allclose(A @ x, b, rtol=0, atol=1e-8 * np.linalg.norm(b))


def test_a_preconditioner_in_float32_near_an_eigenvalue() -> None:
    """GMRES keeps the corrections; M of the sum of the directions has other round-off."""
    space = femops.H1(femops.box((8, 8)), 3)
    held, mass = space.boundary_dofs(), femops.mass(space)
    K = femops.diffusion(space)
    factors = spla.splu(K.constrained(held).assemble().tocsc())
    A = (K - (1.0 - 1e-6) * 2.0 * np.pi**2 * mass).constrained(held)
    b = A.rhs(femops.load(space, lambda x: 1.0 + x[0]))
    M = spla.LinearOperator(A.shape, lambda r: factors.solve(r).astype("f4") * 1.0, dtype=float)
    x, info = femops.gmres(A, b, M=M, rtol=1e-6)
    assert info.converged
    assert info.iterations <= 12
    assert np.linalg.norm(b - A @ x) <= info.tolerance


def positive() -> System:
    """Symmetric and positive definite."""
    A = (femops.diffusion(V) + femops.mass(V)).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, lambda x: 1.0 + x[0])), femops.jacobi(A)


# --- how they end ---------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("solver", [femops.minres, femops.gmres])


@BOTH
def test_nothing_to_do(solver: Any) -> None:
    A, b, M = positive()
    x, info = solver(A, 0.0 * b, M=M)
    assert info.converged
    assert info.iterations == 0
    assert not x.any()
    x, info = solver(A, 0.0 * b, b, M=M)  # whatever the guess
    assert info.converged
    assert not x.any()
    exact = spla.spsolve(A.assemble().tocsc(), b)
    x, info = solver(A, b, exact, rtol=1e-12, M=M)
    assert info.converged
    assert info.iterations == 0
    np.testing.assert_array_equal(x, exact)
    x, info = solver(A, b, exact, rtol=0.0, warn=False)  # round-off is what is left
    assert not info.converged
    assert info.residual <= 1e-13 * np.linalg.norm(b)


@BOTH
@pytest.mark.parametrize("preconditioned", [True, False])
def test_singular_systems(solver: Any, preconditioned: bool) -> None:
    """With a solution it is found; without one the solver ends and says so."""
    A = femops.diffusion(V)  # constants are in its null space
    M = femops.jacobi(A) if preconditioned else None
    b = femops.load(V, lambda x: np.sin(5 * x[0]))
    b -= b.mean()
    x, info = solver(A, b, rtol=1e-10, M=M)
    assert info.converged
    np.testing.assert_allclose(A @ x, b, rtol=0, atol=1e-9 * np.linalg.norm(b))
    x, info = solver(A, b + 0.1, rtol=1e-10, M=M, warn=False)
    assert not info.converged
    assert info.residual == pytest.approx(np.linalg.norm(b + 0.1 - A @ x))
    assert info.iterations < 3 * V.size
    assert abs(x).max() < 100


@BOTH
def test_rows_that_are_zero(solver: Any) -> None:
    A = femops.mass(V).eliminated(V.boundary_dofs(), V.boundary_dofs())
    for b in (np.eye(V.size)[V.boundary_dofs()[0]], np.ones(V.size)):
        more = {"restart": V.size} if solver is femops.gmres else {}
        with pytest.warns(ConvergenceWarning, match="The residual no longer decreases"):
            x, info = solver(A, b, **more)
        assert not info.converged
        assert info.residual == pytest.approx(np.linalg.norm(b - A @ x))
        assert info.residual <= np.linalg.norm(b)
        if solver is femops.minres:
            np.testing.assert_allclose((b - A @ x)[INSIDE], 0.0, atol=1e-6)


@BOTH
def test_too_few_iterations(solver: Any) -> None:
    A, b, M = helmholtz()
    _, most = solver(A, b, rtol=1e-10, M=M)
    _, info = solver(A, b, rtol=1e-10, M=M, maxiter=most.iterations // 2, warn=False)
    assert (info.converged, info.iterations) == (False, most.iterations // 2)
    x, info = solver(A, b, M=M, maxiter=0, warn=False)
    assert info.iterations == 0
    assert not x.any()


def test_refusals() -> None:
    A, b, M = helmholtz()
    B, Q = flow()[0], femops.H1(MESH, 1)
    between = femops.form(lambda u: {"value": u}, Q, V)
    for message, call in (
        ("not symmetric, as minres needs", lambda: femops.minres(B, b)),
        ("M is not positive", lambda: femops.minres(A, b, M=femops.jacobi(-A))),
        ("not to be positive definite", lambda: femops.minres(A, b, M=-np.eye(V.size))),
        ("not to be positive definite", lambda: femops.minres(A, b, M=0.0 * np.eye(V.size))),
        ("restart is 0", lambda: femops.gmres(A, b, restart=0)),
        ("rtol is -1: give a number", lambda: femops.gmres(A, b, rtol=-1)),
        ("maxiter is 1.5", lambda: femops.minres(A, b, maxiter=1.5)),
        ("not finite", lambda: femops.minres(A, b * np.nan)),
        ("x0 has entries", lambda: femops.minres(A, b, b * np.nan)),
        ("A is an array", lambda: femops.gmres(np.eye(2), b)),
        ("complex", lambda: femops.minres(A, b * 1j, M=M)),
        ("x0", lambda: femops.gmres(A, b, b[:-1])),
        ("from one space to another", lambda: femops.gmres(between, Q.zeros())),
    ):
        with pytest.raises((SolverError, VectorError), match=message):
            call()  # type: ignore[no-untyped-call]


# --- what is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize(
    ("solver", "system", "options"),
    [
        (femops.cg, positive, {"merged": True}),
        (femops.cg, positive, {"merged": False}),
        (femops.minres, helmholtz, {}),
        (femops.gmres, flow, {"restart": 10}),
    ],
)
def test_history(solver: Any, system: Any, options: dict[str, Any], preconditioned: bool) -> None:
    """The norms are those of the iterates, and asking for them changes nothing."""
    A, b, M = system()
    guess = np.linspace(0.0, 1.0, len(b))
    options = options | {"rtol": 1e-9, "M": M if preconditioned else None}
    plain, nothing = solver(A, b, guess, **options)
    x, info = solver(A, b, guess, **options, history=True)
    assert nothing.residuals == ()
    assert info.converged
    assert len(info.residuals) == info.iterations + 1
    np.testing.assert_array_equal(x, plain)
    guess[A.constrained_dofs] = b[A.constrained_dofs]
    seen, told = [guess], []
    x, shown = solver(
        A,
        b,
        guess,
        **options,
        callback=lambda x: seen.append(x.copy()),
        progress=lambda *given: told.append(given),
    )
    assert [k for k, _ in told] == list(range(info.iterations + 1))
    norms = [np.linalg.norm(b - A @ iterate) for iterate in seen]
    atol = 1e-12 * np.linalg.norm(b)
    np.testing.assert_allclose(norms, info.residuals, rtol=1e-6, atol=atol)
    np.testing.assert_allclose([norm for _, norm in told], info.residuals, rtol=1e-6, atol=atol)
    np.testing.assert_allclose(seen[-1], x, rtol=0, atol=1e-14 * abs(x).max())
    assert shown.residuals == ()


def test_iterates_cannot_be_written_to() -> None:
    A, b, _ = positive()
    for solver in (femops.cg, femops.minres, femops.gmres):
        with pytest.raises(ValueError, match="read-only"):
            solver(A, b, callback=lambda x: x.fill(1.0))
    F = femops.residual(lambda u: {"value": u + u**3}, A.space)
    with pytest.raises(ValueError, match="read-only"):
        femops.newton(F, A.space.zeros(), b, callback=lambda u: u.fill(1.0))


@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
@pytest.mark.parametrize("name", ["progress", "callback"])
def test_a_function_that_overwrites_b_does_not_change_the_solve(solver: Any, name: str) -> None:
    """minres took residuals of another system for those of this one, and had "converged"."""
    V = femops.H1(femops.box((3, 3)), 2)
    A, b = femops.mass(V), femops.load(V, lambda x: x[0])
    expected, _ = solver(A, b.copy(), rtol=1e-8)

    def spoil(*_: Any) -> None:
        b[:] = 1e3

    x, info = solver(A, b, rtol=1e-8, **{name: spoil})
    assert info.converged
    np.testing.assert_allclose(x, expected, atol=1e-7)


def test_progress_without_history_is_of_some_iterations() -> None:
    A, b, _ = positive()
    told: list[tuple[int, float]] = []
    _, info = femops.cg(A, b, rtol=1e-9, progress=lambda *given: told.append(given))
    assert told[0] == (0, pytest.approx(np.linalg.norm(b), rel=1e-14))
    assert told[-1][0] == info.iterations
    assert told[-1][1] <= info.tolerance
    assert len(told) < info.iterations


@pytest.mark.parametrize("linear", ["cg", "minres", "gmres"])
def test_history_of_newton(linear: Any) -> None:
    F = femops.p_laplacian(V, 3.0, 0.1).constrained(V.boundary_dofs())
    told: list[tuple[int, float]] = []
    _, info = femops.newton(
        F,
        V.zeros(),
        femops.load(V, 1.0),
        linear=linear,
        history=True,
        progress=lambda *given: told.append(given),
    )
    assert info.converged
    assert told == list(enumerate(info.residuals))
    assert info.residual == info.residuals[-1] <= info.tolerance
    assert len(info.linear_residuals) == info.iterations
    assert sum(len(norms) - 1 for norms in info.linear_residuals) == info.linear_iterations
    for norms, begin in zip(info.linear_residuals, info.residuals, strict=False):
        assert norms[0] == pytest.approx(begin)
        assert norms[-1] < 0.2 * norms[0]
    assert femops.newton(F, V.zeros(), femops.load(V, 1.0))[1].linear_residuals == ()


@pytest.mark.parametrize("solver", [femops.minres, femops.gmres])
def test_columns_are_each_solved_to_their_own_tolerance(solver: Any) -> None:
    A, b, M = helmholtz()
    rng = np.random.default_rng(1)
    B = np.stack([b, 1e-30 * A.rhs(rng.random(V.size), 2.0), 0.0 * b, 1e20 * b], axis=1)
    exact, start = np.linalg.solve(A.assemble().toarray(), B), rng.random(B.shape)
    for given in (B, np.asfortranarray(B)):
        X, info = solver(A, given, M=M, rtol=1e-12)
        assert info.converged
        errors, sizes = (np.linalg.norm(Y, axis=0) for Y in (X - exact, exact))
        assert (errors <= 1e-9 * sizes).all()
    alone, _ = solver(A, B[:, 0].copy(), start[:, 0].copy(), M=M)
    X, _ = solver(A, B, start, M=M)
    assert np.array_equal(X[:, 0], alone)
    with pytest.warns(ConvergenceWarning, match="after 2 iterations") as caught:
        _, info = solver(A, B, maxiter=2, history=True)
    assert len(caught) == 1
    assert not info.converged
    assert len(info.residuals) == 3
    with pytest.raises(SolverError, match="leave out callback"):
        solver(A, B, callback=lambda x: None)
    with pytest.raises(VectorError, match="b has no columns"):
        solver(A, B[:, :0])
    with pytest.raises(VectorError, match="give a column, and one of x0"):
        solver(A, B, start[:, :2])
