"""Newton's method and other libraries' solvers on operators of a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import SolverError, VectorError
from support.cases.kernels import smooth, turned
from support.cases.products import stokes
from support.cuda import host_device as host_device_fixture
from support.cuda.guarded import guarded_device
from support.cuda.host_device import HostDevice

device = host_device_fixture.device


def p_laplacian(device: HostDevice | None) -> tuple[Any, Any, Any]:
    """A form, a first guess and a load."""
    V = femops.H1(turned(femops.disc(2)), 2, device=device)
    F = femops.p_laplacian(V, 4.0, 0.01).constrained(V.boundary_dofs())
    start = V.interpolate(lambda x: 1.0 - x[0] ** 2 - x[1] ** 2)
    start[V.boundary_dofs()] = 0.0
    return F, start, femops.load(V, 1.0)


@pytest.mark.parametrize("linear", ["cg", "minres", "gmres"])
def test_newton_finds_what_it_finds_on_the_cpu(linear: Any, device: HostDevice) -> None:
    results = []
    for where in (None, device):
        F, start, load = p_laplacian(where)
        given, seen = (start.copy(), load.copy()), []
        u, info = femops.newton(F, start, load, linear=linear, rtol=1e-10, callback=seen.append)
        assert info.converged, info
        assert len(seen) == info.iterations
        np.testing.assert_array_equal((start, load), given)
        results.append((u, info))
    (expected, cpu), (u, gpu) = results
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-8 * abs(expected).max())
    assert gpu.iterations == cpu.iterations
    assert abs(gpu.linear_iterations - cpu.linear_iterations) <= cpu.iterations


@pytest.mark.parametrize(
    "options",
    [
        {"upper": 0.6},
        {"upper": 0.6, "linear": "gmres"},
        {"globalization": "trust region"},
        {"globalization": "trust region", "linear": "gmres"},
    ],
)
def test_bounds_and_trust_regions(options: Any, device: HostDevice) -> None:
    results = []
    for where in (None, device):
        F, start, load = p_laplacian(where)
        u, info = femops.newton(F, start, load, rtol=1e-10, **options)
        assert info.converged, info
        results.append((u, info))
    (expected, cpu), (u, gpu) = results
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-7 * abs(expected).max())
    assert abs(gpu.iterations - cpu.iterations) <= 1
    if "upper" in options:
        assert len(gpu.active) > 0
        np.testing.assert_array_equal(gpu.active, cpu.active)


def test_newton_takes_arrays_of_other_libraries(device: HostDevice) -> None:
    F, start, load = p_laplacian(device)
    foreign = [
        SimpleNamespace(__cuda_array_interface__=a.__array_interface__) for a in (start, load)
    ]
    expected, _ = femops.newton(F, start, load)
    u, info = femops.newton(F, *foreign)
    assert info.converged
    np.testing.assert_array_equal(u, expected)
    with pytest.raises(VectorError, match=r"u0: a list has neither"):
        femops.newton(F, [0.0] * F.space.size)


def as_linear_operator(A: Any) -> Any:
    """What cupyx.scipy.sparse.linalg makes of an object with a shape and matvec."""
    others = {name: getattr(A, name, None) for name in ("rmatvec", "rmatmat", "dtype")}
    return SimpleNamespace(shape=A.shape, matvec=A.matvec, **others)


def foreign_cg(A: Any, b: Any, M: Any, steps: int) -> Any:
    """As cupyx: nothing but products, and arithmetic of the device; vectors, or columns (n, 1)."""
    A, M = as_linear_operator(A), as_linear_operator(M)
    assert A.dtype == M.dtype == b.dtype
    assert A.shape == M.shape == (len(b), len(b))
    x, r = 0.0 * b, b.copy()
    p = z = M.matvec(r)
    for k in range(steps):
        q = A.matvec(p) if k % 2 else A.matvec(p.reshape(-1, 1)).reshape(-1)
        before = r @ z
        alpha = before / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        z = M.matvec(r) if k % 2 else M.matvec(r.reshape(-1, 1)).reshape(-1)
        p = z + (r @ z) / before * p
    return x


def test_operators_in_solvers_of_cupyx() -> None:
    device = guarded_device()
    V = femops.H1(turned(femops.box((3, 3))), 2, device=device)
    A = (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())
    B = A.unconstrained + femops.convection(V, [1.0, 0.5])
    host = np.random.default_rng(2).standard_normal((V.size, 2))
    b, columns, M = device.upload(host[:, 0].copy()), device.upload(host), femops.jacobi(A)
    for product in (A @ b, B @ b, B.T @ b):  # their data are there now
        assert device.owns(product)
    moved = device.host.uploads, device.host.downloads, device.looks
    x = foreign_cg(A, b, M, 40)
    y, Y = as_linear_operator(B).rmatvec(b), as_linear_operator(B).rmatmat(columns)
    residual, transposed = b - A @ x, B.T @ b
    assert (device.host.uploads, device.host.downloads, device.looks) == moved
    assert np.linalg.norm(residual.get()) < 1e-10 * np.linalg.norm(host[:, 0])
    np.testing.assert_array_equal(y.get(), transposed.get())
    np.testing.assert_allclose(Y.get()[:, 0], transposed.get(), rtol=1e-12, atol=1e-12)


def flow(device: HostDevice | None) -> tuple[Any, Any]:
    """Stokes' equations, and a load."""
    mesh = femops.box((6, 6))
    U, Q = femops.H1(mesh, 2, ncomp=2, device=device), femops.H1(mesh, 1, device=device)
    W = femops.Product(u=U, p=Q)
    A = femops.form(stokes, W, mu=1.0).constrained(W.positions(u=U.boundary_dofs()))
    return A, A.rhs(W.join(u=femops.load(U, lambda x: (x[1] ** 2, -x[0]))))


