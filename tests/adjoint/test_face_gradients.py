"""Gradients of integrals over faces between elements, beside differences of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Sensitivity, moved
from support.cases.differences import difference_along
from support.cases.meshes import bend, scrambled_box
from support.cuda import guarded
from support.oracles.interior import Oracle, Two

device = guarded.small_device
DIMENSIONS = [2, *(pytest.param(d, marks=pytest.mark.exhaustive) for d in (1, 3))]


def first(w: Any, n: Any) -> Any:
    """The product of a vector and the normal; in 1-D a vector is a number."""
    return w @ n if np.ndim(w) else w * n[0]


def flux(u: Any, n: Any, h: Any, x: Any, k: Any, w: Any, a: Any, b: Any) -> Any:
    """Uses each part of its arguments, and is nonlinear in each but u's gradient."""
    return {
        "jump": a * k.mean**2 / h.mean * u.jump * np.sin(x[0] + u.mean) - u.mean.grad @ n,
        "mean": {"grad": -u.jump * n * (1.0 + b[0] * first(w.mean, n))},
        "plus": u.plus * k.plus * h.plus,
    }


def goal(u: Any, n: Any, h: Any, x: Any, k: Any, w: Any, a: Any, b: Any) -> Any:
    slope = first(w.minus, n) * (u.plus.grad @ n)
    return a * u.jump**2 / h.minus + k.plus * slope * b[-1] + np.sin(u.mean * x[0])


def inside(u: Any, k: Any) -> Any:
    return {"value": u + k * u**3, "grad": u.grad}


class Case:
    """A goal and a residual on bent elements, values of their controls, and changes of these."""

    def __init__(self, dim: int, where: Any = None) -> None:
        self.dim, self.where, rng = dim, where, np.random.default_rng(dim)
        box = femops.box((3, 2, 2)[:dim])
        nodes = femops.H1(box, 2, ncomp=dim)
        self.mesh = moved(nodes, 0.03 * rng.standard_normal(nodes.size))
        self.nodes = femops.H1(self.mesh, 2, ncomp=dim)
        sizes = {"k": femops.H1(self.mesh, 1).size, "w": femops.L2(self.mesh, 1, ncomp=dim).size}
        shapes: dict[str, Any] = sizes | {"a": (), "b": dim}
        self.point = {name: 1.5 + 0.3 * rng.standard_normal(s) for name, s in shapes.items()}
        self.along = {name: rng.standard_normal(s) for name, s in shapes.items()}
        self.point["mesh"] = self.nodes.zeros()
        self.along["mesh"] = 0.05 * rng.standard_normal(self.nodes.size)
        self.u, self.v = 0.5 * rng.standard_normal((2, femops.L2(self.mesh, 2).size))

    def made(self, point: dict[str, Any]) -> tuple[Any, Any]:
        """Goal and residual at values of the controls."""
        mesh, where = moved(self.nodes, point["mesh"]), self.where
        V = femops.L2(mesh, 2, device=where)
        k = femops.GridFunction(femops.H1(mesh, 1), point["k"])
        w = femops.GridFunction(femops.L2(mesh, 1, ncomp=self.dim), point["w"])
        given: dict[str, Any] = {"k": k, "w": w, "a": float(point["a"]), "b": point["b"]}
        options: dict[str, Any] = {"faces": "interior", "quadrature": 3}
        F = femops.residual(flux, V, **given, **options)
        F = F + femops.residual(inside, V, k=k, quadrature=3)
        return femops.functional(goal, V, **given, **options), F


def flat(slopes: Any) -> Any:
    return np.concatenate([np.ravel(value) for value in slopes.values()])


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_goals(dim: int) -> None:
    case = Case(dim)

    def found(point: Any) -> Any:
        return femops.gradient(case.made(point)[0], u=case.u, wrt=[*case.point])

    slopes = found(case.point)
    for name in case.point:
        step = {name: case.along[name]}
        expected = difference_along(lambda p: case.made(p)[0](case.u), case.point, step)
        scale = np.sum(abs(slopes[name] * step[name]))
        assert np.sum(slopes[name] * step[name]) == pytest.approx(expected, abs=1e-6 * scale), name
    if dim < 3:
        turned = flat(slopes.hessian_product(case.along))
        expected = difference_along(lambda p: flat(found(p)), case.point, case.along)
        assert turned == pytest.approx(expected, abs=1e-6 * abs(turned).max())


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_residuals(dim: int) -> None:
    case = Case(dim)
    F = case.made(case.point)[1]
    for name, step in case.along.items():
        S = Sensitivity(F, case.u, name)
        made, back = S @ step, S.T @ case.v
        expected = difference_along(
            lambda p: case.made(p)[1].residual(case.u), case.point, {name: step}
        )
        assert made == pytest.approx(expected, abs=1e-6 * abs(made).max()), name
        scale = abs(made) @ abs(case.v)
        assert np.sum(back * step) == pytest.approx(case.v @ made, abs=1e-13 * scale), name


