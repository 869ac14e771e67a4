"""Multigrid: transfers, operators of its levels and cycles, beside dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import SolverError
from femops.operators.coarsening import coarse_operator, in_precision
from femops.operators.execution.host import backend_of
from femops.operators.execution.transfer import interpolation_matrix, summed_interpolation
from femops.solvers.multigrid.grids import first_coarse
from femops.solvers.multigrid.level import chebyshev_steps, reduced
from support.cases.multigrid import (
    CUBE,
    DISC,
    DOUBLE,
    SINGLE,
    SQUARE,
    bent,
    dense,
    noise,
    poisson,
    varied,
)

# --- transfers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mesh", "orders"), [(SQUARE, (2, 4)), (CUBE, (1, 2)), (DISC, (2, 3))])
def test_transfers_interpolate_and_are_each_others_transpose(mesh, orders):
    coarse, fine = (femops.H1(mesh, p, ncomp=2) for p in orders)
    up, down = summed_interpolation(coarse, fine, DOUBLE)
    there = dense(up.apply, fine.size, coarse.size)
    back = dense(down.apply, coarse.size, fine.size)
    np.testing.assert_allclose(there, back.T, atol=1e-14)
    u = np.random.default_rng(0).standard_normal(coarse.size)
    mean = there @ u / np.repeat(fine.restriction.multiplicity(), 2)
    expected = fine.interpolate(femops.GridFunction(coarse, u))
    np.testing.assert_allclose(mean, expected, atol=1e-13)


def test_bernstein_coefficients_are_those_of_the_same_polynomial():
    coarse, fine = (femops.H1(SQUARE, p, family="bernstein") for p in (2, 3))
    x = np.linspace(0, 1, 7)
    found = fine.basis.interpolation(x) @ interpolation_matrix(coarse, fine)
    np.testing.assert_allclose(found, coarse.basis.interpolation(x), atol=1e-14)


def test_nodal_values_become_coefficients_without_a_solve():
    """The change of basis of multigrid; elimination would lose 2^p of the digits."""
    nodal, bernstein = (femops.H1(SQUARE, 12, family=family) for family in ("gll", "bernstein"))
    found = interpolation_matrix(nodal, bernstein)
    np.testing.assert_array_equal(found, bernstein.basis.from_nodal)


# --- level operators ------------------------------------------------------------------------------


def test_a_coarse_operator_is_that_of_the_same_forms():
    A = varied(femops.H1(SQUARE, 4))
    coarse = femops.H1(SQUARE, 2)
    found = coarse_operator(A, coarse, DOUBLE, "partial").assemble()
    half = coarse.mesh.element_centers()[:, 0] > 0.4
    field = femops.GridFunction(femops.L2(SQUARE, 0), np.where(half, 50.0, 1.0))
    rule = {"quadrature": 3}
    expected = (
        femops.diffusion(coarse, kappa=field, **rule)
        + 2 * femops.mass(coarse, rho=lambda x: 1 + x[0] ** 2, **rule)
        + femops.boundary_mass(coarse, 3.0, **rule)
    ).assemble()
    # the function is interpolated between points of the finer rule
    assert abs(found - expected).max() < 2e-3 * abs(expected).max()
    assert abs(found - found.T).max() < 1e-14 * abs(found).max()


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
def test_the_same_operator_in_single_precision(level):
    V = femops.H1(SQUARE, 2)
    A = varied(V, level).constrained(V.boundary_dofs(1))
    x = noise(A)
    rounded = in_precision(A, SINGLE, level) @ x.astype(SINGLE)
    np.testing.assert_allclose(rounded, A @ x, atol=2e-5 * abs(A @ x).max())


def test_constraints_of_whole_sides_are_those_of_the_coarse_space():
    V, coarse = femops.H1(CUBE, 3, ncomp=2), femops.H1(CUBE, 2, ncomp=2)
    A = femops.mass(V).constrained(V.boundary_dofs([1, 4], components=1))
    found = coarse_operator(A, coarse, DOUBLE, "partial").constrained_dofs
    np.testing.assert_array_equal(found, coarse.boundary_dofs([1, 4], components=1))


@pytest.mark.sample(2)
@pytest.mark.parametrize("ncomp", [1, 2])
@pytest.mark.parametrize("refined", [False, True])
def test_matrices_on_coarser_meshes_are_products_of_three(ncomp, refined):
    """Beside SciPy's, of the assembled matrix and of the transfer, dof by dof."""
    mesh = femops.box((3, 5), mapping=bent).refine(1) if refined else femops.box((6, 5))
    V = femops.H1(mesh, 1, ncomp=ncomp)
    A = (varied(V) + femops.mass(V)).constrained(V.boundary_dofs(1, components=0))
    free = np.ones(V.size, dtype=bool)
    free[A.constrained_dofs] = False
    grid, ends = first_coarse(A, free, mesh.coarser, DOUBLE, lambda _: None)
    matrix = A.assemble().toarray()
    for _ in range(2):
        n = len(grid.free)
        P = dense(ends[0], len(matrix), n)
        np.testing.assert_array_equal(P.T, dense(ends[1], n, len(matrix)))
        assert set(np.unique(P)) == {0.0, 0.25, 0.5, 1.0}
        expected = P.T @ matrix @ P + np.diag(1.0 - grid.free)
        np.testing.assert_allclose(grid.matrix.toarray(), expected, atol=1e-12 * abs(matrix).max())
        matrix = expected
        if grid.coarsening is not None:
            grid, ends = grid.coarser(DOUBLE, backend_of(V))


