"""Solves that have not converged warn, once, and name the likely cause."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import femops
from femops.errors import ConvergenceWarning, OperatorError
from femops.solvers.singular import singular_cause
from support import fixtures
from support.cases.meshes import split_square

one_thread = fixtures.one_thread

Array = np.ndarray
V = femops.H1(femops.read_mesh(femops.sample("disc.mesh")), 3)
U = femops.H1(femops.box((3, 2)), 2, ncomp=2)
FORGOTTEN = r"Was constrained\(\) forgotten\? Write A = A.constrained\(V.boundary_dofs\(\)\)"
LINEAR: dict[str, Callable[..., Any]] = {
    "cg": femops.cg,
    "cg, several sweeps": partial(femops.cg, merged=False),
    "minres": femops.minres,
    "gmres": femops.gmres,
}


def told(solve: Callable[[], Any]) -> tuple[list[str], Any]:
    """Texts of the warnings of a solve, of the line that calls it, and its result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = solve()
    for one in caught:
        assert one.category is ConvergenceWarning
        assert one.filename == __file__
    return [str(one.message) for one in caught], found


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_forgotten_constraint_is_named(name: str, dtype: str) -> None:
    solver, A = LINEAR[name], femops.diffusion(V, dtype=dtype)
    for size in (1e-8, 1.0, 1e8):
        b = femops.load(V, size, dtype=dtype)
        (text,), (_, info) = told(lambda b=b: solver(A, b))  # type: ignore[misc]
        assert not info.converged
        assert text.startswith(f"femops.{name[:2]}")
        for words in ("takes constants to zero", "Was constrained() forgotten?", "warn=False"):
            assert words in text
        part = abs(b.sum(dtype=float)) / np.sqrt(V.size)  # along constants
        assert f"norm {part:.2g}," in text
        assert told(lambda b=b: solver(A, b, warn=False))[0] == []  # type: ignore[misc]
    C = A.constrained(V.boundary_dofs())
    assert told(lambda: solver(C, C.rhs(b)))[0] == []
    (text,), _ = told(lambda: solver(C, C.rhs(b), maxiter=2))
    assert "singular" not in text
    assert "or a larger maxiter" in text


@pytest.mark.parametrize("make", [femops.multigrid, femops.jacobi, lambda A: femops.mass(A.space)])
def test_conjugate_gradients_end_where_residuals_grow(make: Callable[..., Any]) -> None:
    """With an impossible load they would go on for ten times as many iterations as unknowns."""
    A, b = femops.elasticity(U), femops.load(U, (1.0, 0.0))
    (text,), (_, info) = told(lambda: femops.cg(A, b, M=make(A), maxiter=10**6))
    assert "takes constants of component 0" in text
    assert info.iterations < 2000
    assert 1e6 * np.linalg.norm(b) < info.residual < np.inf


def test_solvers_of_many_right_hand_sides_warn_once() -> None:
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0))
    solvers = [femops.CGSolver(A, M=femops.jacobi(A)) for _ in range(3)]
    for rights, count in (([b, 0.0 * b, -b], 2), ([0.0 * b] * 3, 0)):
        for guesses in (None, [0.1 * b] * 3):
            solve = partial(femops.CGSolver.solve_all, solvers, rights, guesses, maxiter=2)
            texts, _ = told(solve)
            assert [t[:25] for t in texts] == [f"femops.CGSolver: {count} of 3 s"] * (count > 0)
            assert told(partial(solve, warn=False))[0] == []
    with pytest.warns(ConvergenceWarning, match=FORGOTTEN):
        femops.CGSolver(femops.diffusion(V)).solve(b + 1.0)


def test_newton_warns_of_itself_alone() -> None:
    F, b = femops.neo_hookean(U), femops.load(U, [0.0, -1e4])
    held = F.constrained(U.boundary_dofs())
    (text,), (_, info) = told(lambda: femops.newton(held, U.zeros(), b, maxiter=2))
    assert f"({info.reason}). Apply the load in steps" in text
    (text,), _ = told(lambda: femops.newton(F, U.zeros(), b, maxiter=2))
    assert "Jacobian of F is singular" in text
    assert "F = F.constrained(" in text
    assert text.count("is singular") == 1
    assert told(lambda: femops.newton(F, U.zeros(), b, maxiter=2, warn=False))[0] == []


def test_newton_at_round_off_advises_a_larger_rtol() -> None:
    """Two large sources cancel: their rounding is more than that of u, which ends a solve."""
    F = femops.residual(lambda u: {"value": u + u**3 + 1e5, "grad": u.grad}, V)
    b, exact = femops.load(V, 1.0 + 1e5), {"rtol": 0.0, "atol": 0.0}
    (text,), (_, info) = told(lambda: femops.newton(F, V.zeros(), b, **exact))
    assert info.residual < 1e-7 * info.residuals[0]
    assert "larger rtol or atol" in text
    assert "better u0" not in text
    (text,), _ = told(lambda: femops.newton(F, V.zeros(), b, maxiter=1, **exact))
    assert "better u0" in text


