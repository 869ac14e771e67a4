"""Offsets of a tensor's entries (places), and views of a batch's memory."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.known import remembered
from femops.tensor.layouts import Shape, Table, check_apart
from femops.tensor.memory import functions_of, is_array, located, name_of
from femops_common.arguments import array_of, shown
from femops_kernels.device import Device

Array = NDArray[Any]

NUMBERS = ("float64", "float32", "complex128", "complex64")
"""Types of numbers that tensors can have."""

_DERIVED = "layout", "parts"  # attributes of a view
_EFFORT = 10_000  # limit of the search for a place that two strided views share

_NAMES = {np.dtype(name): name for name in NUMBERS}  # the attribute `name` of a dtype is slow


@final
@dataclass(frozen=True)
class Places:
    """Offsets of the entries of a tensor, in numbers: as strides, or as a table."""

    shape: Shape
    strides: tuple[int, ...] | None
    table: bytes = b""  # bytes of the int64 offsets, by rows, if there are no strides

    @staticmethod
    def of_table(table: Table) -> Places:
        """Make places from a table of offsets. They get strides if strides give all offsets."""
        strides = tuple(
            int(np.take(table, 1, axis=k).flat[0] - table.flat[0]) if size > 1 and table.size else 0
            for k, size in enumerate(table.shape)
        )
        strided = Places(table.shape, strides)
        if np.array_equal(strided.offsets, table):
            return strided
        return Places(table.shape, None, np.ascontiguousarray(table, dtype=np.int64).tobytes())

    @property
    def offsets(self) -> Table:
        """Offset of each entry, as an array of the tensor's shape."""
        return _offsets(self)


@remembered
def _offsets(places: Places) -> Table:
    if places.strides is None:
        return np.frombuffer(places.table, dtype=np.int64).reshape(places.shape)
    table = np.zeros(places.shape, dtype=np.int64)
    for k, stride in enumerate(places.strides):
        steps = stride * np.arange(places.shape[k], dtype=np.int64)
        table += steps.reshape([-1 if j == k else 1 for j in range(len(places.shape))])
    table.flags.writeable = False
    return table


@remembered
def _reach(places: Places) -> int:
    """Distance between the lowest and highest offset of an output. Raise if offsets repeat."""
    check_apart(places.offsets, "the output")
    return int(np.ptp(places.offsets)) if places.offsets.size else 0


