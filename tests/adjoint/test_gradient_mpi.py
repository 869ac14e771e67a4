"""Gradients on many ranks, beside those of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.differentiable import equation, goal_inside, goal_outside, outside
from support.cases.rank_operators import of_rank_0, piece

CONTROLS = ["kappa", "a", "mesh", "load", "dirichlet"]
"""With the kernels of test_gradient.py."""


def bent(x: Any) -> Any:
    return x[0] + 0.1 * np.sin(2.0 * x[1]), x[1] + 0.05 * x[0] ** 2


def found(comm: Any, counts: tuple[int, ...], reproducible: bool) -> tuple[Any, Any, Any]:
    """Gradient, second derivatives, and the space of the state."""
    box = femops.box(counts).mapped(bent, order=2)
    mesh = femops.distribute(box, comm, reproducible=reproducible)
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    kappa = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[0] * x[1]))
    options = {"kappa": kappa, "a": 2.0, "c": np.array([-1.0, 2.0])}
    F = femops.residual(equation, V, **options)
    F = (F + 0.5 * femops.residual(outside, V, boundary="all", a=2.0)).constrained(
        V.boundary_dofs([1])
    )
    goal = femops.functional(goal_inside, V, **options)
    goal = goal + 2.0 * femops.functional(goal_outside, V, boundary=[2], a=2.0)
    u, info = femops.newton(F, V.interpolate(lambda x: 0.3 * x[1]), rtol=1e-12)
    assert info.converged
    slopes = femops.gradient(goal, F, u, CONTROLS, rtol=1e-11)
    step = {"kappa": K.interpolate(lambda x: x[0] - 0.3), "a": 0.5}
    step["mesh"] = slopes.spaces["mesh"].interpolate(lambda x: (0.1 * x[1], x[0] * x[1]))
    return slopes, slopes.hessian_product(step), V


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize(
    ("counts", "reproducible"),
    [
        *(((8, 6), False), ((2, 1), False)),
        # with kernels of their own; the next tests have reproducible meshes, too
        pytest.param((8, 6), True, marks=pytest.mark.exhaustive),
        pytest.param((2, 1), True, marks=pytest.mark.exhaustive),
    ],
)
def test_gradients_of_one_rank(comm: Any, counts: tuple[int, ...], reproducible: bool) -> None:
    slopes, bent, V = found(comm, counts, reproducible)
    alone, bent_alone = of_rank_0(
        comm, lambda: [dict(one) for one in found(Serial(), counts, reproducible)[:2]]
    )
    spaces = {**slopes.spaces, "load": V, "dirichlet": V}
    assert set(spaces) == {*CONTROLS} - {"a"}
    pairs = [(n, slopes[n], alone[n]) for n in CONTROLS]
    pairs += [(n, bent[n], bent_alone[n]) for n in bent]
    for name, mine, whole in pairs:
        own = whole[piece(spaces[name])] if name in spaces else whole
        assert np.shape(mine) == np.shape(own)
        if reproducible:
            assert np.array_equal(mine, own), name
        else:
            gap = abs(mine - own).max(initial=0.0)
            assert gap <= 1e-8 * abs(whole).max() + 1e-14, name


def coupled(u: Any, p: Any, w: Any, D: Any) -> Any:
    return {
        "u": {"value": w * u, "grad": u.grad @ D - p * np.eye(2)},
        "p": {"value": p + w * u.div},
    }


def of_a_product(comm: Any) -> tuple[Any, Any]:
    """Gradient, and the space of the state: an energy, two fields, and an array at points."""
    box = femops.box((7, 5)).mapped(bent, order=2)
    mesh = femops.distribute(box, comm, reproducible=True)
    W = femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.L2(mesh, 1))
    weights = 1.0 + np.cos(np.arange(box.num_elements * 9).reshape(-1, 9))
    mine = weights[mesh.part.elements]
    D = np.array([[2.0, 0.5], [0.1, 1.0]])
    F = femops.residual(coupled, W, w=mine, D=D, quadrature=3)
    E = femops.functional(lambda u, p: femops.inner(u.value, u.value) - u[0], W)
    F = F + E.derivative
    u = W.interpolate(u=lambda x: (x[0] * x[1], x[0]), p=lambda x: x[1])
    goal = femops.functional(lambda u, p: u[0] ** 2 + p, W)
    return femops.gradient(goal, F, u, ["w", "D", "load"], linear="gmres", rtol=1e-8), W


@pytest.mark.parallel(2, 3)
def test_two_fields(comm: Any) -> None:
    mine, W = of_a_product(comm)
    alone = of_rank_0(comm, lambda: dict(of_a_product(Serial())[0]))
    elements = W.spaces["p"].distributed.part.elements
    assert np.array_equal(mine["D"], alone["D"])
    assert np.array_equal(mine["load"], alone["load"][piece(W)])
    assert np.array_equal(mine["w"], alone["w"][elements])


def decay(u: Any, old: Any, kappa: Any, c: Any) -> Any:
    return {"value": (u - old) / 0.1 + c[0] * u**3, "grad": kappa * u.grad}


def of_steps(comm: Any) -> tuple[Any, Any, Any]:
    """Gradient through steps, and spaces. Few ranks have elements with constrained dofs."""
    mesh = femops.distribute(femops.box((24, 3)), comm, reproducible=True)
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    fixed = V.boundary_dofs([1])  # x = 0
    kappa = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[0] * x[1]))
    old, c = femops.GridFunction(V, V.zeros()), np.array([1.0, 2.0])
    F = femops.residual(decay, V, old=old, kappa=kappa, c=c).constrained(fixed)
    goal = femops.functional(lambda u, kappa, c: c[1] * kappa * u**2, V, kappa=kappa, c=c)

    def begin(n: int, u: Any) -> Any:
        u[fixed] = 0.1 * n
        return u

    steps = femops.adjoint.Steps(F, 3, running=goal, begin=begin)
    u = V.interpolate(lambda x: 1.0 + x[0])
    return steps.gradient(u, ["kappa", "c", "initial", "mesh"]), V, K


@pytest.mark.parallel(2, 3)
def test_steps_in_time(comm: Any) -> None:
    (value, mine), V, K = of_steps(comm)
    value_alone, alone = of_rank_0(comm, lambda: of_steps(Serial())[0])
    assert value == value_alone
    assert np.array_equal(mine["c"], alone["c"])
    nodes = femops.H1(K.distributed, 1, ncomp=2)
    for name, space in (("kappa", K), ("initial", V), ("mesh", nodes)):
        assert np.array_equal(mine[name], alone[name][piece(space)]), name
