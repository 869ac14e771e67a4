"""Residuals, functionals and Jacobians on a device: the numbers of the host, computed there."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution.device import LEVELS
from femops_kernels.errors import KernelValueError
from support.cases.kernels import bend
from support.cuda import guarded, host_values
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require
from support.cuda.moves import Moves, moves
from support.cuda.nonlinear_forms import (
    FORMS,
    by_element,
    curved,
    material,
    sourced,
    space,
    state,
)
from support.oracles.dense_forms import DenseForm, Side
from support.oracles.points import Points

device = guarded.small_device
evaluated = host_values.evaluated
LEVEL = {name: LEVELS[k % 2] for k, name in enumerate(FORMS)}
TOLERANCE = {"float64": 1e-12, "float32": 4e-6}


def parts(V: Any) -> list[slice]:
    """Of each field alone: scales differ."""
    return [V.slice(name) for name in V.names] if isinstance(V, femops.Product) else [slice(None)]


def close(V: Any, got: Any, expected: Any, tolerance: float = 1e-12) -> None:
    for part in parts(V):
        largest = max(abs(expected[part]).max(), 1e-30)
        np.testing.assert_allclose(
            got.get()[part], expected[part], rtol=0, atol=tolerance * largest
        )


def agree(here: Any, there: Any, device: GuardedDevice, tolerance: float = 1e-12) -> None:
    """Products, those of the transpose, and diagonals."""
    x = np.random.default_rng(4).standard_normal(here.space.size).astype(here.dtype)
    y = device.upload(x)
    close(here.space, there.apply(y), here.apply(x), tolerance)
    close(here.space, there.T.apply(y), here.T.apply(x), tolerance)
    close(here.space, there.diagonal(), here.diagonal(), tolerance)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FORMS)
def test_residuals(name: str, device: GuardedDevice, evaluated: list[int]) -> None:
    """Of two states, with functionals."""
    functions, make = FORMS[name]
    here, there = make(None), make(device)
    tolerance = TOLERANCE[str(here.dtype)]
    for seed in (1, 2):
        u = state(here, seed)
        expected, values = here.evaluate(u)
        got, found = there.evaluate(device.upload(u))
        close(here.space, got, expected, tolerance)
        assert found == pytest.approx(values, rel=tolerance, abs=tolerance)
        for least in here.functionals.minima:
            assert there.element_of(least) == here.element_of(least)
    assert sum(evaluated) == functions
    held = np.arange(0, here.space.size, 5)
    expected = here.constrained(held).residual(u)
    close(here.space, there.constrained(held).residual(device.upload(u)), expected, tolerance)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", [name for name in FORMS if name != "functionals alone"])
def test_jacobians(name: str, device: GuardedDevice) -> None:
    """At two states, which are copied; nothing is copied back."""
    here, there = (FORMS[name][1](one) for one in (None, device))
    held, tolerance = np.arange(0, here.space.size, 5), TOLERANCE[str(here.dtype)]
    for sign in (1, -1):
        u = sign * state(here)
        x = device.upload(u)
        J, K = here.jacobian(u, LEVEL[name]), there.jacobian(x, LEVEL[name])
        x[:], before = 0.0, device.host.downloads
        _ = K @ x
        assert device.host.downloads == before
        agree(J, K, device, tolerance)
    agree(J.constrained(held), K.constrained(held), device, tolerance)


def square(x: Any) -> Any:
    return 2.0 + x[0] * x[0]


def test_copies_and_coefficients(device: GuardedDevice, evaluated: list[int]) -> None:
    """Copies stay there; numbers of elements are no functions, which the host evaluates."""
    here, there = (sourced(2, 2.0)(one) for one in (None, device))
    u = state(here)
    expected = here.residual(u)
    for twin in (there, copy.deepcopy(there), copy.copy(there), pickle.loads(pickle.dumps(there))):
        close(here.space, twin.residual(device.upload(u)), expected)
        assert twin.space.device is device
    for k in (lambda _: 3.0, by_element):
        here, there = here.update(k=k(here.space.mesh)), there.update(k=k(there.space.mesh))
        close(here.space, there.residual(device.upload(u)), here.residual(u))
    assert not evaluated
    here, there = (FORMS["three in the plane"][1](one) for one in (None, device))
    u = state(here)
    J, K = here.jacobian(u), there.jacobian(device.upload(u))
    agree(J.update(kappa=square), K.update(kappa=square), device)
    for twin in (copy.copy(K), copy.deepcopy(K), pickle.loads(pickle.dumps(K))):
        agree(J, twin, device)
    agree(J, pickle.loads(pickle.dumps(there)).jacobian(device.upload(u)), device)
    with pytest.raises(femops.errors.OperatorError, match="kappa is not finite"):
        K.update(kappa=lambda x: np.where(x[0] > 0.5, np.nan, 1.0))


def test_coefficients_that_are_overwritten(device: GuardedDevice) -> None:
    """What a form was given stays, although nothing of it was computed before."""
    c = np.array([1.3])
    F = material(2, lambda x: c[0] + x[0])(device)
    c[:] = 9.0
    expected = material(2, lambda x: 1.3 + x[0])(None)
    u = state(expected)
    close(F.space, F.residual(device.upload(u)), expected.residual(u))
    J, K = expected.jacobian(u), F.jacobian(device.upload(u))
    for level in LEVELS:
        agree(J.at_level(level), K.at_level(level), device)
    assert abs(J.assemble() - K.assemble()).max() < 1e-13


@pytest.mark.parametrize("scale", [1e-20, 1e-7, 1e20])
def test_meshes_of_any_size(scale: float, device: GuardedDevice) -> None:
    """The determinants range over 120 orders of magnitude."""

    def form(u: Any) -> Any:
        return {"value": u.value**3, "grad": (1 + u * u) * u.grad}

    mesh = femops.box((5, 3, 2), order=2, mapping=lambda x: scale * bend(x))
    here, there = (femops.residual(form, femops.H1(mesh, 2, device=one)) for one in (None, device))
    u = state(here)
    close(here.space, there.residual(device.upload(u)), here.residual(u))


# --- several fields -------------------------------------------------------------------------------


def heated(v: Any, e: Any, x: Any) -> Any:
    """A vector and a scalar, each in the other's equation, with values and derivatives."""
    return {
        "v": {"grad": v.grad * (e * e), "value": v.value * (e * x[0])},
        "e": {"value": v[0] * v[0] * e + e.grad[0] * v[1], "grad": e.grad * v[0]},
    }


