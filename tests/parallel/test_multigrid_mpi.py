"""Multigrid on many ranks: the same iterations, and the same bits on a reproducible mesh."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.rank_operators import here, piece
from support.cuda import guarded

ORDER, COUNTS = 3, (6, 6, 6)


def bent(x):
    return x + 0.05 * np.sin(3 * x[::-1])


device = guarded.small_device


def solved(comm, reproducible, counts=COUNTS, device=None):
    mesh = femops.box(counts, mapping=bent, comm=comm, reproducible=reproducible)
    V = femops.H1(mesh, ORDER, device=device)
    sides = V.boundary_dofs([1, 3])
    A = (femops.diffusion(V) + femops.boundary_mass(V, 2.0, [2])).constrained(sides)
    b = V.interpolate(lambda x: np.sin(5 * x[0]) * x[1] + x[2])
    b[V.memory.put(sides)] = 0.0
    M = femops.multigrid(A)
    return V, M, femops.cg(A, b, M=M, rtol=1e-9)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("reproducible", [False, True])
def test_ranks_take_the_iterations_of_one(comm, reproducible):
    V, M, (x, info) = solved(comm, reproducible)
    _, alone, (y, expected) = solved(Serial(), reproducible)
    assert info.converged
    assert info.iterations == expected.iterations
    assert repr(M).splitlines()[1:] == repr(alone).splitlines()[1:]
    if reproducible:
        np.testing.assert_array_equal(x, y[piece(V)])
        assert [level.largest for level in M.levels] == [level.largest for level in alone.levels]
    else:
        np.testing.assert_allclose(x, y[piece(V)], atol=1e-7)


@pytest.mark.parallel(2)
def test_ranks_agree_on_what_is_refused_and_measured(comm):
    V, M, _ = solved(comm, False)
    factors = [level.factor for level in M.report()]
    assert factors == comm.broadcast(factors)
    with pytest.raises(femops.SolverError, match="not to be positive"):
        femops.multigrid(-1.0 * femops.diffusion(V))


@pytest.mark.parallel(2, 3)
def test_ranks_with_a_device_each_take_the_iterations_of_one(comm, device):
    counts = (3, 2, 2)
    V, M, (x, info) = solved(comm, False, counts, device)
    _, _, (y, expected) = solved(Serial(), False, counts)
    assert M.device is device
    assert info.converged
    assert info.iterations == expected.iterations
    np.testing.assert_allclose(here(x), y[piece(V)], atol=1e-8 * abs(y).max())
