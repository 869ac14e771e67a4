"""Preconditioners of other libraries, and those of several fields, on many ranks."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import femops
from femops.errors import RankError, SolverError, VectorError
from femops.parallel import Serial
from support.cases.kernels import smooth
from support.cases.products import stokes
from support.cases.rank_operators import close, of_rank_0, piece


def diffusion(ranks, **options):
    V = femops.H1(femops.distribute(femops.box((6, 6)), ranks, **options), 3)
    A = (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, smooth))


def diagonal(A, **options):
    inverse = 1.0 / A.diagonal()
    return LinearOperator(A.shape, lambda r: inverse * r, dtype=float, **options)


def flow(ranks, **options):
    mesh = femops.distribute(femops.box((6, 6)), ranks, **options)
    U, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=U, p=Q)
    A = femops.form(stokes, W, mu=1.0).constrained(W.positions(u=U.boundary_dofs()))
    return A, A.rhs(W.zeros(), W.interpolate(u=lambda x: (x[1] ** 2, 0.0 * x[0])))


def fields(A, sign=1.0):
    mass = femops.jacobi(sign * femops.mass(A.space.spaces["p"]))
    return {"u": femops.multigrid(A["u", "u"], dtype="float64"), "p": mass}


def diagonal_blocks(A):
    return femops.block_diagonal(A.space, **fields(A))


def triangle(A):
    return femops.block_triangular(A, **fields(A, -1.0))


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
def test_an_operator_of_a_rank_s_own_entries(comm, solver):
    def solve(ranks):
        A, b = diffusion(ranks)
        return A.space, *solver(A, b, M=diagonal(A), rtol=1e-10)

    V, x, info = solve(comm)
    y, expected = of_rank_0(comm, lambda: solve(Serial())[1:])
    assert info.converged
    assert abs(info.iterations - expected.iterations) <= 1
    close(x, y, V, 1e-8)


@pytest.mark.parallel(1, 2, 3)
def test_conjugate_gradients_are_reproducible(comm):
    """Without a preconditioner, and with one of a user's own; `test_lanes_mpi.py` has others."""

    def solve(ranks):
        A, b = diffusion(ranks, reproducible=True)
        plain = femops.cg(A, b, rtol=1e-8, history=True)
        found = femops.cg(A, b, M=diagonal(A), rtol=1e-8, history=True)
        many = femops.CGSolver(A, diagonal(A)).solve(b, rtol=1e-8)
        return A.space, *found, *many, *plain

    V, x, info, other, many, z, plain = solve(comm)
    y, expected, _, same, w, alone = of_rank_0(comm, lambda: solve(Serial())[1:])
    assert info == expected
    assert plain == alone
    assert many == same
    assert many.iterations == info.iterations
    assert np.array_equal(x, y[piece(V)])
    assert np.array_equal(x, other)
    assert np.array_equal(z, w[piece(V)])


@pytest.mark.parallel(2)
def test_matrices_are_refused(comm):
    """A rank knows no matrix of the others' entries."""
    A, b = diffusion(comm)
    for M in (np.eye(A.shape[0]), sp.eye(A.shape[0])):
        for solver in (femops.cg, femops.minres, femops.gmres):
            with pytest.raises(SolverError, match=r"gives what the rank owns \(2 ranks"):
                solver(A, b, M=M)


@pytest.mark.parallel(3)
@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
def test_what_is_not_finite_on_one_rank_ends_the_solve_on_all(comm, solver):
    A, b = diffusion(comm)
    factor = np.nan if comm.rank == 1 else 1.0
    M = LinearOperator(A.shape, lambda r: factor * r, dtype=float)
    error = SolverError if comm.rank == 1 else RankError
    with pytest.raises(error, match="products with M are not finite"):
        solver(A, b, M=M)


