"""What operators store at points is computed on the device: the numbers of the host."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.geometry.jacobians import Geometry
from support.cases.kernels import bend, turned
from support.cuda import guarded, host_values
from support.cuda.guarded import GuardedDevice

device = guarded.small_device
evaluated = host_values.evaluated
Make = Callable[[Any], Any]


def space(device: Any, dim: int = 3, order: int = 2, **options: Any) -> Any:
    mesh = turned(femops.box((2, 3, 2)[:dim], order=2, mapping=bend))
    return femops.H1(mesh, order, device=device, **options)


def anisotropic(u: Any, x: Any, kappa: Any, rho: Any) -> Any:
    """Geometry, positions and coefficients, with a division and a root."""
    return {"grad": kappa * u.grad / (1 + x[0] ** 2), "value": np.sqrt(rho) * u.grad[0]}


def by_element(V: Any) -> Any:
    values = 1.0 + np.arange(V.mesh.num_elements)
    return femops.GridFunction(femops.L2(V.mesh, 0), values)


FORMS: dict[str, tuple[int, Make]] = {
    "mass": (1, femops.mass),
    "diffusion": (3, femops.diffusion),
    "tensor": (2, lambda V: femops.diffusion(V, kappa=[[2.0, 0.5], [0.5, 3.0]])),
    "function": (3, lambda V: femops.diffusion(V, kappa=lambda x: 1 + x[0] * x[1])),
    "by element": (3, lambda V: femops.diffusion(V, kappa=by_element(V))),
    "vector": (2, femops.mass),
    "elasticity": (3, lambda V: femops.elasticity(V, lam=2.0, mu=lambda x: 1 + x[0] ** 2)),
    "convection": (2, lambda V: femops.convection(V, beta=lambda x: np.stack([x[1], -x[0]]))),
    "own": (3, lambda V: femops.form(anisotropic, V, kappa=2.0, rho=lambda x: 2 + x[2])),
}


def pair(name: str, device: Any, **options: Any) -> tuple[Any, Any]:
    dim, make = FORMS[name]
    if name in ("vector", "elasticity"):
        options["ncomp"] = dim
    here, there = (make(space(one, dim, **options)) for one in (None, device))
    return here, there


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, device: GuardedDevice, evaluated: list[int]) -> None:
    here, there = pair(name, device)
    x = np.random.default_rng(1).standard_normal(here.space.size)
    for one, other in ((here, there), (here.T, there.T), (2.0 * here, 2.0 * there)):
        expected = one @ x
        got = (other @ device.upload(x)).get()
        assert abs(got - expected).max() < 1e-13 * abs(expected).max()
    diagonal = here.diagonal()
    assert abs(there.diagonal().get() - diagonal).max() < 1e-13 * abs(diagonal).max()
    functions = {"function": 1, "own": 1, "elasticity": 1, "convection": 2}
    assert sum(evaluated) <= 3 * functions.get(name, 0)  # coefficients that are functions


@pytest.mark.parametrize("kind", [{"data_dtype": "float32"}, {"dtype": "float32"}])
def test_single_precision_is_rounded_once(kind: dict[str, str], device: GuardedDevice) -> None:
    here, there = (femops.diffusion(space(one), **kind) for one in (None, device))
    exact = femops.diffusion(space(None))
    x = np.random.default_rng(1).standard_normal(here.space.size)
    given = device.upload(x.astype(here.dtype))
    off = [abs(y - exact @ x).max() for y in (here @ x.astype(here.dtype), (there @ given).get())]
    assert off[1] < 1.5 * off[0] < 1e-5


def test_coefficients_are_updated(device: GuardedDevice, evaluated: list[int]) -> None:
    V = space(None)
    W = femops.H1(V.mesh, 2, device=device)
    here, there = femops.diffusion(V), femops.diffusion(W)
    x = np.random.default_rng(1).standard_normal(V.size)
    for kappa in (3.0, by_element(V)):
        here, there = here.update(kappa=kappa), there.update(kappa=kappa)
        expected = here @ x
        assert abs((there @ device.upload(x)).get() - expected).max() < 1e-13 * abs(expected).max()
    assert not evaluated


def test_sums_are_computed_there(device: GuardedDevice, evaluated: list[int]) -> None:
    """Of terms with factors, also where one is kept as elements have it."""
    for dim, mapping in ((3, bend), (2, None)):
        mesh = femops.box((2, 3, 2)[:dim], order=2, mapping=mapping)
        V, W = femops.H1(mesh, 2), femops.H1(mesh, 2, device=device)
        x = np.random.default_rng(1).standard_normal(V.size)
        for kind in ({}, {"data_dtype": "float32"}, {"dtype": "float32"}):
            here, there = (
                2.0 * femops.diffusion(U, kappa=3.0, **kind)
                - 0.5 * femops.mass(U, rho=by_element(V), **kind)
                + femops.convection(U, beta=np.arange(1.0, dim + 1), **kind)
                for U in (V, W)
            )
            expected = here @ x.astype(here.dtype)
            got = (there @ device.upload(x.astype(here.dtype))).get()
            off = 1e-13 if not kind else 2e-6
            assert abs(got - expected).max() < off * abs(expected).max()
    assert not evaluated


def test_matrices_and_sums_have_the_numbers_of_the_host(device: GuardedDevice) -> None:
    here, there = pair("function", device)
    assert abs(here.assemble() - there.assemble()).max() < 1e-13
    assert here.cost() == there.cost()
    V, W = here.space, there.space
    x = np.random.default_rng(1).standard_normal(V.size)
    expected = (here + 2.0 * femops.mass(V)) @ x
    got = ((there + 2.0 * femops.mass(W)) @ device.upload(x)).get()
    assert abs(got - expected).max() < 1e-13 * abs(expected).max()
    copy = pickle.loads(pickle.dumps(there))
    assert abs((copy @ device.upload(x)).get() - here @ x).max() < 1e-13 * abs(here @ x).max()


@pytest.mark.parametrize("summed", [False, True])
def test_data_go_with_their_operators(summed: bool, device: GuardedDevice) -> None:
    """What is filled for one that nobody has any more does not stay."""
    V = space(device, 2)
    F = femops.residual(lambda u: {"value": u.value**3}, V)
    x = V.interpolate(1.0)
    arrays = device.host.arrays
    for make in (lambda: femops.mass(V), lambda: F.jacobian(x)):
        known = []
        for _ in range(3):
            A = make() + 2.0 * femops.diffusion(V) if summed else make()
            gone = weakref.ref(A.summands[0][1])
            _ = A @ x
            del A, _
            gc.collect()
            assert gone() is None
            known.append(sum(array.nbytes for array in arrays.values()))
        assert known[1] == known[2]


def test_what_numbers_are_computed_of_does_not_stay(device: GuardedDevice) -> None:
    """Neither the geometry nor values of coefficients: only what each application reads."""
    V = space(device, 2)
    x = V.interpolate(1.0)
    _ = femops.mass(V) @ x
    for make in (
        lambda: femops.mass(V),
        lambda: femops.diffusion(V, kappa=lambda x: 1 + x[0] * x[1]),
        lambda: femops.mass(V) + 2.0 * femops.diffusion(V),
    ):
        gc.collect()
        before = set(device.host.arrays)
        A = make()
        _ = A @ x
        del _
        gc.collect()
        new = [device.host.arrays[at] for at in set(device.host.arrays) - before]
        assert [array.ndim for array in new] == [4]  # streams


@pytest.mark.parametrize("kappa", [3.0, lambda x: 1 + x[0] * x[1]])
def test_the_geometry_is_looked_at_there(
    kappa: Any, device: GuardedDevice, evaluated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a launch, once for a mesh and its points, where nothing of it is stored."""

    def form(u: Any, x: Any, kappa: Any) -> Any:
        return {"grad": np.sqrt(2 + x[0]) * kappa * u.grad}

    W = space(device, 2)
    V = femops.H1(W.mesh, 2)
    x = np.random.default_rng(1).standard_normal(V.size)
    here = femops.form(form, V, kappa=kappa, level="matrix-free")
    expected, plain = here @ x, 2.0 * (here @ x) + femops.mass(V) @ x
    monkeypatch.delattr(Geometry, "check")
    there = femops.form(form, W, kappa=kappa, level="matrix-free")
    summed = 2.0 * there + femops.mass(W, level="matrix-free")
    launches = [device.host.launches]
    for A, y in ((there, expected), (summed, plain), (there, expected)):
        assert abs((A @ device.upload(x)).get() - y).max() < 1e-13 * abs(y).max()
        launches.append(device.host.launches)
    assert np.diff(launches).tolist() == [3, 2, 1]
    assert sum(evaluated) == (2 if callable(kappa) else 0)


def test_a_level_is_chosen_without_data(device: GuardedDevice, evaluated: list[int]) -> None:
    V = space(device)
    A = femops.diffusion(V, level="auto") + femops.mass(V, level="auto")
    _ = A @ device.upload(np.ones(V.size))
    assert A.level in ("partial", "matrix-free")
    assert not evaluated
