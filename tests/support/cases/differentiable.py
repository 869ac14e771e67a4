"""One nonlinear equation with goals, and its steps in time, for all tests of derivatives.

Kernels of an equation's derivatives are many: tests that share the equation share them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.sparse.linalg import spsolve

import femops

MESH = femops.box((3, 2))
BENT = MESH.mapped(lambda x: (x[0] + 0.1 * np.sin(2.0 * x[1]), x[1] + 0.05 * x[0] ** 2), order=2)
K = femops.H1(MESH, 1)
KAPPA = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[1]))
CONTROLS = ("kappa", "a", "c")


def direct(J: Any, b: Any, rtol: float) -> Any:
    return spsolve(J.assemble().tocsc(), b)


def equation(u: Any, kappa: Any, a: Any, c: Any, x: Any) -> Any:
    return {"value": c[0] * x[0] + c[1] * u**3, "grad": kappa * (1.0 + a * u**2) * u.grad}


def goal_inside(u: Any, kappa: Any, a: Any, c: Any, x: Any) -> Any:
    return a * kappa * u**2 + c[0] * femops.inner(u.grad, u.grad) + c[1] * u * x[1]


def outside(u: Any, n: Any, h: Any, a: Any) -> Any:
    """A flux at the boundary."""
    return {"value": a * u * n[0] ** 2 + 0.1 * h * femops.inner(u.grad, n)}


def goal_outside(u: Any, n: Any, a: Any) -> Any:
    return a * femops.inner(u.grad, n) ** 2


def euler(u: Any, old: Any, kappa: Any, dt: Any, t: Any, x: Any) -> Any:
    """A step in time."""
    return {"value": (u - old) / dt + u**3 - t * x[1], "grad": kappa * u.grad}


def last(u: Any, kappa: Any) -> Any:
    """A goal of the last step."""
    return kappa * u**2


def rate(u: Any, dt: Any, t: Any) -> Any:
    """A goal of each step."""
    return dt * t * u


OPTIONS: dict[str, Any] = {"kappa": KAPPA, "a": 0.5, "c": np.array([0.3, 0.2])}


def problem(device: Any = None) -> SimpleNamespace:
    """A space V, an equation F, a product A and a functional J."""
    V = femops.H1(MESH, 2, device=device)
    F = femops.residual(equation, V, **OPTIONS)
    F = F.constrained(V.boundary_dofs(where=lambda x: x[0] < 1e-9))
    A = femops.convection(V, np.array([1.0, 0.5])) + femops.diffusion(V)
    return SimpleNamespace(V=V, F=F, A=A, J=femops.functional(goal_inside, V, **OPTIONS))


def complex_product() -> Any:
    """A complex operator that is neither symmetric nor Hermitian."""
    turn = np.array([[1.0, 1.0j], [0.5j, 1.0]])

    def damped(u: Any) -> Any:
        return {"value": (1 + 2j) * u, "grad": turn @ u.grad}

    return femops.form(damped, femops.H1(MESH, 2), dtype="complex128")


V, F, A, J = vars(problem()).values()
