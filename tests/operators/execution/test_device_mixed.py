"""Meshes of several shapes on a device: dense sums, polynomials, the host's products, bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import OperatorError
from femops_kernels.cuda.operator.kernel import LineKernel
from femops_kernels.cuda.operator.table_kernel import TableKernel
from support.cuda import guarded
from support.mixed_meshes import flat_mesh, form, matrix, mixed_mesh

device = guarded.small_device


def prisms() -> Any:
    return femops.box((2, 1, 1), cells="prisms").curved(2).mapped(lambda x: x + 0.05 * x[::-1] ** 2)


MESHES = {
    "plane": lambda: flat_mesh(curved=2),
    "space": lambda: mixed_mesh(1, curved=2),
    "prisms": prisms,
}


def error(found: Any, expected: Any) -> float:
    return float(np.abs(found.get() - expected).max() / np.abs(expected).max())


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    ("name", "p"),
    [
        *(("plane", 2), ("space", 1), ("space", 2), ("prisms", 3)),
        pytest.param("plane", 3, marks=pytest.mark.exhaustive),
        pytest.param("space", 3, marks=pytest.mark.exhaustive),
        pytest.param("prisms", 4, marks=pytest.mark.exhaustive),
    ],
)
def test_forms_equal_dense_sums(device: Any, name: str, p: int) -> None:
    mesh = MESHES[name]()
    for kind in (femops.H1, femops.L2):
        V, dense = kind(mesh, p, device=device), matrix(kind(mesh, p))
        A, u = femops.form(form, V), random(V.size)
        assert error(A @ device.upload(u), dense @ u) < 1e-13
        assert error(A.diagonal(), dense.diagonal()) < 1e-13
    V, dense = femops.H1(mesh, p, device=device), matrix(femops.H1(mesh, p))
    X, rows = random(V.size, 3), V.boundary_dofs()
    assert error(femops.form(form, V) @ device.upload(X), dense @ X) < 1e-13
    dense[rows] = dense[:, rows] = 0.0
    dense[rows, rows] = 1.0
    u = random(V.size)
    assert error(femops.form(form, V).constrained(rows) @ device.upload(u), dense @ u) < 1e-13


def test_each_part_has_its_kernel(device: Any) -> None:
    """Sums of 1-D matrices for hexahedra, tables for the others: few numbers for constants."""
    V = femops.H1(mixed_mesh(1), 2, device=device)
    A, u = femops.diffusion(V), random(V.size)
    assert error(A @ device.upload(u), femops.diffusion(femops.H1(V.mesh, 2)) @ u) < 1e-13
    _, cubes, *others = A.compiled.sweeps
    assert isinstance(cubes.kernel, LineKernel)
    assert [type(sweep.kernel) for sweep in others] == [TableKernel] * 2
    assert [sweep.kernel.points for sweep in others] == [18, 4]


def power(p: int) -> Any:
    return lambda x: (1.0 + x[0] - 2.0 * x[1] + 0.5 * x[-1]) ** p


@pytest.mark.parametrize(("dim", "p"), [(2, 2), (3, 2)])
def test_polynomials_solve_their_problem(device: Any, dim: int, p: int) -> None:
    """By interior penalty, across faces between elements of all shapes."""
    mesh = flat_mesh() if dim == 2 else mixed_mesh(1, seed=p)
    D = femops.L2(mesh, p, device=device)
    slope = 1.0 + (1.5**2 if dim == 2 else 4.25)
    f = lambda x: -slope * p * (p - 1) * power(p - 2)(x)  # noqa: E731
    b = femops.load(D, f) + femops.dirichlet_load(D, power(p))
    A = femops.interior_penalty(D)
    assert error(A @ D.interpolate(power(p)), b.get()) < 1e-12
    assert error(A.diagonal(), femops.interior_penalty(femops.L2(mesh, p)).diagonal()) < 1e-13


@pytest.mark.parametrize("domain", [{}, {"boundary": "all"}, {"faces": "interior"}])
def test_jacobians_of_quadratic_functions(device: Any, domain: dict[str, str]) -> None:
    """Their products are differences of residuals."""
    V = femops.L2(mixed_mesh(1, curved=2), 1, device=device)

    def inside(u: Any) -> Any:
        return {"value": u.value**2, "grad": u.value * u.grad}

    def across(u: Any, n: Any) -> Any:
        return {"jump": (u.minus**2 + u.minus * u.plus + u.plus**2) * n[0]}

    F = femops.residual(across if "faces" in domain else inside, V, **domain)
    u, v = (device.upload(random(V.size, seed=k)) for k in (0, 1))
    ahead, behind = F.residual(u + v), F.residual(u - v)
    assert error(F.jacobian(u) @ v, ((ahead - behind) / 2).get()) < 1e-12
    assert error(F.jacobian(u) @ v, F.jacobian(u).assemble() @ v.get()) < 1e-12


def test_functionals(device: Any) -> None:
    Q = femops.H1(mixed_mesh(1), 1, device=device)
    energy = femops.functional(lambda u: 0.5 * u**2, Q)
    assert abs(energy(Q.interpolate(lambda x: x[0])) - 2.5) < 1e-12  # of three unit cubes


def test_solves_take_the_hosts_iterations(device: Any) -> None:
    mesh, found = mixed_mesh(1).refine(), []
    for place in (device, None):
        V = femops.H1(mesh, 2, device=place)
        A = femops.diffusion(V, lambda x: 1 + x[0]).constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, 1.0), 0.0)
        found.append(femops.cg(A, b, M=femops.multigrid(A), rtol=1e-9))
    (u, one), (v, two) = found
    assert one.converged
    assert one.iterations == two.iterations
    assert error(u, v) < 1e-8


def test_prisms_are_one_sweep(device: Any) -> None:
    """Which updates the vectors of conjugate gradients on its way."""
    found = []
    for place in (device, None):
        V = femops.H1(prisms(), 2, device=place)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        b = random(V.size) if place is None else place.upload(random(V.size))
        found.append(femops.cg(A, b, rtol=0.0, maxiter=7, warn=False)[0])
        assert place is None or A.compiled.mergeable(V.size, many=False)
    assert error(*found) < 1e-11


def test_the_same_bits_in_any_order(device: Any) -> None:
    V = femops.H1(mixed_mesh(1), 2, device=device, reproducible=True)
    A, u = femops.diffusion(V, lambda x: 1 + x[0]), random(V.size)
    once = (A @ device.upload(u)).get()
    device.host.backwards = True
    try:
        assert (A @ device.upload(u)).get().tobytes() == once.tobytes()
    finally:
        device.host.backwards = False


def test_what_is_refused(device: Any) -> None:
    V = femops.H1(mixed_mesh(1), 2, device=device)
    with pytest.raises(OperatorError, match="prisms on a GPU: take level='partial'"):
        femops.diffusion(V, level="matrix-free")
    with pytest.raises(OperatorError, match="no kernels for level 'element'"):
        femops.diffusion(V, level="element")
    assert femops.diffusion(V, level="auto").level == "partial"
