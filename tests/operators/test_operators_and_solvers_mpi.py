"""Sums of integrals, products of spaces, nonlinear forms and solvers on many ranks."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import femops
from femops.errors import FemopsError
from femops.parallel import Serial
from femops.solvers.inner_products import Sums
from support.cases import rank_devices
from support.cases.kernels import bend, smooth
from support.cases.levels import LEVELS
from support.cases.products import stokes
from support.cases.rank_operators import close, here, of_rank_0, piece, waves

device, place = rank_devices.device, rank_devices.place


def ball():
    return femops.ball(2, order=2)


def on_both(comm, make, build):
    """A thing on the mesh of all ranks, and on that of this rank alone."""
    mesh = make()
    return build(femops.distribute(mesh, comm)), build(mesh)


def random(space, whole):
    u = np.random.default_rng(3).standard_normal(whole.size)
    return u[piece(space)].copy(), u


# --- sums and products ----------------------------------------------------------------------------


def robin(mesh, level="partial"):
    """Elements and boundary faces, two quadrature rules, a bound attribute."""
    V = femops.H1(mesh, 2)
    inside = femops.diffusion(V, smooth, level=level) + femops.mass(V, quadrature=5, level=level)
    return 2.0 * inside + femops.boundary_mass(V, smooth, level=level)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("level", LEVELS)
def test_elements_and_boundary(comm, level):
    mine, alone = on_both(comm, ball, lambda mesh: robin(mesh, level))
    for A, B in ((mine, alone), (-mine.T, -alone.T)):
        u, w = random(A.space, B.space)
        close(A @ u, B @ w, A.space)
        close(A.diagonal(), B.diagonal(), A.space)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("place", ["host", "staged"], indirect=True)
def test_all_ranks_take_the_level_that_one_has_found(comm, place):
    V = femops.H1(femops.distribute(ball(), comm), 1, device=place)
    A = femops.diffusion(V, level="auto") + femops.boundary_mass(V, level="auto")
    u = V.interpolate(smooth)
    levels = [comm.broadcast(A.level, rank) for rank in range(comm.size)]
    assert set(levels) == {A.level} <= {"full", "element", "partial", "matrix-free"}
    gap = A @ u - A.at_level("partial") @ u
    assert np.abs(here(gap)).max(initial=0.0) < 1e-12
    with pytest.raises(femops.errors.OperatorError, match="boundary integrals alone"):
        femops.boundary_mass(V, level="auto") @ u


def taylor_hood(mesh, level="partial"):
    W = femops.Product(u=femops.H1(mesh, 2, ncomp=mesh.dim), p=femops.H1(mesh, 1))
    return femops.form(stokes, W, mu=smooth, level=level)


def one_space_twice(mesh, level="partial"):
    V = femops.H1(mesh, 2)
    return femops.form(waves, femops.Product(real=V, imag=V), k=1.5, level=level)


def held(W):
    name = W.names[0]
    return W.slice(name).start + W.spaces[name].boundary_dofs()


def tiny():
    """Fewer elements than ranks."""
    return femops.box((2, 1), mapping=bend, order=2)


@pytest.mark.parallel(3)
@pytest.mark.parametrize(
    ("mesh", "make", "level"),
    [
        (ball, taylor_hood, "full"),
        (ball, one_space_twice, "partial"),
        (tiny, taylor_hood, "partial"),
        (tiny, taylor_hood, "element"),
        (tiny, taylor_hood, "matrix-free"),
    ],
)
def test_products(comm, mesh, make, level):
    mine, alone = on_both(comm, mesh, lambda mesh: make(mesh, level))
    assert comm.sum(mine.cost().data_flops) == alone.cost().data_flops
    for constrained in (False, True):
        A, B = mine, alone
        if constrained:
            A, B = A.constrained(held(A.space)), B.constrained(held(B.space))
        u, w = random(A.space, B.space)
        close(A @ u, B @ w, A.space)
        close(A.diagonal(), B.diagonal(), A.space)
        close((A + 2.0 * A).T @ u, (B + 2.0 * B).T @ w, A.space)
    several = np.multiply.outer(w, np.arange(9) - 4.0)
    close((A @ several[piece(A.space)])[:, 7], (B @ several)[:, 7], A.space)


def two_rules(mesh):
    """Two sweeps over the elements."""
    V = femops.H1(mesh, 2)
    return femops.mass(V, quadrature=5) + femops.diffusion(V, quadrature=3)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("make", [robin, taylor_hood, one_space_twice, two_rules])
def test_products_and_sums_are_reproducible(comm, make):
    mesh = ball()
    A = make(femops.distribute(mesh, comm, reproducible=True))
    B = make(femops.distribute(mesh, Serial(), reproducible=True))
    u, w = random(A.space, B.space)
    assert np.array_equal(A @ u, (B @ w)[piece(A.space)])


@pytest.mark.parallel(2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_inverted_element_of_one_rank_ends_all(comm, dtype):
    """It may be found at quadrature points only, when the operator is made."""
    mesh = femops.box((4, 4))
    coordinates = mesh.coordinates.copy()
    coordinates[3] = coordinates[3][::-1, [1, 0]]  # past the checks of meshes
    V = femops.H1(femops.distribute(replace(mesh, coordinates=coordinates), comm), 2)
    with pytest.raises(FemopsError, match="not positive"):
        femops.mass(V, dtype=dtype) @ V.zeros().astype(dtype)


@pytest.mark.parallel(2)
def test_numbers_that_are_not_finite_on_one_rank_end_an_update_on_all(comm):
    V = femops.H1(femops.box((4, 4), comm=comm), 2)
    A = femops.form(lambda u, c: {"value": u / c}, V, c=1.0)
    with pytest.raises(FemopsError, match="not finite"):
        A.update(c=lambda x: np.where((x < 0.2).all(axis=0), 0.0, 1.0)) @ V.zeros()


# --- solvers --------------------------------------------------------------------------------------


def problem(mesh, dtype="float64", device=None):
    V = femops.H1(mesh, 3, device=device)
    A = femops.diffusion(V, smooth, dtype=dtype) + femops.mass(V, dtype=dtype)
    A = A.constrained(V.boundary_dofs())
    b = femops.load(V, smooth, dtype=dtype)
    return A, A.rhs(b, V.interpolate(lambda x: x[0]).astype(dtype))


def there_and_alone(comm, place, solve):
    """A solve on the mesh of all ranks, wherever these work; and of rank 0 alone, on the host.

    The second is without its space.
    """
    mesh = ball() if place is None else femops.ball(1, order=2)
    there = solve(femops.distribute(mesh, comm), place)
    return there, of_rank_0(comm, lambda: solve(mesh, None)[1:])


def check(comm, place, solve, tolerance):
    """(information on ranks, on one) of a solve, which must have the same solution."""
    (V, x, info), (y, expected) = there_and_alone(comm, place, solve)
    assert info.converged
    assert abs(info.iterations - expected.iterations) <= 1
    for one, other in zip(np.atleast_2d(here(x).T), np.atleast_2d(y.T), strict=True):
        close(one, other, V, tolerance)
    return info, expected


def check_bits(comm, solve):
    """Information on a solve, which must have the same bits on one rank."""
    V, x, info = solve(comm)
    y, expected = of_rank_0(comm, lambda: solve(Serial())[1:])
    assert info == expected
    assert np.array_equal(x, y[piece(V)])
    return info


@pytest.mark.parallel(2, 4)
@pytest.mark.parametrize(
    ("place", "merged", "jacobi"),
    [
        ("host", True, True),
        ("host", True, False),
        ("host", False, True),
        ("host", False, False),
        ("staged", False, True),
        ("nccl", False, False),
    ],
    indirect=["place"],
)
def test_cg(comm, place, merged, jacobi):
    def solve(mesh, place):
        A, b = problem(mesh, device=place)
        M = femops.jacobi(A) if jacobi else None
        return A.space, *femops.cg(A, b, M=M, rtol=1e-11, merged=merged)

    info, expected = check(comm, place, solve, 1e-10)
    assert info.merged == expected.merged == merged
    assert abs(info.tolerance - expected.tolerance) < 1e-12 * expected.tolerance


@pytest.mark.parallel(2, 4)
@pytest.mark.parametrize(
    ("place", "natural"),
    [("host", True), ("host", False), ("staged", False), ("nccl", True)],
    indirect=["place"],
)
def test_cg_for_many_right_hand_sides(comm, place, natural):
    def solve(mesh, place):
        A, b = problem(mesh, device=place)
        solver = femops.CGSolver(A, M=femops.jacobi(A), natural=natural)
        first, _ = solver.solve(b, rtol=1e-12)
        again, none = solver.solve(b, first, rtol=1e-9)
        return A.space, first, again, none, *solver.solve(-3.0 * b, rtol=1e-9)

    (V, x, again, none, z, count), (y, *_, expected) = there_and_alone(comm, place, solve)
    assert none.iterations == 0 < count.iterations
    assert abs(count.iterations - expected.iterations) <= 1
    assert count.tolerance == pytest.approx(expected.tolerance, rel=1e-12)
    assert np.array_equal(here(again), here(x))
    close(here(x), y, V, 1e-10)
    close(here(z), -3.0 * y, V, 1e-6)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("place", ["host", "staged"], indirect=True)
def test_cg_shows_each_iterate_and_takes_float32(comm, place):
    def solve(mesh, place):
        A, b = problem(mesh, device=place)
        seen = []
        femops.cg(A, b, maxiter=4, warn=False, callback=lambda x: seen.append(here(x).copy()))
        A, b = problem(mesh, "float32", place)
        return A.space, seen, *femops.cg(A, b, rtol=1e-5)

    (V, mine, x, info), (alone, y, _) = there_and_alone(comm, place, solve)
    assert len(mine) == len(alone) == 4
    for one, other in zip(mine, alone, strict=True):
        close(one, other, V)
    assert info.converged
    assert x.dtype == np.float32
    close(here(x), y, V, 1e-4)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("place", "make"),
    [("host", femops.H1), ("host", femops.L2), ("staged", femops.H1), ("nccl", femops.L2)],
    indirect=["place"],
)
def test_cg_where_ranks_have_nothing(comm, place, make):
    """Functions that are not continuous are nobody's ghosts, but of all ranks too."""
    V = make(femops.box(1, comm=comm), 4, device=place)
    x, info = femops.cg(femops.mass(V), femops.load(V, 1.0), rtol=1e-13)
    assert info.converged
    np.testing.assert_allclose(here(x), here(V.interpolate(1.0)), rtol=1e-12)


