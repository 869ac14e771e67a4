"""Relaxations of multigrid beside points: lines, patches, factors, and which of them is chosen."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sla_dense
import scipy.sparse.linalg as sla
from scipy.sparse import csr_array, eye_array

import femops
from femops.errors import ConvergenceWarning, OperatorError, SolverError
from femops.solvers.multigrid import blocks, choice, measure
from femops.solvers.multigrid.blocks import BLOCKS, Lines, Patches
from femops.solvers.multigrid.coarse import Direct, factored
from femops_kernels.cpu.machine import max_threads, set_threads
from support import fixtures
from support.cases.multigrid import CUBE, SQUARE, noise, poisson

one_thread = fixtures.one_thread


def elastic(mesh: Any, order: int, nu: float, held: Any = None) -> Any:
    V = femops.H1(mesh, order, ncomp=mesh.dim)
    return femops.elasticity(V, E=1.0, nu=nu).constrained(V.boundary_dofs(held))


def turned(angle: float, weak: float) -> Any:
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, -s], [s, c]])
    return turn @ np.diag([1.0, weak]) @ turn.T


def layer(x: Any) -> Any:
    return np.stack([x[0], x[1] ** 8 + 1e-6 * x[1]])


def beside_stiff(x: Any) -> Any:
    """A weak direction to the right, and 1e9 in all directions to the left."""
    kappa = np.zeros((2, 2, len(x[0])))
    kappa[0, 0], kappa[1, 1] = np.where(x[0] < 0.5, 1e9, [[1.0], [1e-6]])
    return kappa


BOX, BLOCK = femops.box((8, 8)), femops.box((4, 4, 4))

HARD = {
    "weak": (lambda: poisson(BOX, 4, kappa=np.diag([1.0, 1e-6])), "lines"),
    "weak, order 8": (lambda: poisson(femops.box((4, 4)), 8, kappa=np.diag([1e-6, 1.0])), "lines"),
    "weak beside stiff": (lambda: poisson(BOX, 4, kappa=beside_stiff), "lines"),
    "flat cells": (lambda: poisson(femops.box((8, 8), upper=(1.0, 1e6)), 3), "lines"),
    "layer": (lambda: poisson(femops.box((16, 16), mapping=layer), 2), "elements"),
    "strong plane": (lambda: poisson(BLOCK, 4, kappa=np.diag([1.0, 1e-6, 1.0])), "elements"),
    "three sizes": (lambda: poisson(BLOCK, 4, kappa=np.diag([1.0, 1e-3, 1e-6])), "elements"),
    "order 1": (lambda: poisson(femops.box((40, 40)), 1, kappa=np.diag([1.0, 1e-4])), "lines"),
    "turned": (lambda: poisson(BOX, 4, kappa=turned(np.pi / 4, 1e-6)), "direct"),
    "turned, disc": (
        lambda: poisson(femops.disc(4, order=3), 4, kappa=turned(np.pi / 6, 1e-6)),
        "direct",
    ),
    "incompressible": (lambda: elastic(femops.box((6, 6)), 4, 0.4999), "direct"),
    "incompressible, held at a side": (lambda: elastic(femops.box((6, 6)), 4, 0.4999, 1), "direct"),
    "incompressible, order 2": (lambda: elastic(femops.box((6, 6)), 2, 0.4999), "direct"),
    "cantilever": (lambda: elastic(femops.box((16, 2), upper=(100.0, 1.0)), 4, 0.3, 1), "direct"),
}


def solved(A: Any, M: Any, rtol: float = 1e-9) -> Any:
    """Solve, and compare with the factors of the matrix."""
    b = noise(A)
    x, info = femops.cg(A, b, M=M, rtol=rtol, maxiter=400)
    assert info.converged
    expected = sla.spsolve(A.assemble().tocsc(), b)
    np.testing.assert_allclose(x, expected, atol=100.0 * rtol * abs(expected).max())
    return info.iterations


@pytest.mark.parametrize("case", HARD)
def test_hard_problems_take_few_iterations(case: str) -> None:
    make, expected = HARD[case]
    A = make()
    M = femops.multigrid(A)
    assert M.relaxation == expected
    found = rf"relaxation by {expected}: by (points|elements) a cycle has the factor 0\."
    many = expected == "elements"  # with cycles that take less time
    assert re.search("by elements: couplings in an element differ" if many else found, repr(M))
    rtol = 1e-6 if case == "cantilever" else 1e-9  # what float64 resolves
    assert solved(A, M, rtol) <= (16 if many else 12)
    assert solved(A, femops.multigrid(A, relaxation="points"), rtol) > 12


def test_errors_that_show_late() -> None:
    """The energies of a slender body's bending are the smallest of all."""
    A = elastic(femops.box((8, 1, 1), upper=(1000.0, 1.0, 1.0)), 2, 0.3, 1)
    assert femops.multigrid(A).relaxation == "direct"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "case", ["turned", "turned, disc", "incompressible", "incompressible, held at a side"]
)
def test_patches_where_factors_are_too_large(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    A = HARD[case][0]()
    coarse = femops.multigrid(A, relaxation="points").sizes[1].dofs
    monkeypatch.setattr(choice, "_SOLVES", 0.0)  # no factors
    monkeypatch.setattr(choice, "_LAST", {2: coarse})
    M = femops.multigrid(A)
    assert M.relaxation == "patches"
    assert [size.order for size in M.sizes] == [4, 2]
    assert solved(A, M) <= 20


@pytest.mark.parametrize("make", [lambda: poisson(SQUARE, 4), lambda: poisson(CUBE, 3)])
def test_easy_problems_keep_points(make: Any) -> None:
    A = make()
    M, points = femops.multigrid(A), femops.multigrid(A, relaxation="points")
    assert (M.relaxation, M.relaxation_reason) == ("points", "they suffice")
    np.testing.assert_array_equal(M @ noise(A), points @ noise(A))


# --- the blocks -----------------------------------------------------------------------------------


def level_of(A: Any) -> Any:
    return femops.multigrid(A, relaxation="points").hierarchy.matrices.makers[0]()


def sum_of_inverses(matrix: Any, parts: Any) -> Any:
    out = np.zeros_like(matrix)
    for dofs in parts:
        out[np.ix_(dofs, dofs)] += np.linalg.inv(matrix[np.ix_(dofs, dofs)])
    return out


def applied(made: Any, size: int) -> Any:
    columns = np.eye(size)
    for column in columns:
        made.apply(column, column)
    return columns.T


@pytest.mark.parametrize("ncomp", [1, 2])
def test_patches_have_the_dofs_inside_the_elements_around_a_vertex(ncomp: int) -> None:
    """On a square of elements, where positions tell which nodes these are."""
    V = femops.H1(femops.box((3, 3)), 2, ncomp)
    A = (femops.diffusion(V) + femops.mass(V)).constrained(V.boundary_dofs([1]))
    x = np.rint(6 * V.dof_coordinates()).astype(int)
    held, patches = set(A.constrained_dofs), []
    for vertex in np.ndindex(4, 4):
        away = abs(x - 2 * np.array(vertex))
        inside = (away < 2) | ((away == 2) & ((x == 0) | (x == 6)))
        nodes = np.flatnonzero(inside.all(axis=1))
        dofs = (nodes[:, np.newaxis] * ncomp + np.arange(ncomp)).reshape(-1)
        patches.append([dof for dof in dofs if dof not in held])
    matrix = A.assemble().toarray()
    found = applied(Patches(level_of(A), np.dtype(float)), len(matrix))
    free = [k for k in range(len(matrix)) if k not in held]
    expected = sum_of_inverses(matrix, [dofs for dofs in patches if dofs])
    np.testing.assert_allclose(found[np.ix_(free, free)], expected[np.ix_(free, free)], atol=1e-10)


@pytest.mark.parametrize("level", ["partial", "matrix-free", "full"])
@pytest.mark.parametrize("ncomp", [1, 2])
def test_lines_have_the_nodes_along_the_strong_direction(level: Any, ncomp: int) -> None:
    """All components of them, and integrals over sides of the mesh."""
    V = femops.H1(femops.box((3, 2), upper=(1.0, 8.0)), 3, ncomp)
    A = femops.diffusion(V) if ncomp == 1 else femops.elasticity(V)
    A = (A + femops.boundary_mass(V, 2.0)).at_level(level).constrained(V.boundary_dofs([1]))
    height = np.repeat(np.rint(1e6 * V.dof_coordinates()[:, 1]).astype(int), ncomp)
    matrix = A.assemble().toarray()
    found = applied(Lines(level_of(A), np.dtype(float)), len(matrix))
    expected = sum_of_inverses(matrix, [np.flatnonzero(height == y) for y in np.unique(height)])
    np.testing.assert_allclose(found, expected, atol=1e-10 * abs(expected).max())


@pytest.mark.parametrize(
    ("relaxation", "order", "count", "kappa"),
    [
        ("lines", 1, 26, np.diag([1.0, 1e-3])),
        ("lines", 3, 4, np.diag([1.0, 1e-3])),
        ("lines", 4, 4, beside_stiff),
        ("patches", 3, 4, np.diag([1.0, 1e-3])),
        ("elements", 3, 6, np.diag([1.0, 0.1])),
    ],
)
def test_cycles_are_symmetric_and_positive(
    relaxation: Any, order: int, count: int, kappa: Any
) -> None:
    A = poisson(femops.box((count, count)), order, kappa=kappa)
    M = femops.multigrid(A, relaxation=relaxation, dtype="float64")
    matrix = np.stack([M @ unit for unit in np.eye(A.shape[0])], axis=1)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-12 * abs(matrix).max())
    values = np.linalg.eigvals(matrix @ A.assemble().toarray())
    assert abs(values.imag).max() < 1e-8
    assert 0.2 < values.real.min() < values.real.max() < 1.1


