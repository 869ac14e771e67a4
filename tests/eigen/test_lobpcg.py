"""The lowest eigenpairs with a preconditioner."""

import importlib
import itertools
from functools import partial

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator

import femops
from femops.eigen import SubspaceState, chebyshev_subspace, lobpcg
from femops.errors import ConvergenceWarning, SolverError
from support import fixtures
from support.cuda.guarded import guarded_device
from support.pencils import check, masses

lobpcg_module = importlib.import_module("femops.eigen.lobpcg")  # the function has its name
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


@pytest.mark.parametrize("counts", [(3, 5), (5, 3)])
def test_a_loose_tolerance_and_the_first_of_four_equal_eigenvalues(counts):
    """The search found the other three, which are known, until ``maxiter`` ended it."""
    V = femops.H1(femops.box(counts, periodic=True), 5)
    A = femops.diffusion(V)
    found = lobpcg(A, None, 12, tol=3e-3)
    expected = np.linalg.eigvalsh(A.assemble().toarray())
    assert expected[11:15] == pytest.approx(expected[11], rel=1e-9)
    assert found.converged
    assert found.iterations < 20
    assert found.values == pytest.approx(expected[:12], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("ncomp", [1, 3])
def test_eigenvectors_of_zero_are_found_without_a_preconditioner(ncomp):
    """Multigrid of K makes none of the zero's eigenvectors: of elasticity it missed all six."""
    V = femops.H1(femops.box((4, 4, 4), lower=10.0, upper=11.0), 1, ncomp=ncomp)
    K = femops.elasticity(V, 1.0, 1.0) if ncomp == 3 else femops.diffusion(V)
    found = lobpcg(K, femops.mass(V), 8)
    zeros = 6 if ncomp == 3 else 1
    assert found.converged
    assert abs(found.values[:zeros]).max() < 1e-9 * found.values[zeros]


def test_no_vector_is_left_to_improve_after_a_search():
    """The search adds the constants, which the preconditioner never makes.

    Then all residuals are within the tolerance before the iterations after a search are over.
    """
    V = femops.H1(femops.box((4, 4)), 2)
    K, M = femops.diffusion(V), femops.mass(V)
    inverse = np.linalg.pinv(K @ np.eye(V.size))
    P = LinearOperator(K.shape, matvec=lambda x: inverse @ x, dtype=float)
    exact = eigh(K @ np.eye(V.size), M @ np.eye(V.size), eigvals_only=True)
    for k, seed in itertools.product((1, 2), range(4)):
        found = lobpcg(K, M, k, preconditioner=P, tol=0.1, guard=0, seed=seed, warn=False)
        assert found.converged or found.reason
        for value in found.values:
            assert abs(value - exact).min() < 0.1 * np.pi**2


def test_no_multigrid_is_made_of_a_singular_operator(monkeypatch):
    """Its relaxations would be measured, or factors made, in vain."""
    made, multigrid = [], lobpcg_module.multigrid
    monkeypatch.setattr(lobpcg_module, "multigrid", lambda A: made.append(A) or multigrid(A))
    V = femops.H1(femops.box((3, 2, 2)), 2, ncomp=3)
    free = femops.elasticity(V, 1.0, 1.0)
    held = free.constrained(V.boundary_dofs())
    for K, kept in ((free, False), (held, True)):
        made.clear()
        assert lobpcg_module.default_preconditioner(K).operator is made[0]
        assert len(made) == 1
        assert (made[0] is K) == kept


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
    assert found.reason.endswith("Give a larger tol, or a larger k if all k eigenvalues are zero")


def test_on_a_device():
    found = []
    for device in (None, guarded_device()):
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
    W = femops.Product(u=A.space, v=A.space)
    B = femops.form(lambda u, v: {"u": {"value": u, "grad": u.grad}, "v": {"value": v}}, W)
    triangular = femops.block_triangular(B, u=femops.jacobi(B["u", "u"]), v=femops.jacobi(M))
    with pytest.raises(SolverError, match="not symmetric, as lobpcg needs"):
        lobpcg(B, preconditioner=triangular)
    with pytest.raises(SolverError, match="no dof is free"):
        lobpcg(A.unconstrained.constrained(np.arange(n)), M, 1)
    with pytest.raises(SolverError, match="not to be positive definite: give preconditioner="):
        lobpcg((A.unconstrained - 50.0 * M).constrained(A.constrained_dofs), M)


@pytest.mark.parametrize("solver", [lobpcg, chebyshev_subspace])
def test_a_mass_that_is_not_positive_though_its_diagonal_is(solver):
    """Its lowest eigenvalues are negative, and no iteration that starts near zero finds them."""
    V = femops.H1(femops.box((6, 6)), order=3)
    A, M = femops.diffusion(V), femops.mass(V)
    indefinite = M - 1e-4 * A
    assert (indefinite.diagonal() > 0.0).all()
    with pytest.raises(SolverError, match="M is found not to be positive definite"):
        solver(A.constrained(V.boundary_dofs()), indefinite, 4)


def test_a_singular_mass_is_told():
    V = femops.H1(femops.box((6, 6)), order=3)
    with pytest.raises(SolverError, match="M is not positive definite"):
        chebyshev_subspace(femops.mass(V), femops.diffusion(V), 4)


def lowest(A, M, k):
    """The k lowest eigenvalues by the inverse: round-off is relative to the lowest."""
    free = np.setdiff1d(np.arange(A.space.size), A.constrained_dofs)
    K, mass = (each.unconstrained.assemble().toarray()[np.ix_(free, free)] for each in (A, M))
    return 1.0 / eigh(mass, K, eigvals_only=True)[: -k - 1 : -1]


@pytest.mark.parametrize("solver", [lobpcg, chebyshev_subspace])
@pytest.mark.parametrize(
    ("counts", "power", "order", "jump"), [((20,), 6, 4, 1.0), ((4, 4), 7, 2, 1e12)]
)
def test_graded_meshes(solver, counts, power, order, jump):
    """Round-off of the largest eigenvalue is above all eigenvalues wanted."""
    V = femops.H1(femops.box(counts, mapping=lambda x: x**power), order)
    k = femops.diffusion(V, lambda x: np.where(x[0] < 0.02, jump**-0.5, jump**0.5))
    A, M = k.constrained(V.boundary_dofs()), femops.mass(V)
    found = solver(A, M, 3)
    assert found.converged
    assert found.tolerance == pytest.approx(1e-6 * found.values[2], rel=1e-12)
    assert found.values == pytest.approx(lowest(A, M, 3), rel=1e-10)
    fine = solver(A, M, 3, tol=1e-20, warn=False)
    assert not fine.converged
    assert "ends it, and a residual is" in fine.reason
    assert fine.values == pytest.approx(found.values, rel=1e-10)


@pytest.fixture(scope="module")
def fields():
    """Two fields that are not coupled, with two factors, and a preconditioner of them."""
    V = femops.H1(femops.box((4, 4)), 2)
    W = femops.Product(a=V, b=femops.H1(V.mesh, 2))

    def stiffness(a, b, s, t):
        return {"a": {"grad": s * a.grad}, "b": {"grad": t * b.grad}}

    def masses(a, b):
        return {"a": {"value": a}, "b": {"value": b}}

    A = femops.form(stiffness, W, s=1.0, t=100.0)
    A = A.constrained(W.positions(a=V.boundary_dofs(), b=V.boundary_dofs()))
    parts = {name: femops.multigrid(A[name, name]) for name in "ab"}
    return A, femops.form(masses, W), femops.block_diagonal(W, **parts)


@pytest.mark.parametrize("ratio", [10.0, 100.0, 1e8])
def test_a_state_and_its_preconditioner_when_fields_change_places(fields, ratio):
    """The lowest of the other field were missed, as the preconditioner hardly moved that field."""
    A, M, N = fields
    state = lobpcg(A, M, 3, preconditioner=N).state
    A = A.update(s=ratio, t=1.0)
    for start in (state, None):
        found = lobpcg(A, M, 3, preconditioner=N, state=start, warn=False, maxiter=60)
        assert not found.converged
        assert found.reason.startswith("maxiter = 60")
        assert found.values == pytest.approx(lowest(A, M, 3), rel=0.05)
    near = femops.block_diagonal(
        A.space, **{name: femops.multigrid(A[name, name]) for name in "ab"}
    )
    check(A, M, 3, preconditioner=near, state=state)


def test_random_vectors_that_miss_a_field(fields):
    """They have hardly a part of the field that is a million times as stiff as the other."""
    A, M, _ = fields
    A = A.update(s=1.0, t=1e6)
    more = femops.form(lambda a, b: {"a": {"value": 2e7 * a}, "b": {"value": 0.0 * b}}, A.space)
    A = (A.unconstrained + more).constrained(A.constrained_dofs)
    check(A, M, 1, preconditioner=femops.jacobi(A), maxiter=300)


@pytest.mark.parametrize("ratio", [30.0, 1e4])
def test_a_state_when_bodies_exchange_their_materials(ratio):
    V = femops.H1(femops.box((8, 4)), 2)
    x = V.dof_coordinates()[:, 0]
    held = np.union1d(V.boundary_dofs(), np.flatnonzero(abs(x - 0.5) < 1e-9))
    A, B = (
        femops.diffusion(V, lambda x, s=s: np.where(x[0] < 0.5, s, ratio / s)).constrained(held)
        for s in (1.0, ratio)
    )
    M, N = femops.mass(V), femops.multigrid(A)
    state = lobpcg(A, M, 3, preconditioner=N).state
    check(B, M, 3, state=state)
    found = lobpcg(B, M, 3, preconditioner=N, state=state, warn=False)
    assert found.values == pytest.approx(lowest(B, M, 3), rel=1e-5 if found.converged else 0.2)


def hermitian(V, seed, dtype="complex128", mass=False):
    """A random Hermitian form of second order, positive definite, with coefficients of x."""
    random = np.random.default_rng(seed)
    dim = V.mesh.dim
    B = random.standard_normal((dim + 1, dim + 1)) + 1j * random.standard_normal((dim + 1, dim + 1))

    def form(u, b, c):
        parts = [u.grad[i] for i in range(dim)] + [c * u.value]
        n = range(dim + 1)
        sums = [sum(np.conj(b[i, j]) * parts[i] for i in n) for j in n]
        rows = [parts[i] + sum(b[i, j] * sums[j] for j in n) for i in n]
        return {"grad": np.stack(rows[:dim]), "value": np.conj(c) * rows[dim]}

    def value(u, c):
        return {"value": (1.0 + np.real(np.conj(c) * c)) * u}

    def phase(x):
        return 3.0 * np.exp(2j * x[0]) + x[-1]

    if mass:
        return femops.form(value, V, dtype=dtype, c=phase)
    return femops.form(form, V, dtype=dtype, b=B, c=phase)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["real", "complex", "diagonal", "identity"])
