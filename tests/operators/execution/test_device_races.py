"""Kernels of all forms and uses, run again under sanitizers: no races, no wrong addresses."""

from __future__ import annotations

from collections import deque
from itertools import product

import pytest

from femops.solvers.multigrid import hierarchy
from femops_kernels.cuda.operator import hanging, many, table_kernel
from femops_kernels.cuda.operator import kernel as kernels
from femops_kernels.cuda.operator.kernel import LineKernel, most_elements
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.device import Device
from support.cuda.host_device import host_device, plant
from support.cuda.launches import ADDRESS, THREAD, Launch, SanitizerError, replay, require
from support.cuda.uses import USES

_clean: dict[tuple[str, str], int] = {}
"""Blocks of the launches in which nothing was found, by source and sanitizer."""


@pytest.fixture(autouse=True)
def _small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks work on one or two elements: launches on small meshes have several blocks."""
    on_a_line = "1-D" in request.node.name

    def shape_for(kernel: LineKernel, device: Device) -> Shape:
        return Shape(min(1 if kernel.spec.dim == 1 else 2, most_elements(kernel, device)))

    monkeypatch.setattr(kernels, "shape_for", shape_for)
    monkeypatch.setattr(many, "_THREADS", 1 if on_a_line else 64)
    monkeypatch.setattr(hanging, "_THREADS", 4)
    monkeypatch.setattr(table_kernel, "_COLUMNS", 4)
    monkeypatch.setattr(table_kernel, "_MANY_COLUMNS", 8)
    monkeypatch.setattr(hierarchy, "_FEW", 20)


def launches(name: str) -> list[Launch]:
    """Of each kernel that a use launches, the launch with the most blocks."""
    device, found = host_device(), dict[str, Launch]()
    with device.recording() as recorded:
        USES[name](device)
    for launch in recorded:
        before = found.get(launch.source)
        if before is None or before.shape[0] < launch.shape[0]:
            found[launch.source] = launch
    return list(found.values())


USUAL = {
    *(("between, applied, 2-D", THREAD), ("refined, applied, 2-D", THREAD)),
    *(("simplices, 5, applied, 3-D", THREAD), ("simplices, applied, 2-D", ADDRESS)),
}
"""Cases that take little time; the others are exhaustive."""
assert {name for name, _ in USUAL} <= USES.keys()

CASES = [
    pytest.param(*case, marks=() if case in USUAL else pytest.mark.exhaustive)
    for case in product(USES, (THREAD, ADDRESS))
]


@pytest.mark.parametrize(("name", "sanitizer"), CASES)
def test_nothing_is_found(name: str, sanitizer: str) -> None:
    require(sanitizer)
    found = launches(name)
    assert found
    for launch in found:
        on_elements = "constexpr int ELEMENTS" in launch.source
        assert launch.shape[0] > 1 or not on_elements  # so that blocks can be in a race
        if _clean.get((launch.source, sanitizer), 0) < launch.shape[0]:
            replay(launch, sanitizer)
            _clean[launch.source, sanitizer] = launch.shape[0]


@pytest.mark.parametrize("name", ["walls, applied, 2-D"])
def test_plain_sums_where_faces_meet_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of faces of one element, whose nodes no other element has."""
    require(THREAD)
    plant(monkeypatch, "found.inside && !S::ON_FACES", "found.inside")
    faces = [each for each in launches(name) if "found.inside;" in each.source]
    with pytest.raises(SanitizerError, match="data race"):
        deque((replay(launch, THREAD) for launch in faces), maxlen=0)


def test_plain_sums_of_hanging_nodes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several smaller elements add to the dofs of a larger one."""
    require(THREAD)
    plant(monkeypatch, "atomicAdd(other, value)", "*other += value")
    hanging = [each for each in launches("refined, applied, 2-D") if "*other +=" in each.source]
    assert hanging
    with pytest.raises(SanitizerError, match="data race"):
        deque((replay(launch, THREAD) for launch in hanging), maxlen=0)
