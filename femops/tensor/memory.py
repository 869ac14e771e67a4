"""Memory of tensors: on the host, or on a device."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from femops.errors import KernelError, TensorError
from femops_common.arguments import shown
from femops_kernels.device import Device

DeviceName = str | Device | None
"""A device: "cpu" or None for the host, "cuda", "cuda:1", or the device itself."""


def find_device(name: DeviceName) -> Device | None:
    """Device with a name; None for the host."""
    if name is None or name == "cpu" or isinstance(name, Device):
        return name if isinstance(name, Device) else None
    from femops_kernels.cuda.device.cupy_device import open_device  # slow to import

    return open_device(name)


def functions_of(device: Device | None) -> ModuleType:
    """NumPy, or the module with the same functions for arrays of a device."""
    return np if device is None else device.xp


def is_array(something: Any) -> bool:
    """True if the object is an array of the host or of a device."""
    return isinstance(something, np.ndarray) or hasattr(something, "__cuda_array_interface__")


def located(array: Any) -> tuple[Any, Device | None]:
    """Return an array and its device. Wrap arrays of other libraries for CuPy, without a copy."""
    if isinstance(array, np.ndarray):
        return array, None
    device = getattr(array, "device", None)
    if isinstance(device, Device) and device.owns(array):
        return array, device
    if not is_array(array):
        raise TensorError(
            f"{type(array).__name__} in place of an array: give a NumPy array, one of a device, or "
            "a femops.tensor.Batch"
        )
    from femops_kernels.cuda.device.cupy_device import adopt

    try:
        return adopt(array)
    except KernelError as error:
        raise TensorError(str(error)) from error


def name_of(device: Device | None) -> str:
    """Name of a device, or of the host, in messages."""
    return "the host" if device is None else device.name


def check_stream(stream: Any) -> None:
    """Raise unless the argument is a stream or None."""
    if stream is not None and not hasattr(stream, "synchronize"):
        raise TensorError(f"stream is {shown(stream)}: give a stream of CuPy")
