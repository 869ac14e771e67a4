"""Gradients of integrals over faces between elements on many ranks, beside those of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.rank_operators import of_rank_0, piece


def found(comm: Any, reproducible: bool) -> Any:
    """Gradient of a goal on faces whose state solves a problem of interior penalty."""
    box = femops.box((8, 6)).mapped(lambda x: (x[0] + 0.1 * np.sin(2.0 * x[1]), x[1]), order=2)
    mesh = femops.distribute(box, comm, reproducible=reproducible)
    V, K = femops.L2(mesh, 2), femops.L2(mesh, 1)
    kappa = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[0] * x[1]))
    A = femops.interior_penalty(V, kappa)
    goal = femops.functional(
        lambda u, c, kappa: c * kappa.plus * u.jump**2 + u.mean,
        V,
        faces="interior",
        c=2.0,
        kappa=kappa,
    )
    u, _ = femops.cg(A, femops.load(V, 1.0), M=femops.jacobi(A), rtol=1e-13)
    return femops.gradient(goal, A, u, ["kappa", "c"], rtol=1e-12)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("reproducible", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_gradients_of_one_rank(comm: Any, reproducible: bool) -> None:
    mine = found(comm, reproducible)
    whole = of_rank_0(comm, lambda: dict(found(Serial(), reproducible)))
    for name, expected in (
        ("kappa", whole["kappa"][piece(mine.spaces["kappa"])]),
        ("c", whole["c"]),
    ):
        if reproducible:
            assert np.array_equal(mine[name], expected)
        else:
            scale = abs(whole[name]).max()
            assert mine[name] == pytest.approx(expected, abs=1e-9 * scale)