@pytest.mark.parallel(2)
@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
@pytest.mark.parametrize("name", ["b", "x0"])
def test_a_vector_that_does_not_fit_on_one_rank_ends_the_solve_on_all(comm, solver, name):
    """The others waited forever, where the error was caught."""
    A, b = diffusion(comm)
    wrong = b[:-1] if comm.rank == 1 else b
    with pytest.raises(VectorError if comm.rank == 1 else RankError, match=f"{name} has"):
        solver(A, **({"b": b} | {name: wrong}))


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize(
    ("solver", "make"),
    [
        (femops.minres, diagonal_blocks),
        (femops.gmres, triangle),
        (femops.gmres, femops.preconditioner),
        (femops.gmres, femops.direct),
    ],
)
def test_blocks(comm, solver, make, reproducible):
    """As many iterations on many ranks as on one; on a reproducible mesh the same bits."""

    def solve(ranks):
        A, b = flow(ranks, reproducible=reproducible)
        x, info = solver(A, b, M=make(A), rtol=1e-8, history=True)
        return A, b, x, info

    A, b, x, info = solve(comm)
    y, expected = of_rank_0(comm, lambda: solve(Serial())[2:])
    assert info.converged
    if reproducible:
        assert info == expected
        assert np.array_equal(x, y[piece(A.space)])
        return
    assert abs(info.iterations - expected.iterations) <= 1
    left = b - A @ x
    assert comm.sum(float(left @ left)) ** 0.5 <= info.tolerance * 1.001
    u, v = A.space.split(x)[0], y[: A.space.spaces["u"].global_size]
    close(u, v, A.space.spaces["u"], 1e-6)


@pytest.mark.parallel(2, 3)
def test_newton_with_a_user_s_functions(comm):
    def solve(ranks, **options):
        V = femops.H1(femops.distribute(femops.box((6, 6)), ranks), 2)
        F = femops.residual(cubic, V).constrained(V.boundary_dofs())
        return V, *femops.newton(F, V.zeros(), femops.load(V, 10.0), rtol=1e-10, **options)

    def linear(J, b, rtol):
        return femops.cg(J, b, rtol=rtol, M=femops.jacobi(J))

    y = of_rank_0(comm, lambda: solve(Serial())[1])
    for options in ({"linear": linear}, {"preconditioner": diagonal}):
        V, x, info = solve(comm, **options)
        assert info.converged
        close(x, y, V, 1e-8)


def cubic(u):
    return {"value": u + u**3, "grad": u.grad}


def unsteady(u, p):
    momentum = {"value": 1e3 * u.value, "grad": u.grad - p * np.eye(2)}
    return {"u": momentum, "p": {"value": -u.div}}


def exchange(a, b):
    return {"a": {"grad": a.grad, "value": a - 2 * b}, "b": {"grad": b.grad, "value": 2 * b - a}}


@pytest.mark.parallel(1, 2, 3)
def test_forms_that_are_read_and_singular_factors(comm):
    """An open boundary, discontinuous pressures, and null vectors that are no constants."""

    def solve(ranks):
        mesh = femops.distribute(femops.box((6, 6)), ranks, reproducible=True)
        U, V, found = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 2), []
        for Q in (femops.H1(mesh, 1), femops.L2(mesh, 0)):
            W = femops.Product(u=U, p=Q)
            A = femops.form(unsteady, W).constrained(W.positions(u=U.boundary_dofs([1, 2, 3])))
            b = W.join(u=femops.load(U, lambda x: (x[1] ** 2, -x[0])))
            found.append((W, *femops.gmres(A, A.rhs(b), M="auto", rtol=1e-8)))
        R = femops.Product(a=V, b=V)
        A = femops.form(exchange, R)
        M, b = femops.direct(A), A @ R.interpolate(a=lambda x: x[0] ** 2, b=lambda x: x[1])
        assert M.null == ("constants of a with constants of b",)
        return [*found, (R, *femops.gmres(A, b, M=M, rtol=1e-10))]

    own = solve(comm)
    expected = of_rank_0(comm, lambda: [part[1:] for part in solve(Serial())])
    for (W, x, info), (y, alone) in zip(own, expected, strict=True):
        assert info.converged
        assert info == alone
        assert info.iterations <= 20
        assert np.array_equal(x, y[piece(W)])