# --- asked for, refused, and not possible ---------------------------------------------------------


def test_a_relaxation_that_is_not_possible_is_replaced_aloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    A = poisson(SQUARE, 3)
    with pytest.warns(ConvergenceWarning, match=r"by points: relaxation='lines' is not.*far stron"):
        M = femops.multigrid(A, relaxation="lines")
    assert M.relaxation == "points"
    assert "no direction of an element is far stronger" in M.relaxation_reason
    np.testing.assert_array_equal(M @ noise(A), femops.multigrid(A) @ noise(A))
    monkeypatch.setattr(blocks, "_MOST_DOFS", 10)
    with pytest.warns(ConvergenceWarning, match="a patch has 25 dofs, and at most 10"):
        femops.multigrid(A, relaxation="patches")


def test_small_problems_have_factors_alone() -> None:
    A = poisson(SQUARE, 1)
    M = femops.multigrid(A)
    assert (M.relaxation, M.relaxation_reason) == ("direct", "the problem is small")
    with pytest.warns(ConvergenceWarning, match="relaxation='lines' has no effect"):
        assert femops.multigrid(A, relaxation="lines").relaxation == "direct"


def test_singular_blocks_are_replaced_aloud() -> None:
    """Nothing is held, and all elements are around one vertex."""
    A = femops.diffusion(femops.H1(femops.box((2, 2)), 2))
    with pytest.warns(ConvergenceWarning, match="a patch has a singular matrix"):
        assert femops.multigrid(A, relaxation="patches").relaxation == "points"
    V = femops.H1(femops.box(4, upper=1.0), 3)
    with pytest.warns(ConvergenceWarning, match="no direction"):
        femops.multigrid(femops.diffusion(V), relaxation="lines")


