"""What a rank sees of its own part decides nothing by itself: all take the same way."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.kernels import smooth
from support.cases.rank_operators import of_rank_0, own_piece


def sheared(x):
    """Boxes on the left, where the first rank is, parallelograms on the right."""
    y = x.copy()
    y[1] += 0.3 * np.maximum(0.0, x[0] - 0.5)
    return y


@pytest.mark.parallel(3)
@pytest.mark.parametrize("form", [femops.diffusion, femops.mass])
def test_boxes_on_some_ranks(comm, form):
    def product(ranks):
        mesh = femops.box((8, 8), mapping=sheared, comm=ranks, reproducible=True)
        V = femops.H1(mesh, 3)
        return V, form(V) @ V.interpolate(smooth)

    (V, mine), whole = product(comm), of_rank_0(comm, lambda: product(Serial())[1])
    assert np.array_equal(mine, whole[own_piece(V)])


def skew(x):
    """Symmetric on the left."""
    twist = np.maximum(0.0, x[0] - 0.5)
    return np.array([[2.0 + 0 * twist, twist], [-twist, 2.0 + 0 * twist]])


@pytest.mark.parallel(3)
@pytest.mark.parametrize("level", ["partial", "full"])
def test_tensors_that_are_symmetric_on_some_ranks(comm, level):
    def products(ranks):
        V = femops.H1(femops.box((8, 8), comm=ranks, reproducible=True), 2)
        A = femops.diffusion(V, skew, level=level)
        u = V.interpolate(smooth)
        return V, A.symmetric, A @ u, A.T @ u

    V, symmetric, *mine = products(comm)
    expected, *whole = of_rank_0(comm, lambda: products(Serial())[1:])
    assert symmetric == expected is False
    for found, of_all in zip(mine, whole, strict=True):
        assert np.array_equal(found, of_all[own_piece(V)])


@pytest.mark.parallel(3)
@pytest.mark.parametrize("level", ["partial", "full"])
@pytest.mark.parametrize("reproducible", [True, False])
def test_boundary_on_some_ranks(comm, level, reproducible):
    """Inner ranks hold no dofs; what is made anew there is what is elsewhere."""

    def products(ranks):
        mesh = femops.box((64,), comm=ranks, reproducible=reproducible)
        V = femops.H1(mesh, 2)
        A, u = femops.mass(V, level=level), V.interpolate(smooth)
        held = V.boundary_dofs()
        rows, both = A.eliminated(rows=held), A.eliminated(held, held)
        ends = femops.boundary_mass(V, smooth) + femops.boundary_mass(V, 2.0)
        several = [A, rows, rows.T, both, both.T, A.constrained(held), ends.at_level(level)]
        found = [B @ u for B in several]
        return V, [rows.symmetric, both.symmetric], found

    V, symmetric, mine = products(comm)
    expected, whole = of_rank_0(comm, lambda: products(Serial())[1:])
    assert symmetric == expected == [False, True]
    for found, of_all in zip(mine, whole, strict=True):
        np.testing.assert_allclose(found, of_all[own_piece(V)], rtol=1e-12, atol=1e-15)


def coupled(u, v):
    return {"u": {"grad": u.grad, "value": v}, "v": {"value": u, "grad": v.grad}}


@pytest.mark.parallel(3)
@pytest.mark.parametrize("level", ["partial", "full"])
def test_blocks_held_on_some_ranks(comm, level):
    def products(ranks):
        V = femops.H1(femops.box((64,), comm=ranks, reproducible=True), 2)
        W = femops.Product(u=V, v=V)
        A, z, u = femops.form(coupled, W, level=level), W.zeros(), V.interpolate(smooth)
        z[W.slice("u")] = z[W.slice("v")] = u
        B = A.constrained(W.slice("u").start + V.boundary_dofs())
        found = [A @ z, B @ z, B.T @ z]
        found = [f[W.slice(name)] for f in found for name in W.names]
        for pair in (("u", "u"), ("u", "v"), ("v", "v")):
            found += [A[pair] @ u, B[pair] @ u, B[pair].T @ u]
        return V, found

    (V, mine), whole = products(comm), of_rank_0(comm, lambda: products(Serial())[1])
    for found, of_all in zip(mine, whole, strict=True):
        assert np.array_equal(found, of_all[own_piece(V)])
