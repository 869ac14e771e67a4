"""Forms on a GPU beside the same on the CPU, on small meshes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops import forms
from femops.bench.gpu.record import one_line
from femops.errors import OperatorError
from femops.operators import Operator
from femops.solvers import cg, jacobi, multigrid
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.product import Product
from femops_kernels.cuda.device.device import Device
from femops_meshes import Mesh, box
from femops_meshes.generators.curved_domains import ball, disc

ROUND_OFF = {"float64": 1e-12, "float32": 1e-4}
"""By how much results may differ, relative to the largest entry."""

Place = Device | None
_Case = Callable[[Mesh, Place], list[Any]]


def _rough(x: NDArray[np.float64]) -> NDArray[Any]:
    return np.asarray(1.0 + x[0] ** 2 + 0.1 * np.sin(3.0 * x[-1]))


def _scalar(mesh: Mesh, place: Place, order: int = 2) -> H1:
    return H1(mesh, order, device=place)


def _vector(mesh: Mesh, place: Place) -> H1:
    return H1(mesh, 2, mesh.dim, device=place)


def _on(place: Place, vector: NDArray[Any]) -> Any:
    return vector if place is None else place.upload(vector)


def _results(*operators: Any) -> list[Any]:
    """Each applied to a random vector."""
    results = []
    for A in operators:
        x = np.random.default_rng(A.shape[1]).standard_normal(A.shape[1]).astype(A.dtype)
        results.append(A.apply(_on(A.space.device, x)))
    return results


def _constrained(mesh: Mesh, place: Place) -> list[Any]:
    V = _scalar(mesh, place)
    A = forms.diffusion(V).constrained(V.boundary_dofs())
    b = _on(place, np.random.default_rng(1).standard_normal(V.size))
    return [*_results(A), A.rhs(b, 1.5), A.diagonal()]


def _own(mesh: Mesh, place: Place) -> list[Any]:
    def function(u: Any, a: Any) -> dict[str, Any]:
        return {"value": np.exp(-a) * u, "grad": np.sqrt(a) * u.grad}

    return _results(forms.form(function, _scalar(mesh, place), a=_rough))


def _stokes(mesh: Mesh, place: Place) -> list[Any]:
    def function(u: Any, p: Any, mu: Any) -> dict[str, Any]:
        pressure = p * np.eye(mesh.dim)
        return {"u": {"grad": mu * u.grad - pressure}, "p": {"value": -u.div}}

    pair = Product(u=_vector(mesh, place), p=_scalar(mesh, place, 1))
    return _results(forms.form(function, pair, mu=0.1))


def _coupled(mesh: Mesh, place: Place) -> list[Any]:
    """A form on fields of different spaces, constrained, with functionals."""

    def function(u: Any, p: Any, x: Any) -> dict[str, Any]:
        slopes = (1.0 + x[0]) * p * u.grad
        return {"u": {"grad": slopes, "value": u.value * p}, "p": {"value": u.div * p**2}, "e": p}

    V, W = _vector(mesh, place), L2(mesh, 1, device=place)
    pair = Product(u=V, p=W)
    F = forms.residual(function, pair, integrals=["e"]).constrained(V.boundary_dofs())
    state = _on(place, np.random.default_rng(5).standard_normal(pair.size))
    residual, found = F.evaluate(state)
    return [residual, _on(place, np.array([found["e"]])), F.jacobian(state).apply(state)]


def _nonlinear(form: Any, space: H1) -> list[Any]:
    u = np.random.default_rng(7).standard_normal(space.shape) * 0.02
    at = _on(space.device, u)
    J = form.jacobian(at)
    return [form.residual(at), *_results(J), J.diagonal()]


def _loads(mesh: Mesh, place: Place) -> list[Any]:
    V = _scalar(mesh, place)
    return [forms.load(V, _rough), forms.boundary_load(V, _rough)]


def _system(mesh: Mesh, place: Place, order: int) -> tuple[Operator, Any]:
    V = _scalar(mesh, place, order)
    A = forms.diffusion(V, _rough).constrained(V.boundary_dofs())
    return A, _on(place, np.random.default_rng(3).standard_normal(V.size))


def _solved(mesh: Mesh, place: Place) -> list[Any]:
    """A few iterations, of which none is the last."""
    A, b = _system(mesh, place, 2)
    return [cg(A, b, rtol=0.0, maxiter=5, M=M, warn=False)[0] for M in (None, jacobi(A))]


def _cycles(mesh: Mesh, place: Place) -> list[Any]:
    """Three orders; cycles are repeated from the third on."""
    A, b = _system(mesh, place, 3)
    M = multigrid(A, dtype="float64")
    return [cg(A, b, rtol=0.0, maxiter=3, M=M, warn=False)[0]]


def _divergence(mesh: Mesh, place: Place) -> Operator:
    return forms.divergence(_vector(mesh, place), _scalar(mesh, place, 1))


FORMS: dict[str, _Case] = {
    "mass": lambda m, d: _results(forms.mass(_scalar(m, d))),
    "mass, none": lambda m, d: _results(forms.mass(_scalar(m, d), level="matrix-free")),
    "mass, L2": lambda m, d: _results(forms.mass(L2(m, 1, device=d))),
    "diffusion": lambda m, d: _results(forms.diffusion(_scalar(m, d), _rough)),
    "diffusion, none": lambda m, d: _results(forms.diffusion(_scalar(m, d), level="matrix-free")),
    "diffusion, constrained": _constrained,
    "diffusion, float32": lambda m, d: _results(forms.diffusion(_scalar(m, d), dtype="float32")),
    "diffusion, reproducible": lambda m, d: _results(
        forms.diffusion(H1(m, 2, device=d, reproducible=d is not None))
    ),
    "helmholtz": lambda m, d: _results(forms.helmholtz(_scalar(m, d), 2.0)),
    "convection": lambda m, d: _results(forms.convection(_scalar(m, d), np.arange(1.0, m.dim + 1))),
    "convection, transposed": lambda m, d: _results(
        forms.convection(_scalar(m, d), np.arange(1.0, m.dim + 1)).T
    ),
    "elasticity": lambda m, d: _results(forms.elasticity(_vector(m, d), 1.0, 2.0)),
    "divergence": lambda m, d: _results(_divergence(m, d)),
    "divergence, transposed": lambda m, d: _results(_divergence(m, d).T),
    "boundary_mass": lambda m, d: _results(forms.boundary_mass(_scalar(m, d), _rough)),
    "form": _own,
    "form of two fields": _stokes,
    "residual of two fields": _coupled,
    "load, boundary_load": _loads,
    "conjugate gradients": _solved,
    "multigrid": _cycles,
    "neo_hookean": lambda m, d: _nonlinear(
        forms.neo_hookean(V := _vector(m, d), mu=1.0, lam=2.0), V
    ),
    "p_laplacian": lambda m, d: _nonlinear(forms.p_laplacian(V := _scalar(m, d), p=3.0), V),
}
"""Forms of the library and of a user, each in a setting that reaches other parts of a kernel."""

_OF_VECTORS = (
    *("elasticity", "divergence", "divergence, transposed"),
    *("form of two fields", "residual of two fields"),
)
"""Forms on fields that have no components in 1-D."""

MESHES = {
    1: lambda: box((5,), mapping=lambda x: x + 0.1 * x**2),
    2: lambda: disc(2),
    3: lambda: ball(1),
}
"""Curved, with elements that see each other turned; of each dimension one."""


def validation(
    device: Device, names: Sequence[str] = tuple(FORMS), dims: Sequence[int] = (1, 2, 3)
) -> list[dict[str, Any]]:
    """Return how far the device's results are from the CPU's, for some of `FORMS`.

    Returns
    -------
    list of dict
        For each form and dimension ``error``, relative to the largest entry (None where the
        device failed: ``message`` says how), the ``limit``, and whether it ``agrees``.

    Raises
    ------
    OperatorError
        An unknown form.
    """
    for name in names:
        if name not in FORMS:
            raise OperatorError(f"form {name!r}: choose one of {', '.join(FORMS)}")
    meshes = {dim: MESHES[dim]() for dim in dims}
    cases = [(name, dim) for dim in dims for name in names if dim > 1 or name not in _OF_VECTORS]
    rows = []
    # kernels of the device are compiled side by side, meanwhile the CPU's here
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        there = [pool.submit(FORMS[name], meshes[dim], device) for name, dim in cases]
        for (name, dim), future in zip(cases, there, strict=True):
            rows.append({"form": name, "dim": dim} | _compared(device, name, meshes[dim], future))
    return rows


def _compared(device: Device, name: str, mesh: Mesh, future: Future[list[Any]]) -> dict[str, Any]:
    """Row of a form; None for the error and why, if there is no number."""
    limit = ROUND_OFF["float32" if "float32" in name else "float64"]
    try:
        error, message = _error(device, FORMS[name](mesh, None), future.result()), ""
    except Exception as fault:  # noqa: BLE001  (whatever a driver says; the exit code tells)
        error, message = None, one_line(fault)
    agrees = error is not None and error <= limit
    return {"error": error, "limit": limit, "agrees": agrees, "message": message}


def _error(device: Device, here: Sequence[NDArray[Any]], there: Sequence[Any]) -> float:
    """The largest difference of results; errors are those of `relative_difference`."""
    pairs = zip(here, there, strict=True)
    return max(relative_difference(device.download(other), mine) for mine, other in pairs)


def relative_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference, relative to the largest entry that is expected.

    Raises
    ------
    OperatorError
        It is no finite number.
    """
    off = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not np.isfinite(off):
        raise OperatorError("results are not finite")
    return off