def of_two(device: Any) -> femops.Residual:
    mesh = curved(2)
    V, E = femops.H1(mesh, 2, ncomp=2, device=device), femops.L2(mesh, 1, device=device)
    return femops.residual(heated, femops.Product(v=V, e=E), quadrature=4)


def side(space: Any, family: str) -> Side:
    return Side(space.restriction.indices, space.ncomp, family, space.order, space.ndofs)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_blocks_are_the_integrals(scale: float, device: GuardedDevice) -> None:
    """By sums that share nothing with the library, on curved elements."""
    F = of_two(device)
    W = F.space
    V, E = W.spaces.values()
    sides = {"v": side(V, "gll"), "e": side(E, "gauss")}
    dense = DenseForm(heated, Points(W.mesh, 4), sides, sides, {}, {"x"})
    u = scale * state(F)
    exact = dense.jacobian(*(u[W.slice(name)] for name in W.names))
    J = F.jacobian(device.upload(u))
    for (test, field), matrix in exact.items():
        x = np.random.default_rng(2).standard_normal(W.spaces[field].size)
        bound = 1e-13 * (abs(matrix.v) @ abs(x)).max()
        block = J[test, field]
        assert block is not None
        assert abs((block @ device.upload(x)).get() - matrix.v @ x).max() < bound


def test_matrices_and_sums(device: GuardedDevice) -> None:
    """Of Jacobians at two states, and of one whose level is chosen by measurement."""
    here, there = of_two(None), of_two(device)
    u = state(here)
    J, K = here.jacobian(u), there.jacobian(device.upload(u))
    assert abs(J.assemble() - K.assemble()).max() < 1e-12
    assert J.cost() == K.cost()
    agree(0.5 * J + here.jacobian(-u), 0.5 * K + there.jacobian(device.upload(-u)), device)
    A, B = (sourced(2, 2.0)(one) for one in (None, device))
    u = state(A)
    A, B = (
        A.jacobian(u) + 2.0 * femops.mass(A.space),
        (B.jacobian(device.upload(u)) + 2.0 * femops.mass(B.space)),
    )
    auto = B.at_level("auto")
    agree(A, auto, device)
    assert auto.level in LEVELS
    assert B.cost() == A.at_level(B.level).cost()


def test_blocks_of_no_state_are_linear_forms(device: GuardedDevice) -> None:
    F = FORMS["three in the plane"][1](device)
    J = F.jacobian(device.upload(state(F)))
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


def test_single_precision_is_rounded_once(device: GuardedDevice) -> None:
    """Squares of numbers whose squares are not in its range, and no worse than the host."""

    def form(v: Any, e: Any) -> Any:
        return {"v": {"value": (v * v) * (e * e)}, "e": {}}

    found = []
    for place in (None, device):
        V = femops.H1(femops.box((3, 2), mapping=bend), 2, device=place)
        F = femops.residual(form, femops.Product(v=V, e=V), dtype="float32")
        u = np.concatenate([np.full(V.size, 1e25), np.full(V.size, 1e-25)]).astype("float32")
        x = np.random.default_rng(1).standard_normal(2 * V.size).astype("float32")
        x[V.size :] = 0
        put, get = V.memory.put, V.memory.get
        found.append(get(F.jacobian(put(u)) @ put(x)))
    assert np.isfinite(found[0]).all()
    assert abs(found[1] - found[0]).max() < 1e-6 * abs(found[0]).max()


