"""Preconditioners beside dense matrices, with vectors and operators of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as sla

import femops
from femops.errors import SolverError, VectorError
from femops.solvers.preconditioner import Preconditioner
from support import fixtures
from support.cases.multigrid import DISC, DOUBLE, SINGLE, SQUARE, noise
from support.cuda.guarded import guarded_device

one_thread = fixtures.one_thread

Make = Callable[[Any], Any]


def single(A: Any) -> Any:
    return femops.multigrid(A, dtype=SINGLE)


def double(A: Any) -> Any:
    return femops.multigrid(A, dtype=DOUBLE)


MAKE = pytest.mark.parametrize("make", [femops.jacobi, single, double])


@cache
def poisson(order: int = 3, family: str = "gll", mesh: Any = DISC, **options: Any) -> Any:
    V = femops.H1(mesh, order, family=family)
    return femops.diffusion(V, **options).constrained(V.boundary_dofs())


def matrix_of(M: Any) -> Any:
    return np.stack([M @ unit for unit in np.eye(M.shape[0])], axis=1)


def spectrum(M: Any, A: Any) -> Any:
    """Eigenvalues of M A, by dense matrices, where M is symmetric to round-off."""
    matrix, factor = matrix_of(M), np.linalg.cholesky(A.assemble().toarray())
    accuracy = 1e-13 if getattr(M, "precision", DOUBLE) == DOUBLE else 1e-5
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=accuracy * abs(matrix).max())
    return np.linalg.eigvalsh(factor.T @ ((matrix + matrix.T) / 2.0) @ factor)


# --- numbers of any size --------------------------------------------------------------------------


@MAKE
@pytest.mark.parametrize("family", ["gll", "bernstein"])
def test_products_with_vectors_of_any_size(make: Make, family: str) -> None:
    """Of float64; those of constrained dofs are of another size."""
    A = poisson(family=family)
    M, b = make(A), noise(A)
    b[A.constrained_dofs] = 1e30
    expected, rows = M @ b, np.ones(len(b), bool)
    rows[A.constrained_dofs] = False
    np.testing.assert_allclose(expected[~rows], 1e30, rtol=1e-15)
    accuracy = 1e-5 if make is single else 1e-13
    for size in (1e-270, 1e-150, 1e-100, 1e-50, 1e-20, 1e20, 1e40, 1e100, 1e150, 1e270):
        found = (M @ (size * b)) / size
        for some in (rows, ~rows):
            limit = accuracy * abs(expected[some]).max()
            np.testing.assert_allclose(found[some], expected[some], rtol=0, atol=limit)
    for power in (-900, -400, 3, 400, 900):
        np.testing.assert_array_equal(M @ np.ldexp(b, power), np.ldexp(expected, power))
    assert not (M @ np.zeros_like(b)).any()


@pytest.mark.parametrize("make", [femops.jacobi, single])
def test_of_operators_of_any_size(make: Make) -> None:
    """What constrained dofs have, which is 1, does not count."""
    expected = matrix_of(make(A := poisson()))
    free = np.ix_(*[np.setdiff1d(np.arange(len(expected)), A.constrained_dofs)] * 2)
    for size, precision in ((1e-100, DOUBLE), (1e40, DOUBLE), (1.0, SINGLE)):
        A = poisson(kappa=size)
        scaled = femops.multigrid(A) if make is not femops.jacobi else make(A)
        assert getattr(scaled, "precision", precision) == precision
        limit = 1e-5 * abs(expected[free]).max()
        np.testing.assert_allclose(size * matrix_of(scaled)[free], expected[free], atol=limit)


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", [1e-100, 1e-50, 1e-20, 1e20, 1e50, 1e100])
@MAKE
def test_solvers_take_right_hand_sides_of_any_size(make: Make, size: float) -> None:
    """SciPy's MINRES ends at once where numbers are large, without a preconditioner too."""
    A = poisson()
    M, b = make(A), noise(A)
    expected = sla.spsolve(A.assemble().tocsc(), b)
    found = []
    for solver in (femops.cg, femops.minres, femops.gmres):
        x, info = solver(A, size * b, M=M, rtol=1e-9)
        _, usual = solver(A, b, M=M, rtol=1e-9)
        assert info.converged
        assert abs(info.iterations - usual.iterations) <= 1
        found.append(x)
    for solver in (sla.cg, sla.gmres, *([sla.minres] if size < 1.0 else [])):
        x, code = solver(A, size * b, M=M, rtol=1e-9)
        assert code == 0
        found.append(x)
    for x in found:
        np.testing.assert_allclose(x / size, expected, atol=1e-5 * abs(expected).max())


# --- vectors and what is no vector ----------------------------------------------------------------


