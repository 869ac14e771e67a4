"""Forms given as functions, and cases of them with their oracles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

import femops
from support.cases.kernels import bend, smooth, turned
from support.cases.levels import skewed, wind
from support.oracles.forms import Dense, FormOracle, Nodal
from support.oracles.naive import Array

# --- coefficients ---------------------------------------------------------------------------------


def swing(x: Array) -> Array:
    """A scalar that takes both signs."""
    return np.sin(5 * x[0] + 2) + 0.1


@final
@dataclass(frozen=True)
class AsArray:
    """A function to be given as an array at the quadrature points."""

    function: Callable[[Array], Array]


@final
@dataclass(frozen=True)
class AsField:
    """A function to be given as a field: interpolated in a space of some order and components."""

    function: Callable[[Array], Array]
    order: int
    ncomp: int = 1


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


def vector_diffusion(u: Any, kappa: Any) -> Any:
    return {"grad": u.grad @ kappa.T}


def elasticity(u: Any, lam: Any, mu: Any) -> Any:
    return {"grad": lam * u.div * np.eye(len(u.grad)) + 2 * mu * u.sym_grad}


def divergence(u: Any) -> Any:
    return {"value": u.div}


def slope(u: Any, c: Any) -> Any:
    return {"value": c * u.grad[0]}


def gradient(q: Any) -> Any:
    return {"value": q.grad}


def curl_curl(u: Any, nu: Any) -> Any:
    """The product of the curls is half the product of the antisymmetric parts."""
    return {"value": 0.5 * u, "grad": nu * (u.grad - u.grad.T)}


def reaction(u: Any, x: Any, c: Any, d: Any) -> Any:
    rate = np.exp(-c) + np.sqrt(d + x[0] ** 2) + femops.minimum(c, d)
    return {"value": femops.where(c > d, rate, 2.0 + rate) * u}


def plain_reaction(u: Any, x: Any, c: Any, d: Any) -> Any:
    rate = np.exp(-c) + np.sqrt(d + x[0] ** 2) + min(c, d)
    return {"value": (rate if c > d else 2.0 + rate) * u}


def zero_value(u: Any, kappa: Any) -> Any:
    return {"value": 0.0, "grad": kappa * u.grad}


def zero_flux(u: Any, rho: Any) -> Any:
    return {"value": rho * u, "grad": np.zeros(2)}


def one_direction(u: Any, kappa: Any) -> Any:
    return {"grad": [kappa * u.grad[0], 0.0]}


def halved(u: Any, x: Any) -> Any:
    """Its derivatives choose between numbers, some of which a division makes."""
    flow = u * np.array([femops.where(x[1] > 0.2, 2.0 / 3.0, 4.0), 0.0])
    return {"value": femops.where(x[0] > 0.5, u / 3.0, u) + u.grad[0], "grad": u.grad + flow}


# --- cases ----------------------------------------------------------------------------------------


def make_mesh(kind: str, dim: int) -> femops.Mesh:
    """A small curved mesh, its elements shuffled and turned."""
    if kind == "unstructured":
        return turned(femops.disc(1) if dim == 2 else femops.ball(1, order=2))
    counts = {1: (5,), 2: (3, 2), 3: (2, 1, 1)}[dim]
    return turned(femops.box(counts, order=3, mapping=bend))


Spec = tuple[str, int, int]


def make_space(mesh: femops.Mesh, spec: Spec) -> Any:
    """A space from family, order and components."""
    kind, order, ncomp = spec
    if kind == "l2":
        return femops.L2(mesh, order, ncomp=ncomp)
    return femops.H1(mesh, order, ncomp=ncomp, family=kind)


@final
@dataclass(frozen=True)
class Case:
    """A form on a mesh between two spaces."""

    name: str
    function: Callable[..., Any]
    dim: int
    trial: Spec
    test: Spec | None = None
    mesh: str = "box"
    given: dict[str, Any] = field(default_factory=dict)
    plain: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def spaces(self) -> tuple[Any, Any]:
        """Trial and test space; one and the same if there is no other."""
        mesh = make_mesh(self.mesh, self.dim)
        trial = make_space(mesh, self.trial)
        return trial, trial if self.test is None else make_space(mesh, self.test)


def build(case: Case, trial: Any, test: Any) -> tuple[Any, Dense]:
    """The operator of a case and its dense matrix."""
    oracle = FormOracle.of(trial, test)
    given, plain = dict(case.given), dict(case.given)
    for name, what in case.given.items():
        if isinstance(what, AsArray):
            plain[name] = oracle.at_points(what.function)
            given[name] = plain[name].values
        elif isinstance(what, AsField):
            space = femops.H1(trial.mesh, what.order, ncomp=what.ncomp)
            vector = space.interpolate(what.function)
            plain[name] = oracle.field(Nodal.of(space), vector)
            given[name] = femops.GridFunction(space, vector)
    dense = oracle.matrix(case.plain or case.function, **plain)
    return femops.form(case.function, trial, test, **case.options, **given), dense


H, L = "gll", "l2"
CONSTANT = np.array([[2.0, 0.5], [-0.3, 1.0]])
TURNED = "unstructured"

CASES = {
    case.name: case
    for case in (
        Case("convection", convection, 2, (H, 3, 1), None, TURNED, {"beta": wind}),
        Case("vector-skewed", vector_diffusion, 2, (H, 2, 2), given={"kappa": AsArray(skewed)}),
        Case("slope-1d", slope, 1, (H, 4, 1), (L, 3, 1), given={"c": smooth}),
        Case("divergence", divergence, 2, (H, 3, 2), (L, 2, 1), TURNED),
        Case("gradient", gradient, 2, (H, 1, 1), ("bernstein", 4, 2), TURNED),
        Case("curl-curl", curl_curl, 2, (H, 3, 2), None, TURNED, {"nu": smooth}),
        Case(
            "reaction",
            reaction,
            2,
            (H, 3, 1),
            None,
            TURNED,
            {"c": swing, "d": smooth},
            plain=plain_reaction,
        ),
        Case("zero-value", zero_value, 2, (H, 3, 1), given={"kappa": smooth}),
        Case("zero-flux", zero_flux, 2, (H, 3, 1), given={"rho": AsField(smooth, 2)}),
        Case("one-direction", one_direction, 2, (H, 3, 1), given={"kappa": smooth}),
    )
}
SYMMETRIC = {"curl-curl", "reaction", "zero-value", "zero-flux", "one-direction"}
