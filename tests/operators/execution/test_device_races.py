"""Kernels of all forms and uses, run again under sanitizers: no races, no wrong addresses."""

from __future__ import annotations

import pytest

from femops.solvers.multigrid import hierarchy
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator import kernel as kernels
from femops_kernels.cuda.operator import many
from femops_kernels.cuda.operator.kernel import CudaKernel, most_elements
from femops_kernels.cuda.operator.shapes import Shape
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, Launch, replay, require
from support.cuda.uses import USES

_clean: dict[tuple[str, str], int] = {}
"""Blocks of the launches in which nothing was found, by source and sanitizer."""


def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocks work on few elements, so that launches on small meshes have several blocks."""

    def shape_for(kernel: CudaKernel, device: Device) -> Shape:
        return Shape(min(1 if kernel.dim == 1 else 2, most_elements(kernel, device)))

    monkeypatch.setattr(kernels, "shape_for", shape_for)
    monkeypatch.setattr(many, "_THREADS", 32)


def largest(launches: list[Launch]) -> list[Launch]:
    """Of each kernel the launch with the most blocks."""
    found: dict[str, Launch] = {}
    for launch in launches:
        before = found.get(launch.source)
        if before is None or before.shape[0] < launch.shape[0]:
            found[launch.source] = launch
    return list(found.values())


@pytest.mark.sample(40)
@pytest.mark.parametrize("sanitizer", [THREAD, ADDRESS])
@pytest.mark.parametrize("name", USES)
def test_nothing_is_found(name: str, sanitizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(sanitizer)
    small_blocks(monkeypatch)
    monkeypatch.setattr(hierarchy, "_FEW", 20)
    device = host_device(options=["-O0"])
    with device.recording() as recorded:
        USES[name](device)
    launches = largest(recorded)
    assert launches
    for launch in launches:
        elements = "constexpr int ELEMENTS" in launch.source
        assert launch.shape[0] > 1 or not elements  # so that blocks can be in a race
        if _clean.get((launch.source, sanitizer), 0) < launch.shape[0]:
            replay(launch, sanitizer)
            _clean[launch.source, sanitizer] = launch.shape[0]
