"""Kernels whose numbers at points go through shared memory give what those give that load them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.operator import kernel as kernels
from femops_kernels.cuda.operator.kernel import staged_shapes
from femops_kernels.cuda.operator.shapes import Shape, measured_shape, record
from femops_kernels.errors import DeviceError, KernelValueError
from femops_kernels.tuning import database
from support.cases.kernels import bend, random_vector
from support.cuda.device_cases import DeviceCase, cover
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require
from support.cuda.staging import check_bits, check_ranks, check_solves, kernels_of, sweep_of

CASES = [case for case in cover() if case.case.level == "partial"][::3]


@pytest.fixture
def device() -> GuardedDevice:
    return guarded_device(shared_bytes=24 * 1024, options=["-O0"])


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels that a shape is chosen for are staged, where there is room for an element."""
    choose = kernels.shape_for

    def staged_shape(*given: Any) -> Shape:
        shape = choose(*given)
        return next(iter(staged_shapes(*given, [shape, Shape(1)])), shape)

    monkeypatch.setattr(kernels, "shape_for", staged_shape)


@pytest.mark.sample(3)
@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form_is_the_oracles(case: DeviceCase, device: GuardedDevice) -> None:
    operator, dense = case.build(device)
    u = random_vector(operator.space, case.case.dtype)
    result = operator.apply(device.upload(u))
    assert dense.error(result.get(), u) < case.tolerance


@pytest.mark.usefixtures("staged")
def test_most_are_staged(device: GuardedDevice) -> None:
    kinds = [kernel.staged for kernel in kernels_of(CASES, device)]
    assert sum(kinds) > 0.6 * len(kinds)


@pytest.mark.parametrize("data", ["float64", "float32"])
def test_the_bits_are_those_of_loads(device: GuardedDevice, data: str) -> None:
    check_bits(device, data, persistent=False)


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_conjugate_gradients_and_many_vectors(device: GuardedDevice, dtype: str) -> None:
    A, _ = check_solves(device, (2, 2, 2), dtype)
    assert sweep_of(A).kernel.staged


@pytest.mark.usefixtures("staged")
def test_ranks_with_a_device_each() -> None:
    check_ranks(host_device, persistent=False)


def test_a_table_may_ask_for_it(device: GuardedDevice, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(database, "users_table", lambda: tmp_path / "tuning.json")
    V = femops.H1(femops.box((3, 3), mapping=bend), 2, device=device)
    kernel = sweep_of(femops.mass(V)).kernel
    key = kernel.shape_key(device.name)
    for shape in (Shape(2, 3, staged=True), Shape(2, 3)):
        record({key: shape})
        assert measured_shape(key) == sweep_of(femops.mass(V)).kernel.shape == shape
    record({key: Shape(2, 3, staged=True)})
    monkeypatch.setattr(device, "copies_blocks", False)
    with pytest.raises(KernelValueError, match=r"2 elements per block, staged for a kernel that"):
        sweep_of(femops.mass(V))


def test_shapes_that_have_room(device: GuardedDevice) -> None:
    V = femops.H1(femops.box((2, 2, 2), mapping=bend), 2, device=device)
    kernel = sweep_of(femops.diffusion(V)).kernel
    shapes = [Shape(elements, 8) for elements in (1, 2, 1000)]
    single = replace(kernel, shape=Shape(1, staged=True)).shared_bytes
    for blocks in (0, 1, 3):
        small = SimpleNamespace(
            shared_bytes=blocks * (single + 1024) - 1024, copies_blocks=True, name="small"
        )
        found = staged_shapes(kernel, small, shapes)  # type: ignore[arg-type]
        assert Shape(1, blocks, staged=True) in found or blocks == 0
        assert all(shape.elements * single < 1.1 * small.shared_bytes + 1024 for shape in found)
    old = SimpleNamespace(shared_bytes=10**6, copies_blocks=False, name="old")
    assert not staged_shapes(kernel, old, shapes)  # type: ignore[arg-type]
    free = sweep_of(femops.diffusion(V, level="matrix-free")).kernel
    assert not staged_shapes(free, device, shapes)


# --- faults that are found ------------------------------------------------------------------------


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("if (n == 0) wait_for_copy(*arrival, parity);", "", "ends before a copy"),
        ("dynamic_shared() + STAGE_AT, from", "dynamic_shared() + STAGE_AT - 512, from", ""),
        ("from, STREAM_BYTES);", "from + 8, STREAM_BYTES);", "multiples of 16"),
    ],
)
def test_planted_faults(
    before: str, after: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that have not come, that overwrite others, from a place that is no multiple of 16."""
    device = host_device(shared_bytes=24 * 1024)
    A = femops.diffusion(femops.H1(femops.box((3, 2, 2), mapping=bend), 2, device=device))
    x = np.random.default_rng(1).standard_normal(A.shape[1])
    expected, kernel = A @ x, sweep_of(A).kernel
    text = kernel.text
    assert text.count(before) == 1
    monkeypatch.setitem(vars(kernel), "text", text.replace(before, after))
    sweep, y = sweep_of(A).reshaped(kernel.shape), device.xp.zeros(len(x))
    sweep.kernel = kernel
    with pytest.raises(DeviceError, match=told) if told else nullcontext():
        sweep.launch(device.address(x), device.address(y), 1.0, add=False)
    assert not np.allclose(y, expected)


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_sanitizers_find_nothing(sanitizer: str) -> None:
    require(sanitizer)
    device = host_device()
    A = femops.diffusion(femops.H1(femops.box((3, 3, 2), mapping=bend), 2, device=device))
    with device.recording() as launches:
        _ = A @ np.random.default_rng(1).standard_normal(A.shape[1])
    launch = launches[-1]
    assert "begin_copy(*arrival" in launch.source
    assert launch.shape[0] > 1
    assert len(replay(launch, sanitizer)) == len(launch.arrays)