@pytest.mark.parallel(2)
def test_cg_says_what_is_wrong_on_devices(comm, device):
    A, b = problem(femops.box((4, 4), comm=comm), device=device)
    with pytest.raises(femops.errors.SolverError, match="ranks have a GPU each: leave merged out"):
        femops.cg(A, b, merged=True)
    with pytest.raises(femops.errors.SolverError, match="not to be positive definite"):
        femops.cg(-A, -b)


def burgers(u):
    return {"grad": 0.1 * u.grad, "value": u * u.grad[0]}


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("place", "linear"),
    [("host", "cg"), ("host", "burgers"), ("staged", "gmres"), ("nccl", "burgers")],
    indirect=["place"],
)
def test_newton(comm, place, linear):
    """Also where the Jacobian is not symmetric."""

    def solve(mesh, place):
        V = femops.H1(mesh, 2, device=place)
        F = femops.p_laplacian(V, p=3.0, epsilon=0.1)
        if linear == "burgers":
            F = femops.residual(burgers, V)
        F, b = F.constrained(V.boundary_dofs()), femops.load(V, lambda x: np.sin(3 * x[0]) + 0.3)
        method = "auto" if linear == "burgers" else linear
        u, info = femops.newton(F, V.zeros(), b, linear=method, rtol=1e-10)
        assert np.isfinite(here(F.residual(u))).all()
        return V, u, info

    check(comm, place, solve, 1e-8)


