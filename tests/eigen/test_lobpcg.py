"""The lowest eigenpairs with a preconditioner."""

from functools import partial

import numpy as np
import pytest

import femops
from femops.eigen import SubspaceState, chebyshev_subspace, lobpcg
from femops.errors import ConvergenceWarning, SolverError
from support import fixtures
from support.cuda.guarded import guarded_device
from support.pencils import check, masses

one_thread = fixtures.one_thread
check = partial(check, solver=lobpcg)


@pytest.fixture(scope="module")
def pair():
    V = femops.H1(femops.box((6, 6)), 3)
    return femops.diffusion(V).constrained(V.boundary_dofs()), femops.mass(V)


@pytest.mark.parametrize(("kind", "k"), [("full", 1), ("full", 30), ("lumped", 6), ("identity", 7)])
def test_dense_algebra_agrees(pair, kind, k):
    A, _ = pair
    M = dict(zip(("full", "lumped", "identity"), masses(A.space), strict=True))[kind]
    assert check(A, M, k).iterations < 20


@pytest.mark.parametrize("given", [{}, {"guard": 0}, {"tol": 1e-12}])
def test_eliminated_dofs_and_multiple_eigenvalues(given):
    V = femops.H1(femops.disc(2, order=3), 4)
    dofs = V.boundary_dofs()
    A, M = femops.diffusion(V).eliminated(dofs, dofs), femops.mass(V).eliminated(dofs, dofs)
    found = lobpcg(A, M, 5, **given)  # the second and third, fourth and fifth are equal
    assert found.converged
    expected = chebyshev_subspace(A, M, 5, tol=1e-9).values
    assert found.values == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ncomp", [1, 3])
def test_eigenvectors_of_zero_are_found_without_a_preconditioner(ncomp):
    """Multigrid of K makes none of the zero's eigenvectors: of elasticity it missed all six."""
    V = femops.H1(femops.box((4, 4, 4), lower=10.0, upper=11.0), 1, ncomp=ncomp)
    K = femops.elasticity(V, 1.0, 1.0) if ncomp == 3 else femops.diffusion(V)
    found = lobpcg(K, femops.mass(V), 8)
    zeros = 6 if ncomp == 3 else 1
    assert found.converged
    assert abs(found.values[:zeros]).max() < 1e-9 * found.values[zeros]


def test_a_body_that_nothing_holds():
    V = femops.H1(femops.box((3, 2, 2)), 2, ncomp=3)
    K, M = femops.elasticity(V, 1.0, 1.0), femops.mass(V)
    found = lobpcg(K, M, 9, preconditioner=femops.multigrid(K + 0.5 * M))
    assert found.converged
    assert abs(found.values[:6]).max() < 1e-9 * found.values[6]  # rigid motions
    gram = found.vectors.mass_gram(M)
    assert gram == pytest.approx(np.eye(9), abs=1e-10)


def test_indefinite_operators_with_a_preconditioner_of_another(pair):
    A, M = pair
    K = A.unconstrained
    fixed = A.constrained_dofs
    near = femops.multigrid((K + 1.0 * M).constrained(fixed))
    check((K - 50.0 * M).constrained(fixed), M, 6, preconditioner=near)


@pytest.mark.parametrize("make", [femops.jacobi, lambda A: np.diag(1.0 / A.diagonal())])
def test_preconditioners(pair, make):
    A, M = pair
    found = check(A, M, 4, preconditioner=make(A))
    assert found.iterations > 2 * lobpcg(A, M, 4).iterations  # with multigrid


def test_a_preconditioner_that_reaches_constrained_dofs(pair):
    A, M = pair
    whole = (A.unconstrained + 1.0 * M).assemble().toarray()
    check(A, M, 4, preconditioner=np.linalg.inv(whole))


def test_all_eigenpairs(pair):
    A, M = pair
    count = A.space.size - len(A.constrained_dofs)
    assert check(A, M, count).iterations == 1


