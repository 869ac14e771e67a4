"""Every level of assembly of every kind of form, against the oracle."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
from numba.core.runtime import rtsys
from numba.core.runtime._nrt_python import memsys_enable_stats

import femops
from femops.operators.assembly.element_matrices import ElementAssembly
from femops_kernels.cpu.machine import max_threads, set_threads
from support import fixtures
from support.cases.kernels import Problem, bend, random_vector, smooth, tensor, turned
from support.cases.levels import LEVELS, TOLERANCE, wind
from support.oracles.naive import Array, degree, mapping, rule, shapes

STORED = ["full", "element"]

problem = fixtures.problem


# --- an oracle for any form -----------------------------------------------------------------------


def slots(space: Any, e: int, points: Array, inverse: Array) -> Array:
    """Value and physical gradient of the basis functions at the points: (1 + dim, nq, nodes)."""
    dim, indices = space.dim, space.restriction.indices
    here, slopes = shapes(dim, space.basis.family, degree(indices.shape[1], dim), points)
    return np.concatenate([here[np.newaxis], np.einsum("qnk,qki->iqn", slopes, inverse)])


def element_matrix(weak: Any, trial: Any, test: Any, e: int, q1d: int) -> Array:
    """Rows and columns (component, node); ``weak(x)`` is (ncomp, 1+dim, ncomp, 1+dim, nq)."""
    points, weights = rule("gauss", q1d)
    dim = trial.dim
    positions, jacobians = mapping(trial.mesh.coordinates[e : e + 1], points)
    tensor_weights = weights
    for _ in range(dim - 1):
        tensor_weights = np.outer(weights, tensor_weights).ravel()
    measure = tensor_weights.astype(float) * np.linalg.det(jacobians[0])
    inverse = np.linalg.inv(jacobians[0])
    u, v = slots(trial, e, points, inverse), slots(test, e, points, inverse)
    d = measure * weak(positions[0].T)
    local = np.einsum("iqm,aibjq,jqn->ambn", v, d, u, optimize=True)
    return local.reshape(test.ncomp * v.shape[2], -1)


def flat_dofs(space: Any, e: int) -> Array:
    nodes = space.restriction.indices[e]
    return (nodes[np.newaxis] * space.ncomp + np.arange(space.ncomp)[:, np.newaxis]).ravel()


def dense_matrix(weak: Any, trial: Any, test: Any) -> Array:
    total = np.zeros((test.size, trial.size))
    q1d = max(trial.order, test.order) + 2
    for e in range(trial.mesh.num_elements):
        local = element_matrix(weak, trial, test, e, q1d)
        np.add.at(total, (flat_dofs(test, e)[:, None], flat_dofs(trial, e)[None]), local)
    return total


def error(matrix: Array, result: Array, u: Array) -> float:
    flat = np.asarray(u, float).ravel()
    difference = np.asarray(result, float).ravel() - matrix @ flat
    return float(np.linalg.norm(difference) / np.linalg.norm(abs(matrix) @ abs(flat)))


# --- forms ----------------------------------------------------------------------------------------


def weak_mass(x: Array) -> Array:
    c = np.zeros((2, 3, 2, 3, x.shape[1]))
    c[0, 0, 0, 0] = c[1, 0, 1, 0] = smooth(x)
    return c


def weak_convection(x: Array) -> Array:
    c = np.zeros((1, 1 + len(x), 1, 1 + len(x), x.shape[1]))
    c[0, 0, 0, 1:] = wind(x)
    return c


def weak_diffusion(x: Array) -> Array:
    c = np.zeros((1, 1 + len(x), 1, 1 + len(x), x.shape[1]))
    c[0, 1:, 0, 1:] = tensor(x)
    return c


def weak_elasticity(x: Array) -> Array:
    dim, eye = len(x), np.eye(len(x))
    c = np.zeros((dim, 1 + dim, dim, 1 + dim, x.shape[1]))
    constant = 1.3 * np.einsum("ai,bj->aibj", eye, eye)
    shear = np.einsum("ab,ij->aibj", eye, eye) + np.einsum("aj,bi->aibj", eye, eye)
    c[:, 1:, :, 1:] = constant[..., None] + shear[..., None] * smooth(x)
    return c


def weak_divergence(x: Array) -> Array:
    dim = len(x)
    c = np.zeros((1, 1 + dim, dim, 1 + dim, x.shape[1]))
    for b in range(dim):
        c[0, 0, b, 1 + b] = 1.0
    return c


def weak_both(x: Array) -> Array:
    c = weak_convection(x)
    c[0, 1:, 0, 1:] = 2.0 * np.eye(len(x))[..., None]
    c[0, 1, 0, 0] = smooth(x)
    return c


def divergence(u: Any) -> Any:
    return {"value": u.div}


def both(u: Any, x: Any, beta: Any, c: Any) -> Any:
    flux = [2.0 * g for g in u.grad]
    flux[0] = flux[0] + c * u
    return {"value": u.grad @ beta, "grad": flux}


@final
@dataclass(frozen=True)
class Case:
    name: str
    dim: int
    make: Callable[..., Any]
    weak: Callable[[Array], Array]
    order: int
    ncomp: int = 1
    test: int | None = None  # order of a discontinuous test space
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.name

    def spaces(self) -> tuple[Any, Any]:
        counts = {1: (5,), 2: (3, 3), 3: (2, 1, 1)}[self.dim]
        mesh = turned(femops.box(counts, order=2, mapping=bend))
        trial = femops.H1(mesh, self.order, ncomp=self.ncomp)
        return trial, trial if self.test is None else femops.L2(mesh, self.test)


SINGLE = (("dtype", "float32"), ("lanes", 16))
CASES = [
    Case("convection-1d", 1, lambda V, W, **k: femops.convection(V, wind, **k), weak_convection, 4),
    Case(
        "mass-2d", 2, lambda V, W, **k: femops.mass(V, smooth, **k), weak_mass, 3, 2, None, SINGLE
    ),
    Case(
        "elasticity-2d",
        2,
        lambda V, W, **k: femops.elasticity(V, 1.3, smooth, **k),
        weak_elasticity,
        2,
        2,
    ),
    Case(
        "divergence-2d",
        2,
        lambda V, W, **k: femops.form(divergence, V, W, **k),
        weak_divergence,
        3,
        2,
        2,
    ),
    Case("diffusion-3d", 3, lambda V, W, **k: femops.diffusion(V, tensor, **k), weak_diffusion, 2),
    Case(
        "both-3d",
        3,
        lambda V, W, **k: femops.form(both, V, beta=wind, c=smooth, **k),
        weak_both,
        1,
        1,
        None,
        (("lanes", 2),),
    ),
    Case(
        "divergence-3d",
        3,
        lambda V, W, **k: femops.form(divergence, V, W, **k),
        weak_divergence,
        2,
        3,
        1,
    ),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_level_is_the_oracle(case: Case) -> None:
    trial, test = case.spaces()
    matrix = dense_matrix(case.weak, trial, test)
    options = dict(case.options)
    tolerance = TOLERANCE[options.get("dtype", "float64")]
    u = random_vector(trial, options.get("dtype", "float64"), 1)
    v = random_vector(test, options.get("dtype", "float64"), 2)
    for level in STORED:
        operator = case.make(trial, test, level=level, **options)
        assert operator.level == operator.T.level == level
        assert error(matrix, operator.apply(u), u) < tolerance
        assert error(matrix.T, operator.T.apply(v), v) < tolerance
        assert abs(operator.assemble() - matrix).max() < tolerance * abs(matrix).max()
        if trial is test:
            diagonal = matrix.diagonal()
            np.testing.assert_allclose(
                operator.diagonal().ravel(), diagonal, rtol=0, atol=tolerance * abs(matrix).max()
            )


@pytest.mark.parametrize("level", STORED)
def test_rows_and_columns_eliminated_between_two_spaces(level: str) -> None:
    trial, test = next(c for c in CASES if c.name == "divergence-2d").spaces()
    matrix = dense_matrix(weak_divergence, trial, test)
    rows, columns = [3, 7, test.size - 1], trial.boundary_dofs(1)
    plain = femops.form(divergence, trial, test, level=level)
    operator = plain.eliminated(rows, columns)
    held = matrix.copy()
    held[rows] = 0.0
    held[:, columns] = 0.0
    u, g = random_vector(trial, "float64"), random_vector(trial, "float64", 2)
    assert error(held, operator.apply(u), u) < 1e-13
    assert abs(operator.assemble() - held).max() < 1e-13 * abs(matrix).max()
    b = random_vector(test, "float64", 3)
    only = np.zeros(trial.size)
    only[columns] = g.ravel()[columns]
    expected = b - matrix @ only
    expected[rows] = 0.0
    np.testing.assert_allclose(operator.rhs(b, g), expected, rtol=0, atol=1e-13)
    assert error(matrix, operator.unconstrained.apply(u), u) < 1e-13


@pytest.mark.parametrize(("trial", "test"), [(4, 2), (2, 3)])
def test_near_optimal_element_matrices(trial: int, test: int) -> None:
    """Blocks of elements, orders that differ, against the oracle's element by element."""
    mesh = turned(femops.box((2, 2, 1), order=2, mapping=bend))
    V, W = femops.H1(mesh, trial, ncomp=3), femops.L2(mesh, test)
    operator = femops.form(divergence, V, W)
    parts = ElementAssembly(operator._summands[0][1])
    whole = parts.matrices(0, 4)
    for e in range(4):
        expected = element_matrix(weak_divergence, V, W, e, max(trial, test) + 2)
        scale = abs(expected).max()
        for got in (whole[e], parts.matrices(e, e + 1)[0]):
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13 * scale)