@final
@dataclass(frozen=True, eq=False)
class View:
    """Tensors of a batch in the memory of an array.

    Attributes
    ----------
    places : Places
        Offsets of the entries of a member.
    array : array
        Array with the memory. It is one-dimensional if ``flat``. Else it has the shape that
        `of_array` expects.
    start : int
        Offset of the first member in a flat array.
    stride : int
        Distance in numbers between groups of members. 0 for a tensor that all members share.
    lanes, members : int
        Number of members in a group, and total number of members.
    flat : bool
        True if ``array`` is one-dimensional memory.
    device : Device, optional
        Device of the array. By default the host.
    """

    places: Places
    array: Array
    start: int
    stride: int
    lanes: int
    members: int
    flat: bool = True
    device: Device | None = None

    @staticmethod
    def of_array(array: Array, *, shared: bool = False) -> View:
        """View of an array (members, *shape), or of an array (*shape) that all members share."""
        array, device = located(array)
        if array.dtype not in _NAMES:
            raise TensorError(
                f"an array of {array.dtype}: convert it to one of {', '.join(NUMBERS)}"
            )
        size = array.itemsize
        if not _aligned(array, device) or any(stride % size for stride in array.strides):
            raise TensorError("the array's entries are not whole numbers apart: copy it")
        lengths = zip(array.shape, array.strides, strict=True)
        strides = tuple([0 if length == 1 else stride // size for length, stride in lengths])
        if shared:
            places = Places(array.shape, strides)
            return View(places, array, 0, 0, 1, 1, flat=False, device=device)
        if not array.ndim:
            raise TensorError("a number is no batch: give an array (members, *shape)")
        places = Places(array.shape[1:], strides[1:])
        return View(places, array, 0, strides[0], 1, array.shape[0], flat=False, device=device)

    @staticmethod
    def grouped(
        shape: Shape, dtype: np.dtype[Any], lanes: int, members: int, device: Device | None = None
    ) -> View:
        """View of new zeros, with interleaved groups of ``lanes`` members."""
        numbers = int(np.prod(shape, dtype=int))
        flat = functions_of(device).zeros(-(-members // lanes) * numbers * lanes, dtype)
        table = lanes * np.arange(numbers, dtype=np.int64).reshape(shape)
        places = Places.of_table(table)
        return View(places, flat, 0, numbers * lanes, lanes, members, device=device)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.array.dtype

    @property
    def shared(self) -> bool:
        """True if all members share one tensor."""
        return self.stride == 0 and self.members == 1

    @property
    def empty(self) -> bool:
        """True if there are no members, or if their tensors have no entries."""
        return self.members == 0 or 0 in self.places.shape

    @property
    def address(self) -> int:
        """Address of the first member."""
        if self.device is not None:
            return self.device.address(self.array) + self.start * self.array.itemsize
        # ctypes.data takes several times as long
        first: int = self.array.__array_interface__["data"][0]
        return first + self.start * self.array.itemsize

    @property
    def number(self) -> str:
        """Name of the number type."""
        return _NAMES[self.array.dtype]

    @property
    def step(self) -> int:
        """Distance between groups of members, in bytes."""
        return self.stride * self.array.itemsize

    @property
    def groups(self) -> int:
        """Number of groups of members."""
        return -(-self.members // self.lanes)

    @cached_property
    def layout(self) -> Hashable:
        """Key with everything that determines a launch, except the address of the memory."""
        one, array = self.places, self.array
        where = self.start, self.stride, self.lanes, self.members, self.flat
        kind = type(array), array.dtype, array.shape, array.strides, self.device
        return one.shape, one.strides, one.table, where, kind

    @cached_property
    def parts(self) -> dict[Hashable, Any]:
        """Cache of views of parts of the tensors, by their indices."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached attributes. The parts of a copy are in other memory."""
        return {name: value for name, value in vars(self).items() if name not in _DERIVED}

    def ends(self) -> tuple[int, int]:
        """Offsets in bytes of the lowest entry and of the end of the highest, from the first."""
        offsets, last = self.places.offsets, (self.groups - 1) * self.stride
        low, high = min(0, last) + int(offsets.min()), max(0, last) + int(offsets.max())
        return low * self.array.itemsize, (high + self.lanes) * self.array.itemsize

    def _strided(self) -> Array | None:
        """Entries (members, *shape) as a strided array. None if the entries have no strides."""
        if not self.flat:
            return self.array
        if self.places.strides is None or self.lanes > 1:
            return None
        size = self.array.itemsize
        strides = [size * stride for stride in (self.stride, *self.places.strides)]
        strided = functions_of(self.device).lib.stride_tricks.as_strided
        shape = self.members, *self.places.shape
        return cast(Array, strided(self.array[self.start :], shape, tuple(strides)))

    def _in_groups(self) -> Array | None:
        """Entries (groups, lanes, *shape) as a strided array. None if they have no strides.

        If the last group is not full, it ends with entries of no member.
        """
        if self.places.strides is None or not self.members:
            return None
        size = self.array.itemsize
        strides = tuple(size * one for one in (self.stride, 1, *self.places.strides))
        shape = self.groups, self.lanes, *self.places.shape
        strided = functions_of(self.device).lib.stride_tricks.as_strided
        return cast(Array, strided(self.array[self.start :], shape, strides))

    def _indices(self) -> Table:
        """Positions (members, *shape) of all entries in the flat array, on its device."""
        member = np.arange(self.members, dtype=np.int64)
        first = self.start + member // self.lanes * self.stride + member % self.lanes
        table = np.asarray(np.add.outer(first, self.places.offsets))
        return table if self.device is None else cast(Table, self.device.upload(table))

    def read(self) -> Array:
        """Entries (members, *shape): a view of the memory if possible, else a copy."""
        strided, groups = self._strided(), self._in_groups() if self.flat else None
        if strided is not None:
            return strided
        if groups is not None:
            whole: Array = groups.reshape(self.groups * self.lanes, *self.places.shape)
            return whole[: self.members]
        return self.array[self._indices()]

    def write(self, values: Any) -> None:
        """Set the entries to a number, or to values on the same device that broadcast."""
        self.check_writable()
        whole = (self.members, *self.places.shape)
        try:
            given = self._broadcast(values, whole)
        except TensorError:
            raise
        except ValueError as error:
            raise TensorError(
                f"values of shape {np.shape(values)} for {self.members} tensors of shape "
                f"{self.places.shape}"
            ) from error
        if not np.can_cast(given.dtype, self.dtype, "same_kind"):
            raise TensorError(f"values of {given.dtype} for tensors of {self.dtype}: convert them")
        strided = self._strided()
        groups, full = self._in_groups() if self.flat else None, self.members // self.lanes
        if strided is not None:
            strided[...] = given
        elif groups is not None:
            first, shape = full * self.lanes, (full, self.lanes, *self.places.shape)
            last = given[first:].copy()  # writing the first groups may overwrite these values
            groups[:full] = given[:first].reshape(shape)
            if first < self.members:
                groups[full, : self.members - first] = last
        else:
            self.array[self._indices()] = given

    def _broadcast(self, values: Any, shape: Shape) -> Array:
        if is_array(values):
            values, device = located(values)
            if device is not self.device:
                raise TensorError(
                    f"values on {name_of(device)} for tensors on {name_of(self.device)}: copy them "
                    "there first"
                )
        else:
            values = array_of(values, "values", TensorError)
            if self.device is not None:
                values = self.device.upload(values)
        return cast(Array, functions_of(self.device).broadcast_to(values, shape))

    def check_writable(self) -> None:
        """Raise if the memory is read-only, or two entries share an address."""
        if self.device is None and not self.array.flags.writeable:
            raise TensorError("the output can't be written: copy it")
        if self.empty:
            return
        reach = _reach(self.places)
        if self.members > 1 and abs(self.stride) <= reach and not self._interlocked():
            raise TensorError("members of the output overlap: copy it")

    def _interlocked(self) -> bool:
        """True if no two members have an address in common, even if their memory ranges overlap."""
        if self.stride == 0:
            return False
        # two members meet if their offsets differ by a multiple of the stride below their number
        table = np.unique(self.places.offsets)
        steps = table // abs(self.stride)
        order = np.lexsort((steps, table % abs(self.stride)))
        rest, steps = (table % abs(self.stride))[order], steps[order]
        near = np.diff(steps) < self.members
        return not bool(np.any((np.diff(rest) == 0) & near))

    def overlaps(self, other: View) -> bool:
        """True if two views have an address in common."""
        if self.device is not other.device or self.empty or other.empty:
            return False
        mine, others = self.on_host(), other.on_host()
        if not np.may_share_memory(mine.array, others.array):
            return False
        strided = mine._strided(), others._strided()
        if strided[0] is not None and strided[1] is not None:
            with suppress(np.exceptions.TooHardError):
                most: Any = _EFFORT  # NumPy's stubs know of two special values only
                return np.shares_memory(strided[0], strided[1], max_work=most)
        spots, found = mine.spots(), others.spots()
        first = int(min(spots.min(), found.min()))
        taken = np.zeros(int(max(spots.max(), found.max())) - first + 1, bool)
        taken[spots - first] = True
        return bool(taken[found - first].any())

    def on_host(self) -> View:
        """View with the same addresses on the host, only to compare addresses. Never read it."""
        if self.device is None:
            return self
        return replace(self, array=np.asarray(_Shadow(self.array, self.device)), device=None)

    def to(self, device: Device | None, stream: Any = None) -> View:
        """View of a copy on a device or on the host. If the view is there, return the view itself.

        With a stream, the copy runs in the stream, and the call does not wait.
        """
        if device is self.device:
            return self
        if device is not None and self.device is not None:
            raise TensorError(
                f"tensors on {self.device.name} are not copied to {device.name} directly: copy "
                "them to 'cpu' first"
            )
        if not self.flat:
            block = functions_of(self.device).ascontiguousarray(self.array)
            moved = View.of_array(_moved(block, self.device, device, stream), shared=self.shared)
            return replace(moved, device=device)
        first = last = self.start
        if not self.empty:
            first += min(0, int(self.places.offsets.min()))
            last += (self.groups - 1) * self.stride + int(self.places.offsets.max()) + self.lanes
        block = _moved(self.array[first:last], self.device, device, stream)
        return replace(self, array=block, start=self.start - first, device=device)

    def spots(self) -> Table:
        """Addresses (n,) of all entries of all members, in numbers."""
        first = self.address // self.array.itemsize
        member = np.arange(self.members, dtype=np.int64)
        begin = first + member // self.lanes * self.stride + member % self.lanes
        return np.asarray(np.add.outer(begin, self.places.offsets)).reshape(-1)

    def part(self, key: tuple[Any, ...]) -> View:
        """View of some members, with ranges of indices.

        Raises
        ------
        TensorError
            If an index is out of bounds, there are too many indices, or only a part of a group is
            selected.
        """
        if not 1 <= len(key) <= 1 + len(self.places.shape):
            raise TensorError(f"{len(key)} indices for members of shape {self.places.shape}")
        first, last = self._members(key[0])
        table, rest = self.places.offsets, key[1:]
        for axis, one in enumerate(rest):
            if not isinstance(one, int | np.integer | slice) or isinstance(one, bool):
                raise TensorError(
                    f"index {axis} is {shown(one)}: give a number or a range such as 1:8"
                )
        try:
            picked = np.asarray(table[rest])
        except IndexError as error:
            raise TensorError(f"{error}: the tensors are of shape {table.shape}") from error
        if not self.flat:
            return View.of_array(self.array[(slice(first, last), *rest)])
        begin = int(picked.flat[0]) if picked.size else 0
        start = self.start + first // self.lanes * self.stride + begin
        places = Places.of_table(picked - begin)
        return replace(self, places=places, start=start, members=last - first)

    def _members(self, key: Any) -> tuple[int, int]:
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            first = int(key) + (self.members if key < 0 else 0)
            last = first + 1
            if not 0 <= first < self.members:
                raise TensorError(f"member {shown(key)} of {self.members}")
        elif isinstance(key, slice) and key.step in (None, 1):
            first, end, _ = key.indices(self.members)
            last = max(first, end)
        else:
            raise TensorError(f"members {shown(key)}: give a number or a range such as 10:20")
        if first % self.lanes or (last % self.lanes and last != self.members):
            raise TensorError(
                f"members {first} to {last} do not begin and end with groups of {self.lanes}: "
                "choose other ones, or a layout that is not interleaved"
            )
        return first, last


def check_devices(*views: View) -> None:
    """Raise unless all tensors are on one device.

    Raises
    ------
    TensorError
        The message names two devices.
    """
    for view in views:
        if view.device is views[0].device:
            continue
        names = f"{name_of(views[0].device)} and {name_of(view.device)}"
        raise TensorError(f"tensors on {names}: copy them to one, by to('cuda') or to('cpu')")


@final
class _Shadow:
    """Object with the addresses of a device's array, so that NumPy can compare them."""

    def __init__(self, array: Any, device: Device) -> None:
        self.__array_interface__ = {
            "data": (device.address(array), True),
            "shape": tuple(array.shape),
            "strides": tuple(array.strides),
            "typestr": array.dtype.str,
            "version": 3,
        }


def _aligned(array: Any, device: Device | None) -> bool:
    """True if numbers are aligned to their size, which devices require."""
    if device is None:
        return bool(array.flags.aligned)
    return not array.size or device.address(array) % array.itemsize == 0


def _moved(array: Any, here: Device | None, there: Device | None, stream: Any) -> Any:
    if there is not None:
        return there.upload(array, stream)
    return array if here is None else here.download(array, stream)