@pytest.mark.parametrize("error", [OperatorError, MemoryError])
def test_what_needs_too_much_memory_is_left_out(error: Any, monkeypatch: Any) -> None:
    def fail(*given: Any) -> None:
        raise error("the matrix needs 99 GiB")

    monkeypatch.setattr(choice, "_factors", fail)
    A = HARD["incompressible"][0]()
    M = femops.multigrid(A)
    assert M.relaxation == "patches"
    assert "direct not: the matrix needs 99 GiB" in M.relaxation_reason
    with pytest.warns(ConvergenceWarning, match="relaxation='direct' is not possible"):
        femops.multigrid(A, relaxation="direct")


def test_a_null_space_of_other_functions_is_told() -> None:
    """Rows of zeros, which are in the null space, and no constants."""
    with pytest.raises(SolverError, match="found A to be singular"):
        Direct(csr_array(np.diag([1.0, 0.0, 2.0])), csr_array((3, 0)))


def test_patches_are_refused_before_large_matrices_are_assembled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "_MOST_OPERATIONS", 1e4)
    A = elastic(SQUARE, 2, 0.3)
    with pytest.warns(ConvergenceWarning, match="patches of 18 dofs are too large"):
        femops.multigrid(A, relaxation="patches")


def test_what_is_refused() -> None:
    A = poisson(SQUARE, 2)
    with pytest.raises(
        SolverError, match="relaxation is 'line': give 'points', 'elements', 'lines'"
    ):
        femops.multigrid(A, relaxation="line")  # type: ignore[arg-type]
    V = femops.L2(SQUARE, 2)
    with pytest.raises(SolverError, match="relaxation='patches' needs an H1 space"):
        femops.multigrid(femops.interior_penalty(V), relaxation="patches")


