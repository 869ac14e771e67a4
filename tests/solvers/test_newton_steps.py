"""Newton's method with a user's preconditioners and linear solvers, on one field and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spla

import femops
from femops.errors import ConvergenceWarning, SolverError
from femops.solvers import newton_steps
from support import fixtures
from support.cases.kernels import bend

one_thread = fixtures.one_thread

Array = np.ndarray
MESH = femops.box((6, 6), mapping=bend)
V = femops.H1(MESH, 2)


def reaction(u: Any) -> Any:
    return {"value": u + 5.0 * u**3, "grad": u.grad}


def scalar() -> tuple[Any, Array]:
    F = femops.residual(reaction, V).constrained(V.boundary_dofs())
    return F, femops.load(V, 30.0)


def navier_stokes(n: int = 6) -> tuple[Any, Array, Array]:
    """A lid that moves, with inertia; one pressure is given. Residual, first guess, load."""
    mesh = femops.box((n, n))
    U, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=U, p=Q)

    def form(u: Any, p: Any) -> Any:
        return {
            "u": {"value": 20.0 * u.grad @ u.value, "grad": u.grad - p * np.eye(2)},
            "p": {"value": -u.div},
        }

    F = femops.residual(form, W).constrained(W.positions(u=U.boundary_dofs(), p=[0]))
    lid = W.interpolate(u=lambda x: (np.where(x[1] > 1 - 1e-9, x[0] * (1 - x[0]), 0.0), 0.0 * x[0]))
    return F, lid, W.zeros()


def direct(J: Any, b: Array, rtol: float) -> Array:
    return np.asarray(spla.spsolve(J.assemble().tocsc(), b))


def fields(J: Any) -> Any:
    """Multigrid of the diffusion for the velocity, the mass for the pressure."""
    U, Q = J.space.spaces.values()
    D = femops.diffusion(U).constrained(U.boundary_dofs())
    return femops.block_triangular(
        J, p=femops.jacobi(-femops.mass(Q)), u=femops.multigrid(D, dtype="float64")
    )


def test_a_direct_solver_converges_quadratically() -> None:
    F, b = scalar()
    expected, _ = femops.newton(F, V.zeros(), b, rtol=1e-11)
    u, info = femops.newton(F, V.zeros(), b, linear=direct, rtol=1e-11)
    assert info.converged
    assert info.linear_iterations == 0
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-9 * abs(expected).max())
    before, last = info.residuals[-3] / info.residuals[0], info.residuals[-2] / info.residuals[0]
    assert last < 10.0 * before**2


def test_the_rounding_of_earlier_iterates_does_not_end_the_iteration() -> None:
    """The first guess is 1e9 times the solution, and steps that fall short reach it slowly."""
    F = femops.residual(lambda u: {"value": 1e-6 * u, "grad": u.grad}, V)
    b = femops.load(V, 1e-6)  # u = 1

    def short(J: Any, right: Array, rtol: float) -> Array:
        return 0.4 * direct(J, right, rtol)

    guess = np.full(V.size, 1e9)
    u, info = femops.newton(F, guess, b, linear=short, rtol=1e-14, maxiter=100)
    assert info.converged
    np.testing.assert_allclose(u, 1.0, rtol=0, atol=1e-3)


def two_bodies() -> femops.Mesh:
    one, other = (femops.box((3, 3), lower=(x, 0.0), upper=(x + 1.0, 1.0)) for x in (0.0, 2.0))
    elements = np.vstack([one.elements, other.elements + one.num_vertices])
    coordinates = np.concatenate([one.coordinates, other.coordinates])
    return femops.Mesh.from_arrays(None, elements, coordinates=coordinates)


@pytest.mark.parametrize("linear", ["gmres", direct, "cg"])
def test_the_rounding_of_a_stiff_body_does_not_hide_that_a_soft_one_is_unsolved(
    linear: Any,
) -> None:
    """The soft body was off by 16 %, or had no step at all, and the solve had converged."""
    space = femops.H1(two_bodies(), 2)
    stiff = space.mesh.coordinates.mean(axis=1)[:, :1] > 1.5
    k, c = (
        np.broadcast_to(np.where(stiff, *pair), (18, 16)) for pair in ((1e12, 1.0), (0.0, 10.0))
    )
    F = femops.residual(
        lambda u, k, c: {"grad": (k + c * u**2) * u.grad}, space, k=k.copy(), c=c.copy()
    ).constrained(space.boundary_dofs())
    u0 = np.where(space.dof_coordinates()[:, 0] > 1.5, 300.0, 0.0)
    b = femops.load(space, 20.0)
    u, info = femops.newton(F, u0, b, linear=linear, warn=False)
    soft = np.setdiff1d(np.flatnonzero(u0 == 0.0), space.boundary_dofs())
    left = np.linalg.norm((F.residual(u) - b)[soft]) / np.linalg.norm(b[soft])
    assert info.converged == (left < 1e-6)
    assert info.converged or linear is not direct


def test_a_solver_of_femops_is_counted() -> None:
    F, b = scalar()
    tolerances: list[float] = []

    def solver(J: Any, right: Array, rtol: float) -> Any:
        tolerances.append(rtol)
        return femops.gmres(J, right, rtol=rtol, M=femops.multigrid(J))

    u, info = femops.newton(F, V.zeros(), b, linear=solver)
    assert info.converged
    assert len(tolerances) == info.iterations <= info.linear_iterations
    assert max(tolerances) <= 0.1
    residual = F.residual(u) - b
    residual[V.boundary_dofs()] = 0.0
    assert np.linalg.norm(residual) <= 1e-8 * info.residuals[0]


@pytest.mark.parametrize("linear", ["cg", "minres", "gmres"])
def test_a_preconditioner_is_kept_while_it_does(linear: Any) -> None:
    F, b = scalar()
    made: list[Any] = []

    def exact(J: Any) -> Any:
        made.append(J)
        return spla.LinearOperator(J.shape, spla.splu(J.assemble().tocsc()).solve, dtype=float)

    expected, _ = femops.newton(F, V.zeros(), b, rtol=1e-11)
    u, info = femops.newton(F, V.zeros(), b, linear=linear, preconditioner=exact, rtol=1e-11)
    assert info.converged
    assert 1 <= len(made) < info.iterations
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-9 * abs(expected).max())


def test_a_preconditioner_is_made_again_for_many_more_iterations() -> None:
    """A kept one may take some more: a new one takes longer than those."""
    kept = newton_steps._KeptPreconditioner(lambda _: object())
    reduction = float(np.exp(-1.0))
    first = kept.of(None)
    for iterations in (1, 2, 12):
        kept.took(iterations, reduction)
        assert kept.of(None) is first
    kept.took(2 * 1 + 11, reduction)
    second = kept.of(None)
    assert second is not first
    kept.took(40, reduction)
    kept.of(None)
    kept.took(90, reduction)
    assert kept.of(None) is second
    kept.took(91, reduction)
    assert kept.of(None) is not second


def test_a_preconditioner_itself_is_what_a_function_returns() -> None:
    F, b = scalar()
    M = femops.multigrid(F.jacobian(V.zeros()))
    _, by_name = femops.newton(F, V.zeros(), b, preconditioner="multigrid")
    (u, info), (same, other) = (
        femops.newton(F, V.zeros(), b, preconditioner=given) for given in (M, lambda _: M)
    )
    assert info.linear_iterations == other.linear_iterations == by_name.linear_iterations
    assert np.array_equal(u, same)


def test_no_preconditioner_and_a_matrix() -> None:
    F, b = scalar()
    _, diagonal = femops.newton(F, V.zeros(), b)
    for make in (lambda J: None, lambda J: np.diag(1.0 / J.diagonal())):
        _, info = femops.newton(F, V.zeros(), b, preconditioner=make)
        assert info.converged
        assert info.iterations == diagonal.iterations


# --- several fields -------------------------------------------------------------------------------


def test_flow_with_inertia_by_a_direct_solver_and_by_blocks() -> None:
    F, lid, b = navier_stokes()
    z, info = femops.newton(F, lid, b, linear=direct, rtol=1e-10)
    assert info.converged
    assert 2 <= info.iterations <= 6
    other, found = femops.newton(F, lid, b, preconditioner=fields, rtol=1e-10)
    assert found.converged
    np.testing.assert_allclose(other, z, rtol=0, atol=1e-7 * abs(z).max())
    with pytest.warns(ConvergenceWarning, match="zero or not finite"):  # no pressure there
        femops.newton(F, lid, b, preconditioner="jacobi")
    with pytest.warns(ConvergenceWarning, match="make it of a block"):
        femops.newton(F, lid, b, preconditioner="multigrid")


def test_iterations_for_flow_do_not_grow_with_refinement() -> None:
    counts = []
    for n in (16, 32):
        F, lid, b = navier_stokes(n)
        _, info = femops.newton(F, lid, b, preconditioner=fields)
        assert info.converged
        counts.append(info.linear_iterations / info.iterations)
    assert counts[1] < 1.25 * counts[0], counts


# --- what goes wrong ------------------------------------------------------------------------------


def test_functions_that_return_something_else() -> None:
    F, b = scalar()
    for options, words in (
        ({"linear": lambda J, b, rtol: None}, "returned no solution, but None: end it with return"),
        ({"linear": lambda J, b, rtol: b[:-1]}, r"returned an array of float64 and shape"),
        ({"linear": lambda J, b, rtol: 1j * b}, "returned an array of complex128"),
        ({"linear": lambda J, b, rtol: (b, 0)}, "of SciPy's solvers return the first alone"),
        ({"linear": direct, "preconditioner": "multigrid"}, "leave preconditioner out"),
        ({"linear": "lu"}, "linear is 'lu': give 'auto', .* or a function"),
        ({"preconditioner": "lu"}, "preconditioner is 'lu': give 'jacobi', 'multigrid', .* a"),
        ({"preconditioner": lambda J: np.eye(3)}, r"preconditioner\(J\) is 3 x 3"),
        ({"preconditioner": lambda J: "ilu"}, r"preconditioner\(J\) is 'ilu': give femops.jacobi"),
    ):
        with pytest.raises(SolverError, match=words):
            femops.newton(F, V.zeros(), b, **options)


def test_solves_that_fail_are_reasons() -> None:
    F, b = scalar()

    def short(J: Any, b: Array, rtol: float) -> Any:
        return femops.cg(J, b, rtol=0.0, maxiter=1, warn=False)

    for options, words in (
        ({"linear": lambda J, b, rtol: np.nan * b}, "entries that are not finite"),
        ({"linear": short}, "not solved in 1 iterations"),
        ({"preconditioner": lambda J: -np.eye(V.size)}, "M is found not to be positive definite"),
        ({"preconditioner": lambda J: femops.multigrid(-1.0 * J)}, "the linear solver gave up"),
        ({"linear": lambda J, b, rtol: -b}, "no step along the Newton direction makes progress"),
    ):
        u, info = femops.newton(F, V.zeros(), b, warn=False, **options)
        assert not info.converged
        assert words in info.reason
        assert np.isfinite(u).all()


def test_advice_where_a_linear_solve_does_not_end() -> None:
    F, b = scalar()

    def short(J: Any, b: Array, rtol: float) -> Any:
        return femops.cg(J, b, rtol=0.0, maxiter=1, warn=False)

    with pytest.warns(ConvergenceWarning, match="Give another preconditioner, or linear="):
        femops.newton(F, V.zeros(), b, linear=short)


@pytest.mark.parametrize("name", ["linear", "preconditioner"])
def test_functions_that_take_other_arguments_are_refused(name: str) -> None:
    F, b = scalar()
    with pytest.raises(SolverError, match=rf"newton calls {name}\(J"):
        femops.newton(F, V.zeros(), b, **{name: lambda: None})  # type: ignore[arg-type]


def test_functions_see_copies_and_their_errors_are_passed_on() -> None:
    F, b = scalar()

    def spoils(J: Any, right: Array, rtol: float) -> Array:
        x = direct(J, right, rtol)
        right[:] = np.nan
        return x

    assert femops.newton(F, V.zeros(), b, linear=spoils)[1].converged

    def fails(J: Any, right: Array, rtol: float) -> Array:
        raise RuntimeError("no licence")

    with pytest.raises(RuntimeError, match="no licence"):
        femops.newton(F, V.zeros(), b, linear=fails)


def conduction() -> tuple[Any, Array]:
    """Heat whose conductivity grows with the temperature: its Jacobian is not symmetric."""
    F = femops.residual(lambda u: {"grad": (1.0 + u) * u.grad}, V)
    return F.constrained(V.boundary_dofs()), femops.load(V, 30.0)


def test_multigrid_of_the_diffusion_alone() -> None:
    F, b = conduction()
    D = femops.diffusion(V).constrained(V.boundary_dofs())
    u, info = femops.newton(F, V.zeros(), b, preconditioner=lambda J: femops.multigrid(D))
    assert info.converged
    assert np.allclose(u, femops.newton(F, V.zeros(), b, linear=direct)[0], atol=1e-7)


@pytest.mark.parametrize("kind", ["jacobi", "multigrid"])
def test_advice_where_a_preconditioner_cannot_be_made(kind: Any) -> None:
    """The advice is not about the load or the first guess."""
    cases = {
        "jacobi": navier_stokes(),
        "multigrid": (conduction()[0], V.zeros(), V.interpolate(1.0)),
    }
    F, start, b = cases[kind]
    with pytest.warns(ConvergenceWarning) as found:
        femops.newton(F, start, b, preconditioner=kind)
    text = str(found[0].message)
    given = {"jacobi": "femops.block_triangular(J", "multigrid": "Give another preconditioner"}
    assert given[kind] in text
    assert "better u0" not in text
    wanted = {"jacobi": "preconditioner for each field", "multigrid": "symmetric operator"}
    assert wanted[kind] in text
