"""What operators of every kind do alike, at every level of assembly."""

import copy
import pickle
import tracemalloc
from functools import cache

import numpy as np
import pytest

import femops
from femops_kernels.cpu.machine import max_threads, set_threads
from support import fixtures
from support.cases.kernels import bend, random_vector, smooth, turned
from support.cases.levels import LEVELS
from support.cases.products import stokes, vector

problem = fixtures.problem


@cache
def mesh(*counts):
    return turned(femops.box(counts, order=2, mapping=bend))


MANY, FEW = (21, 19), (3, 2)
"""Elements of several chunks, and of one."""


def summed(level, counts=MANY):
    V = femops.H1(mesh(*counts), 3)
    A = femops.diffusion(V, level=level) + 2.5 * femops.mass(V, smooth, level=level)
    return A.constrained(V.boundary_dofs())


def of_fields(level, counts=MANY):
    W = femops.Product(u=femops.H1(mesh(*counts), 2, ncomp=2), p=femops.H1(mesh(*counts), 1))
    return femops.form(stokes, W, mu=smooth, level=level).constrained(W.positions(p=[4]))


def with_faces(level, counts=MANY):
    V = femops.H1(mesh(*counts), 3)
    return femops.diffusion(V, level=level) + femops.boundary_mass(V, smooth, level=level)


def between_spaces(level, counts=MANY):
    V, Q = femops.H1(mesh(*counts), 3, ncomp=2), femops.L2(mesh(*counts), 2)
    return femops.divergence(V, Q, level=level)


KINDS = {
    summed: {"rho": 2.0},
    of_fields: {"mu": 2.0},
    with_faces: {"alpha": 2.0},
    between_spaces: {},
}
"""Each with other coefficients."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", KINDS)
def test_an_application(make, level):
    """Allocates nothing, overwrites its output alone, has the same bits with any threads."""
    A = make(level)
    assert A.level == A.T.level == level
    assert A.compiled.rows[:, 3].max() > 1  # chunks
    x, y = vector(A.shape[1]), vector(A.shape[0], seed=1)
    before, out = x.copy(), np.full(A.shape[0], np.nan)
    expected, turned = (A @ x).tobytes(), (A.T @ y).tobytes()
    for threads in (1, 2, 3):
        set_threads(threads)
        assert A.apply(x, out=out) is out
        assert out.tobytes() == expected
        assert (A.T @ y).tobytes() == turned
        tracemalloc.start()
        tracemalloc.reset_peak()
        for _ in range(5):
            A.apply(x, out=out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2048 < out.nbytes
    set_threads(max_threads())
    assert np.array_equal(x, before)


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_copies_and_pickles(kind, shift):
    """Before and after the first use; they are updated like the operator."""
    make, level = list(KINDS)[kind], LEVELS[(kind + shift) % 4]
    A, new = make(level, FEW), KINDS[make]
    x = vector(A.shape[1])
    fresh = copy.deepcopy(A)
    expected = A @ x
    for twin in (fresh, copy.deepcopy(A), pickle.loads(pickle.dumps(A))):
        assert twin.level == level
        np.testing.assert_array_equal(twin @ x, expected)
        np.testing.assert_array_equal(twin.update(**new) @ x, A.update(**new) @ x)


@pytest.mark.parametrize("level", LEVELS)
def test_a_nan_reaches_its_neighbours_and_nobody_else(problem, level):
    u = random_vector(problem.space, "float64")
    indices = problem.space.restriction.indices
    at = indices[-1, 5]
    u[at] = np.nan
    touched = np.unique(indices[np.any(indices == at, axis=1)])
    result = problem.diffusion.at_level(level).apply(u)
    assert np.array_equal(np.flatnonzero(np.isnan(result)), touched)
