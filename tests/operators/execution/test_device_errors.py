"""What is wrong with elements and coefficients is found on the device: the errors of the host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import femops
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice
from support.cuda.nonlinear_forms import by_element, space

device = guarded.small_device
Make = Callable[[Any], Any]


def message(make: Make, V: Any) -> tuple[type, str]:
    """What is raised when a form is made or first used, and when it is used again."""
    found = []

    def use() -> None:
        form = make(V)
        for _ in range(2):
            x = form.space.memory.put(np.ones(form.space.size, form.dtype))
            with pytest.raises(femops.errors.FemopsError) as error:
                form.residual(x) if isinstance(form, femops.Residual) else form.apply(x)
            found.append(error.value)
        raise found[0]

    with pytest.raises(femops.errors.FemopsError) as error:
        use()
    assert len({str(one) for one in [error.value, *found]}) == 1
    return type(error.value), str(error.value)


def reaction(u: Any, k: Any) -> Any:
    return {"value": k * u.value}


def cubic(V: Any) -> Any:
    return femops.residual(lambda u: {"value": u.value**3}, V)


def derivative(V: Any) -> Any:
    return cubic(V).jacobian(V.interpolate(1.0))


def pair(V: Any) -> Any:
    def form(v: Any, e: Any) -> Any:
        return {"v": {"value": v * e}, "e": {"value": e * e}, "least": e.value}

    return femops.residual(form, femops.Product(v=V, e=V), minima=["least"])


# --- elements -------------------------------------------------------------------------------------


def folded(x: Any) -> Any:
    """Turned over near zero, where the few points have none at which the mesh itself looks."""
    return x**2 - 0.1 * x


@pytest.mark.parametrize(
    "make",
    [femops.mass, derivative, lambda V: femops.mass(V, level="matrix-free"), cubic, pair],
)
def test_elements_that_are_turned_over(make: Make, device: GuardedDevice) -> None:
    mesh = femops.box((1,), order=2, mapping=folded)
    expected = message(make, femops.H1(mesh, 6))
    assert expected[0] is femops.errors.GeometryError
    assert message(make, femops.H1(mesh, 6, device=device)) == expected


def corner(x: Any) -> Any:
    """As `folded`, in the first row of elements alone."""
    return np.stack([x[0] ** 2 - (0.05 - 0.5 * x[1]) * x[0], x[1]])


@pytest.mark.parametrize(
    ("order", "dtype", "level"),
    [
        (3, "float64", "partial"),
        (4, "float32", "matrix-free"),
        (5, "float64", "matrix-free"),
        (6, "float32", "partial"),
    ],
)
def test_one_element_that_is_turned_over(
    order: int, dtype: str, level: str, device: GuardedDevice
) -> None:
    """Whatever the number of points: lines of some do not fill whole pieces of streams."""
    mesh, found = femops.box((2, 3), order=2, mapping=corner), []
    for there in (None, device):
        try:
            V = femops.H1(mesh, order, device=there)
            _ = femops.mass(V, level=level, dtype=dtype) @ V.memory.put(np.ones(V.size, dtype))
            found.append("")
        except femops.errors.GeometryError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert bool(found[0]) == (order > 3)


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
def test_a_negative_weight_hides_no_element(level: str, device: GuardedDevice) -> None:
    """Determinant times weight is positive where both are negative."""
    rule = femops.basis.Quadrature1D(np.array([0.02, 0.5, 0.98]), np.array([-0.1, 0.8, 0.3]), "own")
    for mapping, error in ((None, None), (folded, femops.errors.GeometryError)):
        V = femops.H1(femops.box((1,), order=2, mapping=mapping), 2, device=device)
        A = femops.mass(V, quadrature=rule, level=level)
        with pytest.raises(error) if error else nullcontext():
            A.apply(V.zeros())


# --- numbers --------------------------------------------------------------------------------------


def rooted(u: Any, x: Any) -> Any:
    return {"grad": np.sqrt(x[0] - 0.5) * u.grad}


def mapped(V: Any) -> Any:
    """Nothing is stored, and a root of the position computed in each application."""
    return femops.form(rooted, V, level="matrix-free")


def with_one(V: Any, value: float) -> Any:
    """Found on the host, at once."""
    field = by_element(V.mesh)
    field.vector[1] = value
    return femops.form(lambda u, k: {"grad": 1e10 * k * u.grad}, V, k=field)


def kept(V: Any) -> Any:
    """Computed once, and kept."""

    def form(u: Any, x: Any, k: Any) -> Any:
        return {"grad": np.log(k + x[0]) * u.value * u.grad}

    return femops.residual(form, V, k=-1.0)


def too_large(V: Any) -> Any:
    field = femops.GridFunction(femops.L2(V.mesh, 1), np.full(V.mesh.num_elements * 4, 1e30))
    return femops.residual(lambda u, k: {"value": k * k * u.value**2}, V, k=field, dtype="float32")


NOT_FINITE: list[Make] = [
    lambda V: femops.form(rooted, V),
    mapped,
    lambda V: 2.0 * mapped(V) + femops.mass(V, level="matrix-free"),
    lambda V: with_one(V, np.nan),
    lambda V: with_one(V, 1e308),
    lambda V: femops.residual(lambda u, x: {"value": np.sqrt(x[0] - 0.5) * u.value**2}, V),
    kept,
    too_large,
    lambda V: femops.mass(V, rho=1e-42, data_dtype="float32"),  # zero, or of few digits
    lambda V: femops.mass(V, rho=1e-300, data_dtype="float32"),
]


@pytest.mark.parametrize("make", NOT_FINITE)
def test_numbers_that_are_not_finite_or_out_of_range(make: Make, device: GuardedDevice) -> None:
    expected = message(make, space(None, 2))
    assert expected[0] is femops.errors.OperatorError
    assert message(make, space(device, 2)) == expected


def test_zeros_are_no_harm(device: GuardedDevice) -> None:
    V = space(device, 2)
    femops.form(reaction, V, k=0.0, data_dtype="float32").apply(V.zeros())
