"""Operators on a device against the naive oracle: every form, over a cover of all that varies.

``make exhaustive`` runs the product of forms, levels, dimensions, degrees, meshes and sizes.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import femops
from cuda.device_cases import FACTORS, PAIRWISE, DeviceCase, cover, product
from cuda.guarded import GuardedDevice, guarded_device
from femops.operators.on_device import LEVELS
from kernel_cases import bend, random_vector, smooth, turned
from level_cases import FORMS
from oracle import Oracle


@pytest.fixture(scope="module")
def device() -> GuardedDevice:
    """With little shared memory: even small meshes take several blocks."""
    return guarded_device(shared_bytes=12 * 1024, options=["-O0"])


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
    device = guarded_device(shared_bytes=12 * 1024, options=["-O0"])
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
    block = femops.diffusion(V).terms.sweeps[0].kernel.shape.elements
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


@pytest.mark.parametrize(("dim", "p"), ORDERS)
def test_any_number_of_elements(dim: int, p: int, device: GuardedDevice) -> None:
    check_sizes(device, dim, p, "gll" if p % 3 else "bernstein")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dim", "p"), HIGH)
def test_any_number_of_elements_of_high_order(dim: int, p: int) -> None:
    check_sizes(guarded_device(shared_bytes=64 * 1024), dim, p, "gll")
