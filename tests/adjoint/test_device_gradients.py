"""Gradients on a device are those of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Sensitivity
from femops.errors import FemopsError
from support.cases.differentiable import (
    BENT,
    MESH,
    equation,
    euler,
    goal_inside,
    goal_outside,
    last,
    rate,
)
from support.cuda import guarded

device = guarded.any_device
NUMBERS = {"a", "second by a"}
WEIGHTS = np.random.default_rng(1).random((BENT.num_elements, 16))


def weighted(u: Any, w: Any) -> Any:
    return {"value": w**2 * u**2}


def found(where: Any, field_there: bool) -> dict[str, Any]:
    """All results, on the host, whose kernels are those of test_gradient.py."""
    V = femops.H1(BENT, 2, device=where)
    K = femops.H1(BENT, 1, device=where if field_there else None)
    kappa = femops.GridFunction(K, K.memory.get(K.interpolate(lambda x: 1.0 + x[0] * x[1])))
    options = {"kappa": kappa, "a": 1.0, "c": np.array([-2.0, 1.0])}
    F = femops.residual(equation, V, **options)
    F = F.constrained(V.boundary_dofs([1]))
    J = femops.functional(goal_inside, V, **options)
    J = J + femops.functional(goal_outside, V, boundary=[2], a=1.0)
    u, _ = femops.newton(F, V.interpolate(lambda x: 0.3 * x[1]), rtol=1e-12)
    controls = ["kappa", "a", "mesh", "load", "dirichlet"]
    slopes = femops.gradient(J, F, u, controls, rtol=1e-12)
    step = slopes.spaces["kappa"].interpolate(lambda x: x[0] - 0.3)
    moves = slopes.spaces["mesh"].interpolate(lambda x: (0.1 * x[1], x[0] * x[1]))
    bent = slopes.hessian_product({"kappa": step, "a": 0.5, "mesh": moves})
    S = Sensitivity(F, u, "kappa")
    W = Sensitivity(femops.residual(weighted, V, w=WEIGHTS, quadrature=4), u, "w")
    vectors = {f"second by {name}": value for name, value in bent.items()} | dict(slopes)
    vectors |= {"along": S @ step, "back": S.T @ u, "points": W.T @ u, "from points": W @ (W.T @ u)}
    vectors["representer"] = slopes.representer("kappa")
    for name, value in vectors.items():
        assert hasattr(value, "get") == (where is not None and name not in NUMBERS)
    return {name: getattr(value, "get", lambda v=value: v)() for name, value in vectors.items()}


def compare(mine: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        tolerance = 1e-9 * abs(value).max()
        np.testing.assert_allclose(mine[name], value, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("field_there", [True, False])
def test_gradients(device: Any, field_there: bool) -> None:
    compare(found(device, field_there), found(None, field_there))


def test_the_mesh_in_a_space_of_the_host(device: Any) -> None:
    V = femops.H1(BENT, 2, device=device)
    goal = femops.functional(lambda u: u**2, V)
    with pytest.raises(FemopsError, match="make all on one device"):
        femops.gradient(goal, u=V.interpolate(1.0), wrt={"mesh": femops.H1(BENT, 2, ncomp=2)})


def through_steps(where: Any) -> dict[str, Any]:
    """Derivatives through steps in time, on the host. ``begin`` keeps a value, and sets others."""
    V, K = femops.H1(MESH, 2, device=where), femops.H1(MESH, 1)
    fixed = V.boundary_dofs([1])
    kappa = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[0] * x[1]))
    old = femops.GridFunction(V, np.zeros(V.size))
    F = femops.residual(euler, V, old=old, kappa=kappa, dt=0.1, t=1.0).constrained(fixed)
    goals = {
        "final": femops.functional(last, V, kappa=kappa),
        "running": femops.functional(rate, V, dt=0.1, t=1.0),
    }
    driven = V.memory.put(fixed[1:])

    def begin(n: int, u: Any) -> Any:
        u[driven] = 0.1 * n
        return u

    steps = femops.adjoint.Steps(F, 3, **goals, begin=begin, rtol=1e-12)
    _, found = steps.gradient(V.interpolate(lambda x: x[1]), ["kappa", "dt", "initial", "mesh"])
    return {name: getattr(value, "get", lambda v=value: v)() for name, value in found.items()}


def test_steps_in_time(device: Any) -> None:
    compare(through_steps(device), through_steps(None))
