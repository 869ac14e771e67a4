"""Sides of periodic meshes that are joined by a turn, on one rank and several."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError
from femops.spaces.side_space import sides_turn

UPPER = (1.0, 3.0, 2.0)


def sector(x, part):
    """Part of a ring, and more directions as they are."""
    r, angle = 1.0 + x[0], 2 * np.pi * part * x[1]
    return np.array([r * np.cos(angle), r * np.sin(angle), *x[2:]])


def bend(x):
    return x + 0.02 * np.sin(2 * np.pi * x / np.array(UPPER)[: len(x), None])


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize("dim", [2, 3])
def test_sides_of_a_sector_turn(comm, dim):
    counts, closed = (3, 12, 3)[:dim], (False, True, True)[:dim]
    cases = [
        (femops.box(counts, mapping=lambda x: sector(x, 1 / 3), periodic=closed, order=3), True),
        (femops.box(counts, mapping=lambda x: sector(x, 1.0), periodic=closed, order=3), False),
        (femops.box(counts, upper=UPPER[:dim], mapping=bend, periodic=True, order=2), False),
        (femops.box((1, 2, 1)[:dim]), False),  # some ranks have no elements
    ]
    for mesh, turn in cases:
        part = femops.distribute(mesh, comm)
        V = femops.H1(part, 2, ncomp=dim)
        assert sides_turn(V) is turn
        if turn:
            for make in (femops.elasticity, femops.neo_hookean):
                with pytest.raises(OperatorError, match="components do not turn with"):
                    make(V, 1.0, 1.0)
            assert femops.diffusion(femops.H1(part, 2)).symmetric


@pytest.mark.parallel(1, 2)
@pytest.mark.parametrize("closed", [False, True])
def test_a_rod_is_elastic(comm, closed):
    V = femops.H1(femops.distribute(femops.box(4, periodic=closed), comm), 2)
    u = V.interpolate(lambda x: np.sin(2 * np.pi * x[0]))
    same = 3.0 * femops.diffusion(V)
    assert np.allclose(femops.elasticity(V, lam=1.0, mu=1.0) @ u, same @ u)


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize("dim", [2, 3])
def test_sides_with_elements_of_two_sizes(comm, dim):
    counts, closed = (3, 12, 3)[:dim], (False, True, True)[:dim]
    cases = [
        (femops.box(counts, mapping=lambda x: sector(x, 1 / 3), periodic=closed, order=3), True),
        (femops.box(counts, mapping=lambda x: sector(x, 1.0), periodic=closed, order=3), False),
        (femops.box(counts, upper=UPPER[:dim], mapping=bend, periodic=True, order=2), False),
        (femops.box(counts), False),
    ]
    for mesh, turn in cases:
        low = np.flatnonzero(np.arange(mesh.num_elements) % 5 == 0)
        for fine in (mesh.refined(low), mesh.refined([0])):
            part = femops.distribute(fine, comm)
            assert sides_turn(femops.H1(part, 2, ncomp=dim)) is turn


@pytest.mark.parallel(2, 3)
def test_elasticity_on_a_mesh_that_ranks_refine(comm):
    u = []
    for mesh in (femops.box((5, 4)), femops.box((5, 4), comm=comm)):
        V = femops.H1(mesh.refined(lambda x: ((x - 0.3) ** 2).sum(0) < 0.05), 2, ncomp=2)
        A = femops.elasticity(V, 1.0, 1.0) + femops.mass(V)
        b = femops.load(V, lambda x: np.stack([x[1], x[0] ** 2]))
        x, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-12)
        assert info.converged
        u.append(femops.l2_norm(V, x))
    assert u[0] == pytest.approx(u[1], rel=1e-10)
