"""Maps on a device have the numbers of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import FunctionalMap, OperatorMap, ResidualMap, SolveMap
from support.cuda import guarded

device = guarded.any_device
MESH = femops.box((3, 2))


def maps(device: Any) -> list[Any]:
    V, K = femops.H1(MESH, 2, device=device), femops.H1(MESH, 1)
    k = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[1]))
    options: dict[str, Any] = {"k": k, "a": 0.5, "c": np.array([0.3, 0.2])}

    def equation(u: Any, k: Any, a: Any, c: Any) -> Any:
        return {"value": c[0] + c[1] * u**3, "grad": k * (1.0 + a * u**2) * u.grad}

    F = femops.residual(equation, V, **options).constrained(V.boundary_dofs())
    J = femops.functional(lambda u, k, a, c: a * k * u**2 + c[0] * u, V, **options)
    A = femops.form(lambda u, k: {"grad": k * u.grad}, V, k=k).constrained(V.boundary_dofs())
    functions = [FunctionalMap(J, ("k", "a", "c")), ResidualMap(F, ("k", "a", "c"))]
    return [*functions, OperatorMap(A), SolveMap(A, "k"), SolveMap(F, ("k", "a"), rtol=1e-12)]


@pytest.mark.parametrize("number", range(5))
def test_values_and_derivatives(device: Any, number: int) -> None:
    there, here = maps(device)[number], maps(None)[number]
    memory, random = there.space.memory, np.random.default_rng(1)
    inputs, changes = (
        {n: 0.5 + random.random(s) for n, s in here.inputs.items()} for _ in range(2)
    )
    y = random.random(here.shape)

    def moved(arrays: dict[str, Any]) -> dict[str, Any]:
        on_host = {"a", "c"}
        return {n: x if n in on_host else memory.put(x) for n, x in arrays.items()}

    def close(got: Any, expected: Any) -> None:
        got = got if isinstance(got, np.ndarray) else memory.get(got)
        assert got == pytest.approx(expected, rel=1e-8, abs=1e-10)

    close(there(moved(inputs)), here(inputs))
    close(there.jvp(moved(inputs), moved(changes)), here.jvp(inputs, changes))
    back = there.vjp(moved(inputs), memory.put(y) if y.ndim else y)
    for name, slope in here.vjp(inputs, y).items():
        close(back[name], slope)
