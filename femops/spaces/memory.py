"""Where the vectors of a space are: in the host's memory, or on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated, Any, Protocol, TypeVar, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SpaceError, VectorError
from femops.parallel.comm import Communicator, communicator
from femops.parallel.gpus import rank_device
from femops.spaces.recurrence import three_term
from femops.spaces.restriction import FLOAT_TYPES, Vector, refuse_device_array
from femops_kernels.cuda.device.device import Device
from femops_kernels.errors import KernelError
from femops_kernels.pointwise.qdata import ALIGNMENT, aligned_array
from femops_meshes.arguments import Kind, array_of, dtype_of, refusal, shown
from femops_meshes.memory import available_memory

Entry = TypeVar("Entry", bound=np.generic)
DeviceLike = Annotated[
    str | Device | None,
    Kind(
        lambda value: value is None or isinstance(value, str | Device),
        "'cuda', or 'cuda:1' for the second GPU",
    ),
]
"""Name of a device, or the device; None is the host."""


class HasMemory(Protocol):
    """A space, of which it is known where its vectors are."""

    @property
    def memory(self) -> Memory:
        """Where they are."""


class VectorSpace(HasMemory, Protocol):
    """A space whose vectors can be made and checked."""

    @property
    def size(self) -> int:
        """Length of a vector."""

    def check_vector(self, vector: Any, what: str) -> Any:
        """Refuse what is no vector of the space."""


class Memory(ABC):
    """Where the vectors of a space are, and what is done with arrays there.

    Attributes
    ----------
    device : Device or None
        None for the host.
    name : str
    scipy : bool
        Whether SciPy's functions take the arrays.
    fills : bool
        Whether what operators store at quadrature points is computed there, and not on the host.
    """

    device: Device | None
    name: str
    scipy: bool
    fills: bool

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """NumPy's functions for the arrays."""

    @abstractmethod
    def put(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """An array of the host, here: itself, or a copy."""

    @abstractmethod
    def get(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """An array from here, on the host: itself, or a copy."""

    @abstractmethod
    def adopt(self, array: Any, what: str) -> Any:
        """An array that is here; or another library's there, without a copy.

        Raises
        ------
        VectorError
            An array of another memory.
        """

    @abstractmethod
    def factor(self, x: Any, what: str) -> NDArray[Any]:
        """Something to be multiplied, as an array here.

        Raises
        ------
        VectorError
            An array of another memory.
        """

    @abstractmethod
    def vector_of(self, space: VectorSpace, vector: Any, what: str) -> Any:
        """A vector of a space, where its vectors are.

        Raises
        ------
        VectorError
            Another length or type, or an array that is elsewhere.
        """

    @abstractmethod
    def address(self, array: NDArray[Any]) -> int:
        """Address of the first entry of an array."""

    @abstractmethod
    def overlap(self, a: NDArray[Any], b: NDArray[Any]) -> bool:
        """True if two arrays share memory; on a device, if their ranges of addresses overlap."""

    @abstractmethod
    def protect(self, view: NDArray[Any]) -> None:
        """Let nobody write to a view, where that can be."""

    # --- sums ------------------------------------------------------------------------------------

    @abstractmethod
    def partial(
        self, a: NDArray[Any], b: NDArray[Any], edges: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Inner product of two float64 vectors as sums (1, m), of segments where that is done."""

    @abstractmethod
    def inner(self, rows: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inner products (k,) of vectors (k, size) with one, on the host."""

    @abstractmethod
    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """The sum (size,) of the vectors (k, size), each times its weight."""

    # --- many vectors ----------------------------------------------------------------------------

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that can be had; very much where that is not known."""

    @abstractmethod
    def panels(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A new array of zeros; on the host it begins on a cache line."""

    @abstractmethod
    def three_term(
        self,
        old: NDArray[Any],
        product: NDArray[Any],
        current: NDArray[Any] | None,
        coefficients: tuple[float, float, float],
        scales: NDArray[Any] | None = None,
        extra: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> None:
        """Set old = scales (a product + factors extra) + b current + c old.

        See `femops_kernels.cpu.three_term.step`.
        """


@final
class HostMemory(Memory):
    """The host's: arrays are NumPy's."""

    device, name, scipy, fills, xp = None, "the host", True, False, np

    def put(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """See `Memory.put`."""
        return values

    get = put

    def adopt(self, array: Any, what: str) -> Any:  # noqa: ARG002  (nothing to refuse)
        """See `Memory.adopt`."""
        return array

    def factor(self, x: Any, what: str) -> NDArray[Any]:
        """See `Memory.factor`."""
        refuse_device_array(x, what)
        return array_of(x, what, VectorError)

    def vector_of(self, space: VectorSpace, vector: Any, what: str) -> Any:
        """See `Memory.vector_of`."""
        return space.check_vector(vector, what)

    def address(self, array: NDArray[Any]) -> int:
        """See `Memory.address`."""
        return array.ctypes.data

    def overlap(self, a: NDArray[Any], b: NDArray[Any]) -> bool:
        """See `Memory.overlap`."""
        return np.shares_memory(a, b)

    def protect(self, view: NDArray[Any]) -> None:
        """See `Memory.protect`."""
        view.flags.writeable = False

    def partial(
        self, a: NDArray[Any], b: NDArray[Any], edges: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """See `Memory.partial`."""
        return segment_sums((a * b)[np.newaxis], edges)

    def inner(self, rows: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Memory.inner`."""
        return np.array([float(row @ b) for row in rows])

    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """See `Memory.combined`."""
        return np.asarray(weights @ rows, dtype=rows.dtype)

    def free_bytes(self) -> int:
        """See `Memory.free_bytes`."""
        return available_memory()

    def panels(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """See `Memory.panels`."""
        return aligned_array(shape, dtype)

    def three_term(
        self,
        old: NDArray[Any],
        product: NDArray[Any],
        current: NDArray[Any] | None,
        coefficients: tuple[float, float, float],
        scales: NDArray[Any] | None = None,
        extra: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> None:
        """See `Memory.three_term`."""
        from femops_kernels.cpu.three_term import step  # compilers are loaded when they are used

        unaligned = old.shape[1] * old.itemsize % ALIGNMENT  # rows are no whole cache lines
        (three_term if unaligned else step)(old, product, current, coefficients, scales, extra)


@final
class DeviceMemory(Memory):
    """A device's.

    Parameters
    ----------
    device : Device
    """

    scipy, fills = False, True

    def __init__(self, device: Device) -> None:
        self.device: Device = device
        self.name = device.name

    @property
    def xp(self) -> ModuleType:
        """See `Memory.xp`."""
        return self.device.xp

    def put(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """See `Memory.put`."""
        there: NDArray[Entry] = self.device.upload(values)
        return there

    def get(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """See `Memory.get`."""
        return self.device.download(values)

    def adopt(self, array: Any, what: str) -> Any:
        """See `Memory.adopt`."""
        if self.device.owns(array):
            return array
        if isinstance(array, np.ndarray):
            raise VectorError(
                f"{what} is an array of the host, the space is on {self.name}: copy it there once, "
                f"by cupy.asarray({what})"
            )
        try:
            return self.device.adopt(array)
        except KernelError as error:
            raise VectorError(f"{what}: {error}") from error

    def factor(self, x: Any, what: str) -> NDArray[Any]:
        """See `Memory.factor`."""
        found: NDArray[Any] = self.adopt(x, what)
        return found

    def vector_of(self, space: VectorSpace, vector: Any, what: str) -> Any:
        """See `Memory.vector_of`."""
        array = self.adopt(vector, what)
        if array.dtype not in FLOAT_TYPES:
            raise VectorError(
                f"{what} has type {array.dtype}: femops computes in float64 and float32, "
                "convert it by .astype(numpy.float64)"
            )
        return check_shape(space, array, what)

    def address(self, array: NDArray[Any]) -> int:
        """See `Memory.address`."""
        return self.device.address(array)

    def overlap(self, a: NDArray[Any], b: NDArray[Any]) -> bool:
        """See `Memory.overlap`."""
        # CuPy's function knows nothing of memory that other libraries lend
        first, second = self.address(a), self.address(b)
        (low, end), (lower, upper) = _extent(a, first), _extent(b, second)
        step = abs(a.strides[-1]) if a.ndim == b.ndim == 1 and a.strides == b.strides else 1
        # entries of one vector may stand between those of the other
        apart = step > 1 and a.itemsize <= (first - second) % step <= step - a.itemsize
        return not apart and low < upper and lower < end

    def protect(self, view: NDArray[Any]) -> None:
        """See `Memory.protect`: arrays of a device can't be."""

    def partial(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        edges: NDArray[np.int64],  # noqa: ARG002  (one segment)
    ) -> NDArray[np.float64]:
        """See `Memory.partial`: one number comes to the host."""
        return np.array([[float(a @ b)]])

    def inner(self, rows: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Memory.inner`."""
        return self.device.download(rows.astype(np.float64, copy=False) @ b)

    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """See `Memory.combined`."""
        product: NDArray[Any] = self.device.upload(weights.astype(rows.dtype)) @ rows
        return product

    def free_bytes(self) -> int:
        """See `Memory.free_bytes`: the device itself says when it has no more."""
        return 2**62

    def panels(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """See `Memory.panels`."""
        made: NDArray[Any] = self.xp.zeros(shape, dtype)
        return made

    def three_term(
        self,
        old: NDArray[Any],
        product: NDArray[Any],
        current: NDArray[Any] | None,
        coefficients: tuple[float, float, float],
        scales: NDArray[Any] | None = None,
        extra: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> None:
        """See `Memory.three_term`."""
        three_term(old, product, current, coefficients, scales, extra)


HOST = HostMemory()


def find_device(device: DeviceLike, comm: Communicator | None = None) -> Device | None:
    """The device that a user names, None for the host. Collective, unless it is the host.

    Parameters
    ----------
    device : str, Device or None
    comm : Communicator, optional
        Of the ranks that share the vectors, each of which has a GPU of its own if they are on
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


def find_memory(device: DeviceLike, comm: Communicator | None = None) -> Memory:
    """The memory of the device that a user names; see `find_device`."""
    found = find_device(device, comm)
    return HOST if found is None else DeviceMemory(found)


def memory_of(spaces: Sequence[HasMemory]) -> Memory:
    """The memory that the vectors of all spaces are in.

    Raises
    ------
    SpaceError
        They are not in the same.
    """
    first = spaces[0].memory
    if any(space.memory.device is not first.device for space in spaces):
        names = ", ".join(space.memory.name for space in spaces)
        raise SpaceError(f"spaces on {names}: make all on one device")
    return first


def zeros(space: VectorSpace, dtype: DTypeLike) -> Vector:
    """A new vector of zeros, where the vectors of the space are.

    Raises
    ------
    VectorError
        Another type than float64 or float32.
    """
    vector: Vector = space.memory.xp.zeros(space.size, vector_type(dtype))
    return vector


def check_shape(space: VectorSpace, array: NDArray[Entry], what: str) -> NDArray[Entry]:
    """The array, if it is flat as the vectors of a space are.

    Raises
    ------
    VectorError
        The message names the view that is one, if there is one.
    """
    shape, size, ncomp = array.shape, space.size, getattr(space, "ncomp", 1)
    if shape == (size,):
        return array
    name = what if what.isidentifier() else "its"
    if len(shape) == 1:
        raise VectorError(
            f"{what} has {shape[0]} entries, the space has {size}: make one with V.zeros()"
        )
    cure = "make one with V.zeros()"
    if array.size == size:
        turned = ncomp > 1 and shape == (ncomp, size // ncomp) and shape[0] != shape[1]
        cure = f"use {name}{'.T' * turned}.reshape(-1)"
    elif shape[:1] == (size,):
        cure = f"use one column, {name}[:, k]; many at a time are for A @ X"
    raise VectorError(
        f"{what} has shape {shape}; a vector of this space is flat, ({size},): {cure}"
    )


def by_components(space: Any, vectors: Any) -> Any:
    """See `Space.components`."""
    if not isinstance(getattr(vectors, "shape", None), tuple) or not hasattr(vectors, "reshape"):
        raise VectorError(refusal("u", vectors, "an array, as V.zeros() makes"))
    if len(vectors.shape) != 2 or vectors.shape[0] != space.size:
        check_shape(space, vectors, "u")
    return vectors.reshape(space.ndofs, space.ncomp, *vectors.shape[1:])


def vector_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Check the type of a vector that is asked for.

    Raises
    ------
    VectorError
        Another type than float64 or float32.
    """
    kind = dtype_of(dtype)
    if kind is None or kind not in FLOAT_TYPES:
        asked = shown(dtype) if kind is None else kind
        raise VectorError(f"a vector of type {asked} was asked for: take float64 or float32")
    return kind


def segment_sums(products: NDArray[Any], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums (k, m) of segments of rows (k, size), each with the bits it would have alone.

    A segment is summed in pairs, so it must not be longer where a rank's entries end.
    """
    parts, some = np.zeros((len(products), len(edges) - 1)), np.flatnonzero(np.diff(edges))
    # a segment without entries would be given the first of the next
    if len(some):
        parts[:, some] = np.add.reduceat(products, edges[some], axis=1)
    return parts


def _extent(array: Any, address: int) -> tuple[int, int]:
    """First and last address of the memory of an array whose first entry is at ``address``."""
    if not array.size:
        return 0, 0
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0)
    return address + low, address + high + int(array.itemsize)
