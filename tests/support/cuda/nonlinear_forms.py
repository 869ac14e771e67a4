"""Nonlinear forms that devices are tried on: of a device, or None for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import femops
from support.cases.kernels import bend, smooth, turned

Make = Callable[[Any], Any]


def curved(dim: int) -> Any:
    return turned(femops.box((5, 3, 2)[:dim], order=2, mapping=bend))


def space(device: Any, dim: int, order: int = 2, **options: Any) -> Any:
    return femops.H1(curved(dim), order, device=device, **options)


def by_element(mesh: Any) -> Any:
    return femops.GridFunction(femops.L2(mesh, 0), 1.0 + np.arange(mesh.num_elements))


def state(F: Any, seed: int = 1) -> Any:
    """Small for materials, lest their elements turn over."""
    size = 0.005 if getattr(F.space, "ncomp", 1) > 1 else 0.5
    return (size * np.random.default_rng(seed).standard_normal(F.space.size)).astype(F.dtype)


# --- one field ------------------------------------------------------------------------------------


def laplacian(dim: int, order: int, **options: Any) -> Make:
    return lambda device: femops.p_laplacian(space(device, dim, order), 3.5, 0.2, **options)


def affine(device: Any) -> Any:
    """What is kept are numbers of elements."""
    return femops.p_laplacian(femops.H1(femops.box((3, 2)), 3, device=device), 3.5, 0.2)


def material(dim: int, lam: Any = 1.3, dtype: str = "float64", **options: Any) -> Make:
    def form(device: Any) -> Any:
        return femops.neo_hookean(space(device, dim, ncomp=dim, **options), lam, 0.7, dtype=dtype)

    return form


def source(u: Any, x: Any, k: Any) -> Any:
    """Functions of x that the kernel computes itself, and a division."""
    return {"value": np.sqrt(1 + x[0]) * u.value**3 / k, "grad": np.exp(k) * (1 + u * u) * u.grad}


def sourced(dim: int, k: Any, **options: Any) -> Make:
    def form(device: Any) -> Any:
        V = space(device, dim)
        return femops.residual(source, V, k=k(V.mesh) if k is by_element else k, **options)

    return form


def discontinuous(device: Any) -> Any:
    return femops.residual(source, femops.L2(curved(2), 0, device=device), k=2.0)


def linear(device: Any) -> Any:
    """Nothing of a state is kept for its derivative."""
    return femops.residual(lambda u: {"value": u.value, "grad": 2.0 * u.grad}, space(device, 2))


def bends(device: Any) -> Any:
    """Something of a state is kept beside numbers that it has no part in."""

    def form(u: Any, c: Any) -> Any:
        return {"value": u.value**2, "grad": c * u.grad}

    return femops.residual(form, space(device, 2), c=smooth)


# --- several fields -------------------------------------------------------------------------------


def flow(v: Any, p: Any, nu: Any) -> Any:
    """Navier and Stokes."""
    stress = nu * v.grad - p.value * np.eye(len(v))
    return {"v": {"value": v.grad @ v.value, "grad": stress}, "p": {"value": v.div}}


def of_flow(dim: int, nu: Any, reproducible: bool = False, **options: Any) -> Make:
    def form(device: Any) -> Any:
        V = space(device, dim, 2, ncomp=dim, reproducible=reproducible)
        W = femops.Product(v=V, p=femops.H1(V.mesh, 1, device=device))
        F = femops.residual(flow, W, nu=nu, **options)
        return F.constrained(W.positions(v=V.boundary_dofs()))

    return form


FUNCTIONALS: dict[str, Any] = {"integrals": ["work"], "minima": ["least", "stretch"]}


def three(v: Any, e: Any, p: Any, x: Any, kappa: Any) -> Any:
    """Some blocks of the derivative depend on all fields, one on none, some are zero."""
    speed = np.atleast_1d(v.value)[0]
    return {
        "v": {"grad": (1 + p * p) * (e * v.grad), "value": v.value * np.exp(-p)},
        "e": {"value": kappa * e + np.sqrt(1 + p * p)},
        "p": {"grad": (1 + x[0] ** 2) * p.grad, "value": speed * e},
        "work": speed * e,
        "least": e * e - kappa + x[0],
        "stretch": femops.svd_min(np.atleast_2d(v.grad)),
    }


def of_three(dim: int, orders: tuple[int, int, int], **options: Any) -> Make:
    def form(device: Any) -> Any:
        V = space(device, dim, orders[0], ncomp=dim)
        E = femops.L2(V.mesh, orders[1], device=device)
        P = femops.H1(V.mesh, orders[2], family="bernstein", device=device)
        W = femops.Product(v=V, e=E, p=P)
        given = {"quadrature": max(orders) + 2, "kappa": smooth} | options
        F = femops.residual(three, W, **FUNCTIONALS, **given)
        return F.constrained(W.positions(p=P.boundary_dofs(1)))

    return form


def one_test_function(device: Any) -> Any:
    """It is not the first; two fields of one space, and one that is not tested at all."""
    mesh = turned(femops.disc(1))
    V, Q = femops.H1(mesh, 3, device=device), femops.H1(mesh, 2, device=device)
    W = femops.Product(u=V, v=V, p=Q)

    def product(u: Any, v: Any, p: Any) -> Any:
        return {"v": {"grad": u.grad * p, "value": u * v}}

    return femops.residual(product, W).constrained(W.positions(v=V.boundary_dofs()))


def functionals_alone(device: Any) -> Any:
    """No test function; at the nodes of the first field, where nothing is interpolated."""
    mesh = curved(2)
    W = femops.Product(v=femops.H1(mesh, 2, device=device), e=femops.L2(mesh, 2, device=device))

    def size(v: Any, e: Any, x: Any) -> Any:
        return {"area": v.value * 0 + 1, "energy": v * e * x[0], "least": v.value}

    names: Any = {"integrals": ["area", "energy"], "minima": ["least"]}
    return femops.residual(size, W, quadrature=femops.basis.lobatto(3), **names)


FORMS: dict[str, tuple[int, Make]] = {  # and how many numbers of functions the host evaluates
    "line": (0, laplacian(1, 3)),
    "plane": (0, laplacian(2, 2)),
    "space": (0, laplacian(3, 2)),
    "affine": (0, affine),
    "plane, material": (0, material(2)),
    "space, material": (1, material(3, smooth)),
    "reproducible material": (0, material(3, reproducible=True)),
    "single material": (1, material(3, smooth, "float32")),
    "functions of x": (0, sourced(2, 2.0)),
    "by element": (0, sourced(3, by_element)),
    "a function": (2, sourced(2, smooth)),
    "order 0": (0, discontinuous),
    "single": (0, laplacian(3, 2, dtype="float32")),
    "linear": (0, linear),
    "bends": (1, bends),
    "flow": (0, of_flow(2, 0.1)),
    "flow in space": (1, of_flow(3, smooth)),
    "single flow": (0, of_flow(2, 0.1, dtype="float32")),
    "reproducible flow": (0, of_flow(2, 0.1, reproducible=True)),
    "three on a line": (1, of_three(1, (3, 1, 2))),
    "three in the plane": (1, of_three(2, (2, 1, 1))),
    "three in space": (0, of_three(3, (2, 1, 1), kappa=0.5)),
    "constants": (1, of_three(2, (1, 0, 2))),
    "single three": (1, of_three(2, (2, 1, 2), dtype="float32")),
    "one test function": (0, one_test_function),
    "functionals alone": (0, functionals_alone),
}
