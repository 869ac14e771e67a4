"""What residuals keep at points is computed on the device: the host's numbers, and its errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from support.cases.kernels import bend, smooth, turned
from support.cuda import guarded, host_values
from support.cuda.guarded import GuardedDevice
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require

device = guarded.small_device
evaluated = host_values.evaluated
Make = Callable[[Any], Any]


def curved(dim: int) -> Any:
    return turned(femops.box((5, 3, 2)[:dim], order=2, mapping=bend))


def space(device: Any, dim: int, order: int = 2, **options: Any) -> Any:
    return femops.H1(curved(dim), order, device=device, **options)


def by_element(mesh: Any) -> Any:
    return femops.GridFunction(femops.L2(mesh, 0), 1.0 + np.arange(mesh.num_elements))


def state(F: Any, seed: int = 1) -> Any:
    """Small, lest elements of a material turn over."""
    found = 0.005 * np.random.default_rng(seed).standard_normal(F.space.size)
    return found.astype(F.dtype)


def close(got: Any, expected: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(got.get(), expected, rtol=0, atol=tolerance * abs(expected).max())


# --- one field ------------------------------------------------------------------------------------


def laplacian(dim: int, order: int, **options: Any) -> Make:
    return lambda device: femops.p_laplacian(space(device, dim, order), 3.5, 0.2, **options)


def material(dim: int, lam: Any = 1.3, **options: Any) -> Make:
    def form(device: Any) -> Any:
        return femops.neo_hookean(space(device, dim, ncomp=dim, **options), lam, 0.7)

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


FORMS: dict[str, tuple[int, Make]] = {  # and how many numbers of functions the host evaluates
    "line": (0, laplacian(1, 3)),
    "plane": (0, laplacian(2, 2)),
    "space": (0, laplacian(3, 4)),
    "plane, material": (0, material(2)),
    "space, material": (1, material(3, smooth)),
    "reproducible": (0, material(3, reproducible=True)),
    "functions of x": (0, sourced(2, 2.0)),
    "by element": (0, sourced(3, by_element)),
    "a function": (2, sourced(2, smooth)),
    "order 0": (0, discontinuous),
    "single": (0, laplacian(3, 2, dtype="float32")),
    "single, a function": (2, sourced(2, smooth, dtype="float32")),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_of_the_host(name: str, device: GuardedDevice, evaluated: list[int]) -> None:
    functions, make = FORMS[name]
    here, there = make(None), make(device)
    tolerance = 1e-12 if here.dtype == np.float64 else 2e-6
    for seed in (1, 2):
        u = state(here, seed)
        close(there.residual(device.upload(u)), here.residual(u), tolerance)
    assert sum(evaluated) == functions
    fixed = here.space.boundary_dofs() if here.space.order else []
    expected = here.constrained(fixed).residual(u)
    close(there.constrained(fixed).residual(device.upload(u)), expected, tolerance)


def test_coefficients_and_copies(device: GuardedDevice, evaluated: list[int]) -> None:
    here, there = (sourced(2, 2.0)(one) for one in (None, device))
    u = state(here)
    expected = here.residual(u)
    for twin in (there, copy.deepcopy(there), copy.copy(there), pickle.loads(pickle.dumps(there))):
        close(twin.residual(device.upload(u)), expected)
        assert twin.space.device is device
    for k in (lambda _: 3.0, by_element):
        here, there = here.update(k=k(here.space.mesh)), there.update(k=k(there.space.mesh))
        close(there.residual(device.upload(u)), here.residual(u))
    assert not evaluated


def test_affine_elements_keep_numbers_of_elements(
    device: GuardedDevice, evaluated: list[int]
) -> None:
    here, there = (
        femops.p_laplacian(femops.H1(femops.box((3, 2)), 3, device=one), 3.5, 0.2)
        for one in (None, device)
    )
    u = state(here)
    close(there.residual(device.upload(u)), here.residual(u))
    assert not evaluated


@pytest.mark.parametrize("scale", [1e-20, 1e-7, 1e20])
def test_meshes_of_any_size(scale: float, device: GuardedDevice) -> None:
    """The determinants range over 120 orders of magnitude."""

    def form(u: Any) -> Any:
        return {"value": u.value**3, "grad": (1 + u * u) * u.grad}

    for order in (1, 3):
        forms = []
        for one in (None, device):
            mesh = femops.box((5, 3, 2), order=2, mapping=lambda x: scale * bend(x))
            forms.append(femops.residual(form, femops.H1(mesh, order, device=one)))
        u = state(forms[0])
        close(forms[1].residual(device.upload(u)), forms[0].residual(u))


# --- several fields -------------------------------------------------------------------------------


def flow(v: Any, p: Any, nu: Any) -> Any:
    """Navier and Stokes."""
    dim = len(v)
    stress = nu * v.grad - p.value * np.eye(dim)
    return {"v": {"value": v.grad @ v.value, "grad": stress}, "p": {"value": v.div}}


def of_flow(dim: int, nu: Any, **options: Any) -> Make:
    def form(device: Any) -> Any:
        V = space(device, dim, 3, ncomp=dim, reproducible=options.get("reproducible", False))
        W = femops.Product(v=V, p=femops.H1(V.mesh, 2, device=device))
        given = {name: value for name, value in options.items() if name != "reproducible"}
        F = femops.residual(flow, W, nu=nu, **given)
        return F.constrained(W.positions(v=V.boundary_dofs()))

    return form


def three(v: Any, e: Any, p: Any, x: Any, k: Any) -> Any:
    speed = np.atleast_1d(v.value)[0]
    return {
        "v": {"grad": (1 + p * p) * (e * v.grad), "value": v.value * np.exp(-p)},
        "e": {"value": k * e * np.sqrt(1 + x[0]) + p * p},
        "p": {"grad": speed * p.grad},
        "work": speed * e,
        "least": e * e - k + x[0],
    }


def of_three(dim: int, **options: Any) -> Make:
    def form(device: Any) -> Any:
        V = space(device, dim, 2, ncomp=dim)
        E = femops.L2(V.mesh, 1, device=device)
        P = femops.H1(V.mesh, 3, family="bernstein", device=device)
        W = femops.Product(v=V, e=E, p=P)
        return femops.residual(three, W, **FUNCTIONALS, quadrature=5, k=0.5, **options)

    return form


FUNCTIONALS: dict[str, Any] = {"integrals": ["work"], "minima": ["least"]}


def functionals_alone(device: Any) -> Any:
    """No test function."""

    def form(v: Any, e: Any, x: Any) -> Any:
        return {"work": v * e * x[0], "least": e * e}

    V = space(device, 2, 3)
    W = femops.Product(v=V, e=femops.L2(V.mesh, 1, device=device))
    return femops.residual(form, W, **FUNCTIONALS)


COUPLED: dict[str, tuple[int, Make]] = {
    "flow": (0, of_flow(2, 0.1)),
    "flow in space": (1, of_flow(3, smooth)),
    "single flow": (0, of_flow(2, 0.1, dtype="float32")),
    "reproducible flow": (0, of_flow(2, 0.1, reproducible=True)),
    "line": (0, of_three(1)),
    "plane": (0, of_three(2)),
    "space": (0, of_three(3)),
    "single": (0, of_three(2, dtype="float32")),
    "functionals": (0, functionals_alone),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", COUPLED)
def test_several_fields(name: str, device: GuardedDevice, evaluated: list[int]) -> None:
    functions, make = COUPLED[name]
    here, there = make(None), make(device)
    tolerance = 1e-12 if here.dtype == np.float64 else 2e-6
    for seed in (1, 2):
        u = state(here, seed)
        expected, values = here.evaluate(u)
        got, found = there.evaluate(device.upload(u))
        for part in (here.space.slice(name) for name in here.space.names):
            close(got[part], expected[part], tolerance)
        assert found == pytest.approx(values, rel=tolerance, abs=tolerance)
    assert sum(evaluated) == functions


# --- how it is done -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [laplacian(3, 4), of_flow(3, 0.1), functionals_alone])
def test_nothing_at_points_is_copied(
    make: Make, device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than a number for each point; a launch computes what is kept, one looks at its signs."""
    F = make(device)
    out, u = F.space.zeros(), device.upload(state(F))
    uploaded: list[int] = []
    plain = device.host.upload

    def upload(array: Any, stream: Any = None) -> Any:
        uploaded.append(array.nbytes)
        return plain(array, stream)

    monkeypatch.setattr(device.host, "upload", upload)
    launches = [device.host.launches]
    F.residual(u, out)
    launches.append(device.host.launches)
    part = F._parts[0]
    points = part.form.geometry.num_elements * part.form.geometry.num_points
    modes = part.form.geometry.mesh.coordinates.nbytes
    assert part.term.qfunction.numbers.point > 0
    assert max(uploaded) <= max(8 * points, modes)
    uploaded.clear()
    F.residual(u, out)
    launches.append(device.host.launches)
    first, second = np.diff(launches)
    assert first - second == 2
    assert not uploaded


