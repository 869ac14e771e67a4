"""The lowest eigenpairs by Chebyshev-filtered subspace iteration."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

import femops
from femops.eigen import SubspaceState, chebyshev_subspace
from femops.errors import ConvergenceWarning, SolverError
from support import fixtures
from support.cuda.guarded import guarded_device
from support.pencils import check, dense, masses

one_thread = fixtures.one_thread


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
    """No residual is within a tolerance of zero, so zero alone is found but not converged."""
    V = femops.H1(femops.box((5, 4)), order=2)
    for k in (1, 4):
        found = chebyshev_subspace(femops.diffusion(V), femops.mass(V), k, warn=False)
        assert found.converged == (k == 4)
        assert found.reason.startswith("round-off ends it") == (k == 1)
        assert abs(found.values[0]) < 1e-9
        assert np.ptp(found.vectors[0]) < 1e-6


def test_low_orders_need_more_than_the_lumped_mass():
    V = femops.H1(femops.box((8, 8)), order=1)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    check(A, femops.mass(V), 30)


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


def test_a_good_part_of_all_eigenpairs():
    V = femops.H1(femops.box((2, 2)), order=2)
    for k in (8, 25):
        check(femops.diffusion(V) + femops.mass(V), femops.mass(V), k)


@pytest.mark.parametrize("kind", ["full", "lumped", "identity"])
def test_filters_in_float32_cost_no_accuracy(kind):
    V = femops.H1(femops.disc(2, order=2), order=4)
    M = masses(V)[["full", "lumped", "identity"].index(kind)]
    A = femops.diffusion(V).constrained(V.boundary_dofs(1))
    for k, size in ((3, 1.0), (12, 1e-15)):
        found = check(size * A, M, k, tol=1e-9, filter_dtype="float32")
        assert found.filter_dtype == np.float32
    wide = check(A, M, 12, tol=1e-9)
    assert wide.filter_dtype == np.float64  # a small problem
    assert found.products < 1.3 * wide.products
    assert found.values == pytest.approx(1e-15 * wide.values, rel=1e-12)


def test_filters_asked_for_in_float32_go_on_where_round_off_may_exceed_the_residual():
    """The spectrum is a million times the gap, so the bound of round-off is above one."""
    V = femops.H1(femops.box((6, 6), upper=(0.01, 10.0)), order=4)
    check(femops.diffusion(V), femops.mass(V), 6, guard=0, filter_dtype="float32")


def test_filters_that_float32_does_not_resolve(monkeypatch):
    """They are in float64; without that choice they are from where residuals hardly fall."""
    monkeypatch.setattr("femops.eigen.chebyshev._MOST_DENSE", 0)
    monkeypatch.setattr("femops.eigen.chebyshev._FEWEST", 0)
    V = femops.H1(femops.box((3, 3)), order=2)
    A = femops.diffusion(V, lambda x: np.where(x[0] + x[1] < 1.0, 1e3, 0.1))
    assert check(A, femops.mass(V), 12, tol=1e-4).filter_dtype == np.float64
    monkeypatch.setattr("femops.eigen.chebyshev._MOST_LEFT", np.inf)
    assert check(A, femops.mass(V), 12, tol=1e-4).filter_dtype == np.float64


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
    short = chebyshev_subspace(*pair, 8, tol=1e-9, maxiter=3, warn=False)
    assert not short.converged
    assert short.iterations == 3
    whole = chebyshev_subspace(*pair, 8, tol=1e-9)
    rest = chebyshev_subspace(*pair, 8, tol=1e-9, state=short.state)
    assert rest.converged
    assert rest.iterations < whole.iterations
    assert rest.products < whole.products
    done = chebyshev_subspace(*pair, 8, tol=1e-9, state=whole.state)
    assert done.iterations == 1
    assert done.values == pytest.approx(whole.values, rel=1e-12)


@pytest.fixture(scope="module")
def decoupled():
    """Two fields that know nothing of each other; the eigenvalues of one."""
    V = femops.H1(femops.box((5, 4)), order=2)
    W = femops.Product(a=V, b=femops.H1(V.mesh, order=2))

    def stiffness(a, b, s, t):
        return {"a": {"grad": a.grad}, "b": {"grad": t * b.grad, "value": s * b}}

    def masses(a, b, m):
        return {"a": {"value": a}, "b": {"value": m * b}}

    single = dense(femops.diffusion(V), femops.mass(V))
    return femops.form(stiffness, W, s=1.0, t=1.0), femops.form(masses, W, m=1.0), single


@pytest.mark.parametrize(("mass", "k", "guard"), [(1e8, 9, 1), (1e-8, 1, None)])
def test_a_state_that_misses_lower_eigenvalues(decoupled, mass, k, guard):
    """The vectors of the state stay eigenvectors when others come to lie below them."""
    A, M, single = decoupled
    M, state = M.update(m=mass), None
    for s, t in ((1e4, 1.0), (-5.0, 1.0), (-1e3, 0.1), (0.0, 1.0), (300.0, 10.0), (-4.0, 1.0)):
        expected = np.sort([*single, *(t * single + s)])[:k]
        found = chebyshev_subspace(
            A.update(s=s * mass, t=t * mass), M, k, guard=guard, state=state, tol=1e-5, warn=False
        )
        assert found.converged == bool(np.abs(expected).max() > 1e-9)  # no tolerance of zero
        assert np.abs(found.values - expected).max() <= max(found.tolerance, 1e-9)
        state = found.state


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("lumped", [False, True])
def test_a_state_without_one_of_the_eigenvectors(order, lumped):
    V = femops.H1(femops.box((9 // order, 9 // order)), order=order)
    A, M = femops.diffusion(V).constrained(V.boundary_dofs(1)), masses(V)[int(lumped)]
    whole = chebyshev_subspace(A, M, 6)
    for left_out in (0, 2, 5):
        kept = [i for i in range(whole.state.vectors.nvec) if i != left_out]
        state = SubspaceState(whole.state.vectors[kept], whole.state.values[kept])
        check(A, M, 6, state=state)


def test_high_eigenvectors_in_the_way(pair):
    """A state of exact eigenvectors that are not low, beside vectors that are nearly so."""
    A, M = pair
    every = chebyshev_subspace(A, M, 200)
    mixed = [0, 1, 2, *range(80, 86)]
    state = SubspaceState(every.vectors[mixed], every.values[mixed])
    state.vectors[2][:] += 1e-2 * every.vectors[150]
    check(A, M, 3, state=state)


def test_a_near_state_is_worth_its_while(decoupled):
    A, M, _ = decoupled
    for k in (4, 18):
        first = chebyshev_subspace(A.update(s=40.0), M, k)
        for s in (40.0, 40.01):
            anew = chebyshev_subspace(A.update(s=s), M, k)
            on = chebyshev_subspace(A.update(s=s), M, k, state=first.state)
            assert on.converged
            assert on.products < 0.5 * anew.products
            assert np.abs(on.values - anew.values).max() <= anew.tolerance


def test_a_higher_eigenvector_that_converges_first(decoupled):
    """The 14th eigenvalue, 39.78, was taken for the 13th, 39.60."""
    A, M, single = decoupled
    s, t, mass = -3.885329019705786, 0.6921940915176926, 2.8882601678968427e-05
    stiffness, masses = A.update(s=s * mass, t=t * mass), M.update(m=mass)
    found = chebyshev_subspace(stiffness, masses, 13, tol=1.0541951696518344e-3, guard=1)
    expected = np.sort([*single, *(t * single + s)])[:13]
    assert np.abs(found.values - expected).max() < 1e-3


def test_fields_of_very_different_masses(decoupled):
    """Their eigenvectors have parts in the random vectors that do not depend on units."""
    A, M, single = decoupled
    expected = np.sort([*single, *(single - 3.0)])[:6]
    for mass in (1e-20, 1e20):
        found = chebyshev_subspace(A.update(s=-3.0 * mass, t=mass), M.update(m=mass), 6)
        assert found.converged
        assert np.abs(found.values - expected).max() <= found.tolerance


@pytest.fixture(scope="module")
def jump():
    V = femops.H1(femops.box((5, 5)), order=2)
    values = np.where(np.random.default_rng(0).random(25) < 0.5, 1e4, 1e-4)
    A = femops.diffusion(V, lambda x: values[(5 * x[0]).astype(int) + 5 * (5 * x[1]).astype(int)])
    return A, femops.mass(V)


def test_coefficients_that_jump(jump, monkeypatch):
    found = check(*jump, 6, tol=1e-4)
    assert found.products < 30 * 121
    assert found.reason == ""
    monkeypatch.setattr("femops.eigen.chebyshev._MOST_DENSE", 0)
    with pytest.warns(ConvergenceWarning, match="max_products = 2000 ends it"):
        ended = chebyshev_subspace(*jump, 6, max_products=2000)
    assert not ended.converged
    assert ended.products <= 2000 + 2 * len(ended.state.values)
    assert ended.reason.startswith("max_products = 2000 ends it, and a residual is")
    ended = chebyshev_subspace(*jump, 6, maxiter=2, warn=False)
    assert ended.reason.startswith("maxiter = 2 ends it")


def test_conditions_of_both_operators():
    """The identities in constrained rows are no eigenvalues, wherever they stand."""
    V = femops.H1(femops.box((4, 4)), order=2)
    fixed = V.boundary_dofs()
    A, M = 1e-2 * femops.diffusion(V), femops.mass(V)  # the lowest is 0.2
    expected = dense(A.constrained(fixed), M)[:6]
    for stiffness in (A.constrained(fixed), A.eliminated(fixed, fixed)):
        for mass in (M, M.constrained(fixed), M.eliminated(fixed, fixed), M.constrained(fixed[:3])):
            found = chebyshev_subspace(stiffness, mass, 6, tol=1e-7)
            assert np.abs(found.values - expected).max() < 1e-7
    assert f"{len(fixed)} constrained" in repr(A.constrained(fixed))
    assert f"{len(fixed)} eliminated" in repr(A.eliminated(fixed, fixed))
    assert "0 rows and 1 columns eliminated" in repr(A.eliminated(columns=fixed[:1]))
    for mass in (M.constrained(fixed), M.eliminated(fixed, fixed)):
        for stiffness in (A, A.constrained(fixed[1:])):
            with pytest.raises(SolverError, match=r"conditions at .* dofs where A has none"):
                chebyshev_subspace(stiffness, mass, 6)


@pytest.mark.parametrize("k", [1, 20])
def test_no_vectors_more_than_asked_for(pair, k):
    """The last of those wanted must lie below what is damped, from the beginning or a state."""
    check(*pair, k, guard=0)
    rough = chebyshev_subspace(*pair, k, maxiter=1, tol=1e-9, warn=False)
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


def test_on_a_device():
    found = []
    for device in (None, guarded_device()):
        V = femops.H1(femops.box((4, 3)), 2, device=device)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        for kind in (None, "float32"):
            found.append(chebyshev_subspace(A, femops.mass(V), 3, filter_dtype=kind))
            assert found[-1].converged
            assert device is None or device.owns(found[-1].vectors.panels)
    for other in found[1:]:
        assert other.values == pytest.approx(found[0].values, rel=1e-9)


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
        ((A, M, V.size), {}, "dofs are free"),
        ((A, M), {"tol": 0.0}, "tol"),
        ((A, M), {"tol": -1.0}, "tol"),
        ((A, M), {"tol": np.nan}, "tol"),
        ((A, M), {"guard": -1}, "guard"),
        ((A, M), {"maxiter": 0}, "maxiter"),
        ((A, M), {"max_products": 0}, "max_products"),
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
        ((A, 20, M), {}, "M is 20: give an operator, or the diagonal"),
        ((A, M), {"state": few}, "3 vectors"),
        ((A, M), {"state": foreign}, "9 vectors"),
        ((A, M), {"state": few.vectors}, "is a MultiVector"),
        ((A, M - 0.01 * A.unconstrained), {}, "positive definite"),
        ((A, M), {"filter_dtype": "complex64"}, "float32, or leave it out"),
        ((1e60 * A, M), {"filter_dtype": "float32"}, "do not fit into it"),
        ((A, np.full(V.size, 1e-60)), {"filter_dtype": "float32"}, "do not fit into it"),
        ((1e15 * A, 1e-15 * M), {"filter_dtype": "float32"}, "do not fit into it"),
        ((1e-300 * A, M), {}, "too small"),
        ((A, 1e300 * M), {}, "too small"),
    ]
    for given, options, words in refused:
        with pytest.raises(SolverError, match=words):
            chebyshev_subspace(*given, **options)
