"""What tests of numbers at points in shared memory share, of persistent blocks or others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.solvers.linear_problem import Info
from femops_kernels.cuda.operator import kernel as kernels
from femops_kernels.cuda.operator.kernel import staged_shapes
from femops_kernels.cuda.operator.shapes import Shape
from support.cases.kernels import bend, random_vector, smooth, turned
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import HostDevice
from support.simulated_ranks import on_ranks


def small_staging_device() -> GuardedDevice:
    """With room for two persistent blocks at a time."""
    made = guarded_device(shared_bytes=24 * 1024, options=["-O0"])
    made.processors = 2
    return made


def stage(monkeypatch: pytest.MonkeyPatch, *, persistent: bool) -> None:
    """Have all kernels that a shape is chosen for staged, where there is room for an element."""
    choose = kernels.shape_for

    def shape_for(*given: Any) -> Shape:
        shape = choose(*given)
        found = staged_shapes(*given, [Shape(2) if persistent else shape, Shape(1)])
        return next((one for one in found if one.persistent == persistent), shape)

    monkeypatch.setattr(kernels, "shape_for", shape_for)


def sweep_of(A: Any) -> Any:
    """The one launch of an operator."""
    (sweep,) = A.compiled.sweeps
    return sweep


def check_bits(device: GuardedDevice, data: str, *, persistent: bool) -> None:
    """Bits are those of loads.

    Also of an odd number of numbers in a line, and of blocks that elements do not fill.
    """
    mesh = turned(femops.box((5, 3), order=2, mapping=bend))
    V = femops.H1(mesh, 2, device=device, reproducible=True)
    A = femops.diffusion(V, smooth, data_dtype=data)
    sweep, x = sweep_of(A), device.upload(random_vector(V, "float64"))
    expected = A.apply(x).get()
    for elements in (1, 2, 4):
        other, y = sweep.reshaped(Shape(elements, 1, True, persistent)), device.xp.zeros(V.size)
        assert (other.kernel.staged, other.kernel.persistent) == (True, persistent)
        other.launch(device.address(x), device.address(y), 1.0, add=False)
        assert y.get().tobytes() == expected.tobytes()


def check_solves(device: GuardedDevice, counts: tuple[int, ...], dtype: str) -> tuple[Any, Info]:
    """Conjugate gradients, and many vectors, are the host's; the operator and the solve."""
    V = femops.H1(femops.box(counts, mapping=bend), 3, device=device)
    W = femops.H1(V.mesh, 3)
    A, B = (
        (femops.diffusion(U, dtype=dtype) + femops.mass(U, dtype=dtype)).constrained(
            U.boundary_dofs()
        )
        for U in (V, W)
    )
    rtol = 1e-10 if dtype == "float64" else 1e-4
    b = random_vector(W, dtype)
    (found, there), (expected, here) = (
        femops.cg(A, device.upload(b), rtol=rtol),
        femops.cg(B, b, rtol=rtol),
    )
    assert abs(there.iterations - here.iterations) <= 1
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=100 * rtol * abs(expected).max())
    X = np.random.default_rng(3).standard_normal((W.size, 5)).astype(dtype)
    np.testing.assert_allclose(
        (A @ device.upload(X)).get(), B @ X, rtol=0, atol=1e-5 if dtype == "float32" else 1e-11
    )
    return A, there


def check_ranks(make: Callable[[], HostDevice], *, persistent: bool) -> None:
    """Three ranks with a device each compute what one process does."""
    mesh = femops.box((5, 4), mapping=bend)
    reference = femops.diffusion(femops.H1(mesh, 3), smooth)
    u = random_vector(reference.space, "float64")

    def program(comm: Any) -> tuple[int, Any]:
        V = femops.H1(femops.distribute(mesh, comm), 3, device=make())
        A = femops.diffusion(V, smooth)
        kernel = sweep_of(A).kernel
        assert (kernel.staged, kernel.persistent) == (True, persistent)
        return V.first_dof, A @ u[V.first_dof :][: V.ndofs].copy()

    found, _ = on_ranks(3, program)
    joined = np.concatenate([y for _, y in sorted(found, key=lambda each: each[0])])
    np.testing.assert_allclose(joined, reference @ u, rtol=0, atol=1e-12)