def test_newton_returns_its_result_if_there_is_no_jacobian_to_warn_with(monkeypatch: Any) -> None:
    F, b = femops.neo_hookean(U).constrained(U.boundary_dofs()), femops.load(U, [0.0, -1e4])

    def none(*_: Any) -> Any:
        raise OperatorError("no Jacobian")

    monkeypatch.setattr(type(F), "jacobian", none)
    (text,), (u, info) = told(lambda: femops.newton(F, U.zeros(), b, maxiter=0))
    assert f"({info.reason}). Apply the load in steps" in text
    assert not u.any()


def test_advice_names_a_degree_that_there_is() -> None:
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0))
    for degree, words in ((3, "degree=6)."), (40, "degree=64)."), (64, "another M. ")):
        solve = partial(femops.minres, A, b, M=femops.multigrid(A, degree=degree))
        (text,), _ = told(partial(solve, maxiter=1, rtol=1e-14))
        assert words in text
    waves = femops.helmholtz(V, k=4.0).constrained(V.boundary_dofs())  # which multigrid refuses
    M = femops.multigrid(A, dtype="float64")
    (text,), _ = told(lambda: femops.minres(waves, b, M=M, maxiter=1, rtol=1e-14))
    assert "multigrid(A" not in text
    assert "larger maxiter" in text


def stokes(u: Any, p: Any) -> Any:
    return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}


def flow(order: int = 1, **options: Any) -> tuple[Any, femops.Product, Array]:
    """Stokes' equations with a velocity of order 2, given on the boundary, and a load."""
    W = femops.Product(u=U, p=femops.H1(U.mesh, order))
    load = W.join(u=femops.load(U, lambda x: (x[1], 0.0)), p=W.spaces["p"].zeros())
    A = femops.form(stokes, W, **options).constrained(W.positions(u=U.boundary_dofs()))
    return A, W, load