def test_discontinuous_functions_and_float32():
    V = femops.L2(femops.box((4, 4)), 2)
    check(femops.interior_penalty(V), femops.mass(V), 5)
    W = femops.H1(V.mesh, 3)
    fixed = W.boundary_dofs()
    A, M = femops.diffusion(W, dtype="float32").constrained(fixed), femops.mass(W, dtype="float32")
    found = lobpcg(A, M, 3, tol=1e-4)
    assert found.converged
    assert found.values == pytest.approx(np.pi**2 * np.array([2, 5, 5]), rel=2e-4)


def test_it_goes_on_from_a_state(pair):
    A, M = pair
    first = lobpcg(A, M, 6)
    again = check(A, M, 6, state=first.state)
    assert again.iterations == 1
    check(A, M, 8, state=lobpcg(A, M, 6, guard=2).state)


@pytest.mark.parametrize("kept", [[1, 2, 3, 4], [0, 3, 4, 5, 6], [0, *range(20, 26)]])
def test_a_state_without_some_of_the_eigenvectors(pair, kept):
    """The second eigenvalue is double, so without the first the second value stays as it is."""
    whole = lobpcg(*pair, 30, tol=1e-9)
    state = SubspaceState(whole.vectors[kept], whole.values[kept])
    found = check(*pair, 2, state=state, history=True)
    assert len(found.history) == found.iterations > 1


def test_a_search_that_does_not_settle(pair):
    state = lobpcg(*pair, 4).state
    found = lobpcg(*pair, 4, state=state, maxiter=1, warn=False, preconditioner=np.eye(361))
    assert not found.converged
    assert found.reason.startswith("maxiter = 1 ends the search for eigenvalues")


def test_converged_vectors_get_no_more_products(pair):
    A, M = pair
    found = lobpcg(A, M, 20, guard=4, history=True)
    assert found.products < 24 * found.iterations
    assert len(found.history) == found.iterations
    assert found.history[-1] <= found.tolerance < found.history[-2]


def test_limits(pair):
    A, M = pair
    with pytest.warns(ConvergenceWarning, match="maxiter = 3 ends it, and a residual is"):
        found = lobpcg(A, M, 6, maxiter=3)
    assert not found.converged
    assert found.iterations == 3


def test_eigenvalues_that_are_all_zero():
    """No residual is within a tolerance of zero."""
    V = femops.H1(femops.box((3, 2)), 2, ncomp=2)
    K, M = femops.elasticity(V, 1.0, 1.0), femops.mass(V)
    given = {"preconditioner": femops.multigrid(K + 0.5 * M), "warn": False}
    found = lobpcg(K, M, 2, **given)
    assert not found.converged
    assert abs(found.values).max() < 1e-12
    assert found.iterations < 40
    assert found.reason.startswith("round-off ends it")
    assert found.reason.endswith("give a larger tol, or a larger k if all k eigenvalues are zero")


def test_on_a_device():
    found = []
    for device in (None, guarded_device(options=["-O0"])):
        V = femops.H1(femops.box((4, 3)), 2, device=device)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        found.append(lobpcg(A, femops.mass(V), 3))
        assert device is None or device.owns(found[-1].vectors.panels)
    assert found[1].values == pytest.approx(found[0].values, rel=1e-9)


def test_bad_input(pair):
    A, M = pair
    n = A.space.size
    refused = [
        ({"k": n}, "dofs are free"),
        ({"tol": True}, "tol = True"),
        ({"maxiter": 0}, "maxiter"),
        ({"preconditioner": 3}, "preconditioner is 3"),
        ({"preconditioner": np.eye(n - 1)}, "preconditioner is 168 x 168"),
        ({"preconditioner": -np.eye(n)}, "not positive definite"),
        ({"preconditioner": np.zeros((n, n))}, "makes zeros of residuals"),
        ({"preconditioner": np.full((n, n), np.nan)}, "not finite"),
        ({"state": M}, "the state is"),
    ]
    for options, words in refused:
        with pytest.raises(SolverError, match=words.replace("168", str(n - 1))):
            lobpcg(A, M, **options)
    with pytest.raises(SolverError, match="no dof is free"):
        lobpcg(A.unconstrained.constrained(np.arange(n)), M, 1)
    with pytest.raises(SolverError, match="not to be positive definite: give preconditioner="):
        lobpcg((A.unconstrained - 50.0 * M).constrained(A.constrained_dofs), M)
