"""CuPy arrays on the GPU memory of other libraries' arrays."""

from __future__ import annotations

from typing import Any

_ON_DEVICE = (2, 13)  # DLPack's kDLCUDA, kDLCUDAManaged
_ON_HOST = "it lies in the host's memory; cupy.asarray copies it"


def view(cupy: Any, array: Any) -> Any:
    """CuPy array on the memory of another library's array, on any device, without a copy.

    DLPack is preferred.  With it CuPy's current stream waits for all work that the other library
    has launched.  PyTorch's ``__cuda_array_interface__`` does not report its stream.
    """
    if isinstance(array, cupy.ndarray):
        return array
    place = getattr(array, "__dlpack_device__", None)
    if place is not None:
        if int(place()[0]) not in _ON_DEVICE:
            raise ValueError(_ON_HOST)
        return cupy.from_dlpack(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError("it has neither __cuda_array_interface__ nor DLPack; give a CuPy array")
    address = interface["data"][0]
    if not address:  # no entries
        return cupy.asarray(array)
    ordinal = cupy.cuda.runtime.pointerGetAttributes(address).device
    if ordinal < 0:
        raise ValueError(_ON_HOST)
    with cupy.cuda.Device(ordinal):  # on another device asarray would make a copy
        return cupy.asarray(array)
