"""Newton's method with bounds and trust regions on many ranks: the solution of one process."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import RankError, SolverError
from femops.parallel import Serial
from support.cases.rank_operators import close, of_rank_0


def membrane(ranks, **options):
    """Membrane on a mesh with hanging nodes, over a parabolic obstacle."""
    mesh = femops.box((6, 6)).refined([7, 8])
    V = femops.H1(femops.distribute(mesh, ranks, **options), 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    psi = V.interpolate(lambda x: 0.1 - 2.0 * ((x[0] - 0.4) ** 2 + (x[1] - 0.5) ** 2))
    return V, A, psi


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid", "direct"])
def test_an_obstacle_on_ranks(comm, preconditioner):
    def solve(ranks):
        V, A, psi = membrane(ranks)
        found = femops.newton(
            A, V.zeros(), lower=psi, preconditioner=preconditioner, rtol=1e-10, warn=False
        )
        return V, *found

    V, u, info = solve(comm)
    expected, other = of_rank_0(comm, lambda: solve(Serial())[1:])
    assert info.converged
    assert info.iterations == other.iterations
    assert V.comm.sum(len(info.active)) == len(other.active) > 0
    close(u, expected, V, 1e-8)
    close(info.reactions, other.reactions, V, 1e-8)


@pytest.mark.parallel(2)
def test_bounds_on_a_reproducible_mesh_have_the_same_bits(comm):
    def solve(ranks):
        V, A, psi = membrane(ranks, reproducible=True)
        return V, *femops.newton(A, V.zeros(), lower=psi, preconditioner="multigrid")

    V, u, info = solve(comm)
    expected, other = of_rank_0(comm, lambda: solve(Serial())[1:])
    assert info.residuals == other.residuals
    close(u, expected, V, 0.0)


@pytest.mark.parallel(2)
def test_a_bound_that_one_rank_refuses(comm):
    V, A, psi = membrane(comm)
    if comm.rank == 1:
        psi[:] = np.nan
    with pytest.raises(SolverError if comm.rank == 1 else RankError):
        femops.newton(A, V.zeros(), lower=psi)


@pytest.mark.parallel(2)
@pytest.mark.parametrize("linear", ["auto", "gmres"])
def test_a_trust_region_on_ranks(comm, linear):
    """Ginzburg and Landau's energy from near a maximum, and convection of the unknown."""

    def solve(ranks):
        V = femops.H1(femops.distribute(femops.box((6, 6)), ranks), 2)
        if linear == "auto":
            F = femops.residual(lambda u: {"value": u**3 - u, "grad": 0.01 * u.grad}, V)
        else:
            F = femops.residual(lambda u: {"value": 20 * u * u.grad[0] - 99, "grad": u.grad}, V)
            F = F.constrained(V.boundary_dofs())
        guess = V.interpolate(lambda x: x[0] * (1 - x[0]) * x[1] * (1 - x[1]))
        return V, *femops.newton(F, guess, linear=linear, globalization="trust region", rtol=1e-10)

    V, u, info = solve(comm)
    expected, other = of_rank_0(comm, lambda: solve(Serial())[1:])
    assert info.converged
    assert abs(info.iterations - other.iterations) <= 1
    close(u, expected, V, 1e-7)
