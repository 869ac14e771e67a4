"""The lowest eigenpairs by Chebyshev-filtered subspace iteration."""

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse.linalg import aslinearoperator

import femops
from femops.eigen import SubspaceState, chebyshev_subspace
from femops_kernels.cpu.machine import max_threads, set_threads


def dense(A, M):
    """Eigenvalues of the free dofs."""
    free = np.setdiff1d(np.arange(A.space.size), A.constrained_dofs)
    if M is None:
        M = np.eye(A.space.size)
    elif isinstance(M, np.ndarray):
        M = np.diag(M.reshape(-1))
    else:
        M = M.unconstrained.assemble().toarray()
    part = np.ix_(free, free)
    return eigh(A.assemble().toarray()[part], M[part], eigvals_only=True)


def check(A, M, k, tol=1e-6, **options):
    """Solve, and compare with dense algebra; the residuals are computed here once more."""
    expected = dense(A, M)[:k]
    found = chebyshev_subspace(A, M, k, tol=tol, **options)
    size = np.abs(expected).max()
    assert found.converged
    assert found.tolerance == pytest.approx(tol * size, rel=1e-3)
    # one residual's square over a gap, or the residual where there is none
    assert np.abs(found.values - expected).max() <= 0.01 * tol * size
    assert (np.diff(found.values) >= 0).all()
    x = found.vectors.columns()
    assert not x[A.constrained_dofs].any()
    weights = M if isinstance(M, np.ndarray) else np.ones(A.space.size)
    if isinstance(M, np.ndarray) or M is None:
        massed = weights.reshape(-1, 1) * x
    else:
        massed = M.unconstrained @ x
        weights = M.unconstrained @ weights
    assert np.abs(x.T @ massed - np.eye(k)).max() < 1e-10
    left = A @ x - massed * found.values
    left[A.constrained_dofs] = 0.0
    norms = np.sqrt((left**2 / np.where(weights > 0, weights, 1.0).reshape(-1, 1)).sum(axis=0))
    assert (norms <= 1.001 * found.tolerance).all()
    assert norms == pytest.approx(found.residuals, rel=0.01, abs=1e-3 * found.tolerance)
    return found


def masses(V):
    rule = femops.lobatto(V.order + 1)
    return femops.mass(V), femops.mass(V, quadrature=rule).diagonal(), None


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["full", "lumped", "identity"])
@pytest.mark.parametrize(("counts", "order", "k"), [((6, 6), 3, 11), ((2, 2, 2), 3, 7)])
def test_dense_algebra_agrees(counts, order, k, kind):
    V = femops.H1(femops.box(counts), order=order)
    M = masses(V)[["full", "lumped", "identity"].index(kind)]
    A = femops.diffusion(V)
    check(A.constrained(V.boundary_dofs()), M, k)
    check((A + femops.mass(V)).constrained(V.boundary_dofs(1)), M, k)


def test_multiple_eigenvalues_are_all_found():
    """Of the unit cube: 3, then 6 three times, 9 three times, 11 three times."""
    V = femops.H1(femops.box((3, 3, 3)), order=5)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    found = chebyshev_subspace(A, femops.mass(V), 10, tol=1e-5)
    expected = np.repeat([3.0, 6.0, 9.0, 11.0], [1, 3, 3, 3])
    assert found.values / np.pi**2 == pytest.approx(expected, rel=1e-4)


def test_constants_are_in_the_kernel_of_a_laplacian():
    """Also where no other eigenvalue is asked for, so that none is there to compare with."""
    V = femops.H1(femops.box((5, 4)), order=2)
    for k in (1, 4):
        found = chebyshev_subspace(femops.diffusion(V), femops.mass(V), k)
        assert found.converged
        assert abs(found.values[0]) < 1e-9
        assert np.ptp(found.vectors[0]) < 1e-6


def test_low_orders_need_more_than_the_lumped_mass():
    V = femops.H1(femops.box((8, 8)), order=1)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    for k in (10, 30):
        check(A, femops.mass(V), k)


def test_indefinite_operators():
    V = femops.H1(femops.disc(), order=3)
    fixed = V.boundary_dofs()
    A = femops.helmholtz(V, k=4.0).eliminated(fixed, fixed)
    found = check(A, femops.mass(V), 10)
    assert found.values[0] < 0 < found.values[-1]


def test_components_and_products():
    mesh = femops.box((4, 4))
    V = femops.H1(mesh, order=2, ncomp=2)
    check(femops.elasticity(V).constrained(V.boundary_dofs(1)), femops.mass(V), 8)

    def coupled(u, v):
        return {
            "u": {"grad": u.grad, "value": 3 * u + v},
            "v": {"grad": 2 * v.grad, "value": u + 5 * v},
        }

    def masses(u, v):
        return {"u": {"value": u}, "v": {"value": 2 * v}}

    W = femops.Product(u=femops.H1(mesh, order=2), v=femops.H1(mesh, order=3))
    A = femops.form(coupled, W)
    A = A.constrained(W.positions(u=W.spaces["u"].boundary_dofs()))
    check(A, femops.form(masses, W), 6)


@pytest.mark.parametrize("k", [8, 20, 25])
def test_a_good_part_of_all_eigenpairs(k):
    V = femops.H1(femops.box((2, 2)), order=2)
    check(femops.diffusion(V) + femops.mass(V), femops.mass(V), k)


