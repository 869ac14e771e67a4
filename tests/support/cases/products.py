"""Forms on several fields: what operators on products are tried on, and the oracle's matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

import femops
from support.cases.kernels import bend, smooth, turned
from support.oracles.forms import FormOracle, Nodal, PlainField
from support.oracles.naive import Array

LEVELS = ("full", "element", "partial", "matrix-free")
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}

# --- forms ----------------------------------------------------------------------------------------


def stokes(u: Any, p: Any, mu: Any) -> Any:
    return {"u": {"grad": mu * u.grad - p * np.eye(len(u))}, "p": {"value": -u.div}}


def thermo_elasticity(u: Any, t: Any, mu: Any, alpha: Any, beta: Any) -> Any:
    eye = np.eye(len(u))
    return {
        "u": {"grad": 1.3 * u.div * eye + 2 * mu * u.sym_grad - alpha * t * eye},
        "t": {"value": t.grad @ beta + 0.5 * t, "grad": alpha * t.grad},
    }


def three(u: Any, p: Any, t: Any, x: Any, c: Any, rate: Any) -> Any:
    return {
        "t": {"grad": c * t.grad + rate * p * x, "value": u[0] * np.exp(-c)},
        "u": {"grad": u.grad - p * np.eye(2), "value": t.value * x},
        "p": {"value": -u.div - 0.1 * p},
    }


def waves(real: Any, imag: Any, k: Any, loss: Any) -> Any:
    """Helmholtz' equation, real and imaginary part in one space."""
    return {
        "real": {"grad": real.grad, "value": -(k**2) * real - loss * imag},
        "imag": {"grad": -imag.grad, "value": k**2 * imag - loss * real},
    }


def transport(a: Any, b: Any, speed: Any) -> Any:
    """A row without anything and a column without anything."""
    return {"a": {"value": a.grad @ speed}, "b": {}}


# --- cases ----------------------------------------------------------------------------------------

Spec = tuple[str, int, int]


@final
@dataclass(frozen=True)
class Case:
    """A form on fields; spaces by family, order and components."""

    name: str
    function: Callable[..., Any]
    mesh: str
    spaces: dict[str, Spec]
    given: dict[str, Any] = field(default_factory=dict)
    missing: tuple[tuple[str, str], ...] = ()
    symmetric: bool = False
    levels: tuple[str, ...] = ("full", "partial")
    dtype: str = "float64"
    lanes: int | None = None

    def __str__(self) -> str:
        return self.name

    def product(self, **where: Any) -> femops.Product:
        """The spaces; on the device that ``where`` names."""
        mesh = make_mesh(self.mesh)
        made: dict[Spec, Any] = {}
        for spec in self.spaces.values():
            kind, order, ncomp = spec
            if kind == "l2":
                made.setdefault(spec, femops.L2(mesh, order, ncomp=ncomp, **where))
            else:
                made.setdefault(spec, femops.H1(mesh, order, ncomp, kind, **where))
        return femops.Product(**{name: made[spec] for name, spec in self.spaces.items()})

    def build(self, device: Any = None, **options: Any) -> tuple[femops.Product, Any, Array]:
        """The product, the operator, and the matrix by the oracle."""
        product = self.product(device=device)
        lanes = None if device else self.lanes  # a device has none
        options = {"dtype": self.dtype, "lanes": lanes} | options
        ours, plain = dict(self.given), dict(self.given)
        for name, value in self.given.items():
            if value is INTERPOLATED:
                space = femops.H1(product.mesh, 2)
                ours[name] = femops.GridFunction(space, space.interpolate(smooth))
                plain[name] = oracle_of(product, *product.names[:2]).field(
                    Nodal.of(space), ours[name].vector
                )
        operator = femops.form(self.function, product, **ours, **options)
        return product, operator, dense(product, self.function, plain)


INTERPOLATED = object()


