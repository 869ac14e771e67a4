"""Many vectors on a device: one launch for all of them, the same numbers as on the host."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops.fields.multivector import MultiVector
from femops_kernels.cuda.operator.many import VECTORS, for_many
from support.cases.kernels import bend, smooth, turned
from support.cuda import guarded
from support.cuda.host_device import HostDevice, host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require

device = guarded.small_device


def curved(dim: int) -> femops.Mesh:
    return turned(femops.box((3, 2, 2)[:dim], order=2, mapping=bend))


def make_line(device: Any) -> Any:
    V = femops.H1(femops.box((5,)), 3, device=device)
    return femops.diffusion(V, smooth).constrained(V.boundary_dofs())


def make_sum(device: Any) -> Any:
    """In one kernel, with essential conditions, beside an integral over faces."""
    V = femops.H1(curved(2), 3, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V) + femops.boundary_mass(V, smooth)
    return A.constrained(V.boundary_dofs(1))


def make_single(device: Any) -> Any:
    return femops.mass(femops.H1(curved(3), 2, device=device), smooth, dtype="float32")


def make_elasticity(device: Any) -> Any:
    """Components; the geometry is stored at the points for many vectors."""
    V = femops.H1(curved(3), 2, ncomp=3, device=device)
    return femops.elasticity(V, 1.3, smooth, level="matrix-free").eliminated(V.boundary_dofs())


def make_rounded(device: Any) -> Any:
    """What is stored in float32 is the coefficient alone, as for one vector."""
    V = femops.H1(curved(2), 3, device=device)
    return femops.diffusion(V, smooth, level="matrix-free", data_dtype="float32")


def make_transpose(device: Any) -> Any:
    mesh = curved(2)
    V, W = femops.H1(mesh, 2, ncomp=2, device=device), femops.L2(mesh, 1, device=device)
    return femops.divergence(V, W).T


def make_stokes(device: Any) -> Any:
    """A product of spaces."""
    mesh = curved(2)
    V, Q = femops.H1(mesh, 2, ncomp=2, device=device), femops.H1(mesh, 1, device=device)

    def stokes(u: Any, p: Any) -> Any:
        return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": u.grad[0, 0] + u.grad[1, 1]}}

    W = femops.Product(u=V, p=Q)
    return femops.form(stokes, W).constrained(W.positions(u=V.boundary_dofs()))


def make_penalty(device: Any) -> Any:
    """Both sides of faces, with derivatives, beside elements."""
    return femops.interior_penalty(femops.L2(curved(2), 2, device=device), smooth)


def make_flux(device: Any) -> Any:
    """Both sides of faces, of which values are read alone."""
    V = femops.L2(curved(3), 2, family="gll", device=device)
    return femops.upwind_convection(V, [1.0, -0.5, 2.0])


MAKERS = [
    *(make_line, make_sum, make_single, make_elasticity, make_rounded),
    *(make_transpose, make_stokes, make_penalty, make_flux),
]


def numbers(A: Any, nvec: int) -> Any:
    return np.random.default_rng(nvec).standard_normal((A.shape[1], nvec)).astype(A.dtype)


def one_by_one(A: Any, x: Any) -> Any:
    """A x on the host, a column at a time."""
    return np.stack([A @ column for column in np.ascontiguousarray(x.T)], axis=1)


def close(result: Any, expected: Any, dtype: Any) -> None:
    tolerance = 1e-12 if np.dtype(dtype) == np.float64 else 1e-5
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * abs(expected).max())


@pytest.mark.parametrize("make", MAKERS)
def test_all_at_once(make: Callable[[Any], Any], device: Any) -> None:
    there, here = make(device), make(None)
    fewer = (1, 3) if make in (make_sum, make_elasticity) else ()  # in kernels of their own
    for nvec in (*fewer, 2 * VECTORS + 3):
        x = numbers(here, nvec)
        result = there @ device.upload(x)
        assert result.shape == (here.shape[0], nvec)
        close(result.get(), one_by_one(here, x), here.dtype)


def test_complex_vectors_and_other_layouts(device: Any) -> None:
    there, here = make_sum(device), make_sum(None)
    x = numbers(here, 6) + 1j * numbers(here, 7)[:, :6]
    close((there @ device.upload(x)).get(), one_by_one(here, x), "float64")
    x = np.asfortranarray(x.real)
    close((there @ device.upload(x)).get(), one_by_one(here, x), "float64")


def test_panels(device: Any) -> None:
    """Several of them in one launch; a narrow last tile."""
    for make in (make_sum, make_penalty):
        there, here = make(device), make(None)
        for width in (1, 5, VECTORS + 3):
            x = numbers(here, 2 * (VECTORS + 3))
            X = MultiVector.from_columns(there.space, device.upload(x), width=width)
            result = there @ X
            close(result.columns().get(), one_by_one(here, x), "float64")


def test_a_vector_that_is_not_finite_stays_alone(device: Any) -> None:
    there = make_elasticity(device)
    x = numbers(there, 5)
    clean = (there @ device.upload(x)).get()
    x[:, 2] = np.nan
    result = (there @ device.upload(x)).get()
    others = [0, 1, 3, 4]
    close(result[:, others], clean[:, others], "float64")


@pytest.mark.parametrize("make", [make_sum, make_stokes, make_penalty])
def test_vectors_of_all_magnitudes(make: Callable[[Any], Any], device: Any) -> None:
    """Beside one that is no number, in groups of vectors that are full, or not."""
    there, here = make(device), make(None)
    for nvec in (2, 7, 8, 9, 33):
        x = numbers(here, nvec) * np.logspace(-20, 20, nvec)
        expected, x[:, nvec // 2] = one_by_one(here, x), np.nan
        result = (there @ device.upload(x)).get()
        assert np.isnan(result[:, nvec // 2]).any()
        for k in {*range(nvec)} - {nvec // 2}:
            close(result[:, k], expected[:, k], "float64")


def test_one_launch() -> None:
    """Of as many blocks as there are groups of vectors for each group of elements."""
    device = host_device(shared_bytes=12 * 1024)
    A = femops.mass(femops.H1(turned(femops.disc(1)), 2, device=device))
    kernel, count = A.compiled.sweeps[0].kernel, A.space.mesh.num_elements
    for nvec, vectors in ((2, 2), (3, 4), (12, 4), (16, 8), (100, 8)):
        many = for_many(kernel, device, nvec)
        assert many.vectors == vectors
        assert many.threads == vectors * many.shape.elements * kernel.lines
        _ = A @ numbers(A, nvec)  # what is stored at points is computed once, by other launches
        with device.recording() as launches:
            _ = A @ numbers(A, nvec)
        (launch,) = launches
        groups = -(-nvec // vectors)
        assert launch.shape[:2] == (-(-count // many.shape.elements) * groups, many.threads)


@pytest.mark.parametrize(
    ("room", "vectors", "staged"),
    [
        (227 * 1024, 8, True),
        (40_000, 8, True),
        (20_000, 4, False),
        (14_000, 2, False),
        (7_000, 1, False),
    ],
)
def test_fewer_vectors_where_there_is_no_room(
    room: int, vectors: int, staged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = host_device(shared_bytes=room)
    uncompiled = lambda *_: SimpleNamespace(local_bytes=0, launch=lambda *_: None)  # noqa: E731
    monkeypatch.setattr(HostDevice, "function", uncompiled)
    V = femops.H1(curved(3), 4, device=device)
    kernel = femops.diffusion(V, smooth).compiled.sweeps[0].kernel
    many = for_many(kernel, device, 100)
    assert (many.vectors, many.staged) == (vectors, staged)
    assert many.shared_bytes <= room


def test_sums_in_an_order_go_one_by_one() -> None:
    device = host_device()
    V = femops.H1(turned(femops.disc(1)), 2, device=device, reproducible=True)
    A = femops.mass(V)
    x = numbers(A, 3)
    result = A @ x
    for k in range(3):
        assert result[:, k].tobytes() == (A @ x[:, k].copy()).tobytes()


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_nothing_is_found(sanitizer: str) -> None:
    require(sanitizer)
    device = host_device(shared_bytes=12 * 1024)
    A = make_sum(device)
    with device.recording() as launches:
        result = A @ numbers(A, VECTORS + 2)
    close(result, one_by_one(make_sum(None), numbers(A, VECTORS + 2)), "float64")
    one = "constexpr int VECTORS = 1;"  # other tests have such kernels
    many = [
        launch for launch in launches if "VECTORS" in launch.source and one not in launch.source
    ]
    assert len(many) == 2  # of elements and faces
    for launch in many:
        replay(launch, sanitizer)
