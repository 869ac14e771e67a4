"""Maps on a device have the numbers of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from femops.adjoint import FunctionalMap, OperatorMap, ResidualMap, SolveMap
from support.cases.differentiable import CONTROLS, problem
from support.cuda import guarded

device = guarded.any_device
MAPS: dict[str, Any] = {
    "functional": lambda given: FunctionalMap(given.J, CONTROLS),
    "residual": lambda given: ResidualMap(given.F, CONTROLS),
    "operator": lambda given: OperatorMap(given.A),
    "solve": lambda given: SolveMap(given.F, ("kappa", "a"), rtol=1e-12),
    "solve an operator": lambda given: SolveMap(given.A.constrained(given.V.boundary_dofs())),
}


@pytest.mark.parametrize("name", MAPS)
def test_values_and_derivatives(device: Any, name: str) -> None:
    there, here = MAPS[name](problem(device)), MAPS[name](problem())
    memory, random = there.space.memory, np.random.default_rng(1)
    inputs, changes = (
        {n: 0.5 + random.random(s) for n, s in here.inputs.items()} for _ in range(2)
    )
    y = random.random(here.shape)

    def moved(arrays: dict[str, Any]) -> dict[str, Any]:
        return {n: x if n in {"a", "c"} else memory.put(x) for n, x in arrays.items()}

    def close(got: Any, expected: Any) -> None:
        got = got if isinstance(got, np.ndarray) else memory.get(got)
        assert got == pytest.approx(expected, rel=1e-8, abs=1e-10)

    close(there(moved(inputs)), here(inputs))
    close(there.jvp(moved(inputs), moved(changes)), here.jvp(inputs, changes))
    back = there.vjp(moved(inputs), memory.put(y) if y.ndim else y)
    for name, slope in here.vjp(inputs, y).items():
        close(back[name], slope)
