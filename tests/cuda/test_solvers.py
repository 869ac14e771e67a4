"""Newton's method and other libraries' solvers on operators of a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import femops
from cuda.host_device import HostDevice, host_device
from kernel_cases import smooth, turned


@pytest.fixture(scope="module")
def device() -> HostDevice:
    return host_device()


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


def test_newton_takes_arrays_of_other_libraries(device: HostDevice) -> None:
    F, start, load = p_laplacian(device)
    foreign = [
        SimpleNamespace(__cuda_array_interface__=a.__array_interface__) for a in (start, load)
    ]
    expected, _ = femops.newton(F, start, load)
    u, info = femops.newton(F, *foreign)
    assert info.converged
    np.testing.assert_array_equal(u, expected)
    with pytest.raises(femops.VectorError, match=r"u0: a list has neither"):
        femops.newton(F, [0.0] * F.space.size)


def as_linear_operator(A: Any) -> Any:
    """What cupyx.scipy.sparse.linalg makes of an object with a shape and matvec."""
    others = {name: getattr(A, name, None) for name in ("rmatvec", "rmatmat", "dtype")}
    return SimpleNamespace(shape=A.shape, matvec=A.matvec, **others)


def foreign_gmres(A: Any, b: Any, M: Any) -> Any:
    """As cupyx: columns (n, 1) go in, or vectors; whole Krylov space, for a small system."""
    A, M = as_linear_operator(A), as_linear_operator(M)
    assert A.dtype == M.dtype == b.dtype
    size = A.shape[0]
    basis, images = np.zeros((size, 60)), np.zeros((size, 60))
    v = b / np.linalg.norm(b)
    for k in range(60):
        basis[:, k] = v
        z = M.matvec(v) if k % 2 else M.matvec(v.reshape(-1, 1)).ravel()
        w = A.matvec(z) if k % 2 else A.matvec(z.reshape(-1, 1)).ravel()
        images[:, k] = w
        w = w - basis @ (basis.T @ w)
        w -= basis @ (basis.T @ w)
        v = w / np.linalg.norm(w)
    return M.matvec(basis @ np.linalg.lstsq(images, b, rcond=None)[0])


def test_operators_in_solvers_of_cupyx(device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    V = femops.H1(turned(femops.box((3, 3))), 2, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V) + femops.convection(V, [1.0, 0.5])
    A = A.constrained(V.boundary_dofs())
    b = np.random.default_rng(2).standard_normal(V.size)
    M, _ = femops.jacobi(A), (A @ b, A.T @ b)  # their data are there now

    def refused(*_: Any) -> None:
        raise AssertionError("SciPy would make arrays of the host")

    with monkeypatch.context() as patch:
        for name in ("matvec", "rmatvec", "matmat", "rmatmat"):
            patch.setattr(LinearOperator, name, refused)
        moved = device.uploads, device.downloads
        x = foreign_gmres(A, b, M)
        transposed = as_linear_operator(A)
        y, Y = transposed.rmatvec(b), transposed.rmatmat(np.stack([b, x], axis=1))
        assert (device.uploads, device.downloads) == moved
    assert np.linalg.norm(b - A @ x) < 1e-9 * np.linalg.norm(b)
    np.testing.assert_allclose(y, A.T @ b, rtol=0, atol=1e-13 * abs(y).max())
    np.testing.assert_allclose(Y, np.stack([A.T @ b, A.T @ x], axis=1), atol=1e-12 * abs(Y).max())