def test_complex_operators(seed, kind):
    V = femops.H1(femops.box((12,) if seed % 2 else (4, 4)), 2 + seed % 3)
    held = V.boundary_dofs() if seed < 2 else V.boundary_dofs(1)
    A = hermitian(V, seed).constrained(held)
    assert A.hermitian
    M = dict(zip(("real", "diagonal", "identity"), masses(V), strict=True)).get(kind)
    M = hermitian(V, seed, mass=True) if kind == "complex" else M
    free = np.setdiff1d(np.arange(V.size), held)
    G = np.eye(V.size) if M is None else M if isinstance(M, np.ndarray) else M.assemble().toarray()
    G = np.diag(G) if G.ndim == 1 else G
    K, part = A.assemble().toarray(), G[np.ix_(free, free)]
    expected = eigh(K[np.ix_(free, free)], part, eigvals_only=True)[:6]
    for options in ({}, {"preconditioner": femops.jacobi(A)}):
        found = lobpcg(A, M, 6, tol=1e-8, **options)
        assert found.converged
        assert found.values == pytest.approx(expected, rel=1e-10)
        x = found.vectors.columns()
        assert x.dtype == np.complex128
        assert np.abs(x.conj().T @ G @ x - np.eye(6)).max() < 1e-10
        left = (K @ x - G @ x * found.values)[free]
        assert np.abs(left).max() < 1e-4 * np.abs(K @ x).max()
    again = lobpcg(A, M, 6, tol=1e-8, state=found.state)
    assert again.iterations == 1


