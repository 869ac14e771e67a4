"""What integrals over the boundary are tried on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import femops
from support.cases.kernels import bend, turned
from support.oracles.naive import Array


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


def random_form(
    trial: Any, test: Any, seed: int, sparse: bool = False
) -> tuple[Callable[..., Any], Callable[[Array, Array, float], Array]]:
    """A form with any coupling of values and derivatives, and its D as the oracle wants it."""
    rng, slots = np.random.default_rng(seed), 1 + trial.mesh.dim
    shape = slots, test.ncomp, slots, trial.ncomp
    a, b, c = rng.standard_normal((3, *shape)) * 10.0 ** rng.integers(-20, 20)
    if sparse:
        a, b, c = (x * (rng.random(shape) < 0.4) for x in (a, b, c))

    def weak(x: Array, n: Array, h: float) -> Array:
        return a * (1 + x[0] ** 2) + b * n[-1] + c / h

    def form(u: Any, x: Any, n: Any, h: Any) -> dict[str, Any]:
        d = weak(x, n, h)
        values = np.reshape(np.asarray(u.value, dtype=object), (1, -1))
        grads = np.reshape(np.asarray(u.grad, dtype=object), (trial.ncomp, -1)).T
        given = np.concatenate([values, grads])
        out = np.einsum("satb,tb->sa", d, given)
        one = test.ncomp == 1
        return {"value": out[0, 0] if one else out[0], "grad": out[1:, 0] if one else out[1:].T}

    return form, weak