def layered(u: Any, x: Any) -> Any:
    lam, mu = (femops.where(x[0] < 0.3, value * x[0], 0.0) for value in (5.0, 2.0))
    return {"grad": lam * u.div * np.eye(2) + 2.0 * mu * u.sym_grad}


def test_a_form_that_vanishes_in_a_branch() -> None:
    space = femops.H1(femops.box((3, 2)), 2, ncomp=2)
    operator, u = femops.form(layered, space), random_vector(space, "float64")
    expected = operator.apply(u)
    assert np.abs(expected).max() > 0.01
    result = operator.assemble() @ u.ravel()
    np.testing.assert_allclose(result, expected.ravel(), rtol=0, atol=1e-12)


# --- operators at every level ---------------------------------------------------------------------


def both_terms(problem: Problem, level: str) -> Any:
    space = problem.space
    return femops.diffusion(space, level=level) + 2.5 * femops.mass(space, smooth, level=level)


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", LEVELS)
def test_constrained_sums(problem: Problem, level: str) -> None:
    dofs = problem.space.boundary_dofs()
    plain = both_terms(problem, level)
    operator = plain.constrained(dofs)
    dense = (problem.dense_diffusion + 2.5 * problem.dense_mass).assembled().toarray()
    assert error(dense, plain.apply(problem.u), problem.u) < 1e-13
    held = dense.copy()
    held[dofs], held[:, dofs] = 0.0, 0.0
    held[dofs, dofs] = 1.0
    for A, matrix in ((operator, held), (-2.0 * operator, -2.0 * held)):
        assert A.level == level
        assert error(matrix, A.apply(problem.u), problem.u) < 1e-13
        assert abs(A.assemble() - matrix).max() < 1e-13 * abs(matrix).max()
        atol = 1e-13 * abs(matrix).max()
        np.testing.assert_allclose(A.diagonal(), matrix.diagonal(), rtol=0, atol=atol)
    g = random_vector(problem.space, "float64", 5)
    only = np.zeros_like(g)
    only[dofs] = g[dofs]
    expected = problem.u - dense @ only
    expected[dofs] = g[dofs]
    np.testing.assert_allclose(operator.rhs(problem.u, g), expected, rtol=0, atol=1e-12)
    again = operator.unconstrained.apply(problem.u)
    np.testing.assert_array_equal(again, plain.apply(problem.u))