@pytest.mark.parallel(2, 3)
def test_cg_for_a_block_of_right_hand_sides(comm):
    def solve(mesh, _):
        A, b = problem(mesh)
        b = np.stack([b, A @ b, 1e-20 * b], axis=1)
        return A.space, *femops.cg(A, b, M=femops.jacobi(A), rtol=1e-12)

    check(comm, None, solve, 1e-10)


@pytest.mark.sample(3)
@pytest.mark.parallel(1, 2, 3, 4)
@pytest.mark.parametrize("linear", ["cg", "minres", "gmres"])
@pytest.mark.parametrize("make", [ball, lambda: femops.box((9, 7)), lambda: femops.box((30, 31))])
def test_newton_is_reproducible(comm, make, linear):
    """Whatever the sizes of the blocks with which ranks end."""

    def solve(ranks):
        V = femops.H1(femops.distribute(make(), ranks, reproducible=True), 2)
        F = femops.p_laplacian(V, p=3.0, epsilon=0.1).constrained(V.boundary_dofs())
        return V, *femops.newton(F, V.zeros(), femops.load(V, 1.0), linear=linear, rtol=1e-6)

    assert check_bits(comm, solve).converged


@pytest.mark.parallel(2)
def test_newton_ends_alike_where_one_rank_sees_why(comm):
    """A zero on the diagonal of one rank ends the steps of all, and nobody waits for it."""
    V = femops.H1(femops.box((4, 4), comm=comm), 1)
    F = femops.residual(lambda u: {"value": u * u}, V)
    held = np.arange(V.size) if comm.rank == 0 else np.arange(V.size - 1)
    with pytest.raises(femops.errors.SolverError, match="1 diagonal entries are zero"):
        femops.jacobi(F.constrained(held).jacobian(V.zeros()))
    _, info = femops.newton(F.constrained(held), V.zeros(), femops.load(V, 1.0), warn=False)
    assert not info.converged
    assert "1 diagonal entries are zero" in info.reason


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_minres(comm, dtype):
    """Where the operator is indefinite; the residual is what was asked for."""
    V = femops.H1(femops.distribute(ball(), comm), 2)
    A = femops.helmholtz(V, 4.0, dtype=dtype).constrained(V.boundary_dofs())
    b, sums = femops.load(V, smooth, dtype=dtype), Sums(V)
    b[V.boundary_dofs()] = 0.0
    M = abs(femops.jacobi(A))
    rtol = 1e-10 if dtype == "float64" else 1e-4
    x, info = femops.minres(A, b, rtol=rtol, M=M)
    assert info.converged
    assert x.dtype == dtype
    assert sums.norm(b - A @ x) <= 1.001 * rtol * sums.norm(b)
    few = info.iterations // 2
    _, info = femops.minres(A, b, rtol=rtol, M=M, maxiter=few, warn=False)
    assert (info.iterations, info.converged) == (few, False)