@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("make", [material(3, smooth), of_flow(3, smooth)])
def test_sanitizers_find_nothing(make: Make, sanitizer: str) -> None:
    require(sanitizer)
    device = host_device(shared_bytes=12 * 1024)
    F = make(device)
    with device.recording() as launches:
        F.residual(state(F))
    fills = [launch for launch in launches if "FILLED_PIECES" in launch.source]
    assert fills
    for launch in fills:
        replay(launch, sanitizer)


# --- errors: those of the host, at first use ------------------------------------------------------


def folded(x: Any) -> Any:
    """Turned over near zero, where the few points have none at which the mesh itself looks."""
    return x**2 - 0.1 * x


def cubic(V: Any) -> Any:
    return femops.residual(lambda u: {"value": u.value**3}, V)


def pair(V: Any) -> Any:
    def form(v: Any, e: Any) -> Any:
        return {"v": {"value": v * e}, "e": {"value": e * e}, "least": e.value}

    return femops.residual(form, femops.Product(v=V, e=V), minima=["least"])


def rooted(V: Any) -> Any:
    """Computed in each application."""
    return femops.residual(lambda u, x: {"value": np.sqrt(x[0] - 0.5) * u.value**2}, V)


def kept(V: Any) -> Any:
    """Computed once, and kept."""

    def form(u: Any, x: Any, k: Any) -> Any:
        return {"grad": np.log(k + x[0]) * u.value * u.grad}

    return femops.residual(form, V, k=-1.0)