@pytest.mark.parametrize("level", STORED)
def test_a_sum_over_two_rules(problem: Problem, level: str) -> None:
    lumped = femops.mass(problem.space, quadrature=femops.basis.lobatto(4), level=level)
    operator = (femops.mass(problem.space, smooth, level=level) + 2 * lumped).constrained([0, 5])
    u, dense = problem.u, lumped.at_level("partial").assemble() * 2
    matrix = (problem.dense_mass.assembled() + dense).toarray()
    for k in (0, 5):
        matrix[k], matrix[:, k], matrix[k, k] = 0.0, 0.0, 1.0
    assert error(matrix, operator.apply(u), u) < 1e-13


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_bits_for_any_number_of_threads(level: str) -> None:
    space = femops.H1(turned(femops.box((21, 19), order=2, mapping=bend)), 3)
    operator = femops.diffusion(space, level=level).constrained(space.boundary_dofs())
    u, results = random_vector(space, "float64"), []
    assert operator.compiled.rows[0, 3] > 1
    for threads in (1, 2, 3):
        set_threads(threads)
        results.append(operator.apply(u).tobytes())
    set_threads(max_threads())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("level", STORED)
def test_apply_allocates_nothing(level: str) -> None:
    space = femops.H1(femops.box((24, 24), mapping=bend), 3)
    operator = femops.diffusion(space, level=level).constrained(space.boundary_dofs())
    u, out = random_vector(space, "float64"), space.zeros()
    operator.apply(u, out=out)
    memsys_enable_stats()
    compiled = rtsys.get_allocation_stats().alloc
    tracemalloc.start()
    tracemalloc.reset_peak()
    for _ in range(5):
        operator.apply(u, out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rtsys.get_allocation_stats().alloc == compiled
    assert out.nbytes > 40_000
    assert peak < 2048


@pytest.mark.parametrize("level", LEVELS)
def test_update(problem: Problem, level: str) -> None:
    operator = both_terms(problem, level)
    operator.apply(problem.u)
    new = operator.update(rho=2.0)
    assert new.level == level
    dense = problem.dense_diffusion + 5.0 * problem.oracle.mass()
    assert dense.error(new.apply(problem.u), problem.u) < 1e-13
    with pytest.raises(femops.errors.OperatorError, match="finite"):
        operator.update(rho=np.nan)
    with pytest.raises(femops.errors.OperatorError, match="coefficient 'viscosity'"):
        operator.update(viscosity=1.0)


def test_conjugate_gradients(problem: Problem) -> None:
    results = []
    for level in LEVELS:
        operator = both_terms(problem, level).constrained(problem.space.boundary_dofs())
        b = operator.rhs(femops.load(problem.space, smooth), 1.0)
        x, info = femops.cg(operator, b, rtol=1e-12, M=femops.jacobi(operator))
        assert info.converged
        results.append(x)
    for x in results[:-1]:
        np.testing.assert_allclose(x, results[-1], rtol=1e-9)


@pytest.mark.parametrize("level", STORED)
def test_copies_and_pickles(problem: Problem, level: str) -> None:
    operator = femops.diffusion(problem.space, 2.0, level=level).constrained([1, 2])
    expected = operator.apply(problem.u)
    for twin in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        assert twin.level == level
        np.testing.assert_array_equal(twin.apply(problem.u), expected)


def test_from_level_to_level(problem: Problem) -> None:
    operator = problem.mass
    assert operator.at_level("partial") is operator
    for level in [*STORED, "partial"]:
        operator = operator.at_level(level)
        assert operator.level == level
        assert problem.dense_mass.error(operator.apply(problem.u), problem.u) < 1e-13
    assert "full" in repr(problem.mass.at_level("full"))
    # what the matrix does not need is not kept
    assert "qdata" not in operator.at_level("full")._summands[0][1].__dict__


def test_the_transpose_goes_from_level_to_level() -> None:
    case = CASES[0]
    trial, test = case.spaces()
    matrix, v = dense_matrix(case.weak, trial, test).T, random_vector(test, "float64")
    transposed = case.make(trial, test).T
    transposed.apply(v)
    for level in [*STORED, "partial"]:
        assert error(matrix, transposed.at_level(level).apply(v), v) < 1e-13
        assert error(matrix, transposed.T.at_level(level).T.apply(v), v) < 1e-13


def test_a_nan_stays_with_its_neighbours(problem: Problem) -> None:
    u = problem.u.copy()
    indices = problem.space.restriction.indices
    u[indices[-1, 5]] = np.nan
    touched = np.unique(indices[np.any(indices == indices[-1, 5], axis=1)])
    for level in STORED:
        result = problem.mass.at_level(level).apply(u)
        assert np.array_equal(np.flatnonzero(np.isnan(result)), touched)


def test_memory_of_an_element_matrix() -> None:
    """Some of its size: elasticity is no combination of 45 matrices, of which each is as large."""
    import tracemalloc

    term = femops.elasticity(femops.H1(femops.box((1, 1, 1)), 5, ncomp=3))._summands[0][1]
    tracemalloc.start()
    try:
        matrices = ElementAssembly(term).matrices(0, 1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 12 * matrices.nbytes