def wind(ranks):
    mesh = femops.distribute(femops.box((6, 6)), ranks, reproducible=True)
    V = femops.H1(mesh, 3)
    A = femops.convection(V, lambda x: 5.0 + x) + 0.1 * femops.diffusion(V) + femops.mass(V)
    return A, femops.load(V, lambda x: np.sin(9 * x[0])), femops.jacobi(A)


def flow(ranks):
    """Stokes' equations, and a preconditioner that the user has made of a rank's own entries."""
    A = taylor_hood(femops.distribute(femops.box((6, 6)), ranks, reproducible=True))
    W = A.space
    A = A.constrained(held(W))
    values = W.interpolate(u=lambda x: (x[1] ** 2, 0.0 * x[0]))
    scale = W.join(u=A["u", "u"].diagonal(), p=femops.mass(W.spaces["p"]).diagonal())
    return A, A.rhs(W.zeros(), values), LinearOperator(A.shape, lambda r: r / scale, dtype=float)


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize(
    ("solver", "build", "options"),
    [(femops.gmres, wind, {"restart": 30}), (femops.minres, flow, {}), (femops.gmres, flow, {})],
)
def test_minres_and_gmres_are_reproducible(comm, solver, build, options):
    def solve(ranks):
        A, b, M = build(ranks)
        x, info = solver(
            A, b, 0.1 * b, rtol=1e-8, M=M, history=True, maxiter=300, **options, warn=False
        )
        return A.space, x, info

    assert check_bits(comm, solve).iterations > 30


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("solver", [femops.cg, femops.minres, femops.gmres])
def test_one_rank_warns_for_all(comm, solver):
    """Also where some ranks have no constrained dof; an error of the warning is one of all."""
    V = femops.H1(femops.box((6, 6), comm=comm), 2)
    A, b = femops.diffusion(V), femops.load(V, 1.0)
    for operator, words in ((A, "takes constants to zero"), (A.constrained([0][comm.rank :]), "")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, info = solver(operator, b, maxiter=3)
        assert not info.converged
        assert len(caught) == (comm.rank == 0)
        assert all(("singular" in str(one.message)) == bool(words) for one in caught)
        assert all(words in str(one.message) for one in caught)
        error = femops.errors.RankError if comm.rank else femops.errors.ConvergenceWarning
        with pytest.raises(error, match="has not converged"):
            solver(operator, b, maxiter=3)
    with pytest.raises(femops.errors.OperatorError, match="no dof is constrained"):
        A.rhs(b, 1.0)
    some = A.constrained([0][comm.rank :]).rhs(b, 1.0)  # only rank 0 has a constrained dof
    assert comm.rank or some[0] == 1.0


@pytest.mark.parallel(2, 3)
def test_norms_and_integrals_are_the_same_bits(comm):
    def build(mesh):
        V = femops.H1(mesh, 3, family="bernstein")
        u = V.interpolate(smooth)
        gradient = femops.h1_seminorm_error(V, u, np.zeros_like)
        return femops.integrate(V, u), femops.integrate(V, 1.0), femops.l2_norm(V, u), gradient

    mine, alone = on_both(comm, lambda: femops.box((5, 4, 3), mapping=bend), build)
    assert mine == alone


@pytest.mark.parallel(2, 3)
def test_a_coefficient_that_fails_on_one_rank(comm):
    """All ranks raise, and can go on."""
    V = femops.H1(femops.distribute(ball(), comm), 2)
    last = comm.rank == comm.size - 1

    def broken(x):
        return np.full(x.shape[1], np.nan if last else 1.0)

    A = femops.mass(V)
    for make in (lambda: femops.diffusion(V, broken), lambda: A.update(rho=broken)):
        with pytest.raises(femops.errors.FemopsError, match=r"not finite|rank"):
            make()
    assert comm.max(comm.rank) == comm.size - 1
