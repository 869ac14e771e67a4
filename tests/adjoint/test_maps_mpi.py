"""Maps on many ranks: derivatives in both modes agree, and with one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import FunctionalMap, ResidualMap, SolveMap
from support.cases.differentiable import CONTROLS, MESH, OPTIONS, equation, goal_inside


def maps(mesh: Any) -> list[Any]:
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    options = OPTIONS | {"kappa": femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[1]))}
    F = femops.residual(equation, V, **options).constrained(V.boundary_dofs())
    J = femops.functional(goal_inside, V, **options)
    made = [FunctionalMap(J, CONTROLS), ResidualMap(F, CONTROLS)]
    return [*made, SolveMap(F, CONTROLS, rtol=1e-12)]


def fields(function: Any, f: Any) -> dict[str, Any]:
    V = function.space
    K = function._controls["kappa"].space
    first = next(iter(function.inputs))
    numbers = {"a": np.array(1.5), "c": np.array([0.5, 1.0])}
    return {first: V.interpolate(f), "kappa": K.interpolate(f), **numbers}


@pytest.mark.parallel(2)
def test_both_modes(comm: Any) -> None:
    def summed(function: Any, f: Any, g: Any) -> list[float]:
        values, changes = fields(function, f), fields(function, g)
        ahead, mine = function.jvp(values, changes), function.space.comm
        y = np.asarray(2.0) if function.shape == () else function.space.interpolate(g)
        back = function.vjp(values, y)
        inner = float(np.sum(y * ahead))
        numbers = sum(float(np.sum(back.pop(n) * changes[n])) for n in ("a", "c"))
        total = mine.sum(sum(float(np.sum(back[n] * changes[n])) for n in back)) + numbers
        return [inner if function.shape == () else mine.sum(inner), total]

    ranks = femops.distribute(MESH, comm)
    for mine, alone in zip(maps(ranks), maps(MESH), strict=True):
        found, expected = (
            summed(one, lambda x: 1.0 + x[0], lambda x: 0.5 + x[1]) for one in (mine, alone)
        )
        assert found[0] == pytest.approx(found[1], rel=1e-8)
        assert found == pytest.approx(expected, rel=1e-8)
