"""Jacobians at states on a device: their data are computed there, as on the host."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution.device import LEVELS
from support.cases import nonlinear as nonlinear_cases
from support.cases.kernels import bend, smooth
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice

device = guarded.small_device


def state(V: Any, dtype: Any = "float64") -> np.ndarray:
    """Small and rough."""
    values: np.ndarray = 0.005 * np.random.default_rng(3).standard_normal(V.shape)
    return values.astype(dtype)


def direction(V: Any, dtype: Any = "float64") -> np.ndarray:
    values: np.ndarray = np.random.default_rng(4).standard_normal(V.shape)
    return values.astype(dtype)


def close(got: Any, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(got.get(), expected, rtol=0, atol=tolerance * abs(expected).max())


def agree(here: Any, there: Any, device: GuardedDevice, tolerance: float = 1e-13) -> None:
    """Products, those of the transpose, and diagonals."""
    x = direction(here.space, here.dtype)
    close(there.apply(device.upload(x)), here.apply(x), tolerance)
    close(there.T.apply(device.upload(x)), here.T.apply(x), tolerance)
    close(there.diagonal(), here.diagonal(), tolerance)


@pytest.mark.sample(5)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "dim"), nonlinear_cases.CASES)
def test_at_every_level(name: str, dim: int, level: str, device: GuardedDevice) -> None:
    spaces = [nonlinear_cases.make_space(name, dim, device=d) for d in (None, device)]
    here, there = (nonlinear_cases.FORMS[name][0](V) for V in spaces)
    u = state(spaces[0])
    dofs = spaces[0].boundary_dofs()
    x = device.upload(u)
    J, K = here.jacobian(u).at_level(level), there.jacobian(x).at_level(level)
    agree(J, K, device)
    agree(J.constrained(dofs), K.constrained(dofs), device)
    x[:] = 0.0  # the state was copied
    agree(J, there.jacobian(device.upload(u)).at_level(level), device)


@pytest.mark.sample(3)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("affine", [False, True])
def test_elasticity(affine: bool, dtype: str, reproducible: bool, device: GuardedDevice) -> None:
    """An odd number of elements, with numbers of elements and coefficients that vary."""
    mesh = femops.box((3, 3, 1)) if affine else femops.box((3, 3, 1), mapping=bend)
    V = femops.H1(mesh, 2, ncomp=3)
    W = femops.H1(mesh, 2, ncomp=3, device=device, reproducible=reproducible)
    here, there = (femops.neo_hookean(space, 1.3, smooth, dtype=dtype) for space in (V, W))
    u = state(V, dtype)
    J, K = here.jacobian(u), there.jacobian(device.upload(u))
    agree(J, K, device, 1e-13 if dtype == "float64" else 2e-6)
    again = K.apply(device.upload(direction(V, dtype))).get()
    if reproducible:
        x = device.upload(direction(V, dtype))
        np.testing.assert_array_equal(there.jacobian(device.upload(u)).apply(x).get(), again)


def test_other_states_and_coefficients(device: GuardedDevice) -> None:
    """What is kept of one does not serve another."""
    spaces = [nonlinear_cases.make_space("neo_hookean", 2, device=d) for d in (None, device)]
    here, there = (femops.neo_hookean(V, 1.3, smooth) for V in spaces)
    u = state(spaces[0])
    for factor in (1.0, -2.0):
        v = factor * u
        J, K = here.jacobian(v), there.jacobian(device.upload(v))
        agree(J, K, device)
        agree(J.update(mu=2.5), K.update(mu=2.5), device)
        agree(J, K, device)
    with pytest.raises(femops.errors.OperatorError, match="mu is not finite"):
        K.update(mu=lambda x: np.where(x[0] > 0.5, np.nan, 1.0))


def test_coefficients_that_are_overwritten(device: GuardedDevice) -> None:
    """What a form was given stays, although nothing of it was computed before."""
    here, there = (nonlinear_cases.make_space("neo_hookean", 2, device=d) for d in (None, device))
    c = np.array([1.3])
    F = femops.neo_hookean(there, lambda x: c[0] + x[0], 0.7)
    c[:] = 9.0
    u = state(here)
    x = device.upload(u)
    expected = femops.neo_hookean(here, lambda x: 1.3 + x[0], 0.7)
    close(F.residual(x), expected.residual(u), 1e-13)
    J, K = expected.jacobian(u), F.jacobian(x)
    x[:] = 0.0
    for level in LEVELS:
        agree(J.at_level(level), K.at_level(level), device)
    assert abs(J.assemble() - K.assemble()).max() < 1e-13


def test_sums_and_matrices(device: GuardedDevice) -> None:
    """One kernel with others, whose data the host computes."""
    spaces = [nonlinear_cases.make_space("cubic", 2, device=d) for d in (None, device)]
    u = state(spaces[0])
    J, K = (
        nonlinear_cases.FORMS["cubic"][0](V).jacobian(x) + 2.0 * femops.mass(V)
        for V, x in zip(spaces, (u, device.upload(u)), strict=True)
    )
    agree(J, K, device)
    assert abs(J.assemble() - K.assemble()).max() < 1e-13
    auto = K.at_level("auto")
    agree(J, auto, device)
    assert auto.level in LEVELS
    assert K.cost() == J.at_level(K.level).cost()


def test_copies(device: GuardedDevice) -> None:
    spaces = [nonlinear_cases.make_space("p_laplacian", 2, device=d) for d in (None, device)]
    u = state(spaces[0])
    J, K = (
        femops.p_laplacian(V, 3.5, 0.2).jacobian(x)
        for V, x in zip(spaces, (u, device.upload(u)), strict=True)
    )
    for other in (copy.copy(K), copy.deepcopy(K), pickle.loads(pickle.dumps(K))):
        assert other.space.device is device
        agree(J, other, device)


def plain(u: Any) -> dict[str, Any]:
    """Linear: nothing of a state is kept."""
    return {"value": u.value, "grad": 2.0 * u.grad}


def bends(u: Any, c: Any) -> dict[str, Any]:
    """Something of the state beside numbers that it has no part in."""
    return {"value": u.value**2, "grad": c * u.grad}


@pytest.mark.sample(2)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_little_is_kept(level: str, affine: bool, device: GuardedDevice) -> None:
    mesh = femops.box((3, 2)) if affine else femops.box((3, 2), order=2, mapping=bend)
    for function, given in ((plain, {}), (bends, {"c": smooth})):
        operators = []
        for where in (None, device):
            V = femops.H1(mesh, 3, device=where)
            u = state(V) if where is None else device.upload(state(V))
            F = femops.residual(function, V, **given)
            operators.append(F.jacobian(u).at_level(level))
        agree(*operators, device)