def arc(V, radius):
    """Displacements that bend a strip of height 1 to an arc."""

    def moved(x):
        r, angle = radius + 0.5 - x[1], x[0] / radius
        return r * np.sin(angle) - x[0], radius + 0.5 - r * np.cos(angle) - x[1]

    return V.interpolate(moved)


def test_jacobians_of_bent_bodies_have_positive_levels():
    """At the linear interpolant of the arc the Jacobian is indefinite."""
    V = femops.H1(femops.box((10, 1), upper=(10.0, 1.0)), 2, ncomp=2)
    F = femops.neo_hookean(V, lam=1.0, mu=1.0).constrained(V.boundary_dofs(1))
    J, coarse = F.jacobian(arc(V, 8.0)), femops.H1(V.mesh, 1, ncomp=2)
    least = [
        np.linalg.eigvalsh(
            coarse_operator(J, coarse, DOUBLE, "partial", exact=exact).assemble().toarray()
        )
        for exact in (False, True)
    ]
    assert least[0].min() < 0.0 < least[1].min()
    M = femops.multigrid(J, relaxation="points")
    assert M.hierarchy.exact
    assert femops.cg(J, noise(J), M=M)[1].converged
    with pytest.raises(SolverError, match="multigrid found A not to be positive definite"):
        femops.multigrid((J.unconstrained - femops.mass(V)).constrained(J.constrained_dofs))


def test_exact_coarse_operators_are_products_of_three():
    V = femops.H1(DISC, 4)
    A = varied(V)
    coarse = femops.H1(DISC, 2)
    P = interpolation(A, coarse)
    found = coarse_operator(A, coarse, DOUBLE, "partial", exact=True).assemble().toarray()
    expected = P.T @ A.assemble() @ P
    np.testing.assert_allclose(found, expected, atol=1e-12 * abs(expected).max())


# --- the cycle ------------------------------------------------------------------------------------


def interpolation(A, coarse):
    """Matrix of the interpolation to an operator's space, zero at constrained dofs."""
    up, _ = summed_interpolation(coarse, A.space, DOUBLE)
    P = dense(up.apply, A.space.size, coarse.size) / A.space.restriction.multiplicity()[:, None]
    P[A.constrained_dofs] = 0.0
    return P


def two_level_oracle(A, coarse, degree, level):
    """Matrix of a cycle of two levels, by dense matrices."""
    largest = level.largest
    low = largest / reduced(A.space.order, affine=level.size.affine)
    matrix, P = A.assemble().toarray(), interpolation(A, coarse)
    n, held = len(matrix), A.constrained_dofs
    C = coarse_operator(A, coarse, DOUBLE, "partial")
    free = np.ones(coarse.size, dtype=bool)
    free[C.constrained_dofs] = False
    inner = np.zeros((coarse.size, coarse.size))
    inner[np.ix_(free, free)] = np.linalg.inv(C.assemble().toarray()[np.ix_(free, free)])
    inverse = 1.0 / matrix.diagonal()
    inverse[held] = 0.0

    def relax(x, b):
        before = np.zeros_like(x)
        for h, g in chebyshev_steps(low, largest, degree):
            x, before = x + g * (x - before) + h * inverse[:, None] * (b - matrix @ x), x
        return x

    b = np.eye(n)
    b[held] = 0.0
    x = relax(np.zeros_like(b), b)
    x = relax(x + P @ inner @ P.T @ (b - matrix @ x), b)
    x[held] = np.eye(n)[held]
    return x


