"""Newton's method with bounds on the unknowns: obstacles, contact, damage that does not heal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize
from scipy.sparse.linalg import LinearOperator

import femops
from femops.errors import ConvergenceWarning, SolverError, VectorError
from support import fixtures
from support.cases.kernels import bend

one_thread = fixtures.one_thread

Array = np.ndarray
RADIUS = 0.697965148223374  # of the contact between a membrane and a ball of radius 1


def ball(x: Array) -> Array:
    r = np.linalg.norm(x, axis=0)
    return np.asarray(np.where(r < 1.0, np.sqrt(np.maximum(1.0 - r**2, 0.0)), -1.0))


def membrane(x: Array) -> Array:
    """Exact solution over the ball, on any domain within the circle of radius 2, or around it."""
    r = np.linalg.norm(x, axis=0)
    outside = -(RADIUS**2) * np.log(np.maximum(r, 1e-9) / 2.0) / np.sqrt(1.0 - RADIUS**2)
    return np.asarray(np.where(r <= RADIUS, ball(x), outside))


def obstacle(n: int, order: int) -> tuple[Any, Any, Array, Array]:
    """Membrane over a ball: space, operator, right-hand side and lower bound."""
    V = femops.H1(femops.box((n, n), lower=(-2.0, -2.0), upper=(2.0, 2.0)), order)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    return V, A, A.rhs(V.zeros(), V.interpolate(membrane)), V.interpolate(ball)


def check_solution(A: Any, u: Array, b: Array, lower: Array, upper: Array, info: Any) -> None:
    """The conditions of Karush, Kuhn and Tucker, and the report's part in them."""
    size = abs(A.diagonal() * abs(u)).max() + abs(b).max()
    free = np.setdiff1d(np.arange(A.space.size), A.constrained_dofs)
    r = (A @ u - b)[free]
    low, high = (u - lower)[free], (upper - u)[free]
    assert min(low.min(), high.min()) >= 0.0
    assert (r >= -1e-6 * size)[(low <= 0.0) & (high > 0.0)].all()
    assert (r <= 1e-6 * size)[(high <= 0.0) & (low > 0.0)].all()
    assert abs(r[(low > 0.0) & (high > 0.0)]).max(initial=0.0) <= 1e-6 * size
    held = np.isin(free, info.active)
    assert np.allclose(info.reactions[free], np.where(held, r, 0.0), atol=1e-12 * size)
    assert ((u == lower) | (u == upper))[info.active].all()


def test_the_free_boundary_over_a_ball() -> None:
    """The error is of second order, and the contact ends within an element of the exact circle."""
    errors = []
    for n in (16, 32):
        V, A, b, psi = obstacle(n, 2)
        u, info = femops.newton(A, V.zeros(), b, lower=psi, preconditioner="multigrid")
        assert info.converged
        assert info.linear_iterations <= 2 * info.iterations
        check_solution(A, u, b, psi, np.full(V.size, np.inf), info)
        errors.append(femops.l2_error(V, u, membrane))
        reach = np.linalg.norm(V.dof_coordinates()[info.active], axis=1).max()
        assert abs(reach - RADIUS) < 4.0 / n
    assert errors[1] < 0.4 * errors[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [1, 2, 4])
def test_rates_of_an_obstacle_problem(order: int) -> None:
    """The second derivatives jump at the free boundary, so no order has more than 5/2 in L2."""
    errors = []
    for n in (16, 32, 64):
        V, A, b, psi = obstacle(n, order)
        u, info = femops.newton(A, V.zeros(), b, lower=psi, preconditioner="multigrid")
        assert info.converged
        errors.append(femops.l2_error(V, u, membrane))
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (rates > 1.2).all()
    assert np.log2(errors[0] / errors[2]) > 3.4


