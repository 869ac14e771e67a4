"""Launch shapes: tables, the model, and kernels that would spill registers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

import femops
from femops_kernels.cuda.operator.kernel import CudaKernel, shape_for, shape_of, unspilled
from femops_kernels.cuda.operator.shapes import Shape, measured_shape, record
from femops_kernels.errors import CacheWarning, KernelValueError
from femops_kernels.tuning import database
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice, HostFunction


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A user's table in a folder of its own."""
    path = tmp_path / "tuning.json"
    monkeypatch.setattr(database, "users_table", lambda: path)
    return path


device = host_device_fixture.device


def operator(device: HostDevice, order: int = 1, **options: Any) -> Any:
    return femops.mass(femops.H1(femops.box((3, 3)), order, device=device), **options)


def kernel_of(A: Any) -> CudaKernel:
    return A.compiled.sweeps[0].kernel


def test_a_recorded_shape_is_taken(device: HostDevice) -> None:
    A = operator(device)
    kernel = kernel_of(A)
    x = device.xp.arange(16.0)
    y = A.apply(x)
    assert measured_shape(kernel.shape_key(device.name)) is None
    shape = Shape(2, 5)
    assert kernel.shape != shape
    record({kernel.shape_key(device.name): shape})
    assert shape_for(kernel, device) == measured_shape(kernel.shape_key(device.name)) == shape
    assert measured_shape(kernel.shape_key("another")) is None
    again = operator(device)
    assert kernel_of(again).shape == shape
    assert again.apply(x) == pytest.approx(y, rel=1e-14)


def test_a_recorded_shape_is_taken_although_registers_are_spilled(device, monkeypatch) -> None:
    key = kernel_of(operator(device)).shape_key(device.name)
    monkeypatch.setattr(HostFunction, "local_bytes", 8)
    assert kernel_of(operator(device)).shape.blocks == 1
    record({key: Shape(2, 5)})
    assert kernel_of(operator(device)).shape == Shape(2, 5)


def test_shapes_are_of_one_kernel(device: HostDevice) -> None:
    kernels = [kernel_of(operator(device, *given)) for given in ((), (2,))]
    kernels.append(kernel_of(operator(device, dtype="float32")))
    V = femops.H1(femops.box((3, 3)), 1, device=device)
    kernels += [kernel_of(femops.diffusion(V)), kernel_of(femops.helmholtz(V))]
    assert len({kernel.shape_key(device.name) for kernel in kernels}) == len(kernels)


def test_the_users_table_goes_first(device, tmp_path, monkeypatch, table) -> None:
    kernel = kernel_of(operator(device))
    key = kernel.shape_key(device.name)
    shipped = tmp_path / "shipped.json"
    row = asdict(key) | {"settings": {"elements": 4, "blocks": 1}, "date": "2026-01-01"}
    shipped.write_text(json.dumps([row]))
    monkeypatch.setattr(database, "SHIPPED", shipped)
    assert shape_for(kernel, device) == Shape(4, 1)
    record({key: Shape(3, 2)})
    assert shape_for(kernel, device) == Shape(3, 2)
    record({replace(key, machine="another"): Shape(1, 1)})  # the others stay
    assert len(json.loads(table.read_text())) == 2
    assert shape_for(kernel, device) == Shape(3, 2)


def test_settings_that_are_no_shape(device: HostDevice, table) -> None:
    kernel = kernel_of(operator(device))
    key = kernel.shape_key(device.name)
    for settings in ({"level": "full"}, {"elements": 2, "blocks": "many"}):
        database.record({key: settings})
        damaged = pytest.warns(CacheWarning, match="'blocks' is 'many'")
        with damaged if "blocks" in settings else nullcontext():
            assert measured_shape(key) is None
        assert kernel_of(operator(device)).shape == kernel.shape
    table.write_text("[")
    with pytest.warns(CacheWarning, match=r"tuning.json can't be read \(.*: it is now tuning.dam"):
        kernel_of(operator(device))
    kernel_of(operator(device))


def test_shapes_that_cannot_be_run(device: HostDevice) -> None:
    kernel = kernel_of(operator(device))
    record({kernel.shape_key(device.name): Shape(1000)})
    with pytest.raises(KernelValueError, match="1000 elements per block for a kernel that"):
        kernel_of(operator(device))
    small = SimpleNamespace(shared_bytes=100, name="a small GPU")
    with pytest.raises(KernelValueError, match="bytes of shared memory and 4 threads, a block of"):
        shape_of(kernel_of(operator(device, 2)), small, 128, 384)  # type: ignore[arg-type]


class Spilling:
    """A device whose compiler spills if more than `most` blocks are to share a multiprocessor."""

    def __init__(self, most: int) -> None:
        self.most, self.compiled = most, 0

    def function(self, source: str) -> Any:
        self.compiled += 1
        blocks = int(source.split("constexpr int BLOCKS = ")[1].split(";", maxsplit=1)[0])
        return SimpleNamespace(local_bytes=8 * (blocks > self.most))


def test_nothing_is_spilled_for_more_blocks(device: HostDevice) -> None:
    kernel = replace(kernel_of(operator(device)), shape=Shape(3, 4))
    for most, blocks, compiled in ((9, 4, 1), (2, 2, 3), (0, 1, 3)):
        spilling = Spilling(most)
        assert unspilled(kernel, spilling).shape == Shape(3, blocks)  # type: ignore[arg-type]
        assert spilling.compiled == compiled  # the last one is taken as it is


def test_a_sweep_in_another_shape(device: HostDevice) -> None:
    """Data at the points are brought into the order of its blocks."""
    A = femops.diffusion(femops.H1(femops.disc(1), 2, device=device))
    (sweep,) = A.compiled.sweeps
    x = device.xp.arange(float(A.shape[0]))
    y = A.apply(x)
    for shape in (Shape(2, 3), Shape(sweep.kernel.shape.elements, 7)):
        other, z = sweep.reshaped(shape), device.xp.zeros(len(x))
        assert other.kernel.shape == shape != sweep.kernel.shape
        other.launch(device.address(x), device.address(z), 1.0, add=False)
        assert z == pytest.approx(y, rel=1e-13)
