"""Forms on several fields on a device: the numbers of the host, and nothing moves unasked."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from support.cases.kernels import bend, turned
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require
from support.cuda.moves import Moves, moves


@pytest.fixture(scope="module")
def device() -> GuardedDevice:
    """With little shared memory: even small meshes take several blocks."""
    return guarded_device(shared_bytes=24 * 1024, options=["-O0"])


def flow(v: Any, e: Any, x: Any, kappa: Any) -> Any:
    slopes = np.atleast_2d(v.grad)
    return {
        "v": {"grad": (e * v.grad) * (1 + x[0]), "value": kappa * v.value * e},
        "e": {"value": np.trace(slopes) * e**2},
        "work": e * np.atleast_1d(v.value)[0],
        "least": e * e - kappa,
        "stretch": femops.svd_min(slopes),
    }


FUNCTIONALS: dict[str, Any] = {"integrals": ["work"], "minima": ["least", "stretch"]}


def fields(device: Any, counts: tuple[int, ...], orders: tuple[int, int], **options: Any) -> Any:
    dim = len(counts)
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    V = femops.H1(mesh, orders[0], ncomp=dim, device=device, **options)
    family = "bernstein" if orders[1] else "gauss"
    return femops.Product(v=V, e=femops.L2(mesh, orders[1], family=family, device=device))


Make = Callable[[Any], femops.Residual]


def make(counts: tuple[int, ...], orders: tuple[int, int], **options: Any) -> Make:
    dtype = options.pop("dtype", "float64")

    def form(device: Any) -> femops.Residual:
        W = fields(device, counts, orders, **options)
        F = femops.residual(flow, W, **FUNCTIONALS, kappa=0.5, dtype=dtype)
        return F.constrained(W.spaces["v"].boundary_dofs(1))

    return form


def one_test_function(device: Any) -> femops.Residual:
    """It is not the first; two fields of one space, and one that is not tested at all."""
    mesh = turned(femops.disc(1))
    V, Q = femops.H1(mesh, 3, device=device), femops.H1(mesh, 2, device=device)
    W = femops.Product(u=V, v=V, p=Q)

    def product(u: Any, v: Any, p: Any) -> Any:
        return {"v": {"grad": u.grad * p, "value": u * v}}

    return femops.residual(product, W).constrained(W.positions(v=V.boundary_dofs()))


def functionals_alone(device: Any) -> femops.Residual:
    """At the nodes of the first field: nothing is interpolated there."""
    mesh = femops.box((3, 2))
    V, E = femops.H1(mesh, 2, device=device), femops.L2(mesh, 2, device=device)

    def size(v: Any, e: Any) -> Any:
        return {"area": v.value * 0 + 1, "energy": v * e, "least": v.value}

    W = femops.Product(v=V, e=E)
    names: Any = {"integrals": ["area", "energy"], "minima": ["least"]}
    return femops.residual(size, W, quadrature=femops.basis.lobatto(3), **names)


FORMS: dict[str, Make] = {
    "line": make((7,), (3, 1)),
    "plane": make((4, 3), (2, 1)),
    "space": make((3, 2, 2), (2, 1)),
    "high order": make((2, 2, 1), (4, 3)),
    "constants": make((3, 4), (1, 0)),
    "single": make((3, 2, 2), (3, 2), dtype="float32"),
    "reproducible": make((4, 3), (3, 2), reproducible=True),
    "one test function": one_test_function,
    "functionals alone": functionals_alone,
}


def state(F: femops.Residual, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(F.space.size).astype(F.dtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_of_the_host(name: str, device: Any) -> None:
    there, here = FORMS[name](device), FORMS[name](None)
    for seed in (1, 2):
        u = state(here, seed)
        expected, values = here.evaluate(u)
        residual, found = there.evaluate(device.upload(u))
        error = 1e-12 if here.dtype == np.float64 else 1e-4
        scale = max(abs(expected).max(), 1e-30)
        np.testing.assert_allclose(residual.get(), expected, rtol=0, atol=error * scale)
        assert found == pytest.approx(values, rel=error, abs=error)
        for least in here.functionals.minima:
            assert there.element_of(least) == here.element_of(least)


def test_repeated_calls_give_the_same_bits(device: Any) -> None:
    F = FORMS["reproducible"](device)
    u = device.upload(state(F))
    residual, found = F.evaluate(u)
    out = F.space.zeros()
    out[:] = np.nan
    for _ in range(2):
        again, functionals = F.evaluate(u, out)
        assert again is out
        assert again.get().tobytes() == residual.get().tobytes()
        assert functionals == found


def test_what_is_not_a_number_is_least(device: Any) -> None:
    F = FORMS["plane"](device)
    u = state(F)
    u[F.space.offsets["e"] + 5] = np.nan
    found = F.evaluate(device.upload(u))[1]
    assert np.isnan(found["least"])
    assert not np.isnan(found["stretch"])
    assert F.element_of("least") == 5 // F.space.spaces["e"].p1d ** 2


def test_a_jacobian_is_that_of_the_host(device: Any) -> None:
    there, here = FORMS["plane"](device), FORMS["plane"](None)
    u, x = state(here), state(here, 3)
    expected = here.jacobian(u) @ x
    found = there.jacobian(device.upload(u)) @ device.upload(x)
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=1e-12 * abs(expected).max())


def test_copies_and_pickles_stay_there(device: Any) -> None:
    F = FORMS["plane"](device)
    u = device.upload(state(F))
    expected = F.residual(u).get()
    for twin in (copy.deepcopy(F), pickle.loads(pickle.dumps(F))):
        np.testing.assert_allclose(twin.residual(u).get(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["space", "reproducible"])
def test_nothing_moves(name: str) -> None:
    """A launch (and a sum of what elements share), and a look at each least value."""
    device = guarded_device(options=["-O0"])
    F = FORMS[name](device)
    u, out = device.upload(state(F)), F.space.zeros()
    F.evaluate(u, out)
    launches = 2 if name == "reproducible" else 1
    with moves(device, launches=launches):
        F.residual(u, out)
    before = Moves.of(device)
    F.evaluate(u, out)
    after = Moves.of(device)
    assert after.looks - before.looks == 2
    assert after.uploads == before.uploads
    assert after.downloads - before.downloads == 1  # the integral's part of each element


def test_bad_input(device: Any) -> None:
    W = fields(device, (3, 2), (2, 1))
    with pytest.raises(femops.errors.OperatorError, match="lanes = 4 on a GPU"):
        femops.residual(flow, W, **FUNCTIONALS, kappa=0.5, lanes=4)
    F = femops.residual(flow, W, **FUNCTIONALS, kappa=0.5)
    u = device.upload(state(F))
    with pytest.raises(femops.errors.VectorError, match="host"):
        F.residual(state(F))
    with pytest.raises(femops.errors.VectorError, match="overlaps"):
        F.residual(u, u)
    with pytest.raises(femops.errors.VectorError, match="float64"):
        F.residual(u.astype("float32"))
    other = femops.L2(W.mesh, 1)
    with pytest.raises(femops.errors.SpaceError):
        femops.Product(v=W.spaces["v"], e=other)


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("name", ["space", "one test function"])
def test_sanitizers_find_nothing(name: str, sanitizer: str) -> None:
    require(sanitizer)
    device = host_device(shared_bytes=12 * 1024)
    F = FORMS[name](device)
    with device.recording() as launches:
        F.residual(state(F))
    for launch in launches:
        replay(launch, sanitizer)