@pytest.mark.parametrize("mesh", [SQUARE, DISC], ids=["square", "disc"])
def test_the_cycle_is_that_of_dense_matrices(mesh):
    A = poisson(mesh, 2)
    M = femops.multigrid(A, degree=3, relaxation="points")
    assert len(M.report()) == 2
    assert M.levels[0].size.affine == (mesh is SQUARE)  # its squares become parallelograms
    expected = two_level_oracle(A, femops.H1(mesh, 1), 3, M.levels[0])
    found = dense(lambda x, out: out.__setitem__(slice(None), M @ x), *A.shape)
    np.testing.assert_allclose(found, expected, atol=2e-5 * abs(expected).max())
    np.testing.assert_allclose(found, found.T, atol=2e-6 * abs(found).max())
    assert np.linalg.eigvalsh(found + found.T).min() > 0.0
    errors = np.linalg.eigvals(np.eye(len(found)) - expected @ A.assemble().toarray())
    assert M.report()[0].factor == pytest.approx(abs(errors).max(), abs=0.02)


def test_full_multigrid_is_that_of_dense_matrices():
    A = poisson(DISC, 3)
    M = femops.multigrid(A, degree=3, relaxation="points")
    middle, coarsest = (femops.H1(DISC, order) for order in (2, 1))
    A1 = coarse_operator(A, middle, DOUBLE, "partial")
    A2 = coarse_operator(A1, coarsest, DOUBLE, "partial")
    P, Q = interpolation(A, middle), interpolation(A1, coarsest)
    b = femops.load(A.space, lambda x: 1.0 + x[0])
    b[A.constrained_dofs] = 0.0
    b1 = P.T @ b
    b1[A1.constrained_dofs] = 0.0
    b2 = Q.T @ b1
    b2[A2.constrained_dofs] = 0.0
    guess = Q @ np.linalg.solve(A2.assemble().toarray(), b2)
    cycle = two_level_oracle(A1, coarsest, 3, M.levels[1])
    expected = P @ (guess + cycle @ (b1 - A1.assemble() @ guess))
    n = A.space.size
    M.right[:n] = b
    np.testing.assert_allclose(M.full_cycle()[:n], expected, atol=1e-5 * abs(expected).max())
    M.right[:n] = noise(A)
    assert M.full_cycle() is None


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", [3, 8])
def test_full_multigrid_saves_iterations(order):
    A = poisson(CUBE, order)
    M, b = femops.multigrid(A), A.rhs(femops.load(A.space, lambda x: np.sin(3.0 * x[0])))
    expected, told = femops.cg(A, b, M=M, x0=A.space.zeros())
    found, info = femops.cg(A, b, M=M, history=True)
    assert info.converged
    assert info.iterations < told.iterations
    assert info.residuals[0] < 0.3 * np.linalg.norm(b)
    np.testing.assert_allclose(found, expected, atol=1e-5 * abs(expected).max())


def test_a_start_that_is_farther_is_none(monkeypatch):
    A = poisson(SQUARE, 3)
    M, b = femops.multigrid(A), A.rhs(femops.load(A.space, 1.0))
    expected, told = femops.cg(A, b, M=M, x0=A.space.zeros())
    for value in (1e6, np.inf, np.nan):
        start = np.full_like(M.right, value)
        monkeypatch.setattr(type(M), "full_cycle", lambda _, start=start: start)
        found, info = femops.cg(A, b, M=M)
        assert info.iterations == told.iterations
        np.testing.assert_array_equal(found, expected)


def test_what_is_told_of_it():
    M = femops.multigrid(poisson(SQUARE, 4))
    assert repr(M).splitlines()[1:] == [
        "  order 4: 16 elements, 289 dofs",
        "  order 2: 16 elements, 81 dofs",
        "  order 1: 16 elements, 25 dofs, direct)",
    ]
    report = M.report()
    assert [level.dofs for level in report] == [289, 81, 25]
    assert all(0.0 < level.factor < 0.3 for level in report[:-1])
    assert sum(level.seconds for level in report) > 0.0  # a level's is a difference of two times
    assert M.T is M
    assert M.complexity == pytest.approx((289 + 81 + 25) / 289)