def kinks(u: Any, w: Any, n: Any, h: Any, x: Any, k: Any, a: Any) -> Any:
    """The flux of Lax and Friedrichs between fields that jump, with a coefficient that jumps."""
    speed = np.maximum(a * abs(u.minus.value), abs(w.plus.value @ n))
    flux = k.plus * u.mean.value**2 + k.jump**2 * abs(w.jump.value @ n)
    return (flux - 0.5 * speed * u.jump.value) * u.jump.value * x[0] / h.minus


@pytest.mark.parametrize("counts", [(2, 2), pytest.param((2, 1, 2), marks=pytest.mark.exhaustive)])
def test_kinks_of_coupled_fields(counts: tuple[int, ...]) -> None:
    """Beside differences of sums over points that share no code with femops."""
    mesh, rng = scrambled_box(counts, 7, bend, 2), np.random.default_rng(5)
    nodes = femops.H1(mesh, 2, ncomp=mesh.dim)

    def fields(mesh: Any) -> Any:
        return femops.L2(mesh, 1), femops.L2(mesh, 1, ncomp=mesh.dim), femops.L2(mesh, 0)

    V, W, K = fields(mesh)
    sizes: dict[str, Any] = {"k": K.size, "a": (), "mesh": nodes.size, "state": V.size + W.size}
    point = {name: 1.0 + 0.5 * rng.standard_normal(size) for name, size in sizes.items()}
    along = {name: rng.standard_normal(size) for name, size in sizes.items()}
    point["mesh"], along["mesh"] = nodes.zeros(), 0.1 * along["mesh"]

    def value(p: dict[str, Any]) -> float:
        v, w, k = fields(moved(nodes, p["mesh"]))

        def of_oracle(at: Any) -> Any:
            return Two(*(p["k"][k.restriction.indices[side.element, 0]] for side in at.sides))

        def named(u: Any, w: Any, n: Any, h: Any, x: Any, k: Any, a: Any) -> Any:
            return {"goal": kinks(u, w, n, h, x, k, a)}

        given = {"k": of_oracle, "a": lambda _: float(p["a"])}
        spaces = {"u": v, "w": w}
        return Oracle(named, spaces, spaces, 4, given).functional(p["state"], "goal")[0]

    k = femops.GridFunction(K, point["k"])
    given: dict[str, Any] = {"k": k, "a": float(point["a"]), "faces": "interior", "quadrature": 4}
    G = femops.functional(kinks, femops.Product(u=V, w=W), **given)
    assert G(point["state"]) == pytest.approx(value(point), rel=1e-12)
    slopes = {**femops.gradient(G, u=point["state"], wrt=["k", "a", "mesh"])}
    slopes["state"] = G.derivative.residual(point["state"])
    for name, slope in slopes.items():
        expected = difference_along(value, point, {name: along[name]}, 1e-4)
        scale = np.sum(abs(slope * along[name]))
        assert np.sum(slope * along[name]) == pytest.approx(expected, abs=1e-8 * scale), name


def test_a_device_has_the_gradients_of_the_host(device: Any) -> None:
    host, there = Case(2), Case(2, device)
    own = femops.gradient(host.made(host.point)[0], u=host.u, wrt=[*host.point])
    G = there.made(there.point)[0]
    other = femops.gradient(G, u=G.space.memory.put(there.u), wrt=[*there.point])
    for name, value in own.items():
        found = np.asarray(getattr(other[name], "get", lambda v=other[name]: v)())
        assert found == pytest.approx(value, abs=1e-12 * abs(value).max()), name


def test_a_design_of_interior_penalty() -> None:
    """The state solves an equation with jumps: the penalty depends on the conductivity, too."""
    V = femops.L2(femops.box((4, 4)).mapped(lambda x: (x[0], x[1] + 0.1 * x[0] ** 2), 2), 2)
    K = femops.L2(V.mesh, 0)
    kappa = K.interpolate(lambda x: 1.0 + x[0])
    A = femops.interior_penalty(V, femops.GridFunction(K, kappa))
    b = femops.load(V, 1.0)
    jumps = femops.functional(lambda u: u.jump**2 + u.mean, V, faces="interior")

    def value(point: dict[str, Any]) -> Any:
        B = A.update(kappa=femops.GridFunction(K, point["kappa"]))
        return jumps(femops.cg(B, b, M=femops.jacobi(B), rtol=1e-13)[0])

    u, _ = femops.cg(A, b, M=femops.jacobi(A), rtol=1e-13)
    slope = femops.gradient(jumps, A, u, "kappa", rtol=1e-12)["kappa"]
    step = np.random.default_rng(0).standard_normal(K.size)
    expected = difference_along(value, {"kappa": kappa}, {"kappa": step})
    assert slope @ step == pytest.approx(expected, rel=1e-7)
