"""What integrals over the boundary are tried on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import femops
from support.cases.kernels import bend, turned


@cache
def mesh(kind: str) -> femops.Mesh:
    """Meshes of all dimensions; those called turned have mixed orientations."""
    return {
        "segment": lambda: turned(femops.box((5,), order=2, mapping=bend)),
        "line": lambda: femops.box((5,), order=2, mapping=bend),
        "square": lambda: femops.box((3, 4), upper=(2.0, 1.0), order=2, mapping=bend),
        "disc": lambda: turned(femops.disc(2)),
        "cube": lambda: femops.box((3, 2, 2), order=2, mapping=bend),
        "ball": lambda: turned(femops.ball(1, order=3)),
        "half-periodic": lambda: femops.box((3, 3), periodic=(True, False)),
    }[kind]()


def flux(u: Any, n: Any) -> dict[str, Any]:
    return {"value": np.atleast_1d(u.value) @ n}
