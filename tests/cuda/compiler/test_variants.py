"""Kernels compile for every architecture; none needs more registers than there are.

All of them do for the newest one, one of each kind for the others; ``make exhaustive`` compiles
all for all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.operator.shapes import SPILLED
from femops_kernels.cuda.tensor.contraction import DeviceContraction
from femops_kernels.cuda.tensor.kernel import DeviceContractionKernel
from femops_kernels.errors import DeviceError
from femops_kernels.tuning import database
from support.cuda.paper import SHARED_BYTES, PaperDevice, PaperFunction
from support.cuda.variants import TENSORS, VARIANTS

try:
    ARCHS = [arch for arch in SHARED_BYTES if arch in nvrtc.archs()]
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)


KINDS = [
    "boundary-mass-3d-p4",
    "coupled-jacobian-ranks-3d-p2",
    "cycle-3d-p2",
    "diffusion-3d-p2",
    "diffusion-merged-3d-p2",
    "diffusion-none-curved-3d-p7",
    "diffusion-ranks-3d-p4",
    "diffusion-reproducible-3d-p2",
    "divergence-3d-p2",
    "explicit-step-3d-p2",
    "hydro-2d-p2",
    "jumps-3d-p4",
    "mass-1d-p5",
    "mass-apart-ranks-3d-p2",
    "mass-single-data-3d-p4",
    "mass-persistent-3d-p2",
    "neo-hookean-residual-2d-p4",
    "nitsche-diagonal-3d-p4",
    "prisms-diffusion-3d-p2",
    "refined-diffusion-3d-p2",
    "shapes-jumps-3d-p2",
    "simplices-diffusion-3d-p2",
    "simplices-many-3d-p5",
    "wall-jacobian-3d-p4",
]
"""Each source, and each kind of kernel: what the older compiler is tried with."""

GREEDY = [
    "coupled-jacobian-ranks-3d-p2",
    "diffusion-3d-p8",
    "diffusion-diagonal-3d-p8",
    "diffusion-merged-3d-p8",
    "elasticity-3d-p6",
    "hydro-3d-p2",
    "jacobian-diagonal-3d-p3",
    "mass-none-curved-3d-p5",
    "neo-hookean-jacobian-3d-p3",
    "prisms-elasticity-3d-p3",
    "refined-diffusion-3d-p8",
    "simplices-elasticity-3d-p2",
    "simplices-points-3d-p4",
    "vector-diffusion-3d-p8",
]
"""Those that need most registers of each kind."""


@pytest.fixture(autouse=True)
def _shapes_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without measured shapes, which may spill."""
    monkeypatch.setattr(database, "SHIPPED", Path("no table"))


@pytest.fixture
def cuda_12(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The compiler is that of CUDA 12, as where the driver takes no newer one."""
    monkeypatch.setattr(nvrtc, "driver_version", lambda: (12, 9))
    found = nvrtc._library, nvrtc.archs
    for cached in found:
        cached.cache_clear()
    try:
        nvrtc.version()
    except DeviceError as error:
        pytest.skip(str(error))
    yield
    for cached in found:
        cached.cache_clear()


def order(name: str) -> int:
    """The polynomial degree in a variant's name."""
    return int(re.findall(r"-p(\d+)$", name)[0])


def marks(name: str, arch: str) -> Any:
    """Of a variant with an architecture."""
    often = arch == ARCHS[-1] or name in KINDS + GREEDY
    return () if often else pytest.mark.exhaustive


EACH = [pytest.param(*both, marks=marks(*both)) for both in itertools.product(VARIANTS, ARCHS)]


def local_bytes(name: str) -> float:
    """What a variant may spill: kernels of many vectors some bytes, those of high orders any."""
    return inf if order(name) > 8 else SPILLED if "-many-" in name else 0


def compiled(use: Callable[[Any], Any], arch: str, local: float = 0) -> list[PaperFunction]:
    """The kernels that are launched, within their bounds. Each spills at most ``local`` bytes."""
    device = PaperDevice(arch)
    use(device)
    launched = [function for function in device.functions.values() if function.shapes]
    assert launched
    for function in launched:
        assert function.registers <= function.bound
        assert all(shared <= device.shared_bytes for _, shared in function.shapes)
        assert function.local_bytes <= local
        assert local or not function.report.spill_bytes
    return launched


@pytest.mark.sample(18)
@pytest.mark.parametrize(("name", "arch"), EACH)
def test_a_variant_compiles(
    name: str, arch: str, record_property: Callable[[str, object], None]
) -> None:
    launched = compiled(VARIANTS[name], arch, local_bytes(name))
    most = max(launched, key=lambda function: function.registers)
    spilled = max(function.report.spill_bytes for function in launched)
    record_property("compiled", (arch, name, most.registers, spilled))


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_of_small_tensors_compiles(name: str, arch: str) -> None:
    (function,) = compiled(TENSORS[name], arch)
    ((_, shared),) = function.shapes
    assert (shared > 0) == ("interleaved" not in name)


@pytest.mark.sample(3)
@pytest.mark.usefixtures("cuda_12")
@pytest.mark.parametrize("name", KINDS)
def test_a_variant_compiles_with_cuda_12(name: str) -> None:
    device = PaperDevice("sm_70")  # which no newer compiler knows
    VARIANTS[name](device)
    assert any(function.shapes for function in device.functions.values())


def test_names_are_those_of_variants() -> None:
    assert set(KINDS + GREEDY) <= set(VARIANTS)


def test_a_kernel_that_spills_is_seen() -> None:
    """What must not be: so many blocks that registers don't last."""
    device = PaperDevice(ARCHS[-1])
    VARIANTS["diffusion-3d-p7"](device)
    launched = [function for function in device.functions.values() if function.shapes]
    function = max(launched, key=lambda function: function.registers)  # the other sets to zero
    tight = re.sub(r"constexpr int BLOCKS = \d+;", "constexpr int BLOCKS = 8;", function.source)
    spilling = device.function(tight)
    spilling.launch(1, *next(iter(function.shapes)), None)
    assert spilling.registers <= spilling.bound < function.registers
    assert spilling.local_bytes > 0
    assert spilling.report.spill_bytes > 0


def test_entries_may_be_far_apart() -> None:
    """Offsets of more than 32 bits, as of a long batch whose members are innermost."""
    far, near = range(0, 5 * 2**31, 2**31), range(5)
    contraction = DeviceContraction("float64", far, near, near, near, far, near)
    function = DeviceContractionKernel(contraction, PaperDevice(ARCHS[-1])).function
    assert "using Offset = long long" in function.source
    assert function.report.spill_bytes == 0
