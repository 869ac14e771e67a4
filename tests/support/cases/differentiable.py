"""A nonlinear equation, a goal and a product, for tests of derivatives in other libraries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.sparse.linalg import spsolve

import femops

MESH = femops.box((3, 2))
K = femops.H1(MESH, 1)
KAPPA = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[1]))
CONTROLS = ("kappa", "a", "c")


def direct(J: Any, b: Any, rtol: float) -> Any:
    return spsolve(J.assemble().tocsc(), b)


def equation(u: Any, kappa: Any, a: Any, c: Any) -> Any:
    return {"value": c[0] + c[1] * u**3, "grad": kappa * (1.0 + a * u**2) * u.grad}


def goal(u: Any, kappa: Any, a: Any, c: Any) -> Any:
    return a * kappa * u**2 + c[0] * femops.inner(u.grad, u.grad) + c[1] * u


OPTIONS: dict[str, Any] = {"kappa": KAPPA, "a": 0.5, "c": np.array([0.3, 0.2])}


def problem(device: Any = None) -> SimpleNamespace:
    """A space V, an equation F, a product A and a functional J."""
    V = femops.H1(MESH, 2, device=device)
    F = femops.residual(equation, V, **OPTIONS)
    F = F.constrained(V.boundary_dofs(where=lambda x: x[0] < 1e-9))
    A = femops.convection(V, np.array([1.0, 0.5])) + femops.diffusion(V)
    return SimpleNamespace(V=V, F=F, A=A, J=femops.functional(goal, V, **OPTIONS))


V, F, A, J = vars(problem()).values()
