"""The thread blocks of a launch: one for each portion of the elements, or persistent ones."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from femops_kernels.cuda.device.device import Device, Function
from femops_kernels.cuda.operator.kernel import CudaKernel


def grid(device: Device, function: Function, kernel: CudaKernel, portions: int) -> int:
    """The number of thread blocks that work on so many portions of the elements.

    Parameters
    ----------
    device : Device
    function : Function
        The kernel, compiled.
    kernel : CudaKernel
    portions : int
        A portion is what a block works on at a time.
    """
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
    """Run a kernel on the portions begin to end - 1; with none nothing is run.

    Parameters
    ----------
    device, function, kernel
        See `grid`.
    packed : array, shape ()
        Arguments, of which those are set that say which portions.
    begin, end : int
        Each counts as often as there are tiles of vectors.
    """
    if begin == end:
        return
    packed["first_portion"], packed["behind"] = begin, end // packed["tiles"]
    blocks = grid(device, function, kernel, end - begin)
    function.launch(blocks, kernel.threads, kernel.shared_bytes, packed)