def causes() -> dict[str, tuple[Any, str]]:
    """Operators, and what of them has to be named; nothing of those that are regular."""
    E, kappa = femops.elasticity(U), lambda x: np.where(x[0] < 0.3, 1e12, 1.0)
    node = U.boundary_dofs(where=lambda x: (x[0] > 1 - 1e-9) & (x[1] < 1e-9))
    low = U.boundary_dofs(where=lambda x: x[1] < 1e-9, components=1)
    H, edge = femops.diffusion(V, kappa), V.boundary_dofs()
    T = femops.diffusion(femops.H1(split_square(), 2))
    return {
        "free body": (E, "constants of component 0, constants of component 1, rotations to zero"),
        "one node": (E.constrained(node), "takes a rigid motion to zero. Constrain a dof"),
        "slides": (E.constrained(low), "takes constants of component 0 to zero. Constrain a dof"),
        "held": (E.constrained(np.union1d(low, node)), ""),
        "jumps": (H, "takes constants to zero. Was"),
        "jumps, held": (H.constrained(edge), ""),
        "jumps, held at a dof": (H.constrained(edge[:1]), ""),
        "shifted": (femops.diffusion(V) + 1e-6 * femops.mass(V), ""),
        "pressure": (flow()[0], "takes constants of p to"),
        "convection": (femops.convection(V, (1.0, 2.0)), "takes constants to zero. Was"),
        "scaled": (1e-200 * femops.diffusion(V), "takes constants to zero. Was"),
        "nothing": (femops.mass(V), ""),
        "two bodies": (T.constrained(T.space.boundary_dofs(1)), "constants in 1 of 2 bodies to"),
        "two bodies, both held": (T.constrained(T.space.boundary_dofs()), ""),
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", causes())
def test_singular_operators_and_their_like(name: str) -> None:
    """The dense matrix agrees: one of its singular values is round-off, or none."""
    A, words = causes()[name]
    text = singular_cause(A, np.random.default_rng(1).random(A.space.size), 0.0)
    assert (words in text) if words else not text
    matrix = A.assemble().toarray()
    scaled = matrix / abs(matrix).max(axis=1, keepdims=True)  # a row is as good as its multiple
    assert bool(text) == (np.linalg.svd(scaled, compute_uv=False)[-1] < 1e-13)


def test_a_balanced_load_that_lacks_iterations_has_solutions() -> None:
    A, b = femops.diffusion(V), femops.load(V, lambda x: x[0])
    b -= b.mean()
    for solver in (femops.cg, femops.minres):
        (text,), _ = told(lambda solver=solver: solver(A, b, maxiter=3))  # type: ignore[misc]
        assert "takes constants to zero. But b has no part along them" in text
        assert "forgotten" not in text
        assert text.endswith("or a larger maxiter. (warn=False: no warning)")


def test_advice_is_not_what_was_done_nor_what_is_refused() -> None:
    C = femops.diffusion(V).constrained(V.boundary_dofs())
    b = C.rhs(femops.load(V, 1.0))
    (text,), _ = told(lambda: femops.CGSolver(C, M=femops.jacobi(C)).solve(b, maxiter=2))
    assert "jacobi" not in text
    assert "M=femops.multigrid(A)" in text
    (text,), _ = told(lambda: femops.CGSolver(C).solve(b, maxiter=2))
    assert "femops.jacobi(A)" in text
    H = femops.helmholtz(V, 9.0).constrained(V.boundary_dofs())  # multigrid(H) is refused
    (text,), _ = told(lambda: femops.minres(H, b, M=femops.multigrid(C), maxiter=1))
    assert "or another M." in text
    assert "multigrid(A" not in text


@pytest.mark.parametrize("jacobian", [False, True])
def test_newton_on_a_saddle_tells_why_the_linear_solver_gave_up(jacobian: bool) -> None:
    A, W, b = flow()
    F = femops.residual(stokes, W).constrained(A.constrained_dofs)
    kind: Any = "multigrid" if jacobian else "jacobi"
    (text,), (_, info) = told(lambda: femops.newton(F, W.zeros(), b, preconditioner=kind))
    assert info.reason in text
    assert "onstrain a dof" not in text
    assert "femops.block_triangular(J, ...)" in text

    def blocks(J: Any) -> Any:
        mass = femops.jacobi(-femops.mass(W.spaces["p"]))
        return femops.block_triangular(J, u=femops.multigrid(J["u", "u"]), p=mass)

    options: dict[str, Any] = {"linear": "gmres", "preconditioner": blocks}
    texts, (_, info) = told(lambda: femops.newton(F, W.zeros(), b, **options))
    assert not texts
    assert info.converged


def test_a_pressure_of_the_order_of_the_velocity_is_named() -> None:
    for order, count in ((1, 0), (2, 1)):
        A, W, load = flow(order)
        b = A.rhs(load)
        for solver in (femops.minres, femops.gmres):
            texts, _ = told(lambda s=solver, A=A, b=b: s(A, b, maxiter=0))  # type: ignore[misc]
            assert sum("inf-sup" in text for text in texts) == count
        complex_A, complex_b = flow(order, dtype="complex128")[0], b.astype(complex)
        for B, c in ((A.T, b), (complex_A, complex_b)):
            texts, _ = told(lambda B=B, c=c: femops.gmres(B, c, maxiter=0))  # type: ignore[misc]
            assert sum("inf-sup" in text for text in texts) == count
    # a stabilised pressure, and an adjoint state of the order of the state
    pressed = femops.form(lambda u, p: {"u": {}, "p": {"grad": -0.01 * p.grad}}, W)
    stable = A + pressed.constrained(A.constrained_dofs)
    control = femops.form(
        lambda u, p: {"u": {"value": u, "grad": p.grad}, "p": {"grad": u.grad}},
        X := femops.Product(u=femops.H1(U.mesh, 2), p=femops.H1(U.mesh, 2)),
    )
    for B, c in ((stable, b), (control, X.zeros() + 1.0)):
        texts, _ = told(lambda B=B, c=c: femops.minres(B, c, maxiter=0))  # type: ignore[misc]
        assert not any("inf-sup" in text for text in texts)


def test_a_preconditioner_of_the_unconstrained_operator_is_named() -> None:
    N = femops.diffusion(V)
    C = N.constrained(V.boundary_dofs())
    b = C.rhs(femops.load(V, 1.0))
    (text,), (_, info) = told(lambda: femops.cg(C, b, M=femops.multigrid(N)))
    assert "M is not made of A: A has constrained dofs that M's operator has not" in text
    assert info.converged
    assert told(lambda: femops.cg(C, b, M=femops.multigrid(C)))[0] == []
    assert told(lambda: femops.cg(C, b, M=femops.multigrid(N), warn=False))[0] == []
    A, W, load = flow()
    mass, right = femops.jacobi(femops.mass(W.spaces["p"])), A.rhs(load)
    for free, count in ((True, 1), (False, 0)):
        block = A["u", "u"].unconstrained + femops.mass(U) if free else A["u", "u"]
        M = femops.block_diagonal(W, u=femops.multigrid(block), p=mass)
        texts, _ = told(lambda M=M: femops.minres(A, right, M=M))  # type: ignore[misc]
        assert sum("A['u', 'u']" in text for text in texts) == count


def two_fields(size: float) -> tuple[femops.Product, Any, Array]:
    """Symmetric positive equations of two fields, the first `size` times as large as the second."""
    Q = femops.H1(femops.box((5, 4)), 2)
    W = femops.Product(u=Q, w=Q)

    def flow(u: Any, w: Any) -> dict[str, Any]:
        return {"u": {"grad": size * u.grad, "value": u - w}, "w": {"grad": w.grad, "value": w - u}}

    ends = Q.boundary_dofs()
    A = femops.form(flow, W).constrained(W.positions(u=ends, w=ends))
    return W, A, A.rhs(W.join(u=femops.load(Q, size), w=femops.load(Q, lambda x: x[0])))


FIELDS: dict[str, Callable[..., Any]] = LINEAR | {
    "cg with another M": lambda A, b, **rest: femops.cg(A, b, M=identity(A), **rest),
    "CGSolver": lambda A, b, **rest: femops.CGSolver(A).solve(b, **rest),
    "CGSolver, another M": lambda A, b, **rest: femops.CGSolver(A, M=identity(A)).solve(b, **rest),
    "cg in float32": partial(femops.cg, inner_dtype="float32"),
    "cg of columns": lambda A, b, **rest: femops.cg(A, np.stack([b, 0.5 * b], 1), **rest),
    "gmres of columns": lambda A, b, **rest: femops.gmres(A, np.stack([b, b], 1), **rest),
}


def identity(A: Any) -> Any:
    return LinearOperator(A.shape, lambda x: x, dtype=A.dtype)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_small_numbers_that_is_not_solved_is_named(name: str) -> None:
    for size in (1.0, 1e9):
        W, A, b = two_fields(size)
        texts, (x, info) = told(lambda A=A, b=b: FIELDS[name](A, b))  # type: ignore[misc]
        assert info.converged
        if x.ndim == 1:
            for field, *parts in zip("uw", W.split(b - A @ x), W.split(b), strict=True):
                norms = [float(np.linalg.norm(part)) for part in parts]
                assert info.fields[field] == pytest.approx(norms, rel=1e-3)
        solved = info.fields["w"][0] < 0.1 * info.fields["w"][1]
        assert solved == (size == 1.0)
        assert [" have not fallen: " in text for text in texts] == [True] * (not solved)
        assert [" in w (" in text for text in texts] == [True] * (not solved)
        assert not any(" in u (" in text for text in texts)
        assert told(lambda A=A, b=b: FIELDS[name](A, b, warn=False))[0] == []  # type: ignore[misc]


def test_newton_names_a_field_that_is_not_solved() -> None:
    for size in (1.0, 1e9):
        W, A, b = two_fields(size)

        def flow(u: Any, w: Any, size: float = size) -> dict[str, Any]:
            return {"u": {"grad": size * u.grad}, "w": {"grad": w.grad, "value": w**3}}

        F = femops.residual(flow, W).constrained(A.constrained_dofs)
        texts, (x, info) = told(
            lambda F=F, b=b, A=A: femops.newton(F, 0 * b, b, preconditioner=lambda _: identity(A))  # type: ignore[misc]
        )
        assert info.converged
        rest = W.split(F.residual(x) - b)[1]
        assert info.fields["w"][0] == pytest.approx(
            np.linalg.norm(np.delete(rest, W.spaces["w"].boundary_dofs()))
        )
        assert [" in w (" in text for text in texts] == [True] * (size > 1.0)


@pytest.mark.parametrize("solver", [femops.minres, femops.gmres])
def test_an_unsolved_equation_without_a_right_hand_side_is_named(solver: Any) -> None:
    """Of a nearly incompressible solid, in pascal and metre: volumes are 1e-9 of the forces."""
    Q = femops.H1(U.mesh, 1)
    W = femops.Product(u=U, p=Q)
    for modulus in (1.0, 1e9):

        def solid(u: Any, p: Any, modulus: float = modulus) -> dict[str, Any]:
            stress = modulus * (u.grad + u.grad.T) - p * np.eye(2)
            return {"u": {"grad": stress}, "p": {"value": -u.div - p / (100.0 * modulus)}}

        A = femops.form(solid, W).constrained(W.positions(u=U.boundary_dofs()))
        b = W.join(u=femops.load(U, lambda x, m=modulus: (m * x[1] ** 2, -m * x[0] ** 2)))
        texts, (_, info) = told(lambda A=A, b=b: solver(A, b))  # type: ignore[misc]
        assert info.converged
        assert info.fields["p"][1] == 0.0
        assert [" in p (right-hand side 0)" in text for text in texts] == [True] * (modulus > 1.0)