def test_float32():
    V = femops.H1(femops.box((4, 4)), order=3)
    A = femops.diffusion(V, dtype=np.float32).constrained(V.boundary_dofs())
    found = chebyshev_subspace(A, femops.mass(V, dtype=np.float32), 5, tol=1e-3)
    assert found.converged
    assert found.vectors.dtype == np.float32
    expected = dense(A, femops.mass(V))[:5]
    assert found.values == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def pair():
    V = femops.H1(femops.box((6, 6)), order=3)
    return femops.diffusion(V).constrained(V.boundary_dofs()), femops.mass(V)


def test_converged_vectors_are_locked(pair, monkeypatch):
    """They are not filtered any more, so filters have fewer and fewer vectors."""
    from femops.eigen import chebyshev

    filtered, real = [], chebyshev.filter_vectors

    def seen(X, *given):
        filtered.append(X.nvec)
        real(X, *given)

    monkeypatch.setattr(chebyshev, "filter_vectors", seen)
    check(*pair, 20)
    assert filtered[-1] < filtered[0]
    assert filtered == sorted(filtered, reverse=True)


def test_it_goes_on_from_a_state(pair):
    short = chebyshev_subspace(*pair, 8, tol=1e-9, maxiter=3)
    assert not short.converged
    assert short.iterations == 3
    whole = chebyshev_subspace(*pair, 8, tol=1e-9)
    rest = chebyshev_subspace(*pair, 8, tol=1e-9, state=short.state)
    assert rest.converged
    assert rest.iterations <= whole.iterations - 2
    assert rest.products < whole.products
    done = chebyshev_subspace(*pair, 8, tol=1e-9, state=whole.state)
    assert done.iterations == 1
    assert done.values == pytest.approx(whole.values, rel=1e-12)


@pytest.mark.parametrize("k", [1, 3, 20])
def test_no_vectors_more_than_asked_for(pair, k):
    """The last of those wanted must lie below what is damped, from the beginning or a state."""
    check(*pair, k, guard=0)
    rough = chebyshev_subspace(*pair, k, maxiter=1, tol=1e-9)
    few = SubspaceState(rough.vectors, rough.values)
    assert few.vectors.nvec == k
    check(*pair, k, state=few)


def test_an_operator_that_is_zero(pair):
    V = pair[0].space
    found = chebyshev_subspace(femops.diffusion(V, 0.0), pair[1], 3)
    assert found.converged
    assert not found.values.any()


def test_reports(pair):
    told = []
    found = chebyshev_subspace(
        *pair, 5, history=True, progress=lambda count, norm: told.append((count, norm))
    )
    assert [count for count, _ in told] == list(range(1, found.iterations + 1))
    assert tuple(norm for _, norm in told) == found.history
    assert found.history[-1] == found.residuals.max() <= found.tolerance < found.history[-2]


def test_threads_agree(pair):
    found = []
    for threads in (1, max_threads()):
        set_threads(threads)
        found.append(chebyshev_subspace(*pair, 5).values)
    set_threads(max_threads())
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_bad_input(pair):
    A, M = pair
    V = A.space
    other = femops.mass(femops.H1(V.mesh, order=2))
    skew = femops.diffusion(V) + femops.convection(V, beta=(1.0, 0.0))
    negative = femops.mass(V, rho=lambda x: x[0] - 0.5)
    few = SubspaceState(femops.MultiVector.random(V, 3), np.zeros(3))
    foreign = SubspaceState(femops.MultiVector.random(other.space, 9), np.zeros(9))
    refused = [
        ((A, M, 0), {}, "k = 0"),
        ((A, M, 2.5), {}, "k = 2.5"),
        ((A, M, V.size), {}, "free dofs"),
        ((A, M), {"tol": 0.0}, "tol"),
        ((A, M), {"tol": -1.0}, "tol"),
        ((A, M), {"tol": np.nan}, "tol"),
        ((A, M), {"guard": -1}, "guard"),
        ((A, M), {"maxiter": 0}, "maxiter"),
        ((A, M), {"seed": -1}, "seed"),
        ((aslinearoperator(np.eye(V.size)), M), {}, "takes femops operators"),
        ((skew, M), {}, "not symmetric"),
        ((A, skew), {}, "not symmetric"),
        ((A, other), {}, "different spaces"),
        ((A, femops.mass(V, dtype=np.float32)), {}, "different spaces or types"),
        ((A, negative), {}, "not positive"),
        ((A, -M), {}, "not positive"),
        ((A, -np.ones(V.size)), {}, "not positive"),
        ((A, np.full(V.size, np.nan)), {}, "not positive"),
        ((A, np.ones(V.size, int)), {}, "not positive"),
        ((A, np.ones(V.size - 1)), {}, "diagonal"),
        ((A, M), {"state": few}, "3 vectors"),
        ((A, M), {"state": foreign}, "9 vectors"),
        ((A, M), {"state": few.vectors}, "is a MultiVector"),
        ((A, M - 0.01 * A.unconstrained), {}, "positive definite"),
        ((1e-300 * A, M), {}, "too small"),
        ((A, 1e300 * M), {}, "too small"),
    ]
    for given, options, words in refused:
        with pytest.raises(femops.SolverError, match=words):
            chebyshev_subspace(*given, **options)