def test_many_expected_iterations_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_SOLVES", 0.0)
    monkeypatch.setattr(choice, "_LAST", {2: 0})
    A = elastic(femops.box((12, 12)), 2, 0.4999)
    words = r"expected to take \d+ iterations.*by patches 0\.\d+; lines not: .*'direct'.*pressure"
    with pytest.warns(ConvergenceWarning, match=words) as warned:
        M = femops.multigrid(A)
    assert warned[0].filename == __file__
    assert M.relaxation == "points"
    assert femops.cg(A, noise(A), M=M, rtol=1e-9)[1].iterations > 30


def test_expected_iterations_are_those_of_the_condition_number() -> None:
    """A factor f is a condition number 1 / (1 - f), and errors go as 2 q^n."""
    q = (np.sqrt(10.0) - 1.0) / (np.sqrt(10.0) + 1.0)
    n = measure.iterations(0.9)
    assert 2.0 * q**n <= 1e-9 < 2.0 * q ** (n - 1)


def test_cycles_that_overflow_have_an_infinite_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    M = femops.multigrid(poisson(SQUARE, 2), relaxation="points")
    monkeypatch.setattr(M, "cycle_from", lambda k: np.nan * M.rights[k])
    assert measure.factor(M, 0) == np.inf
    assert measure.iterations(np.inf) > 1000


def plate(cells: int) -> Any:
    mesh = femops.box((cells, cells, 1), upper=(0.3, 0.3, 0.006))
    return elastic(mesh, 2, 0.3, 1)


def test_slow_errors_are_measured() -> None:
    """Repeated cycles hid the bending of a plate, of which a cycle leaves 0.999."""
    A = plate(5)
    M = femops.multigrid(A, relaxation="points", dtype="float64")
    free = np.setdiff1d(np.arange(A.space.size), A.constrained_dofs)
    cycles = (M @ np.eye(A.space.size))[np.ix_(free, free)]
    matrix = A.assemble().toarray()[np.ix_(free, free)]
    slowest = 1.0 - sla_dense.eigvals(cycles @ matrix).real.min()
    found = M.report()[0].factor
    assert slowest > 0.95
    assert 0.4 < (1.0 - slowest) / (1.0 - found) < 1.001
    chosen = femops.multigrid(A, dtype="float64")
    assert chosen.relaxation == "direct"
    assert f"by points a cycle has the factor {found:.4f}" in chosen.relaxation_reason


def test_factors_of_a_plate_are_cheaper_than_those_of_a_cube() -> None:
    """Their expected work decides whether they are tried, not the number of dofs."""
    flat, cube = plate(20), elastic(femops.box((8, 8, 8)), 2, 0.3)
    for A in (plate(8), elastic(femops.box((4, 4, 4)), 2, 0.3)):
        operations, entries = femops.multigrid(
            A, relaxation="points"
        ).hierarchy.matrices.factor_work
        matrix = A.at_level("partial").unconstrained.assemble().tocsr()
        each = np.diff(factored(matrix + eye_array(A.space.size)).L.indptr).astype(float)
        assert 0.2 < operations / (each**2).sum() < 5.0
        assert 0.2 < entries / each.sum() < 5.0
    works = [femops.multigrid(A, relaxation="points").hierarchy.matrices for A in (flat, cube)]
    assert flat.space.size > cube.space.size
    assert works[0].factor_work[0] < works[1].factor_work[0]
    assert femops.multigrid(flat).relaxation == "direct"
    M = femops.multigrid(plate(17))
    assert M.relaxation == "direct"
    assert "lines" not in M.relaxation_reason  # to measure them takes longer than these factors


