"""Levels of assembly: from one to the other, in sums, with conditions, between two spaces."""

import tracemalloc

import numpy as np
import pytest

import femops
from femops.operators.assembly.element_matrices import ElementAssembly
from support import fixtures
from support.cases.kernels import bend, random_vector, smooth, turned
from support.cases.levels import LEVELS, divergence
from support.oracles.forms import FormOracle
from support.oracles.naive import Oracle

problem = fixtures.problem


def error(matrix, result, u):
    flat = np.asarray(u, float).ravel()
    difference = np.asarray(result, float).ravel() - matrix @ flat
    return float(np.linalg.norm(difference) / np.linalg.norm(abs(matrix) @ abs(flat)))


@pytest.mark.parametrize(("trial", "test"), [(4, 2), (2, 3)])
def test_near_optimal_element_matrices(trial, test):
    """Blocks of elements, orders that differ; rows belong to one element each."""
    mesh = turned(femops.box((2, 2, 1), order=2, mapping=bend))
    V, W = femops.H1(mesh, trial, ncomp=3), femops.L2(mesh, test)
    expected = FormOracle.of(V, W, q1d=max(trial, test) + 2).matrix(divergence).matrix
    parts = ElementAssembly(femops.form(lambda u: {"value": u.div}, V, W)._summands[0][1])
    whole, together = parts.matrices(0, 4), np.zeros_like(expected)
    for e in range(4):
        np.testing.assert_allclose(parts.matrices(e, e + 1)[0], whole[e], rtol=0, atol=1e-13)
        columns = (V.restriction.indices[e] * 3 + np.arange(3)[:, np.newaxis]).ravel()
        together[np.ix_(W.restriction.indices[e], columns)] = whole[e]
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-13 * abs(expected).max())


def layered(u, x):
    lam, mu = (femops.where(x[0] < 0.3, value * x[0], 0.0) for value in (5.0, 2.0))
    return {"grad": lam * u.div * np.eye(2) + 2.0 * mu * u.sym_grad}


def test_a_form_that_vanishes_in_a_branch():
    space = femops.H1(femops.box((3, 2)), 2, ncomp=2)
    operator, u = femops.form(layered, space), random_vector(space, "float64")
    expected = operator.apply(u)
    assert np.abs(expected).max() > 0.01
    result = operator.assemble() @ u.ravel()
    np.testing.assert_allclose(result, expected.ravel(), rtol=0, atol=1e-12)


# --- operators at every level ---------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_sum_over_two_rules(problem, level):
    """Under conditions: each is a sweep of its own."""
    space, u = problem.space, problem.u
    lumped = femops.mass(space, smooth, quadrature=femops.basis.lobatto(4), level=level)
    operator = (lumped + 0.5 * femops.diffusion(space, level=level)).constrained([0, 5])
    indices = space.restriction.indices
    dense = Oracle(problem.mesh.coordinates, indices, rule_name="lobatto", q1d=4).mass(smooth)
    matrix = (dense + 0.5 * problem.dense_diffusion).assembled().toarray()
    for k in (0, 5):
        matrix[k], matrix[:, k], matrix[k, k] = 0.0, 0.0, 1.0
    assert error(matrix, operator.apply(u), u) < 1e-13


def test_from_level_to_level(problem):
    operator = problem.mass
    assert operator.at_level("partial") is operator
    for level in ("full", "element", "partial"):
        operator = operator.at_level(level)
        assert operator.level == level
        assert problem.dense_mass.error(operator.apply(problem.u), problem.u) < 1e-13
    assert "full" in repr(problem.mass.at_level("full"))
    # what the matrix does not need is not kept
    assert "qdata" not in operator.at_level("full")._summands[0][1].__dict__


def test_memory_of_an_element_matrix():
    """Some of its size: elasticity is no combination of 45 matrices, of which each is as large."""
    term = femops.elasticity(femops.H1(femops.box((1, 1, 1)), 5, ncomp=3))._summands[0][1]
    tracemalloc.start()
    try:
        matrices = ElementAssembly(term).matrices(0, 1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 12 * matrices.nbytes
