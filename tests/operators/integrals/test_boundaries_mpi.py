"""Derivatives on the boundary, and sums of residuals over it, on many ranks: what one has."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.rank_operators import of_rank_0, piece


def inside(u, p, k):
    return {"u": {"grad": (1 + u**2) * u.grad, "value": k * p}, "p": {"value": p**3 - u}}


def walls(u, p, n, h, k):
    return {
        "u": {"value": k * u**3 / h - u.grad @ n, "grad": -u * n},
        "p": {"value": p * (u.grad @ n)},
        "flux": p * (u.grad @ n),
    }


def everything(mesh):
    """Vectors that a sum of residuals gives, the product that they are on, and its functionals."""
    W = femops.Product(u=femops.H1(mesh, 2), p=femops.L2(mesh, 1))
    R = femops.residual(inside, W, k=2.0)
    R += 3.0 * femops.residual(walls, W, boundary=[1, 2], integrals=["flux"], k=0.5)
    u = W.interpolate(u=lambda x: np.sin(3 * x[0]) + x[1], p=lambda x: np.cos(x[1]) + x[0])
    residual, found = R.evaluate(u)
    J = R.jacobian(u)
    many = J @ np.stack([u, residual, u - residual, residual, u, u, u, u, u], axis=1)
    vectors = [residual, J @ u, J.T @ u, J.diagonal(), *many.T[:3]]
    total = femops.functional(lambda u, p, n: (u.grad @ n) * p**2, W, boundary=True)
    return W, vectors, [found["flux"], total(u)], total.derivative.residual(u)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_same_bits(comm, dim):
    mesh = femops.box((8, 7, 3)[:dim], order=2, mapping=lambda x: x + 0.05 * np.sin(3 * x[::-1]))

    def on(ranks):
        W, vectors, numbers, slope = everything(femops.distribute(mesh, ranks, reproducible=True))
        return W, [*vectors, slope], numbers

    W, vectors, numbers = on(comm)
    others, expected = of_rank_0(comm, lambda: on(Serial())[1:])
    assert numbers == expected
    for one, other in zip(vectors, others, strict=True):
        assert np.array_equal(one, other[piece(W)])