@MAKE
def test_vectors_are_checked_as_operators_do(make: Make) -> None:
    A = poisson()
    M, b = make(A), noise(A)
    table = b[:, np.newaxis, np.newaxis]
    for given in (b[:-1], np.append(b, 1.0), b.astype(object), table, "vector", None):
        for product in ("__matmul__", "matvec", "apply"):
            with pytest.raises(VectorError) as expected:
                getattr(A, product)(given)
            with pytest.raises(VectorError) as found:
                getattr(M, product)(given)
            assert str(found.value) == str(expected.value)


@MAKE
def test_vectors_of_other_types_and_outputs(make: Make) -> None:
    A = poisson()
    M, b = make(A), noise(A)
    expected, accuracy = M @ b, 1e-5 if make is single else 1e-13
    limit = {"rtol": 0, "atol": accuracy * abs(expected).max()}
    np.testing.assert_array_equal(M @ b.tolist(), expected)
    np.testing.assert_array_equal(M @ np.repeat(b, 2)[::2], expected)
    np.testing.assert_array_equal(M.matvec(b[:, np.newaxis]), expected[:, np.newaxis])
    np.testing.assert_allclose(M @ (b + 2j * b), (1 + 2j) * expected, **limit)
    many = M @ np.stack([b, 3.0 * b], axis=1)
    np.testing.assert_allclose(many, np.stack([expected, 3.0 * expected], axis=1), **limit)
    out = np.empty_like(b)
    assert M.apply(b, out) is out
    np.testing.assert_array_equal(out, expected)
    for bad in (b[:-1].copy(), b.astype(SINGLE), b):  # the last is read
        with pytest.raises(VectorError):
            M.apply(b, bad)
    for bad in (b.astype(SINGLE), b.tolist()):
        with pytest.raises(VectorError):
            M.apply(bad)


def test_jacobi_refuses_an_inverse_that_overflows() -> None:
    with pytest.raises(SolverError, match="their inverses"):
        femops.jacobi(femops.diffusion(femops.H1(SQUARE, 2), kappa=1e-309))


# --- operators that are nearly singular -----------------------------------------------------------


def weak(mesh: Any, order: int, size: float = 1e-6) -> Any:
    V = femops.H1(mesh, order)
    return femops.diffusion(V) + size * femops.mass(V)


def cantilever(dim: int) -> Any:
    mesh = femops.box((40, *[2] * (dim - 1)), mapping=lambda x: np.vstack([100.0 * x[:1], x[1:]]))
    V = femops.H1(mesh, 2, ncomp=dim)
    held = V.boundary_dofs(where=lambda x: x[0] < 1e-9)
    return femops.elasticity(V, lam=0.58, mu=0.38).constrained(held)


def stiff(V: Any, jump: float = 1e6) -> Any:
    """A stiff core that touches nothing else."""
    inside = (abs(V.mesh.element_centers() - 0.5) < 0.26).all(axis=1)
    kappa = femops.GridFunction(femops.L2(V.mesh, 0), np.where(inside, jump, 1.0))
    return femops.diffusion(V, kappa=kappa).constrained(V.boundary_dofs())