def test_multiple_eigenvalues_and_single_precision_of_complex_operators():
    V = femops.H1(femops.box((4, 4)), 4)
    for kind, tol in (("complex128", 1e-7), ("complex64", 1e-3)):
        A = femops.form(lambda u: {"grad": u.grad}, V, dtype=kind).constrained(V.boundary_dofs())
        found = lobpcg(A, femops.mass(V, dtype=A.real.dtype), 4, tol=tol)
        assert found.converged
        assert found.vectors.dtype == kind
        assert found.values / np.pi**2 == pytest.approx([2.0, 5.0, 5.0, 8.0], rel=1e-4)


def test_refused_complex_operators(pair):
    A, M = pair
    V = A.space
    Z = femops.form(lambda u: {"grad": u.grad}, V, dtype="complex128")
    turned = femops.form(lambda u: {"grad": (1.0 + 1j) * u.grad}, V, dtype="complex128")
    with pytest.raises(SolverError, match=r"A is complex: .* femops.eigen.lobpcg"):
        chebyshev_subspace(Z, M)
    with pytest.raises(SolverError, match="A is not Hermitian"):
        lobpcg(turned, M)
    with pytest.raises(SolverError, match="different spaces or types"):
        lobpcg(A, Z)
    with pytest.raises(SolverError, match="preconditioner is 168 x 168"):
        lobpcg(Z, M, preconditioner=np.eye(168))
