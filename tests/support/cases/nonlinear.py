"""Nonlinear forms: what they are tried on, and their integrals point by point."""

from __future__ import annotations

from typing import Any

import numpy as np

import femops
from femops.forms.neo_hookean import _neo_hookean
from femops.forms.p_laplacian import _p_laplacian
from femops.geometry.jacobians import Geometry
from support.cases.kernels import bend, turned


class PointField:
    """A field at one point as plain numbers, complex ones too."""

    def __init__(self, value: Any, grad: Any) -> None:
        self.value, self.grad = value, grad

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.value)


def cubic(u: Any, x: Any, k: Any) -> dict[str, Any]:
    value = np.asarray(u) if isinstance(u, PointField) else u.value
    return {"value": k * value**3 + np.sin(x[0]) * value, "grad": (1.0 + value * value) * u.grad}


FORMS: dict[str, tuple[Any, Any, Any, int]] = {
    # name: (made by femops, function at a point, coefficients, whether as many components as dims)
    "cubic": (lambda V: femops.residual(cubic, V, k=2.5), cubic, {"k": 2.5}, 0),
    "p_laplacian": (
        lambda V: femops.p_laplacian(V, 3.5, 0.2),
        _p_laplacian,
        {"p": 3.5, "epsilon": 0.2},
        0,
    ),
    "neo_hookean": (
        lambda V: femops.neo_hookean(V, 1.3, 0.7),
        _neo_hookean,
        {"lam": 1.3, "mu": 0.7},
        1,
    ),
}
CASES = [(name, dim) for name in FORMS for dim in (1, 2, 3) if (name, dim) != ("neo_hookean", 1)]


def make_space(name: str, dim: int, **where: Any) -> femops.H1:
    """On a curved mesh; ``where`` names a device."""
    mesh = turned(femops.box((3, 2, 2)[:dim], order=2, mapping=bend))
    return femops.H1(mesh, 2, ncomp=dim if FORMS[name][3] else 1, **where)


def naive(name: str, V: femops.H1, u: np.ndarray, v: np.ndarray) -> Any:
    """R(u; v) point by point; ``u`` may be complex."""
    _, function, coefficients, _ = FORMS[name]
    rule = V.quadrature()
    weights = np.concatenate([block.weighted_det for block in Geometry(V.mesh, rule)])
    points = np.concatenate([block.points for block in Geometry(V.mesh, rule)])

    def both(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = [(V.values(p, rule), V.gradient(p, rule)) for p in (w.real.copy(), w.imag.copy())]
        return parts[0][0] + 1j * parts[1][0], parts[0][1] + 1j * parts[1][1]

    (value, grad), (test, slope) = both(u), both(v)
    total = 0.0j
    for index in np.ndindex(weights.shape):
        field = PointField(value[index], grad[index])
        extra = {"x": points[index]} if name == "cubic" else {}
        result = function(field, **extra, **coefficients)
        part = np.sum(np.asarray(result.get("value", 0.0)) * test[index])
        part += np.sum(np.asarray(result["grad"]) * slope[index])
        total += weights[index] * part
    return total