def test_each_preconditioner_finds_the_same_solution() -> None:
    V, A, b, psi = obstacle(12, 2)
    expected, _ = femops.newton(A, V.zeros(), b, lower=psi, preconditioner="direct", rtol=1e-10)
    M = femops.multigrid(A)  # knows nothing of the contact
    own = LinearOperator(A.shape, lambda x: M @ x, dtype=float)
    for options in (
        {"preconditioner": "jacobi"},
        {"preconditioner": "multigrid"},
        {"preconditioner": "auto"},
        {"preconditioner": M},
        {"preconditioner": own},
        {"preconditioner": lambda J: M},
        {"preconditioner": femops.multigrid},
        {"linear": "minres"},
        {"linear": "gmres", "preconditioner": "multigrid"},
        {"linear": "direct"},
        {"linear": lambda J, b, rtol: np.linalg.solve(J.assemble().toarray(), b)},
    ):
        given: Any = options
        u, info = femops.newton(A, V.zeros(), b, lower=psi, rtol=1e-10, **given)
        assert info.converged, options
        assert abs(u - expected).max() < 1e-7, options


def random_problem(rng: np.random.Generator, kind: int) -> tuple[Any, Array, Array, Array]:
    """Operator, load and bounds of a quadratic problem."""
    order, ncomp = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    mesh = femops.box((8 // (2 * order) + 1,) * 2, mapping=bend)
    mesh = mesh.refined([0]) if rng.random() < 0.5 else mesh
    V = femops.H1(mesh, order, ncomp=ncomp)
    A = (
        femops.elasticity(V, lam=10.0 ** rng.uniform(-1, 2), mu=1.0)
        if ncomp == 2
        else femops.diffusion(V, np.diag([1.0, 10.0 ** rng.uniform(-2, 2)])) + femops.mass(V)
    )
    fixed = V.boundary_dofs(1)
    A = A.constrained(fixed)
    b = rng.standard_normal(V.size) * abs(A.diagonal())
    b[fixed] = 0.0
    free = np.linalg.solve(A.assemble().toarray(), b)
    size = abs(free).mean()
    low, high = np.full((2, V.size), np.inf) * [[-1.0], [1.0]]
    if kind == 0:
        low, high = -size * rng.random(V.size), size * rng.random(V.size)
    elif kind == 1:  # some are equal, and some infinite
        low = np.where(rng.random(V.size) < 0.5, 0.0, -np.inf)
        high = np.where(rng.random(V.size) < 0.4, np.maximum(low, 0.0), np.inf)
    elif kind == 2:  # bounds that hold with no reaction
        low = free - np.where(rng.random(V.size) < 0.5, 0.0, size)
    elif kind == 3:  # nothing is active
        low, high = -10.0 * abs(free) - size, 10.0 * abs(free) + size
    else:  # all is active, or nearly
        low = np.full(V.size, 2.0 * abs(free).max())
    low[fixed], high[fixed] = np.minimum(low[fixed], 0.0), np.maximum(high[fixed], 0.0)
    return A, b, low, high


@pytest.mark.parametrize("kind", range(5))
def test_random_quadratic_problems(kind: int) -> None:
    """The minimum is that of SciPy's active set method, on the unknowns that are not fixed."""
    rng = np.random.default_rng(kind)
    for _ in range(3):
        A, b, low, high = random_problem(rng, kind)
        u, info = femops.newton(A, 0.0 * b, b, lower=low, upper=high, rtol=1e-10)
        assert info.converged
        check_solution(A, u, b, low, high, info)
        K, moving = A.assemble().toarray(), low < high
        moving[A.constrained_dofs] = False
        part = np.ix_(moving, moving)
        lower = np.linalg.cholesky(K[part])
        fixed = np.where(moving | np.isinf(low), 0.0, low)
        fixed[A.constrained_dofs] = 0.0
        right = np.linalg.solve(lower, (b - K @ fixed)[moving])
        known = lsq_linear(lower.T, right, (low[moving], high[moving]), method="bvls", tol=1e-14)
        assert abs(u[moving] - known.x).max() < 1e-6 * abs(u).max() + 1e-12


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_many_random_quadratic_problems(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for kind in range(5):
        A, b, low, high = random_problem(rng, kind)
        for options in ({"linear": "direct"}, {"preconditioner": "multigrid"}):
            given: Any = options
            u, info = femops.newton(A, 0.0 * b, b, lower=low, upper=high, rtol=1e-9, **given)
            assert info.converged
            check_solution(A, u, b, low, high, info)


def test_a_nonlinear_energy_within_bounds() -> None:
    """The minimum of a convex energy of fourth order is that of SciPy's L-BFGS-B."""
    V = femops.H1(femops.box((3, 3)), 2)
    F = femops.residual(lambda u: {"value": u + 50.0 * u**3, "grad": u.grad}, V)
    F = F.constrained(V.boundary_dofs(1))
    J = femops.functional(
        lambda u: 0.5 * u**2 + 12.5 * u**4 + 0.5 * femops.inner(u.grad, u.grad), V
    )
    b, low, high = femops.load(V, lambda x: 30.0 * x[0] - 15.0), -0.1, V.interpolate(0.2)
    u, info = femops.newton(F, V.zeros(), b, lower=low, upper=high, rtol=1e-10)
    assert info.converged
    free = np.setdiff1d(np.arange(V.size), F.constrained_dofs)

    def whole(x: Array) -> Array:
        y = V.zeros()
        y[free] = x
        return y

    known = minimize(
        lambda x: J(whole(x)) - b @ whole(x),
        V.zeros()[free],
        jac=lambda x: (F.residual(whole(x)) - b)[free],
        method="L-BFGS-B",
        bounds=[(-0.1, 0.2)] * len(free),
        options={"ftol": 1e-16, "gtol": 1e-10, "maxiter": 2000},
    )
    assert abs(u[free] - known.x).max() < 1e-6
    assert u.min() == -0.1
    assert u.max() == 0.2
    assert info.reactions.max() > 0.0 > info.reactions.min()


def test_a_problem_that_is_not_symmetric() -> None:
    """Convection carries a concentration that may not fall below a bound."""
    V = femops.H1(femops.box((16, 16)), 1)
    F = femops.residual(lambda u: {"value": 20.0 * u.grad[0] + 3.0 * u**2, "grad": u.grad}, V)
    F = F.constrained(V.boundary_dofs())
    b = femops.load(V, lambda x: 30.0 * np.sin(7.0 * x[0]) * np.sin(4.0 * x[1]))
    u, info = femops.newton(F, V.zeros(), b, lower=-0.05, upper=0.3, rtol=1e-9)
    assert info.converged
    r = F.residual(u) - b
    r[F.constrained_dofs] = 0.0
    between = (u > -0.05) & (u < 0.3)
    assert abs(r[between]).max() < 1e-7
    assert (r[u == -0.05] >= 0.0).all()
    assert info.reactions.max() > 0.0
    assert len(info.active) == np.count_nonzero(info.reactions)


def hertz(n: int, order: int) -> tuple[float, float, float, float]:
    """Press a cylinder into an elastic block: force, half width and largest pressure, element."""

    def graded(x: Array) -> Array:
        return np.stack([8.0 * x[0] ** 3, 8.0 * (1.0 - (1.0 - x[1]) ** 3) - 8.0])

    mesh = femops.box((n, n), mapping=graded)
    V = femops.H1(mesh, order, ncomp=2)
    E, nu, R, depth = 1.0, 0.3, 10.0, 0.05
    A = femops.elasticity(V, E=E, nu=nu)
    fixed = np.union1d(V.boundary_dofs(3), V.boundary_dofs(1, components=0))
    A = A.constrained(fixed)
    above = V.boundary_dofs(4, components=1)
    x = V.dof_coordinates()[above // 2, 0]
    upper = np.full(V.size, np.inf)
    upper[above] = x**2 / (2.0 * R) - depth
    _, info = femops.newton(A, V.zeros(), V.zeros(), upper=upper, preconditioner="multigrid")
    assert info.converged
    force = -2.0 * info.reactions.sum()
    order_of_x = np.argsort(x)
    held = np.isin(above[order_of_x], info.active)
    assert held[: held.sum()].all()
    last = int(held.sum()) - 1
    x = x[order_of_x]
    pressures = femops.boundary_mass(V, 1.0, 4).eliminated(
        np.setdiff1d(np.arange(V.size), info.active), np.setdiff1d(np.arange(V.size), info.active)
    )
    matrix = pressures.assemble().tocsr()[info.active][:, info.active].toarray()
    p = np.linalg.solve(matrix, -info.reactions[info.active])
    middle = p[np.argmin(V.dof_coordinates()[info.active // 2, 0])]
    return force, 0.5 * (x[last] + x[last + 1]), middle, x[last + 1] - x[last]


def test_a_cylinder_on_an_elastic_block() -> None:
    """Hertz: half width sqrt(4 P R (1 - nu^2) / (pi E)), and largest pressure 2 P / (pi a)."""
    force, width, pressure, h = hertz(16, 2)
    expected = np.sqrt(4.0 * force * 10.0 * (1.0 - 0.3**2) / np.pi)
    assert abs(width - expected) < h
    assert abs(pressure / (2.0 * force / (np.pi * expected)) - 1.0) < 0.03


@pytest.mark.exhaustive
def test_hertz_on_a_finer_mesh() -> None:
    force, width, pressure, h = hertz(32, 2)
    expected = np.sqrt(4.0 * force * 10.0 * (1.0 - 0.3**2) / np.pi)
    assert abs(width - expected) < h
    assert abs(pressure / (2.0 * force / (np.pi * expected)) - 1.0) < 0.015


@pytest.mark.exhaustive
def test_a_sphere_on_an_elastic_block() -> None:
    """Hertz: a^3 = 3 P R (1 - nu^2) / (4 E), and the depth is a^2 / R. A quarter is computed."""

    def graded(x: Array) -> Array:
        return np.stack([8.0 * x[0] ** 3, 8.0 * x[1] ** 3, 8.0 * (x[2] - 1.0) ** 3])

    V = femops.H1(femops.box((12, 12, 10), mapping=graded), 2, ncomp=3)
    nu, R, depth = 0.3, 10.0, 0.05
    fixed = np.concatenate(
        [V.boundary_dofs(5), V.boundary_dofs(1, components=0), V.boundary_dofs(3, components=1)]
    )
    A = femops.elasticity(V, E=1.0, nu=nu).constrained(np.unique(fixed))
    above = V.boundary_dofs(6, components=2)
    upper = np.full(V.size, np.inf)
    radius = np.linalg.norm(V.dof_coordinates()[above // 3, :2], axis=1)
    upper[above] = radius**2 / (2.0 * R) - depth
    u, info = femops.newton(A, V.zeros(), upper=upper)
    assert info.converged
    force = -4.0 * info.reactions.sum()
    expected = np.cbrt(0.75 * force * R * (1.0 - nu**2))
    reach = radius[np.isin(above, info.active)].max()
    free = radius[~np.isin(above, info.active)].min()
    assert 0.9 * free < expected < 1.1 * reach
    assert abs(expected / np.sqrt(R * depth) - 1.0) < 0.08  # the block is 11 times as wide
    assert (u <= upper).all()


def test_a_block_that_rests_on_the_ground() -> None:
    """Bounds alone hold it, from a first guess at the bounds on. Else the warning says so."""
    V = femops.H1(femops.box((4, 2)), 2, ncomp=2)
    A = femops.elasticity(V, E=1e3, nu=0.3).constrained(V.boundary_dofs(1, components=0))
    lower = np.full(V.size, -np.inf)
    lower[V.boundary_dofs(3, components=1)] = 0.0
    weight = femops.load(V, (0.0, -1.0))
    _, info = femops.newton(A, V.zeros(), weight, lower=lower, linear="direct")
    assert info.converged
    assert info.reactions.sum() == pytest.approx(1.0)
    with pytest.warns(ConvergenceWarning, match="begin with a u0 at the bounds"):
        femops.newton(A, V.interpolate((0.0, 0.1)), weight, lower=lower, linear="direct")


def test_contact_with_large_deformation() -> None:
    """A stamp of radius 1 is pressed into rubber by more than the elements there are high.

    Nodes that were put within the bounds at once would invert the elements: the first step spreads
    what they move.
    """
    V = femops.H1(femops.box((6, 6), upper=(2.0, 1.0)), 2, ncomp=2)
    F = femops.neo_hookean(V, lam=2.0, mu=1.0).constrained(V.boundary_dofs(3))
    top = V.boundary_dofs(4, components=1)
    upper = np.full(V.size, np.inf)
    upper[top] = (V.dof_coordinates()[top // 2, 0] - 1.0) ** 2 / 2.0 - 0.25
    u, info = femops.newton(F, V.zeros(), upper=upper, preconditioner="multigrid")
    assert info.converged
    assert (u <= upper).all()
    assert info.reactions.max() <= 0.0
    assert np.isin(info.active, top).all()
    F = F.constrained(info.active)  # the same by prescribed displacements
    assert np.linalg.norm(F.residual(u)) <= 2.0 * info.tolerance


def test_a_first_guess_outside_of_the_law_s_domain() -> None:
    """The logarithm has no value at zero, but has within the bounds."""
    V = femops.H1(femops.box((4, 4)), 2)
    F = femops.residual(lambda u: {"value": np.log(u) + 2.0, "grad": u.grad}, V)
    u, info = femops.newton(F, V.zeros() - 1.0, lower=0.2)
    assert info.converged
    assert (u == 0.2).all()
    assert len(info.active) == V.size
    u, info = femops.newton(F, V.zeros() - 1.0, lower=0.1)
    assert info.converged
    assert np.allclose(u, np.exp(-2.0))


def test_damage_that_does_not_heal() -> None:
    """A bar that is stretched, let go and stretched again, with the damage of the law AT1.

    Its uniform solution has 1 - d = w / (E e^2) beyond e = sqrt(w / E), at the largest stretch.
    """
    mesh = femops.box((2, 1))
    W = femops.Product(u=femops.H1(mesh, 1, ncomp=2), d=femops.H1(mesh, 1))
    U = W.spaces["u"]
    w = 1.0

    def law(u: Any, d: Any) -> Any:
        e = u.sym_grad
        keeps = (1.0 - d.value) ** 2 + 1e-9
        return {
            "u": {"grad": keeps * e},
            "d": {
                "value": w / 2 - (1.0 - d.value) * femops.inner(e, e),
                "grad": 0.1 * d.grad,
            },
        }

    sides = W.positions(
        u=np.unique(
            np.concatenate([U.boundary_dofs([1, 2], components=0), U.boundary_dofs(components=1)])
        )
    )
    F = femops.residual(law, W).constrained(sides)
    z, worst = W.zeros(), 0.0
    for stretch in (0.5, 1.2, 0.6, 1.2, 1.5):
        old = W.split(z)[1].copy()
        z = W.join(u=U.interpolate(lambda x, s=stretch: (s * x[0], 0.0 * x[0])), d=old)
        z, info = femops.newton(F, z, lower={"d": old}, upper={"d": 1.0}, linear="direct")
        assert info.converged
        worst = max(worst, stretch)
        expected = max(0.0, 1.0 - w / 2 / worst**2)
        d = W.split(z)[1]
        assert np.allclose(d, expected, atol=1e-6), stretch
        assert (d >= old).all()


def test_reactions_reduce_the_gradient() -> None:
    """The derivative of a mean by a load is that of the unknowns that no bound holds."""
    V, _, _, psi = obstacle(8, 2)
    F = femops.residual(lambda u, f: {"grad": u.grad, "value": -f}, V, f=0.5)
    F, mean = F.constrained(V.boundary_dofs()), femops.functional(lambda u: u, V)

    def solved(f: float) -> tuple[Array, Any]:
        return femops.newton(
            F.update(f=f), V.interpolate(membrane), lower=psi, linear="direct", rtol=1e-13
        )

    u, info = solved(0.5)
    found = femops.gradient(mean, F.constrained(info.active), u, ["f"])["f"]
    step = 1e-5
    by_steps = (mean(solved(0.5 + step)[0]) - mean(solved(0.5 - step)[0])) / (2 * step)
    assert found == pytest.approx(by_steps, rel=1e-5)
    with pytest.warns(ConvergenceWarning, match="u does not solve|not solve"):
        femops.gradient(mean, F, u, ["f"])


def test_float32() -> None:
    V = femops.H1(femops.box((8, 8)), 2)
    A = femops.diffusion(V, dtype="float32").constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 10.0).astype(np.float32))
    u, info = femops.newton(A, V.zeros().astype(np.float32), b, upper=0.3, rtol=1e-5)
    assert info.converged
    assert u.dtype == info.reactions.dtype == np.float32
    assert u.max() == np.float32(0.3)


def test_bounds_that_are_refused() -> None:
    V, _, _, psi = obstacle(4, 1)
    F = femops.residual(lambda u: {"grad": u.grad}, V).constrained(V.boundary_dofs())
    W = femops.Product(u=V, p=femops.H1(V.mesh, 1))
    R = femops.residual(lambda u, p: {"u": {"grad": u.grad}, "p": {"grad": p.grad}}, W)
    spoilt = psi.copy()
    spoilt[12] = np.nan
    for options, words in (
        ({"lower": 1.0, "upper": psi}, r"lower is above upper at 24 dofs, the first is 0 \(1 > -1"),
        ({"lower": spoilt}, "lower is not a number at 1 dofs, the first is 12"),
        ({"lower": np.inf}, "lower is inf at"),
        ({"upper": -np.inf}, "upper is -inf at"),
        ({"lower": 0.1}, "at constrained dofs are not within the bounds, at 16 dofs"),
        ({"lower": {"u": 0.0}}, "lower is a dict, and F has one field"),
        ({"lower": "psi"}, "lower is 'psi': give a number, a vector"),
        ({"lower": 0.0, "globalization": "trust region"}, "a trust region takes no bounds"),
    ):
        given: Any = options
        with pytest.raises(SolverError, match=words):
            femops.newton(F, V.zeros(), **given)
    with pytest.raises(VectorError, match="lower"):
        femops.newton(F, V.zeros(), lower=psi[:-1])
    with pytest.raises(SolverError, match="lower has a field 'q': F has u, p"):
        femops.newton(R, W.zeros(), lower={"q": 0.0})
    with pytest.raises(SolverError, match="eliminated"):
        femops.newton(femops.diffusion(V).eliminated([0], [0]), V.zeros())
    with pytest.raises(SolverError, match=r"F is .* give"):
        femops.newton(
            femops.form(lambda u: {"grad": 1j * u.grad}, V, dtype="complex128"), V.zeros()
        )


def test_an_operator_is_solved_as_by_a_linear_solver() -> None:
    V, A, b, _ = obstacle(6, 2)
    u, info = femops.newton(A, V.zeros(), b, rtol=1e-10, preconditioner="multigrid")
    assert info.converged
    assert info.active is None
    assert np.allclose(u, femops.cg(A, b, rtol=1e-12)[0], atol=1e-8)
