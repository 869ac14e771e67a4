"""Maps on many ranks: derivatives in both modes agree, and with one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import FunctionalMap, ResidualMap, SolveMap


def maps(mesh: Any) -> list[Any]:
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    k = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[1]))
    fixed = V.boundary_dofs()
    F = femops.residual(
        lambda u, k, a: {"value": a * u**3 - 1.0, "grad": k * u.grad}, V, k=k, a=0.5
    ).constrained(fixed)
    J = femops.functional(lambda u, k, a: a * k * u**2, V, k=k, a=0.5)
    made = [FunctionalMap(J, ("k", "a")), ResidualMap(F, ("k", "a"))]
    return [*made, SolveMap(F, ("k", "a"), rtol=1e-12)]


def fields(function: Any, f: Any) -> dict[str, Any]:
    V = function.space
    K = function._controls["k"].space
    first = next(iter(function.inputs))
    return {first: V.interpolate(f), "k": K.interpolate(f), "a": np.array(1.5)}


@pytest.mark.parallel(2)
def test_both_modes(comm: Any) -> None:
    def summed(function: Any, f: Any, g: Any) -> list[float]:
        values, changes = fields(function, f), fields(function, g)
        ahead, mine = function.jvp(values, changes), function.space.comm
        y = np.asarray(2.0) if function.shape == () else function.space.interpolate(g)
        back = function.vjp(values, y)
        inner = float(np.sum(y * ahead))
        parts = sum(float(np.sum(back[n] * changes[n])) for n in back if n != "a")
        total = mine.sum(parts) + float(back["a"] * changes["a"])
        return [inner if function.shape == () else mine.sum(inner), total]

    mesh = femops.box((4, 3))
    for mine, alone in zip(maps(femops.distribute(mesh, comm)), maps(mesh), strict=True):
        found, expected = (
            summed(one, lambda x: 1.0 + x[0], lambda x: 0.5 + x[1]) for one in (mine, alone)
        )
        assert found[0] == pytest.approx(found[1], rel=1e-8)
        assert found == pytest.approx(expected, rel=1e-8)
