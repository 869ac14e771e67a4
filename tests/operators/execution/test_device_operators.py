"""Operators on a device against the naive oracle: every form, over a cover of all that varies.

``make exhaustive`` runs the product of forms, levels, dimensions, degrees, meshes and sizes.
"""

from __future__ import annotations

import itertools
from typing import Any, final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import femops
from femops.operators.execution.device import LEVELS
from support.cases import products as product_cases
from support.cases.kernels import bend, random_vector, smooth, turned
from support.cases.levels import FORMS
from support.cases.products import CASES as PRODUCTS
from support.cases.products import Case as ProductCase
from support.cases.products import error, held, vector
from support.cuda import guarded
from support.cuda.device_cases import FACTORS, PAIRWISE, DeviceCase, cover, product
from support.cuda.guarded import GuardedDevice, guarded_device
from support.oracles.naive import Oracle

device = guarded.small_device


def test_the_cover_holds_every_pair_that_makes_sense() -> None:
    met = set().union(*(PAIRWISE.pairs(case.values()) for case in cover()))
    assert PAIRWISE.feasible <= met
    assert len(PAIRWISE.feasible) > 1100
    assert len(cover()) <= 100
    together = {(case.case.form, case.case.level) for case in cover()}
    assert len(together) == len(FORMS) * len(LEVELS)


def check(case: DeviceCase, device: GuardedDevice) -> None:
    operator, dense = case.build(device)
    assert operator.level == case.case.level
    u = random_vector(operator.space, case.case.dtype)
    x = device.upload(u)
    result = operator.apply(x)
    assert result.dtype == case.case.dtype
    assert dense.error(result.get(), u) < case.tolerance
    if operator.space is operator.test_space:
        gap = operator.diagonal().get().ravel() - dense.matrix.diagonal()
        assert abs(gap).max() < case.tolerance * abs(dense.matrix).max()
    if case.reproducible:
        assert backwards(device, operator, x).get().tobytes() == result.get().tobytes()


def backwards(device: GuardedDevice, operator: Any, x: Any) -> Any:
    """A x, blocks and threads the other way around."""
    device.host.backwards = True
    try:
        return operator.apply(x)
    finally:
        device.host.backwards = False


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", cover(), ids=str)
def test_every_form_on_a_device_is_the_oracles(case: DeviceCase, device: GuardedDevice) -> None:
    check(case, device)


FULL = [
    choice
    for choice in itertools.product(FACTORS["form"], LEVELS, FACTORS["dim"], FACTORS["p"])
    if any(product(*choice))
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("form", "level", "dim", "p"), FULL)
def test_full_product(form: str, level: str, dim: int, p: int) -> None:
    device = guarded_device(shared_bytes=12 * 1024)
    for case in product(form, level, dim, p):
        check(case, device)


# --- sizes ----------------------------------------------------------------------------------------

ORDERS = [(dim, p) for dim in (1, 2) for p in range(1, 11)] + [(3, 1), (3, 2), (3, 3), (3, 5)]
HIGH = [(3, p) for p in (4, 6, 7, 8, 9, 10)]


