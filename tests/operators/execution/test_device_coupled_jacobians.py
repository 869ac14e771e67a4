"""Jacobians of coupled forms on a device: their data are computed there, of several fields."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution.device import LEVELS
from femops.operators.integrals.integral import Integral
from femops_kernels.errors import KernelValueError
from support.cases.kernels import bend, smooth, turned
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require
from support.oracles.dense_forms import DenseForm, Side
from support.oracles.points import Points

device = guarded.small_device
Make = Callable[[Any], femops.Residual]


def heated(v: Any, e: Any, x: Any) -> Any:
    """A vector and a scalar, each in the other's equation, with values and derivatives."""
    return {
        "v": {"grad": v.grad * (e * e), "value": v.value * (e * x[0])},
        "e": {"value": v[0] * v[0] * e + e.grad[0] * v[1], "grad": e.grad * v[0]},
    }


def spaces(device: Any, counts: tuple[int, ...], orders: tuple[int, int], **options: Any) -> Any:
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    V = femops.H1(mesh, orders[0], ncomp=len(counts), device=device, **options)
    return femops.Product(v=V, e=femops.L2(mesh, orders[1], device=device))


def state(F: femops.Residual, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(F.space.size).astype(F.dtype)


def close(got: Any, expected: Any, tolerance: float = 1e-13) -> None:
    np.testing.assert_allclose(got.get(), expected, rtol=0, atol=tolerance * abs(expected).max())


def agree(A: Any, B: Any, device: GuardedDevice, tolerance: float = 1e-13) -> None:
    """Products, of each field alone: scales differ."""
    x = np.random.default_rng(4).standard_normal(A.space.size).astype(A.dtype)
    expected, found = A @ x, B @ device.upload(x)
    for name in A.space.names:
        part = A.space.slice(name)
        close(found[part], expected[part], tolerance)


# --- the numbers ----------------------------------------------------------------------------------


def side(space: Any, family: str) -> Side:
    return Side(space.restriction.indices, space.ncomp, family, space.order, space.ndofs)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_blocks_are_the_integrals(scale: float, device: GuardedDevice) -> None:
    """By sums that share nothing with the library, on curved elements."""
    W = spaces(device, (3, 2), (2, 1))
    V, E = W.spaces.values()
    F = femops.residual(heated, W, quadrature=4)
    sides = {"v": side(V, "gll"), "e": side(E, "gauss")}
    dense = DenseForm(heated, Points(W.mesh, 4), sides, sides, {}, {"x"})
    u = scale * state(F)
    exact = dense.jacobian(*(u[W.slice(name)] for name in W.names))
    there = device.upload(u)
    before = device.host.downloads
    J = F.jacobian(there)
    there[:] = np.nan  # the state was copied
    for (test, field), matrix in exact.items():
        x = np.random.default_rng(2).standard_normal(W.spaces[field].size)
        expected = matrix.v @ x
        bound = 1e-13 * (abs(matrix.v) @ abs(x)).max()
        block = J[test, field]
        assert block is not None
        there = block @ device.upload(x)
        assert device.host.downloads == before
        assert abs(there.get() - expected).max() < bound
        before = device.host.downloads


def three(v: Any, e: Any, p: Any, x: Any, kappa: Any) -> Any:
    """Some blocks depend on all fields, one on none, some are zero."""
    return {
        "v": {"grad": (1 + p * p) * (e * v.grad), "value": v.value * np.exp(-p)},
        "e": {"value": kappa * e + np.sqrt(1 + p * p)},
        "p": {"grad": (1 + x[0] ** 2) * p.grad, "value": np.atleast_1d(v.value)[0] * e},
    }


def of_three(counts: tuple[int, ...], orders: tuple[int, int, int], **options: Any) -> Make:
    def form(device: Any) -> femops.Residual:
        W = spaces(device, counts, orders[:2], reproducible=options.get("reproducible", False))
        P = femops.H1(W.mesh, orders[2], family="bernstein", device=device)
        W = femops.Product(**W.spaces, p=P)
        given = {name: value for name, value in options.items() if name != "reproducible"}
        F = femops.residual(three, W, quadrature=max(orders) + 2, kappa=smooth, **given)
        return F.constrained(W.positions(p=P.boundary_dofs(1)))

    return form


FORMS: dict[str, Make] = {
    "line": of_three((7,), (3, 1, 2)),
    "plane": of_three((4, 3), (2, 1, 1)),
    "space": of_three((3, 2, 2), (2, 1, 1)),
    "constants": of_three((3, 4), (1, 0, 2)),
    "single": of_three((3, 2), (2, 1, 2), dtype="float32"),
    "reproducible": of_three((4, 3), (2, 2, 1), reproducible=True),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FORMS)
def test_jacobians_are_those_of_the_host(name: str, level: str, device: GuardedDevice) -> None:
    here, there = FORMS[name](None), FORMS[name](device)
    u = state(here)
    x = device.upload(u)
    before = device.host.downloads
    J, K = here.jacobian(u, level), there.jacobian(x, level)
    x[:] = 0.0
    _ = K @ x
    assert device.host.downloads == before
    tolerance = 1e-13 if here.dtype == np.float64 else 2e-6
    agree(J, K, device, tolerance)
    agree(here.jacobian(-u, level), there.jacobian(device.upload(-u), level), device, tolerance)


def test_blocks_of_no_state_are_linear_forms(device: GuardedDevice) -> None:
    J = FORMS["plane"](device).jacobian(device.upload(state(FORMS["plane"](None))))
    sources = {
        pair: set() if form.state is None else set(form.state.spaces)
        for pair in ((t, f) for t in J.space.names for f in J.space.names)
        if (block := J[pair]) is not None
        for form in [block.summands[0][1].source]
        if form is not None
    }
    every = {f"@state({name})" for name in J.space.names}
    assert sources == {
        ("v", "v"): every - {"@state(v)"},
        ("v", "e"): every - {"@state(e)"},
        ("v", "p"): every,
        ("e", "e"): set(),
        ("e", "p"): {"@state(p)"},
        ("p", "v"): {"@state(e)"},
        ("p", "e"): {"@state(v)"},
        ("p", "p"): set(),
    }


def of_two(device: Any) -> femops.Residual:
    return femops.residual(heated, spaces(device, (3, 2), (2, 1)), quadrature=4)


def test_transposes_diagonals_sums_and_matrices(device: GuardedDevice) -> None:
    here, there = of_two(None), of_two(device)
    u = state(here)
    J, K = here.jacobian(u), there.jacobian(device.upload(u))
    agree(J.T, K.T, device)
    close(K.diagonal(), J.diagonal())
    assert abs(J.assemble() - K.assemble()).max() < 1e-12
    assert J.cost() == K.cost()
    agree(0.5 * J + here.jacobian(-u), 0.5 * K + there.jacobian(device.upload(-u)), device)


def test_coefficients_and_copies(device: GuardedDevice) -> None:
    here, there = FORMS["plane"](None), FORMS["plane"](device)
    u = state(here)
    J, K = here.jacobian(u), there.jacobian(device.upload(u))
    agree(J.update(kappa=square), K.update(kappa=square), device)
    for twin in (copy.deepcopy(K), pickle.loads(pickle.dumps(K))):
        agree(J, twin, device)
    for form in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        agree(J, form.jacobian(device.upload(u)), device)


def square(x: Any) -> Any:
    return 2.0 + x[0] * x[0]


def test_single_precision_is_rounded_once(device: GuardedDevice) -> None:
    """Squares of numbers whose squares are not in its range, and no worse than the host."""

    def form(v: Any, e: Any) -> Any:
        return {"v": {"value": (v * v) * (e * e)}, "e": {}}

    found = []
    for place in (None, device):
        V = femops.H1(femops.box((3, 2), mapping=bend), 2, device=place)
        W = femops.Product(v=V, e=V)
        F = femops.residual(form, W, dtype="float32")
        u = np.concatenate([np.full(V.size, 1e25), np.full(V.size, 1e-25)]).astype("float32")
        x = np.random.default_rng(1).standard_normal(W.size).astype("float32")
        x[V.size :] = 0
        if place is None:
            found.append(F.jacobian(u) @ x)
        else:
            found.append((F.jacobian(device.upload(u)) @ device.upload(x)).get())
    assert np.isfinite(found[0]).all()
    assert abs(found[1] - found[0]).max() < 1e-6 * abs(found[0]).max()


# --- how it is done -------------------------------------------------------------------------------


def test_later_jacobians_take_one_launch_more(
    device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied back; the host evaluates a coefficient that is a function of x, once."""
    F = FORMS["plane"](device)
    u, x = device.upload(state(F)), device.upload(state(F, 2))
    out = F.space.zeros()
    evaluated: list[int] = []
    plain = Integral.values

    def values(self: Integral, stored: Any, block: Any, **options: Any) -> Any:
        if block.geometry.num_points > 1:
            evaluated.append(len(stored))
        return plain(self, stored, block, **options)

    monkeypatch.setattr(Integral, "values", values)
    F.jacobian(u).apply(x, out)
    assert sum(evaluated) == 1
    J = F.jacobian(u)
    before = device.host.launches, device.host.downloads
    J.apply(x, out)
    filled = device.host.launches - before[0]
    before = device.host.launches, device.host.downloads
    J.apply(x, out)
    again = device.host.launches - before[0]
    assert device.host.downloads == before[1]
    assert sum(evaluated) == 1
    assert filled == again + 1


def fills(source: str) -> tuple[int, int] | None:
    """Elements of a block of a kernel that fills, and of one that reads."""
    if "FILLED_PIECES" not in source:
        return None
    group, elements = (
        int(re.findall(rf"constexpr int {name} = (\d+);", source)[0])
        for name in ("GROUP", "ELEMENTS")
    )
    return elements, group


@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_sanitizers_find_nothing(sanitizer: str) -> None:
    """In a kernel whose blocks are parts of those of the kernel that reads, and in one of these."""
    require(sanitizer)
    device = host_device(shared_bytes=24 * 1024)
    F = FORMS["space"](device)
    J = F.jacobian(state(F))
    with device.recording() as launches:
        for block in (J["v", "p"], J["p", "v"]):
            assert block is not None
            _ = block @ np.ones(block.space.size)
    found = [(fills(launch.source), launch) for launch in launches]
    kinds = [kind for kind, _ in found if kind is not None]
    assert any(elements == group for elements, group in kinds)
    assert any(elements < group for elements, group in kinds)
    for kind, launch in found:
        if kind is not None:
            replay(launch, sanitizer)


def test_what_does_not_fit_is_refused() -> None:
    """The data of a block that is small itself."""
    device = guarded_device(shared_bytes=4 * 1024, options=["-O0"])
    W = spaces(device, (2, 2, 1), (2, 1))

    def form(v: Any, e: Any) -> Any:
        return {"v": {}, "e": {"value": e * e * femops.det(v.grad)}}

    J = femops.residual(form, W).jacobian(device.upload(np.ones(W.size)))
    block = J["e", "e"]
    assert block is not None
    with pytest.raises(KernelValueError, match=r"an element needs \d+ bytes of shared memory"):
        _ = block @ W.spaces["e"].zeros()
