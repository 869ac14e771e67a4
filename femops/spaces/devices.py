"""Place of a space's vectors: the host, or a device."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SpaceError, VectorError
from femops.parallel.comm import Communicator, communicator
from femops.parallel.gpus import rank_device
from femops.spaces.restriction import FLOAT_TYPES, Vector
from femops_kernels.cuda.device.device import Device
from femops_kernels.errors import KernelError

Kind = TypeVar("Kind", bound=np.generic)
Place = str | Device | None
"""Name of a device; None is the host."""


class HasDevice(Protocol):
    """A space that knows where its vectors are."""

    @property
    def device(self) -> Device | None:
        """The device; None for the host."""


class VectorSpace(HasDevice, Protocol):
    """A space whose vectors can be made and checked."""

    @property
    def size(self) -> int:
        """Length of a flat vector."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a vector."""

    def check_vector(self, vector: Any, what: str) -> Any:
        """Refuse an object that is no vector of the space."""


def find_device(device: Place, comm: Communicator | None = None) -> Device | None:
    """The device that a user names, None for the host. Collective, unless it is the host.

    Parameters
    ----------
    device : str, Device or None
    comm : Communicator, optional
        Communicator of the ranks that share the vectors, each with a GPU of its own if they are on
        "cuda"; this process alone if omitted.

    Raises
    ------
    SpaceError
        Something that names no device.
    femops_kernels.errors.DeviceError
        There is no such device; the message says what to install.
    """
    if device is None or isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise SpaceError(f"device is {device!r}: give 'cuda', or 'cuda:1' for the second GPU")
    return rank_device(device, communicator(comm))


def arrays(space: VectorSpace) -> ModuleType:
    """NumPy's functions for the vectors of a space."""
    return np if space.device is None else space.device.xp


def zeros(space: VectorSpace, dtype: DTypeLike) -> Vector:
    """A new vector of zeros, where the vectors of the space are.

    Raises
    ------
    VectorError
        Another type than float64 or float32.
    """
    vector: Vector = arrays(space).zeros(space.shape, vector_type(dtype))
    return vector


def vector_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Check the type of a vector that is asked for.

    Raises
    ------
    VectorError
        Another type than float64 or float32.
    """
    kind = np.dtype(dtype)
    if kind not in FLOAT_TYPES:
        raise VectorError(f"a vector of type {kind} was asked for: take float64 or float32")
    return kind


def put(space: HasDevice, values: NDArray[Kind]) -> NDArray[Kind]:
    """Move a vector computed on the host to where the vectors of the space are."""
    if space.device is None:
        return values
    there: NDArray[Kind] = space.device.upload(values)
    return there


def vector_of(space: VectorSpace, vector: Any, what: str) -> Any:
    """A vector of a space, where its vectors are; flat if it is given flat.

    Raises
    ------
    VectorError
        Another length or type, or an array that is elsewhere.
    """
    if space.device is None:
        space.check_vector(vector, what)
        return vector
    array = device_array(space.device, vector, what)
    if array.shape not in (space.shape, (space.size,)) or array.dtype not in FLOAT_TYPES:
        raise VectorError(
            f"{what} has shape {array.shape} and type {array.dtype}, the space has vectors of "
            f"shape {space.shape}, float64 or float32: make one with zeros()"
        )
    return array


def device_array(device: Device, array: Any, what: str) -> Any:
    """An array of the device: itself, or another library's there without a copy.

    Raises
    ------
    VectorError
        An array of the host, or of another device.
    """
    if device.owns(array):
        return array
    if isinstance(array, np.ndarray):
        raise VectorError(
            f"{what} is an array of the host, the space is on {device.name}: copy it there once, "
            f"by cupy.asarray({what})"
        )
    try:
        return device.adopt(array)
    except KernelError as error:
        raise VectorError(f"{what}: {error}") from error


def device_of(spaces: Sequence[HasDevice]) -> Device | None:
    """The device that all spaces are on.

    Raises
    ------
    SpaceError
        They are not on the same.
    """
    first = spaces[0].device
    if any(space.device is not first for space in spaces):
        names = ", ".join("the host" if s.device is None else s.device.name for s in spaces)
        raise SpaceError(f"spaces on {names}: make all on one device")
    return first
