"""Paths of solutions on many ranks: by arc length, and by loads in steps."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.rank_operators import of_rank_0


@pytest.mark.parallel(2)
def test_a_path_on_ranks(comm):
    def solve(ranks):
        V = femops.H1(femops.distribute(femops.box((4, 4)), ranks), 2)
        F = femops.residual(lambda u, k: {"grad": u.grad, "value": -k * np.exp(u)}, V, k=0.0)
        F = F.constrained(V.boundary_dofs())
        path = femops.continuation(F, V.zeros(), parameter="k", step=2.0, points=5)
        return [point.parameter for _, point in path]

    assert np.allclose(solve(comm), of_rank_0(comm, lambda: solve(Serial())), rtol=1e-6)


@pytest.mark.parallel(2)
def test_steps_on_ranks(comm):
    V = femops.H1(femops.distribute(femops.box((4, 2)), comm), 2, ncomp=2)
    F = femops.neo_hookean(V, lam=1.0, mu=1.0).constrained(V.boundary_dofs(1))
    b = femops.boundary_load(V, (0.0, 0.1), 2)
    steps = femops.load_steps(
        lambda load, u: femops.newton(F, u, load * b, warn=False), V.zeros(), first=0.5
    )
    loads = [step.load for _, step in steps]
    assert steps.converged
    assert comm.sum(loads[0]) == pytest.approx(2 * loads[0])
