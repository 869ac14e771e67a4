"""Many vectors, and the eigensolver, on many ranks."""

import numpy as np
import pytest

import femops
from femops.eigen import SubspaceState, chebyshev_subspace, lobpcg
from femops.errors import OperatorError, RankError
from femops.fields.multivector import MultiVector
from support.cases.kernels import bend, smooth
from support.cases.rank_operators import close, of_rank_0, piece


def shared(comm, make):
    mesh = make()
    return femops.distribute(mesh, comm), mesh


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: femops.ball(1, order=2), np.complex128),
        (lambda: femops.box((2, 1), mapping=bend, order=2), np.float64),  # fewer than ranks
    ],
)
def test_many_vectors_of_ranks_are_parts_of_those_of_one(comm, make, kind):
    V, W = (femops.H1(mesh, 2) for mesh in shared(comm, make))
    A, B = (femops.diffusion(space, smooth) + femops.mass(space) for space in (V, W))
    x = np.random.default_rng(5).standard_normal((W.size, 12)).view(kind)
    Q = np.random.default_rng(6).standard_normal((x.shape[1], 6))
    for width in (None, 4):
        X = MultiVector.from_columns(V, x[piece(V)], width)
        X[:2], X[[4, 3]] = X[2:4], X[::-1][[0, 1]]
        X += X * 2
        y = x.copy()
        y[:, :2] = x[:, 2:4]
        y[:, [4, 3]] = y[:, [-1, -2]]
        y = 3 * y
        close(X.columns().T[2], y.T[2], V)
        close((A @ X).columns().T[4], (B @ y).T[4], V)
        close((A @ X.columns()).T[4], (B @ y).T[4], V)
        assert (A @ X.columns()[:, :0]).shape == (V.size, 0)
        close((X @ Q).columns().T[5], (y @ Q).T[5], V)
        assert np.allclose(X.gram(A @ X), y.conj().T @ (B @ y))
        assert np.allclose(X.norms(), MultiVector.from_columns(W, y).norms())
        X = X[:3]
        X.orthonormalise(A)
        assert np.allclose(X.gram(A @ X), np.eye(3))


@pytest.mark.parallel(2)
def test_a_product_that_is_too_large_for_one_rank_ends_all(comm, monkeypatch):
    V = femops.H1(shared(comm, lambda: femops.ball(1, order=2))[0], 2)
    A, X = femops.diffusion(V, smooth) + femops.mass(V), np.ones((V.size, 12))
    if comm.rank == 1:
        monkeypatch.setattr("femops.operators.assembly.csr.available_memory", lambda: 0)
    failed = (OperatorError, "12 vectors needs") if comm.rank else (RankError, "rank 1 of 2")
    with pytest.raises(failed[0], match=failed[1]):
        A @ X


@pytest.mark.parallel(2)
def test_eigenvalues_are_those_of_one_rank(comm):
    def results(mesh):
        V = femops.H1(mesh, order=2)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        M = femops.mass(V, quadrature=femops.basis.lobatto(3)).diagonal()  # few products
        yield chebyshev_subspace(A, M, 6, filter_dtype="float32")
        first = chebyshev_subspace(A, M, 6).state
        without = SubspaceState(first.vectors[range(1, first.vectors.nvec)], first.values[1:])
        yield chebyshev_subspace(A, M, 6, state=without)
        yield chebyshev_subspace(A, M, 6, state=first)
        yield chebyshev_subspace(A, M, V.global_size // 2)  # of a basis of all vectors
        yield lobpcg(A, M, 6, tol=1e-8)
        yield lobpcg(A, M, 6, tol=1e-8, state=without)
        Z = femops.form(lambda u: {"grad": u.grad}, V, dtype="complex128")
        yield lobpcg(Z.constrained(V.boundary_dofs()), M, 6, tol=1e-8)

    ours, mesh = shared(comm, lambda: femops.disc(2))
    found = list(results(ours))
    expected = of_rank_0(comm, lambda: [one.values for one in results(mesh)])
    for mine, alone in zip(found, expected, strict=True):
        assert mine.converged
        assert mine.values == pytest.approx(alone, rel=1e-8)
        assert mine.values[:6] == pytest.approx(found[0].values, rel=1e-8)
        assert len({comm.broadcast(mine.iterations, rank) for rank in range(comm.size)}) == 1


@pytest.mark.parallel(2)
@pytest.mark.parametrize("reproducible", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_field_that_the_preconditioner_hardly_moves(comm, reproducible):
    """Both ranks search, and find the same."""
    mesh = femops.box((8, 6))
    shared_mesh = femops.distribute(mesh, comm, reproducible=reproducible)
    V = femops.H1(shared_mesh, 2)
    W = femops.Product(a=V, b=femops.H1(shared_mesh, 2))

    def stiffness(a, b, s, t):
        return {"a": {"grad": s * a.grad}, "b": {"grad": t * b.grad}}

    A = femops.form(stiffness, W, s=1.0, t=100.0)
    A = A.constrained(W.positions(a=V.boundary_dofs(), b=V.boundary_dofs()))
    M, N = femops.form(lambda a, b: {"a": {"value": a}, "b": {"value": b}}, W), femops.jacobi(A)
    state = lobpcg(A, M, 2, preconditioner=N, maxiter=300).state
    A = A.update(s=100.0, t=1.0)
    found = lobpcg(A, M, 2, preconditioner=N, state=state, maxiter=20, warn=False)
    assert not found.converged
    assert found.values[0] < 1000.0  # it was 1974
    found = lobpcg(A, M, 2, preconditioner=femops.jacobi(A), state=state, maxiter=300)
    assert found.values / np.pi**2 == pytest.approx([2.0, 5.0], rel=1e-3)


@pytest.mark.parallel(2)
def test_numbers_that_differ_between_ranks_are_refused(comm):
    """On all ranks, before anyone waits for the others."""
    ours, _ = shared(comm, lambda: femops.disc(2))
    V = femops.H1(ours, order=2)
    A = (femops.diffusion(V) + femops.mass(V)).constrained(V.boundary_dofs())
    b, M = femops.load(V, 1.0), femops.jacobi(A)
    for work in (
        lambda: chebyshev_subspace(A, femops.mass(V), 2 + comm.rank),
        lambda: chebyshev_subspace(A, femops.mass(V), 2, maxiter=5 + comm.rank),
        lambda: lobpcg(A, femops.mass(V), 2, preconditioner=M if comm.rank else None),
        lambda: femops.cg(A, b, rtol=1e-6 / (1 + comm.rank)),
        lambda: femops.minres(A, b, maxiter=9 + comm.rank),
        lambda: femops.gmres(A, b, b if comm.rank else None),
        lambda: femops.gmres(A, b, restart=9 + comm.rank),
        lambda: femops.cg(A, b, M=M if comm.rank else None),
        lambda: femops.cg(A, b, merged=bool(comm.rank)),
    ):
        with pytest.raises(femops.errors.SolverError, match="ranks disagree about"):
            work()
    given = {"preconditioner": M, "maxiter": 3, "warn": False}
    states = [lobpcg(A, femops.mass(V), 2, guard=g, **given).state for g in (1, 2)]
    with pytest.raises(femops.errors.SolverError, match="ranks disagree about the state"):
        lobpcg(A, femops.mass(V), 2, preconditioner=M, state=states[comm.rank])
    refused = femops.errors.RankError if comm.rank else femops.errors.SolverError
    with pytest.raises(refused, match="the state is an int"):
        lobpcg(A, femops.mass(V), 2, preconditioner=M, state=states[0] if comm.rank else 3)