def test_repeated_calls_give_the_same_bits(device: GuardedDevice) -> None:
    F = FORMS["reproducible flow"][1](device)
    u = device.upload(state(F))
    residual, product = F.residual(u).get(), (F.jacobian(u) @ u).get()
    out = F.space.zeros()
    out[:] = np.nan
    for _ in range(2):
        assert F.residual(u, out) is out
        assert out.get().tobytes() == residual.tobytes()
        assert (F.jacobian(u) @ u).get().tobytes() == product.tobytes()


def test_what_is_not_a_number_is_least(device: GuardedDevice) -> None:
    F = FORMS["three in the plane"][1](device)
    u = state(F)
    u[F.space.offsets["e"] + 5] = np.nan
    found = F.evaluate(device.upload(u))[1]
    assert np.isnan(found["least"])
    assert not np.isnan(found["stretch"])
    assert F.element_of("least") == 5 // F.space.spaces["e"].p1d ** 2


def test_bad_input(device: GuardedDevice) -> None:
    F = of_two(device)
    W, u = F.space, device.upload(state(F))
    with pytest.raises(femops.errors.OperatorError, match="lanes = 4 on a GPU"):
        femops.residual(heated, W, lanes=4)
    with pytest.raises(femops.errors.VectorError, match="host"):
        F.residual(state(F))
    with pytest.raises(femops.errors.VectorError, match="overlaps"):
        F.residual(u, u)
    with pytest.raises(femops.errors.VectorError, match="float64"):
        F.residual(u.astype("float32"))
    with pytest.raises(femops.errors.SpaceError):
        femops.Product(v=W.spaces["v"], e=femops.L2(W.mesh, 1))


# --- what is kept at points is computed on the device ---------------------------------------------


@pytest.mark.parametrize("name", ["space", "flow in space", "functionals alone"])
def test_nothing_at_points_is_copied(
    name: str, device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch computes what is kept at points, one looks at its signs."""
    F = FORMS[name][1](device)
    if name == "flow in space":
        F = F.update(nu=0.1)  # of a function the host evaluates numbers
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


@pytest.mark.parametrize("name", ["three in space", "reproducible material"])
def test_nothing_moves(name: str, device: GuardedDevice) -> None:
    """A launch (and a sum of what elements share), and a look at each least value."""
    F = FORMS[name][1](device)
    u, out = device.upload(state(F)), F.space.zeros()
    F.evaluate(u, out)
    with moves(device, launches=2 if name == "reproducible material" else 1):
        F.residual(u, out)
    before = Moves.of(device)
    F.evaluate(u, out)
    after = Moves.of(device)
    assert after.looks - before.looks == len(F.functionals.minima)
    assert after.uploads == before.uploads
    downloads = len(F.functionals.integrals)  # parts of each element
    assert after.downloads - before.downloads == downloads


def test_later_jacobians_take_one_launch_more(device: GuardedDevice, evaluated: list[int]) -> None:
    """Nothing is copied back; the host evaluates a coefficient that is a function of x, once."""
    F = FORMS["three in the plane"][1](device)
    u, x = device.upload(state(F)), device.upload(state(F, 2))
    out = F.space.zeros()
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


@pytest.mark.sample(12)
@pytest.mark.parametrize("sanitizer", [THREAD, ADDRESS])
@pytest.mark.parametrize("name", ["space, material", "flow in space", "one test function"])
def test_sanitizers_find_nothing_in_residuals(name: str, sanitizer: str) -> None:
    require(sanitizer)
    device = host_device(shared_bytes=12 * 1024)
    F = FORMS[name][1](device)
    with device.recording() as launches:
        F.residual(state(F))
    assert any(fills(launch.source) for launch in launches)
    for launch in launches:
        replay(launch, sanitizer)


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_sanitizers_find_nothing_in_jacobians(sanitizer: str) -> None:
    """In a kernel whose blocks are parts of those of the kernel that reads, and in one of these."""
    require(sanitizer)
    device = host_device(shared_bytes=24 * 1024)
    F = FORMS["three in space"][1](device)
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
    device = guarded_device(shared_bytes=4 * 1024)
    V = space(device, 3, ncomp=3)
    W = femops.Product(v=V, e=femops.L2(V.mesh, 1, device=device))

    def form(v: Any, e: Any) -> Any:
        return {"v": {}, "e": {"value": e * e * femops.det(v.grad)}}

    J = femops.residual(form, W).jacobian(device.upload(np.ones(W.size)))
    block = J["e", "e"]
    assert block is not None
    with pytest.raises(KernelValueError, match=r"an element needs \d+ bytes of shared memory"):
        _ = block @ W.spaces["e"].zeros()