@pytest.mark.filterwarnings("ignore:multigrid is slow")
def test_a_matrix_with_a_null_space_is_not_factored_to_relax() -> None:
    """The rows of six rigid motions fill the factors: of 31,000 dofs they took three minutes."""
    M = femops.multigrid(plate(10).unconstrained)
    assert M.hierarchy.solver.singular
    assert "direct" not in M.relaxation_reason


# --- the report, copies, other bases --------------------------------------------------------------


def test_the_report_names_the_level_that_holds_back() -> None:
    A = poisson(BOX, 4, kappa=np.diag([1.0, 1e-6]))
    levels = femops.multigrid(A, relaxation="points").report()
    assert [level.order for level in levels if level.limits] == [2]
    assert measure.slowest([0.5, 0.1, 0.0]) == 0
    assert measure.slowest([0.5, 0.45, 0.1, 0.0]) == 1


@pytest.mark.parametrize("relaxation", [*BLOCKS, "elements"])
def test_copies_keep_the_relaxation(relaxation: Any) -> None:
    A = poisson(BOX, 2, kappa=np.diag([1.0, 1e-3]))
    M = femops.multigrid(A, relaxation=relaxation)
    copy = pickle.loads(pickle.dumps(M))
    assert (copy.relaxation, copy.relaxation_reason) == (relaxation, "as asked")
    np.testing.assert_array_equal(copy @ noise(A), M @ noise(A))


def test_threads_do_not_change_the_iterations() -> None:
    A = poisson(femops.box((16, 16)), 4, kappa=np.diag([1.0, 1e-4]))
    counts = []
    for threads in (1, max_threads()):
        set_threads(threads)
        counts.append([solved(A, femops.multigrid(A, relaxation=name)) for name in BLOCKS])
    assert counts[0] == counts[1]


def test_bernstein_coefficients_and_eliminated_rows() -> None:
    kappa = np.diag([1.0, 1e-4])
    V = femops.H1(BOX, 4, family="bernstein")
    A = femops.diffusion(V, kappa=kappa).constrained(V.boundary_dofs())
    M = femops.multigrid(A)
    assert M.relaxation == "lines"
    assert solved(A, M) <= 6
    A = poisson(BOX, 4, kappa=kappa)
    held = A.constrained_dofs
    B = A.unconstrained.eliminated(held, held)
    N, b = femops.multigrid(B), noise(A)
    assert N.relaxation == "lines"
    np.testing.assert_allclose(N @ b, femops.multigrid(A) @ b, rtol=1e-12)


def test_a_problem_with_a_null_space() -> None:
    A = femops.diffusion(femops.H1(BOX, 4), kappa=np.diag([1.0, 1e-6]))
    M = femops.multigrid(A)
    assert M.relaxation == "lines"
    b = A @ noise(A)
    _, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert info.converged
    assert info.iterations <= 12


def test_a_load_that_no_solution_has_is_told() -> None:
    """Factors take what is left of the load to zero."""
    A = femops.elasticity(femops.H1(femops.box((6, 6)), 2, 2), E=1.0, nu=0.4999)
    M = femops.multigrid(A, relaxation="direct")
    told = pytest.raises(
        (ConvergenceWarning, SolverError), match=r"takes const.*no x solves A x = b"
    )
    with told:  # round-off decides between a warning, which is an error here, and an error
        femops.cg(A, noise(A), M=M, rtol=1e-9)


def test_one_free_element() -> None:
    """A step of the measurement goes along constants, which have no energy."""
    V = femops.H1(femops.box(1), order=3)
    A = femops.diffusion(V)
    b = femops.load(V, lambda x: x[0] - 0.5)
    M = femops.multigrid(A, relaxation="elements")
    u, info = femops.cg(A, b, M=M, rtol=1e-10)
    assert M.relaxation == "elements"
    assert info.converged
    assert np.allclose(A.assemble() @ u, b, atol=1e-9)