NEARLY_SINGULAR = {
    "disc": lambda: weak(DISC, 3),
    "box": lambda: weak(femops.box((8, 8)), 2),
    "ball": lambda: weak(femops.read_mesh(femops.sample("ball.mesh")), 2),
    "cantilever": lambda: cantilever(2),
    "cantilever, 3-D": lambda: cantilever(3),
    "core": lambda: stiff(femops.H1(femops.box((8, 8)), 2)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", NEARLY_SINGULAR)
def test_nearly_singular_operators_are_preconditioned_in_double(case: str) -> None:
    A = NEARLY_SINGULAR[case]()
    M = femops.multigrid(A)
    assert M.precision == DOUBLE
    assert f"float64: {M.reason}" in repr(M)
    assert "float32 does not resolve a condition number of" in M.reason
    asked = single(A)
    assert asked.precision == SINGLE
    assert M.reason in asked.reason
    b = A @ noise(A)
    iterations = []
    for solver in (femops.cg, femops.minres, femops.gmres):
        _, info = solver(A, b, M=M, rtol=1e-6)
        assert info.converged
        iterations.append(info.iterations)
    assert max(iterations) <= 2 * min(iterations)
    if A.shape[0] < 700:
        values = spectrum(M, A)
        assert 0.2 < values[0] < values[-1] < 1.5


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("make", "resolved"),
    [
        (poisson, True),
        (lambda: weak(DISC, 3, 1e-3), True),
        (lambda: weak(DISC, 3, 1e-5), False),
        (lambda: stiff(femops.H1(femops.box((8, 8)), 2), 1e3), True),
        (lambda: stiff(femops.H1(femops.box((8, 8)), 2)), False),
        (lambda: femops.diffusion(femops.H1(DISC, 3)), True),
    ],
)
def test_the_condition_number_is_about_that_of_the_dense_matrix(make: Any, resolved: bool) -> None:
    A = make()
    matrix, scale = A.assemble().toarray(), A.diagonal() ** -0.5
    values = np.linalg.eigvalsh(scale[:, np.newaxis] * matrix * scale)
    values = values[values > 1e-13 * values[-1]]  # constants, where nothing is held
    M = femops.multigrid(A, dtype=SINGLE, relaxation="points")
    assert 0.3 < M._condition() / (values[-1] / values[0]) < 1.5
    assert (femops.multigrid(A).precision == SINGLE) == resolved


def test_an_operator_in_single_precision_is_told_that_it_is_nearly_singular() -> None:
    M = femops.multigrid(
        femops.diffusion(V := femops.H1(DISC, 3), dtype=SINGLE)
        + 1e-6 * (femops.mass(V, dtype=SINGLE))
    )
    assert M.precision == SINGLE
    assert M.reason.startswith("as A, but float32 does not resolve")


def test_factors_out_of_the_range_of_single_precision() -> None:
    """Their products with coefficients are in it."""
    A = (1e60 * femops.diffusion(femops.H1(DISC, 3), kappa=1e-60)).constrained([0])
    M = femops.multigrid(A)
    assert M.precision == DOUBLE
    assert femops.cg(A, noise(A), M=M, rtol=1e-9)[1].iterations <= 12


# --- rows and columns that are eliminated ---------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("make", [femops.jacobi, femops.multigrid])
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("mesh", [DISC, femops.box((26, 26))], ids=["disc", "refined"])
def test_eliminated_operators(make: Make, order: int, mesh: Any) -> None:
    """The preconditioner is that of the constrained operator, with zeros."""
    A = poisson(order, mesh=mesh)
    held = A.constrained_dofs
    B, b = A.unconstrained.eliminated(held, held), noise(A)
    M, expected = make(B), make(A)
    given = noise(A) + 1.0
    found = expected @ given
    found[held] = 0.0
    np.testing.assert_array_equal(M @ given, found)
    for solver in (femops.cg, femops.minres, femops.gmres):
        x, info = solver(B, b, M=M, rtol=1e-9)
        y, other = solver(A, b, M=expected, rtol=1e-9)
        assert info.converged
        assert info.iterations == other.iterations
        np.testing.assert_allclose(x, y, atol=1e-12 * abs(y).max())
    for solve in (femops.cg, lambda B, b, M: femops.CGSolver(B, M).solve(b)):
        with pytest.raises(SolverError, match=r"eliminated.*b\[A\.constrained_dofs\] = 0"):
            solve(B, given, M=M)


# --- Bernstein's basis ----------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("mesh", [DISC, femops.box((2, 2, 2))], ids=["disc", "cube"])
def test_coefficients_take_the_iterations_of_nodal_values(order: int, mesh: Any) -> None:
    counts = []
    for family in ("gll", "bernstein"):
        A = poisson(order, family, mesh)
        b = A.rhs(femops.load(A.space, lambda x: 1.0 + x[0]))
        x, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-9)
        np.testing.assert_allclose(A @ x, b, atol=1e-8 * np.linalg.norm(b))
        counts.append(info.iterations)
    assert counts[1] <= counts[0]


@pytest.mark.parametrize("make", [single, double])
def test_a_change_of_basis_keeps_symmetry(make: Make) -> None:
    """Also where dofs are held that no whole edge or vertex has: no nodal value is held then."""
    V = femops.H1(SQUARE, 3, family="bernstein")
    A = (femops.diffusion(V, kappa=lambda x: 1.0 + x[0]) + femops.boundary_mass(V, 2.0)).constrained
    for held, most in ((V.boundary_dofs([1]), 1.1), (V.boundary_dofs([1])[::3], 2.5)):
        values = spectrum(make(B := A(held)), B)
        assert 0.2 < values[0] < values[-1] < most


def test_high_orders_of_coefficients_are_in_double() -> None:
    A = poisson(9, "bernstein", femops.box((2, 2)))
    M = femops.multigrid(A)
    assert M.precision == DOUBLE
    b = A.rhs(femops.load(A.space, lambda x: 1.0 + x[0]))
    _, info = femops.gmres(A, b, M=M, rtol=1e-9)
    assert info.converged
    assert info.iterations <= 10


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_number_times_a_preconditioner(dtype: str) -> None:
    """Also on a device, whose vectors SciPy's own multiple would refuse."""
    for device in (None, guarded_device()):
        V = femops.H1(femops.box((2, 2)), 2, device=device)
        A = femops.diffusion(V, dtype=dtype).constrained(V.boundary_dofs())
        M, x = femops.jacobi(A), V.memory.put(np.arange(V.size, dtype=dtype))
        expected = V.memory.get(M @ x)
        for made, factor in ((-M, -1.0), (3 * M, 3.0), (M * 0.5, 0.5), ((2.0 * M).T, 2.0)):
            assert isinstance(made, Preconditioner)
            assert made.symmetric
            np.testing.assert_array_equal(V.memory.get(made @ x), factor * expected)