def make_mesh(kind: str) -> femops.Mesh:
    """Small curved meshes, their elements shuffled and turned."""
    if kind == "disc":
        return turned(femops.disc(1))
    if kind == "ball":
        return turned(femops.ball(1, order=2))
    counts = {"line": (5,), "square": (3, 2), "cube": (2, 1, 1)}[kind]
    return turned(femops.box(counts, order=3, mapping=bend))


def oracle_of(product: femops.Product, test: str, trial: str) -> Any:
    q1d = max(space.order for space in product.spaces.values()) + 2
    return FormOracle.of(product.spaces[trial], product.spaces[test], q1d=q1d)


def nothing(space: Any) -> PlainField:
    shape = () if space.ncomp == 1 else (space.ncomp,)
    return PlainField.of(np.zeros(shape), np.zeros((*shape, space.dim)))


def dense(product: femops.Product, function: Callable[..., Any], given: dict[str, Any]) -> Array:
    """All blocks, each by the oracle with the other fields zero."""
    code = function.__code__
    takes_x = "x" in code.co_varnames[: code.co_argcount]

    def block(test: str, trial: str) -> Array:
        def alone(u: Any, x: Any, **coefficients: Any) -> Any:
            fields = [u if n == trial else nothing(s) for n, s in product.spaces.items()]
            return function(*fields, **({"x": x} if takes_x else {}), **coefficients)[test]

        return oracle_of(product, test, trial).matrix(alone, **given).matrix

    return np.block([[block(v, u) for u in product.names] for v in product.names])


H, L, B = "gll", "l2", "bernstein"
MIXED = (("t", "u"), ("u", "t"))
CASES = [
    Case(
        "stokes-2d",
        stokes,
        "disc",
        {"u": (H, 3, 2), "p": (H, 2, 1)},
        {"mu": smooth},
        (("p", "p"),),
        symmetric=True,
        levels=tuple(LEVELS),
    ),
    Case(
        "stokes-3d-ball",
        stokes,
        "ball",
        {"u": (H, 2, 3), "p": (L, 0, 1)},
        {"mu": 0.7},
        (("p", "p"),),
        symmetric=True,
        levels=("element",),
        lanes=2,
    ),
    Case(
        "thermo-elasticity-2d",
        thermo_elasticity,
        "disc",
        {"u": (H, 2, 2), "t": (H, 3, 1)},
        {"mu": INTERPOLATED, "alpha": smooth, "beta": np.array([0.4, -1.2])},
        (("t", "u"),),
    ),
    Case(
        "thermo-elasticity-3d-single",
        thermo_elasticity,
        "cube",
        {"u": (H, 1, 3), "t": (H, 2, 1)},
        {"mu": 0.6, "alpha": smooth, "beta": np.array([0.4, -1.2, 0.1])},
        (("t", "u"),),
        levels=("full",),
        dtype="float32",
    ),
    Case(
        "three-fields-2d",
        three,
        "square",
        {"u": (H, 2, 2), "p": (L, 1, 1), "t": (B, 3, 1)},
        {"c": smooth, "rate": INTERPOLATED},
        (("p", "t"),),
        levels=("full", "element"),
    ),
    Case(
        "one-space-twice-1d",
        waves,
        "line",
        {"real": (H, 4, 1), "imag": (H, 4, 1)},
        {"k": 3.0, "loss": smooth},
        symmetric=True,
    ),
    Case(
        "an-empty-row-2d",
        transport,
        "square",
        {"a": (H, 2, 1), "b": (H, 1, 1)},
        {"speed": np.array([1.0, 0.5])},
        (("a", "b"), ("b", "a"), ("b", "b")),
    ),
]
STOKES = CASES[0]


def vector(size: int, dtype: str = "float64", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


def error(matrix: Array, result: Array, x: Array) -> float:
    difference = np.asarray(result, float) - matrix @ np.asarray(x, float)
    return float(np.linalg.norm(difference) / np.linalg.norm(abs(matrix) @ abs(x)))


def held(matrix: Array, dofs: Array, identity: float = 1.0) -> Array:
    matrix = matrix.copy()
    matrix[dofs], matrix[:, dofs] = 0.0, 0.0
    matrix[dofs, dofs] = identity
    return matrix
