"""Vectors and variables that coefficients were read from are overwritten, on all ranks or one."""

import numpy as np
import pytest

import femops
from support.cases.kernels import smooth
from support.cases.levels import LEVELS


def parts(A, u):
    """What is asked of an operator, some of it computed now for the first time."""
    yield from (A.at_level(level) @ u for level in LEVELS)
    yield from (A @ u, A.T @ u, (2 * A) @ u, A.diagonal(), A.assemble().data)


def same(A, B, u):
    for found, expected in zip(parts(A, u), parts(B, u), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("shape", "lonely"),
    [((4, 4), False), ((4, 4), True), ((2, 1), True)],  # of (2, 1) the third rank has none
)
def test_fields_and_functions(comm, shape, lonely):
    mesh = femops.box(shape, comm=comm, reproducible=True)
    V, W = femops.H1(mesh, 2), femops.H1(mesh, 1)
    u, c, vector = V.interpolate(smooth), np.array([1.0, 0.5]), W.interpolate(lambda x: 1 + x[0])
    handle = femops.GridFunction(W, vector)
    touched = not lonely or comm.rank == comm.size - 1

    def make():
        field = femops.GridFunction(W, vector.copy())
        a, b = c.copy()
        return (
            femops.mass(V, field) + femops.boundary_mass(V, lambda x: a + b * x[0]),
            femops.load(V, field),
        )

    def now():
        return {"rho": handle, "alpha": lambda x: c[0] + c[1] * x[0]}

    given = now()
    A = femops.mass(V, given["rho"]) + femops.boundary_mass(V, given["alpha"])
    frozen, load = make()
    assert np.array_equal(femops.load(V, handle), load)
    if touched:
        vector *= 3.0
        c[:] = 5.0
    changed, load = make()
    B = A.update(**now())
    assert np.array_equal(femops.load(V, handle), load)
    if touched:
        vector[:] = -7.0
        c[:] = -7.0
    same(A, frozen, u)
    same(B, changed, u)
