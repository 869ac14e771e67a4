"""Kernels of small tensors compile for every architecture; none spills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from femops.tensor import Batch, Interleaved, Layout, Strided, cholesky, eigh, gemm, solve
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.tensor.contraction import DeviceContraction
from femops_kernels.cuda.tensor.kernel import DeviceContractionKernel
from femops_kernels.errors import DeviceError
from support.cuda.paper import PaperDevice

try:
    ARCHS = nvrtc.default_archs()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

Call = Callable[[Device], object]


def product(n: int, dtype: str, layout: Layout) -> Call:
    """Products that are added to what is there."""

    def call(device: Device) -> None:
        a, b, c = (Batch((n, n), 100, dtype, layout, device) for _ in range(3))
        gemm(a, b, c, alpha=2.0, beta=1.0)

    return call


def matrices(n: int, device: Device, dtype: str = "float64") -> Batch:
    """Some, contiguous."""
    return Batch((n, n), 100, dtype, device=device)


VARIANTS: dict[str, Call] = {
    "gemm-contiguous-n3": product(3, "float64", Strided()),
    "gemm-contiguous-n16": product(16, "float64", Strided()),
    "gemm-single-contiguous-n32": product(32, "float32", Strided()),
    "gemm-complex-contiguous-n8": product(8, "complex128", Strided()),
    "gemm-interleaved-n4": product(4, "float64", Interleaved(8)),
    "gemm-interleaved-n16": product(16, "float64", Interleaved(8)),
    "gemm-complex-interleaved-n6": product(6, "complex64", Interleaved(16)),
    "cholesky-n8": lambda device: cholesky(matrices(8, device)),
    "eigh-n4": lambda device: eigh(matrices(4, device)),
    "solve-n5": lambda device: solve(matrices(5, device), Batch((5,), 100, device=device)),
    "cholesky-complex-n5": lambda device: cholesky(matrices(5, device, "complex128")),
    "eigh-complex-n3": lambda device: eigh(matrices(3, device, "complex64")),
    "solve-complex-n4": lambda device: solve(
        matrices(4, device, "complex64"), Batch((4,), 100, "complex64", device=device)
    ),
}


def test_entries_may_be_far_apart() -> None:
    """Offsets of more than 32 bits, as of a long batch whose members are innermost."""
    far, near = range(0, 5 * 2**31, 2**31), range(5)
    contraction = DeviceContraction("float64", far, near, near, near, far, near)
    function = DeviceContractionKernel(contraction, PaperDevice(ARCHS[-1])).function
    assert "using Offset = long long" in function.source
    assert function.report.spill_bytes == 0


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_variant_compiles(
    name: str, arch: str, record_property: Callable[[str, object], None]
) -> None:
    device = PaperDevice(arch)
    VARIANTS[name](device)
    (function,) = device.functions.values()
    ((_, shared_bytes),) = function.shapes
    assert function.registers <= function.bound
    assert shared_bytes <= device.shared_bytes
    assert (shared_bytes > 0) == ("interleaved" not in name)
    assert (function.local_bytes, function.report.spill_bytes) == (0, 0)
    record_property("compiled", (arch, name, function.registers, 0))