def blocks(A: Any) -> Any:
    mass = femops.mass(A.space.spaces["p"])
    velocity = femops.multigrid(A["u", "u"], dtype="float64")
    return (
        (femops.minres, femops.block_diagonal(A.space, u=velocity, p=femops.jacobi(mass))),
        (femops.gmres, femops.block_triangular(A, p=femops.jacobi(-mass), u=velocity)),
    )


def test_preconditioners_of_several_fields() -> None:
    device = guarded_device()
    A, b = flow(None)
    B, c = flow(device)
    for (solver, M), (_, N) in zip(blocks(A), blocks(B), strict=True):
        x, expected = solver(A, b, M=M, rtol=1e-8)
        y, info = solver(B, c, M=N, rtol=1e-8)
        assert info.converged
        assert info.iterations == expected.iterations
        u, v = A.space.split(x)[0], A.space.split(device.download(y))[0]
        np.testing.assert_allclose(v, u, rtol=0, atol=1e-5 * abs(u).max())
        with pytest.raises(SolverError, match="not on the same device"):
            solver(B, c, M=M)


def test_preconditioners_of_other_libraries() -> None:
    """Objects with a shape and matvec, as CuPy's operators are."""
    device = guarded_device()
    V = femops.H1(turned(femops.disc(2)), 2, device=device)
    A = (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())
    b, jacobi = A.rhs(femops.load(V, smooth)), femops.jacobi(A)
    expected, _ = femops.cg(A, b, M=jacobi, rtol=1e-11)
    for solver in (femops.cg, femops.minres, femops.gmres):
        x, info = solver(A, b, M=as_linear_operator(jacobi), rtol=1e-11)
        assert info.converged
        difference = device.download(x - expected)
        np.testing.assert_allclose(difference, 0.0, atol=1e-8)


def complex_systems(device: HostDevice | None) -> list[tuple[Any, Any, Any]]:
    """Operators of complex numbers, right-hand sides and preconditioners."""
    V = femops.H1(turned(femops.disc(2)), 2, device=device)
    wall = V.boundary_dofs()

    def damped(u: Any, x: Any) -> Any:
        return {"grad": (1.0 + 0.2j * x[0]) * u.grad, "value": -(9.0 + 2.0j) * u}

    def magnetic(u: Any, x: Any) -> Any:
        moved = u.grad - 1j * np.array([-x[1], x[0]]) * u
        return {"grad": moved, "value": 1j * femops.inner(np.array([-x[1], x[0]]), moved)}

    A, H = (femops.form(f, V, dtype=complex).constrained(wall) for f in (damped, magnetic))
    b = V.interpolate(lambda x: np.exp(3j * x[0]), dtype=complex)
    return [(A, b, femops.jacobi(A)), (H, b, femops.jacobi(H))]


def test_complex_solves_are_those_of_the_cpu() -> None:
    there = complex_systems(guarded_device())
    for k, solver in ((0, femops.gmres), (1, femops.cg), (1, femops.minres), (1, femops.gmres)):
        (A, b, M), (B, c, N) = complex_systems(None)[k], there[k]
        most = abs(A @ b).max()
        np.testing.assert_allclose((B @ c).get(), A @ b, rtol=0, atol=1e-13 * most)
        np.testing.assert_allclose(B.diagonal().get(), A.diagonal(), rtol=1e-12)
        (x, cpu), (y, gpu) = (solver(*s[:2], M=s[2], rtol=1e-9) for s in ((A, b, M), (B, c, N)))
        assert gpu.converged
        assert abs(cpu.iterations - gpu.iterations) <= 1
        np.testing.assert_allclose(y.get(), x, rtol=0, atol=1e-6 * abs(x).max())
