"""Kernels of small tensors compile for every architecture; none spills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from femops.tensor import Batch, Interleaved, Layout, Strided, gemm
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.errors import DeviceError
from support.cuda.paper import PaperDevice

try:
    ARCHS = nvrtc.default_archs()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

PRODUCTS: dict[str, tuple[int, str, Layout]] = {
    "gemm-contiguous-n3": (3, "float64", Strided()),
    "gemm-contiguous-n16": (16, "float64", Strided()),
    "gemm-single-contiguous-n32": (32, "float32", Strided()),
    "gemm-complex-contiguous-n8": (8, "complex128", Strided()),
    "gemm-interleaved-n4": (4, "float64", Interleaved(8)),
    "gemm-interleaved-n16": (16, "float64", Interleaved(8)),
    "gemm-complex-interleaved-n6": (6, "complex64", Interleaved(16)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_product_compiles(
    name: str, arch: str, record_property: Callable[[str, object], None]
) -> None:
    n, dtype, layout = PRODUCTS[name]
    device = PaperDevice(arch)
    a, b, c = (Batch((n, n), 100, dtype, layout, device) for _ in range(3))
    gemm(a, b, c, alpha=2.0, beta=1.0)
    (function,) = device.functions.values()
    ((_, shared_bytes),) = function.shapes
    assert function.registers <= function.bound
    assert shared_bytes <= device.shared_bytes
    assert (shared_bytes > 0) == ("contiguous" in name)
    assert (function.local_bytes, function.report.spill_bytes) == (0, 0)
    record_property("compiled", (arch, name, function.registers, 0))
