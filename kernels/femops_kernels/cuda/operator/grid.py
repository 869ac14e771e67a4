"""Number of thread blocks of a launch: one for each portion of the elements, or persistent ones."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.device import Device, Function


def grid(device: Device, function: Function, kernel: CudaKernel, portions: int) -> int:
    """Number of thread blocks of a launch on ``portions`` portions of the elements."""
    if not kernel.persistent:
        return portions
    resident = function.resident(kernel.threads, kernel.shared_bytes)
    return min(portions, device.processors * resident)


def launch_portions(
    device: Device,
    function: Function,
    kernel: CudaKernel,
    packed: NDArray[Any],
    begin: int,
    end: int,
) -> None:
    """Launch a kernel on the portions begin to end - 1. Without portions nothing is launched."""
    if begin == end:
        return
    packed["first_portion"], packed["behind"] = begin, end // packed["groups"]
    blocks = grid(device, function, kernel, end - begin)
    function.launch(blocks, kernel.threads, kernel.shared_bytes, packed)