def too_large(V: Any) -> Any:
    def form(u: Any, k: Any) -> Any:
        return {"value": (k * k) * u.value**2}

    field = femops.GridFunction(femops.L2(V.mesh, 1), np.full(V.mesh.num_elements * 4, 1e30))
    return femops.residual(form, V, k=field, dtype="float32")


def message(make: Make, V: Any) -> tuple[type, str]:
    F = make(V)
    with pytest.raises(femops.errors.FemopsError) as error:
        F.residual(F.space.memory.put(np.ones(F.space.size, F.dtype)))
    return type(error.value), str(error.value)


@pytest.mark.parametrize("make", [cubic, pair])
def test_elements_that_are_turned_over(make: Make, device: GuardedDevice) -> None:
    mesh = femops.box((1,), order=2, mapping=folded)
    expected = message(make, femops.H1(mesh, 6))
    assert expected[0] is femops.errors.GeometryError
    for _ in range(2):
        assert message(make, femops.H1(mesh, 6, device=device)) == expected


@pytest.mark.parametrize("make", [rooted, kept, too_large])
def test_numbers_that_are_not_finite(make: Make, device: GuardedDevice) -> None:
    expected = message(make, space(None, 2))
    assert expected[0] is femops.errors.OperatorError
    for _ in range(2):
        assert message(make, space(device, 2)) == expected
