"""Forms on a device beside the same on the host, on small meshes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops import eigh_sym, forms, svd_min
from femops.bench.gpu.run import relative_difference
from femops.operators import Operator
from femops.solvers import cg, jacobi, multigrid
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.product import Product
from femops_kernels.device import Device
from femops_meshes import Mesh, box
from femops_meshes.generators.curved_domains import ball, disc
from support.simplex_meshes import curved


def _rough(x: NDArray[np.float64]) -> NDArray[Any]:
    return np.asarray(1.0 + x[0] ** 2 + 0.1 * np.sin(3.0 * x[-1]))


@final
@dataclass(frozen=True)
class Site:
    """A mesh, and where to compute on it: a device, or the host for None."""

    mesh: Mesh
    device: Device | None

    @cached_property
    def V(self) -> H1:
        """Space of numbers."""
        return H1(self.mesh, 2, device=self.device)

    @cached_property
    def W(self) -> H1:
        """Space of vectors."""
        return H1(self.mesh, 2, self.mesh.dim, device=self.device)

    @property
    def wind(self) -> NDArray[np.float64]:
        """A direction."""
        return np.arange(1.0, self.mesh.dim + 1)

    @property
    def pair(self) -> tuple[H1, H1]:
        """Spaces of vectors, and of numbers of a lower order."""
        return self.W, H1(self.mesh, 1, device=self.device)

    def values(self, name: str) -> list[NDArray[Any]]:
        """Results of one of `FORMS`, on the host."""
        found = FORMS[name](self)
        return found if self.device is None else [self.device.download(x) for x in found]

    def random(self, size: int, seed: int, dtype: Any = np.float64) -> Any:
        """A random vector."""
        vector = np.random.default_rng(seed).standard_normal(size).astype(dtype)
        return vector if self.device is None else self.device.upload(vector)

    def results(self, *operators: Operator) -> list[Any]:
        """Each applied to a random vector."""
        sizes = [A.shape[1] for A in operators]
        return [A.apply(self.random(n, n, A.dtype)) for A, n in zip(operators, sizes, strict=True)]


def _constrained(s: Site) -> list[Any]:
    A = forms.diffusion(s.V).constrained(s.V.boundary_dofs())
    return [*s.results(A), A.rhs(s.random(s.V.size, 1), 1.5), A.diagonal()]


def _own(s: Site) -> list[Any]:
    def function(u: Any, a: Any) -> dict[str, Any]:
        return {"value": np.exp(-a) * u, "grad": np.sqrt(a) * u.grad}

    return s.results(forms.form(function, s.V, a=_rough))


def _rooted(s: Site) -> list[Any]:
    """By the square root of a tensor and its least singular value, formed on the way."""

    def function(u: Any, x: Any) -> dict[str, Any]:
        n = len(x)
        S = np.array([[x[i] * x[j] + (1.0 + i) * (i == j) for j in range(n)] for i in range(n)])
        values, vectors = eigh_sym(S)
        root = sum(
            np.sqrt(value) * np.array([[a * b for b in column] for a in column])
            for value, column in zip(values, vectors.T, strict=True)
        )
        return {"grad": svd_min(S) * (root @ u.grad)}

    return s.results(forms.form(function, s.V, level="matrix-free"))


def _stokes(s: Site) -> list[Any]:
    def function(u: Any, p: Any, mu: Any) -> dict[str, Any]:
        pressure = p * np.eye(s.mesh.dim)
        return {"u": {"grad": mu * u.grad - pressure}, "p": {"value": -u.div}}

    u, p = s.pair
    return s.results(forms.form(function, Product(u=u, p=p), mu=0.1))


def _coupled(s: Site) -> list[Any]:
    """A form on fields of different spaces, constrained, with functionals."""

    def function(u: Any, p: Any, x: Any) -> dict[str, Any]:
        slopes = (1.0 + x[0]) * p * u.grad
        result = {"u": {"grad": slopes, "value": u.value * p}, "p": {"value": u.div * p**2}}
        return result | {"e": p, "least": p}

    pair = Product(u=s.W, p=L2(s.mesh, 1, device=s.device))
    F = forms.residual(function, pair, integrals=["e"], minima=["least"])
    F = F.constrained(s.W.boundary_dofs())
    state = s.random(pair.size, 5)
    residual, found = F.evaluate(state)
    assert np.isnan(F.evaluate(np.nan * state)[1]["least"])  # of what is no number, too
    numbers = np.array([found["e"], found["least"]])
    there = numbers if s.device is None else s.device.upload(numbers)
    return [residual, there, F.jacobian(state).apply(state)]


def _nonlinear(s: Site, form: Any, space: H1 | L2) -> list[Any]:
    at = 0.02 * s.random(space.size, 7)
    J = form.jacobian(at)
    return [form.residual(at), *s.results(J), J.diagonal()]


def _system(s: Site, order: int) -> tuple[Operator, Any]:
    V = H1(s.mesh, order, device=s.device)
    A = forms.diffusion(V, _rough).constrained(V.boundary_dofs())
    return A, s.random(V.size, 3)


def _solved(s: Site) -> list[Any]:
    """A few iterations, of which none is the last."""
    A, b = _system(s, 2)
    return [cg(A, b, rtol=0.0, maxiter=5, M=M, warn=False)[0] for M in (None, jacobi(A))]


def _cycles(s: Site) -> list[Any]:
    """Three orders; cycles are repeated from the third on."""
    A, b = _system(s, 3)
    M = multigrid(A, dtype="float64")
    return [cg(A, b, rtol=0.0, maxiter=3, M=M, warn=False)[0]]


def _nitsche(s: Site) -> list[Any]:
    """Over the boundary, of derivatives."""

    def function(u: Any, n: Any, h: Any) -> dict[str, Any]:
        return {"value": 40.0 * u / h - u.grad @ n, "grad": -u * n}

    A = forms.form(function, s.V, boundary="all")
    return [*s.results(A), A.diagonal()]


def _drag(s: Site) -> list[Any]:
    """The derivatives of a functional of values and derivatives on the boundary."""

    def function(u: Any, n: Any) -> Any:
        return u**2 * (u.grad @ n)

    space = L2(s.mesh, 1, device=s.device)
    return _nonlinear(s, forms.functional(function, space, boundary="all").derivative, space)


def _penalty(s: Site) -> list[Any]:
    """Over faces between elements: both sides, derivatives, and prescribed values."""
    V = L2(s.mesh, 2, device=s.device)
    A = forms.interior_penalty(V, _rough)
    return [*s.results(A), A.diagonal(), forms.dirichlet_load(V, _rough)]


def _elastic(s: Site) -> list[Any]:
    V = L2(s.mesh, 1, s.mesh.dim, device=s.device)
    return s.results(forms.elastic_interior_penalty(V, 1.0, 2.0))


def _burgers(s: Site) -> list[Any]:
    """Values on faces alone, not linear, of a basis with nodes there."""

    def flux(u: Any, n: Any) -> dict[str, Any]:
        return {"jump": (u.minus**2 + u.minus * u.plus + u.plus**2) * n[0] + abs(u.mean) * u.jump}

    V = L2(s.mesh, 2, family="gll", device=s.device)
    return _nonlinear(s, forms.residual(flux, V, faces="interior"), V)


def _reproducible(s: Site) -> list[Any]:
    V = H1(s.mesh, 2, device=s.device, reproducible=s.device is not None)
    return s.results(forms.diffusion(V))


FORMS: dict[str, Callable[[Site], list[Any]]] = {
    "mass": lambda s: s.results(forms.mass(s.V)),
    "mass, none": lambda s: s.results(forms.mass(s.V, level="matrix-free")),
    "mass, L2": lambda s: s.results(forms.mass(L2(s.mesh, 1, device=s.device))),
    "diffusion": lambda s: s.results(forms.diffusion(s.V, _rough)),
    "diffusion, none": lambda s: s.results(forms.diffusion(s.V, level="matrix-free")),
    "diffusion, constrained": _constrained,
    "diffusion, float32": lambda s: s.results(forms.diffusion(s.V, dtype="float32")),
    "diffusion, reproducible": _reproducible,
    "helmholtz": lambda s: s.results(forms.helmholtz(s.V, 2.0)),
    "convection": lambda s: s.results(forms.convection(s.V, s.wind)),
    "convection, transposed": lambda s: s.results(forms.convection(s.V, s.wind).T),
    "elasticity": lambda s: s.results(forms.elasticity(s.W, 1.0, 2.0)),
    "divergence": lambda s: s.results(forms.divergence(*s.pair)),
    "divergence, transposed": lambda s: s.results(forms.divergence(*s.pair).T),
    "boundary_mass": lambda s: s.results(forms.boundary_mass(s.V, _rough)),
    "boundary form of derivatives": _nitsche,
    "boundary functional of an L2 space": _drag,
    "interior_penalty, dirichlet_load": _penalty,
    "elastic_interior_penalty": _elastic,
    "residual over faces between elements": _burgers,
    "upwind_convection": lambda s: s.results(
        forms.upwind_convection(L2(s.mesh, 2, device=s.device), s.wind)
    ),
    "form": _own,
    "form by eigenvectors": _rooted,
    "form of two fields": _stokes,
    "residual of two fields": _coupled,
    "load, boundary_load": lambda s: [forms.load(s.V, _rough), forms.boundary_load(s.V, _rough)],
    "conjugate gradients": _solved,
    "multigrid": _cycles,
    "neo_hookean": lambda s: _nonlinear(s, forms.neo_hookean(s.W, mu=1.0, lam=2.0), s.W),
    "p_laplacian": lambda s: _nonlinear(s, forms.p_laplacian(s.V, p=3.0), s.V),
    "point_load": lambda s: [forms.point_load(s.V, s.mesh.element_centers()[:1], 2.0)],
}
"""Forms of the library and of a user, each in a setting that reaches other parts of a kernel."""

_OF_VECTORS = (
    *("elasticity", "divergence", "divergence, transposed"),
    *("form of two fields", "residual of two fields", "form by eigenvectors"),
)
"""Forms on fields or with tensors that have no components in 1-D."""

MESHES = {
    1: lambda: box((5,), mapping=lambda x: x + 0.1 * x**2),
    2: lambda: disc(2),
    3: lambda: ball(1),
}
"""Curved, with elements that see each other turned; of each dimension one."""


def cases() -> list[tuple[str, int]]:
    """All forms in all dimensions in which they are."""
    return [(name, dim) for dim in MESHES for name in FORMS if dim > 1 or name not in _OF_VECTORS]


SIMPLICES = {
    2: lambda: curved(2, degree=2),
    3: lambda: curved(3, degree=2, n=1),
}
"""Curved triangles and tetrahedra, some of them mirrored."""


def by_tables() -> list[tuple[str, int]]:
    """All forms that have kernels by tables: none computes the geometry on the way."""
    free = "form by eigenvectors"
    return [
        (name, dim) for dim in SIMPLICES for name in FORMS if "none" not in name and name != free
    ]


def difference(
    name: str, dim: int, device: Device, meshes: Mapping[int, Callable[[], Mesh]] = MESHES
) -> float:
    """The largest difference of a device's results from the host's, relative to the largest entry.

    It is at most 1 where results are as exact as they should be: 1e-12, in single precision 1e-4.
    """
    mesh = meshes[dim]()
    here, there = (Site(mesh, place).values(name) for place in (None, device))
    limit = 1e-4 if "float32" in name else 1e-12
    return max(relative_difference(a, b) for a, b in zip(there, here, strict=True)) / limit