def counts_of(dim: int, p: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Elements in each direction: from one to several blocks of them, not too many unknowns."""
    most = {1: 300, 2: max(2, 40 // p), 3: 5 if p < 3 else 2}[dim]
    return st.tuples(*[st.integers(1, most)] * dim)


def check_size(device: GuardedDevice, counts: tuple[int, ...], p: int, family: Any) -> None:
    mesh = turned(femops.box(counts, mapping=bend))
    here, there = (femops.H1(mesh, p, family=family, device=place) for place in (None, device))
    A = femops.mass(there, smooth) + femops.diffusion(there)
    oracle = Oracle(mesh.coordinates, here.restriction.indices, family)
    u = random_vector(here, "float64")
    result = A @ device.upload(u)
    assert (oracle.mass(smooth) + oracle.diffusion()).error(result.get(), u) < 1e-13


def check_sizes(device: GuardedDevice, dim: int, p: int, family: Any) -> None:
    """One element, a block less and more one, and any numbers."""
    V = femops.H1(femops.box((1,) * dim), p, family=family, device=device)
    block = femops.diffusion(V).compiled.sweeps[0].kernel.shape.elements
    for number in {1, max(1, block - 1), block + 1}:
        check_size(device, (number, *(1,) * (dim - 1)), p, family)

    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(counts=counts_of(dim, p))
    def check_any(counts: tuple[int, ...]) -> None:
        check_size(device, counts, p, family)

    check_any()


@pytest.mark.sample(6)
@pytest.mark.parametrize(("dim", "p"), ORDERS)
def test_any_number_of_elements(dim: int, p: int, device: GuardedDevice) -> None:
    check_sizes(device, dim, p, "gll" if p % 3 else "bernstein")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dim", "p"), HIGH)
def test_any_number_of_elements_of_high_order(dim: int, p: int) -> None:
    check_sizes(guarded_device(shared_bytes=64 * 1024), dim, p, "gll")


# --- several fields, nonlinear forms --------------------------------------------------------------

NAMES = ["stokes-2d", "thermo-elasticity-3d-single", "one-space-twice-1d", "an-empty-row-2d"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMES)
def test_products(name: str, device: GuardedDevice) -> None:
    check_product(next(case for case in PRODUCTS if case.name == name), device)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [c for c in PRODUCTS if c.name not in NAMES], ids=str)
def test_other_products(case: ProductCase, device: GuardedDevice) -> None:
    check_product(case, device)


def check_product(case: ProductCase, device: GuardedDevice) -> None:
    W, A, matrix = case.build(device)
    tolerance = product_cases.TOLERANCE[case.dtype]
    x = vector(W.size, case.dtype)
    there = device.upload(x)
    assert error(matrix, (A @ there).get(), x) < tolerance
    assert error(matrix.T, (A.T @ there).get(), x) < tolerance
    a, b = W.names[:2]
    dofs = W.positions(**{a: W.spaces[a].boundary_dofs(), b: [0, 2]})
    C = A.constrained(dofs)
    assert error(held(matrix, dofs), C.apply(there).get(), x) < tolerance
    gap = C.diagonal().get() - held(matrix, dofs).diagonal()
    assert abs(gap).max() < tolerance * abs(matrix).max()
    g = vector(W.size, case.dtype, 1)
    lifted = x - matrix[:, dofs] @ g[dofs]
    lifted[dofs] = g[dofs]
    result = C.rhs(there, device.upload(g)).get()
    assert np.linalg.norm(result - lifted) < tolerance * np.linalg.norm(abs(matrix) @ abs(g))


def test_vectors_of_products(device: GuardedDevice) -> None:
    W = product_cases.STOKES.product(device=device)
    there = W.interpolate(u=[1.0, 2.0], p=lambda x: x[0])
    u, p = W.split(there)
    assert device.owns(u)
    assert np.shares_memory(u.host, there.host)
    np.testing.assert_array_equal(u.get(), np.tile([1.0, 2.0], W.spaces["u"].ndofs))
    np.testing.assert_array_equal(p.get(), W.spaces["p"].dof_coordinates()[:, 0])
    np.testing.assert_array_equal(W.join(u=u, p=p).get(), there.get())
    np.testing.assert_array_equal(W.split(W.join(p=p))[0].get(), 0.0)
    assert device.owns(W.zeros("float32"))


# --- what operators are asked for -----------------------------------------------------------------


@final
class Both:
    """A constrained operator between vectors of two components, on the host and on a device."""

    def __init__(self, device: GuardedDevice) -> None:
        self.device = device
        self.spaces = [femops.H1(femops.disc(2), 2, ncomp=2, device=d) for d in (None, device)]
        self.here, self.there = (
            femops.elasticity(V, smooth, 1.0).constrained(V.boundary_dofs()) for V in self.spaces
        )

    def agree(self, expected: Any, result: Any) -> None:
        assert self.device.owns(result)
        assert result.shape == expected.shape
        largest = abs(expected).max()
        np.testing.assert_allclose(result.get(), expected, rtol=0, atol=1e-13 * largest)


@pytest.fixture(scope="module")
def both(device: GuardedDevice) -> Both:
    return Both(device)


@pytest.mark.filterwarnings("ignore:.*column vectors:FutureWarning")  # of SciPy 1.18
def test_products_with_vectors_and_columns(both: Both) -> None:
    A, B, V = both.here, both.there, both.spaces[0]
    x = random_vector(V, "float64")
    columns = np.random.default_rng(3).standard_normal((V.size, 3))
    for each in (x, columns, columns.astype("float32"), columns[:, ::2]):
        there = both.device.upload(each)
        both.agree(A @ each, B @ there)
        both.agree(A.T @ each, B.T @ there)
    one, some = both.device.upload(x), both.device.upload(columns)
    for name in ("matvec", "rmatvec"):
        both.agree(getattr(A, name)(x), getattr(B, name)(one))
        both.agree(getattr(A, name)(columns[:, :1]), getattr(B, name)(some[:, :1]))
    for name in ("matmat", "rmatmat"):
        both.agree(getattr(A, name)(columns), getattr(B, name)(some))


def test_results_in_an_array_that_is_given(both: Both) -> None:
    x = random_vector(both.spaces[0], "float64")
    there, out = both.device.upload(x), both.spaces[1].zeros()
    out[:] = np.nan
    assert both.there.apply(there, out) is out
    both.agree(both.here.apply(x), out)
    other = (2 * both.there).apply(there, out)
    both.agree(2 * both.here.apply(x), other)


def test_sums_products_and_updates_of_operators(both: Both) -> None:
    A, B = (C.unconstrained for C in (both.here, both.there))
    x = random_vector(both.spaces[0], "float64")
    there = both.device.upload(x)
    M, N = (femops.mass(V, smooth, quadrature=5) for V in both.spaces)
    both.agree((A - 0.5 * M) @ x, (B - 0.5 * N) @ there)
    both.agree(A @ (M @ x), B @ (N @ there))
    both.agree(A.update(mu=3.0) @ x, B.update(mu=3.0) @ there)
    both.agree(A.at_level("matrix-free") @ x, B.at_level("matrix-free") @ there)
    assert femops.diffusion(both.spaces[1], level="auto").level in LEVELS


def test_right_hand_sides_loads_and_functions(both: Both) -> None:
    (V, W), d = both.spaces, both.device

    def function(x: Any) -> Any:
        return [np.sin(x[0]), x[1] ** 2]

    both.agree(V.interpolate(function), W.interpolate(function))
    assert W.interpolate(function).dtype == np.float64
    b, there = femops.load(V, function), femops.load(W, function)
    both.agree(b, there)
    both.agree(femops.boundary_load(V, function), femops.boundary_load(W, function))
    both.agree(V.zeros("float32") + 1, W.zeros("float32") + 1)
    both.agree(both.here.diagonal(), both.there.diagonal())
    both.agree(both.here.rhs(b, 1.5), both.there.rhs(there, 1.5))
    g = V.interpolate(function)
    both.agree(both.here.rhs(b, g), both.there.rhs(there, d.upload(g)))
    assert abs(both.there.assemble() - both.here.assemble()).max() == 0


@final
class Other:
    """An array of another library on the device."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.array = array


def test_arrays_of_other_libraries(both: Both) -> None:
    x = random_vector(both.spaces[0], "float64")
    there, out = Other(both.device.upload(x)), both.spaces[1].zeros()
    both.agree(both.here @ x, both.there @ there)
    result = both.there.apply(there, Other(out))
    both.agree(both.here.apply(x), result)
    both.agree(both.here.apply(x), out)  # the memory itself was written
    W = femops.Product(u=both.spaces[1], p=both.spaces[1])
    both.agree(np.r_[x, x], W.join(u=there, p=there))


# --- the same bits --------------------------------------------------------------------------------


def test_sums_in_another_order_have_other_bits(device: GuardedDevice) -> None:
    """Unless they are asked to be reproducible; so that other tests of that can fail."""
    mesh = turned(femops.disc(3))
    results = []
    for reproducible in (False, True):
        V = femops.H1(mesh, 3, device=device, reproducible=reproducible)
        A, x = femops.mass(V, smooth), V.interpolate(smooth)
        results.append((A @ x).get())
        same = backwards(device, A, x).get().tobytes() == results[-1].tobytes()
        assert same == reproducible
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["boundary", "product"])
def test_reproducible_sums_of_several_launches(name: str, device: GuardedDevice) -> None:
    V = femops.H1(turned(femops.disc(2)), 2, device=device, reproducible=True)
    if name == "boundary":
        A: Any = (
            femops.diffusion(V) + femops.boundary_mass(V, smooth) + femops.mass(V, quadrature=5)
        )
    else:
        A = femops.form(product_cases.waves, femops.Product(real=V, imag=V), k=1.0, loss=smooth)
    x = device.upload(np.random.default_rng(0).standard_normal(A.shape[1]))
    assert backwards(device, A, x).get().tobytes() == (A @ x).get().tobytes()
