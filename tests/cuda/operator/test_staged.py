"""Kernels whose numbers at points go through shared memory give what those give that load them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.operator.kernel import staged_shapes
from femops_kernels.cuda.operator.many import for_many
from femops_kernels.cuda.operator.shapes import Shape, measured_shape, record
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.errors import DeviceError, KernelValueError
from femops_kernels.tuning import database
from support.cases.kernels import bend, random_vector
from support.cuda.device_cases import DeviceCase, cover
from support.cuda.guarded import GuardedDevice
from support.cuda.host_device import HostDevice, host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require
from support.cuda.staging import (
    check_bits,
    check_ranks,
    check_solves,
    small_staging_device,
    stage,
    sweep_of,
)

KINDS = ["staged", "persistent"]
COVER = [case for case in cover() if case.case.level == "partial"]
CASES = {"staged": COVER[::3], "persistent": COVER[1::3]}


@pytest.fixture
def device() -> GuardedDevice:
    return small_staging_device()


@pytest.fixture(params=KINDS)
def persistent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """All kernels that a shape is chosen for are staged: persistent, or not."""
    stage(monkeypatch, persistent=request.param == "persistent")
    return request.param == "persistent"


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, persistent=False)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind in KINDS for case in CASES[kind]], ids=str
)
def test_every_form_is_the_oracles(
    kind: str, case: DeviceCase, device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies are made late, and early where blocks and threads run the other way around."""
    stage(monkeypatch, persistent=kind == "persistent")
    operator, dense = case.build(device)
    u = random_vector(operator.space, case.case.dtype)
    x = device.upload(u)
    for way in (False, True):
        device.host.backwards = way
        assert dense.error(operator.apply(x).get(), u) < case.tolerance


def test_most_are(persistent: bool, device: GuardedDevice) -> None:
    cases = CASES[KINDS[persistent]][::7]
    sweeps = [sweep for case in cases for sweep in case.build(device)[0].compiled.sweeps]
    kernels = [sweep.kernel for sweep in sweeps if isinstance(sweep, DeviceSweep)]
    kinds = [kernel.persistent if persistent else kernel.staged for kernel in kernels]
    assert sum(kinds) > 0.6 * len(kinds) > 1


@pytest.mark.parametrize("data", ["float64", "float32"])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_bits_are_those_of_loads(device: GuardedDevice, data: str, persistent: bool) -> None:
    check_bits(device, data, persistent=persistent)


@pytest.mark.parametrize(("dtype", "resident"), [("float64", 1), ("float32", 30)])
def test_conjugate_gradients_and_many_vectors(
    persistent: bool, device: GuardedDevice, dtype: str, resident: int
) -> None:
    """Persistent blocks whose last portion is not full have summed what the others gave."""
    device.host.resident = resident
    A, solve = check_solves(device, (3, 3, 1), dtype)
    kernel = sweep_of(A).kernel
    assert (kernel.staged, kernel.persistent) == (True, persistent)
    assert solve.merged
    assert not for_many(kernel, device, 8).persistent


def test_ranks_with_a_device_each(persistent: bool) -> None:
    def make() -> HostDevice:
        device = host_device()
        device.processors = 1
        return device

    check_ranks(make, persistent=persistent)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_table_may_ask_for_it(
    persistent: bool, device: GuardedDevice, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(database, "users_table", lambda: tmp_path / "tuning.json")
    V = femops.H1(femops.box((3, 3), mapping=bend), 2, device=device)
    kernel = sweep_of(femops.mass(V)).kernel
    key, asked = kernel.shape_key(device.name), Shape(2, 3, staged=True, persistent=persistent)
    for shape in (asked, Shape(2, 3)):
        record({key: shape})
        assert measured_shape(key) == sweep_of(femops.mass(V)).kernel.shape == shape
    record({key: Shape(2, 3, persistent=True)})
    with pytest.raises(KernelValueError, match=r"2 elements per block, persistent for a kernel"):
        sweep_of(femops.mass(V))
    record({key: asked})
    monkeypatch.setattr(device, "copies_blocks", False)
    words = "staged, persistent" if persistent else "staged"
    with pytest.raises(KernelValueError, match=rf"2 elements per block, {words} for a kernel that"):
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
        plain = [shape for shape in found if not shape.persistent]
        assert found == plain + [replace(shape, persistent=True) for shape in plain]
        assert Shape(1, blocks, staged=True) in found or blocks == 0
        assert all(shape.elements * single < 1.1 * small.shared_bytes + 1024 for shape in found)
    old = SimpleNamespace(shared_bytes=10**6, copies_blocks=False, name="old")
    assert not staged_shapes(kernel, old, shapes)  # type: ignore[arg-type]
    free = sweep_of(femops.diffusion(V, level="matrix-free"))
    assert not staged_shapes(free.kernel, device, shapes)
    assert not free.reshaped(Shape(1, 8, staged=True, persistent=True)).kernel.staged


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
