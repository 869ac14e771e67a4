"""Memory that stores the vectors of a space: memory of the host or of a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated, Any, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError, VectorError
from femops.parallel.comm import Communicator, communicator
from femops.parallel.gpus import rank_device
from femops.spaces.restriction import FLOAT_TYPES, host_array, type_cure
from femops_common.arguments import Kind, available_memory
from femops_kernels.device import Device
from femops_kernels.errors import KernelError
from femops_kernels.pointwise.qdata import ALIGNMENT, aligned_array


def three_term(
    old: NDArray[Any],
    product: NDArray[Any],
    current: NDArray[Any] | None,
    coefficients: tuple[float, float, float],
    scales: NDArray[Any] | None,
    extra: tuple[NDArray[Any], NDArray[Any]] | None,
) -> None:
    """Overwrite ``old`` (rows, width) by the next vectors; see `Memory.three_term`."""
    a, b, c = coefficients
    total = a * product if extra is None else a * product + extra[1] * extra[0]
    total = total if scales is None else total * scales[:, np.newaxis]
    total = total if current is None else total + b * current
    old[...] = total + c * old if c else total


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
    """A space that knows the memory of its vectors."""

    @property
    def memory(self) -> Memory:
        """Memory that stores the vectors."""


class VectorSpace(HasMemory, Protocol):
    """A space that can make and check vectors."""

    @property
    def size(self) -> int:
        """Length of a vector."""

    def check_vector(self, vector: Any, what: str) -> Any:
        """Return ``vector``, or raise `VectorError` if it is not a vector of the space."""


class Memory(ABC):
    """Memory that stores the vectors of a space, with operations on its arrays."""

    device: Device | None  # None for the host
    name: str
    scipy: bool  # Whether SciPy's functions accept the arrays
    # whether the device, instead of the host, computes operators' data at quadrature points
    fills: bool

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """NumPy, or the module with the same functions for arrays of a device."""

    @abstractmethod
    def put(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """Copy an array of the host to this memory. On the host return the array itself."""

    @abstractmethod
    def get(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """Copy an array of this memory to the host. On the host return the array itself."""

    @abstractmethod
    def adopt(self, array: Any, what: str) -> Any:
        """Return an array of this memory. Wrap another library's array without a copy."""

    @abstractmethod
    def factor(self, x: Any, what: str) -> NDArray[Any]:
        """Convert a user's factor of an operator, as x in ``A @ x``, to an array of this memory."""

    @abstractmethod
    def vector_of(self, space: VectorSpace, vector: Any, what: str) -> Any:
        """Return a user's vector as an array of this memory, after checks."""

    @abstractmethod
    def address(self, array: NDArray[Any]) -> int:
        """Address of the first entry of an array."""

    @abstractmethod
    def overlap(self, a: NDArray[Any], b: NDArray[Any]) -> bool:
        """True if two arrays share memory. On a device True if their address ranges overlap."""

    @abstractmethod
    def protect(self, view: NDArray[Any]) -> None:
        """Make a view read-only, if the memory supports this."""

    # --- sums ------------------------------------------------------------------------------------

    @abstractmethod
    def partial(
        self, a: NDArray[Any], b: NDArray[Any], edges: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Inner product of two float64 vectors as partial sums (1, m), on the host.

        The host returns a sum for each of the m segments between ``edges``. A device returns one
        sum.
        """

    @abstractmethod
    def inner(self, rows: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inner products (k,) of vectors (k, size) with the vector b, on the host."""

    @abstractmethod
    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Linear combination (size,) of vectors (k, size) with weights (k,) of the host."""

    # --- many vectors ----------------------------------------------------------------------------

    @abstractmethod
    def free_bytes(self) -> int:
        """Available bytes; a very large number if unknown."""

    @abstractmethod
    def panels(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a new array of zeros (*shape,). On the host it starts on a cache line."""

    @abstractmethod
    def rows_like(self, vectors: NDArray[Any], count: int) -> NDArray[Any]:
        """Return an array (count, nvec) without values for the product with ``vectors`` (n, nvec).

        On the host it starts at the same byte of a cache line as ``vectors``, so that kernels can
        align both.
        """

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

        Arrays are (rows, width), scales (rows,). See `femops_kernels.cpu.weighted_sums.step`.
        """


@final
class HostMemory(Memory):
    """Memory of the host, with NumPy arrays."""

    device, name, scipy, fills, xp = None, "the host", True, False, np

    def put(self, values: NDArray[Entry]) -> NDArray[Entry]:
        return values

    get = put

    def adopt(self, array: Any, what: str) -> Any:  # noqa: ARG002  (nothing to refuse)
        return array

    def factor(self, x: Any, what: str) -> NDArray[Any]:
        return host_array(x, what)

    def vector_of(self, space: VectorSpace, vector: Any, what: str) -> Any:
        return space.check_vector(vector, what)

    def address(self, array: NDArray[Any]) -> int:
        return array.ctypes.data

    def overlap(self, a: NDArray[Any], b: NDArray[Any]) -> bool:
        return np.shares_memory(a, b)

    def protect(self, view: NDArray[Any]) -> None:
        view.flags.writeable = False

    def partial(
        self, a: NDArray[Any], b: NDArray[Any], edges: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        return segment_sums((a * b)[np.newaxis], edges)

    def inner(self, rows: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([float(row @ b) for row in rows])

    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(weights @ rows, dtype=rows.dtype)

    def free_bytes(self) -> int:
        return available_memory()

    def panels(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return aligned_array(shape, dtype)

    def rows_like(self, vectors: NDArray[Any], count: int) -> NDArray[Any]:
        nbytes = count * vectors.shape[1] * vectors.itemsize
        memory = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        begin = vectors.ctypes.data // vectors.itemsize * vectors.itemsize
        start = (begin - memory.ctypes.data) % ALIGNMENT
        rows: NDArray[Any] = memory[start : start + nbytes].view(vectors.dtype)
        return rows.reshape(count, vectors.shape[1])

    def three_term(
        self,
        old: NDArray[Any],
        product: NDArray[Any],
        current: NDArray[Any] | None,
        coefficients: tuple[float, float, float],
        scales: NDArray[Any] | None = None,
        extra: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> None:
        from femops_kernels.cpu.weighted_sums import step  # compilers are loaded when they are used

        unaligned = old.shape[1] * old.itemsize % ALIGNMENT  # rows begin within cache lines
        (three_term if unaligned else step)(old, product, current, coefficients, scales, extra)


@final
class DeviceMemory(Memory):
    """Memory of a device."""

    scipy, fills = False, True

    def __init__(self, device: Device) -> None:
        self.device: Device = device
        self.name = device.name

    @property
    def xp(self) -> ModuleType:
        return self.device.xp

    def put(self, values: NDArray[Entry]) -> NDArray[Entry]:
        there: NDArray[Entry] = self.device.upload(values)
        return there

    def get(self, values: NDArray[Entry]) -> NDArray[Entry]:
        return self.device.download(values)

    def adopt(self, array: Any, what: str) -> Any:
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
        found: NDArray[Any] = self.adopt(x, what)
        return found

    def vector_of(self, space: VectorSpace, vector: Any, what: str) -> Any:
        array = self.adopt(vector, what)
        if array.dtype not in FLOAT_TYPES:
            cure = type_cure(array.dtype, "numpy.float64", what)
            raise VectorError(
                f"{what} has type {array.dtype}: femops computes in float64 and float32, {cure}"
            )
        return check_shape(space, array, what)

    def address(self, array: NDArray[Any]) -> int:
        return self.device.address(array)

    def overlap(self, a: NDArray[Any], b: NDArray[Any]) -> bool:
        # CuPy's own test does not see memory that other libraries lend
        first, second = self.address(a), self.address(b)
        (low, end), (lower, upper) = _extent(a, first), _extent(b, second)
        step = abs(a.strides[-1]) if a.ndim == b.ndim == 1 and a.strides == b.strides else 1
        # two strided vectors do not overlap if entries of one lie between entries of the other
        interleaved = step > 1 and a.itemsize <= (first - second) % step <= step - a.itemsize
        return not interleaved and low < upper and lower < end

    def protect(self, view: NDArray[Any]) -> None:
        """See `Memory.protect`. Arrays of a device can't be read-only."""

    def partial(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        edges: NDArray[np.int64],  # noqa: ARG002  (one segment)
    ) -> NDArray[np.float64]:
        """See `Memory.partial`. One number comes to the host."""
        return np.array([[float(a @ b)]])

    def inner(self, rows: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.device.download(rows.astype(np.float64, copy=False) @ b)

    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        product: NDArray[Any] = self.device.upload(weights.astype(rows.dtype)) @ rows
        return product

    def free_bytes(self) -> int:
        """See `Memory.free_bytes`. The device raises an error when it has no more memory."""
        return 2**62

    def panels(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        made: NDArray[Any] = self.xp.zeros(shape, dtype)
        return made

    def rows_like(self, vectors: NDArray[Any], count: int) -> NDArray[Any]:
        made: NDArray[Any] = self.xp.empty((count, vectors.shape[1]), vectors.dtype)
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
        from femops_kernels.cuda.weighted_sums import (
            step,  # compilers are loaded when they are used
        )

        step(self.device, old, product, current, coefficients, scales, extra)


HOST = HostMemory()


def find_device(device: DeviceLike, comm: Communicator | None = None) -> Device | None:
    """Return the device that a user names; None for the host. Collective for a device."""
    if device is None or isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise SpaceError(f"device is {device!r}: give 'cuda', or 'cuda:1' for the second GPU")
    return rank_device(device, communicator(comm))


def find_memory(device: DeviceLike, comm: Communicator | None = None) -> Memory:
    """Return the memory of the device that a user names; see `find_device`."""
    found = find_device(device, comm)
    return HOST if found is None else DeviceMemory(found)


def memory_of(spaces: Sequence[HasMemory]) -> Memory:
    """Return the memory of the vectors of several spaces."""
    first = spaces[0].memory
    if any(space.memory.device is not first.device for space in spaces):
        names = ", ".join(space.memory.name for space in spaces)
        raise SpaceError(f"spaces on {names}: make all on one device")
    return first


def check_layout(array: Any, what: str) -> None:
    """Raise unless compiled code can use an array without a copy."""
    cure = f"pass {what.rsplit(maxsplit=1)[-1]}.copy()"
    if what == "out":  # the result would stay in the copy
        cure = "leave it out, and copy what is returned into your array"
    if not array.flags.c_contiguous:
        raise VectorError(f"{what} is not contiguous in memory: {cure}")
    if not getattr(array.flags, "aligned", True):
        raise VectorError(f"{what} is not aligned to its numbers in memory: {cure}")


def check_shape(space: VectorSpace, array: NDArray[Entry], what: str) -> NDArray[Entry]:
    """Return the array if it has the shape (size,) of a vector of the space."""
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


def segment_sums(products: NDArray[Any], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums (k, m) of m segments of rows (k, size). Each has the bits of a separate sum.

    NumPy sums in pairs, so the bits depend on the length of the segment. So this length must not
    depend on the number of ranks.
    """
    parts, some = np.zeros((len(products), len(edges) - 1)), np.flatnonzero(np.diff(edges))
    # for a segment without entries `reduceat` would return the first entry of the next one
    if len(some):
        parts[:, some] = np.add.reduceat(products, edges[some], axis=1)
    return parts


def _extent(array: Any, address: int) -> tuple[int, int]:
    """Address range (start, end) of an array whose first entry is at ``address``."""
    if not array.size:
        return 0, 0
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0)
    return address + low, address + high + int(array.itemsize)
