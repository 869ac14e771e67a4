"""Forms given as functions, and small meshes for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import femops
from support.cases.kernels import bend, turned
from support.oracles.naive import Array


def swing(x: Array) -> Array:
    """A scalar that takes both signs."""
    return np.sin(5 * x[0] + 2) + 0.1


# --- forms ----------------------------------------------------------------------------------------


def mass(u: Any, rho: Any) -> Any:
    return {"value": rho * u}


def convection(u: Any, beta: Any) -> Any:
    return {"value": u.grad @ beta}


def convection_diffusion(u: Any, kappa: Any, beta: Any) -> Any:
    return {"value": u.grad @ beta, "grad": kappa * u.grad}


def tensor_diffusion(u: Any, kappa: Any) -> Any:
    """Of one component: the sum over j of kappa_ij d_j u is multiplied by d_i v."""
    return {"grad": kappa @ u.grad}


def elasticity(u: Any, lam: Any, mu: Any) -> Any:
    return {"grad": lam * u.div * np.eye(len(u.grad)) + 2 * mu * u.sym_grad}


def divergence(u: Any) -> Any:
    return {"value": u.div}


def slope(u: Any, c: Any) -> Any:
    return {"value": c * u.grad[0]}


def gradient(q: Any) -> Any:
    return {"value": q.grad}


def reaction(u: Any, x: Any, c: Any, d: Any) -> Any:
    rate = np.exp(-c) + np.sqrt(d + x[0] ** 2) + femops.minimum(c, d)
    return {"value": femops.where(c > d, rate, 2.0 + rate) * u}


def zero_value(u: Any, kappa: Any) -> Any:
    return {"value": 0.0, "grad": kappa * u.grad}


def one_direction(u: Any, kappa: Any) -> Any:
    return {"grad": [kappa * u.grad[0], 0.0]}


def halved(u: Any, x: Any) -> Any:
    """Its derivatives choose between numbers, some of which a division makes."""
    flow = u * np.array([femops.where(x[1] > 0.2, 2.0 / 3.0, 4.0), 0.0])
    return {"value": femops.where(x[0] > 0.5, u / 3.0, u) + u.grad[0], "grad": u.grad + flow}


# --- meshes and coefficients ----------------------------------------------------------------------


def make_mesh(kind: str, dim: int) -> femops.Mesh:
    """A small curved mesh, its elements shuffled and turned."""
    if kind == "unstructured":
        return turned(femops.disc(1) if dim == 2 else femops.ball(1, order=2))
    counts = {1: (5,), 2: (3, 2), 3: (2, 1, 1)}[dim]
    return turned(femops.box(counts, order=3, mapping=bend))


CONSTANT = np.array([[2.0, 0.5], [-0.3, 1.0]])
