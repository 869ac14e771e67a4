"""Places of a batch's entries, and views of memory that have them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.layouts import Shape, Table, check_apart
from femops_meshes.arguments import array_of, shown

Array = NDArray[Any]

NUMBERS = ("float64", "float32", "complex128", "complex64")
"""Types of numbers that tensors have."""

_EFFORT = 10_000  # of the search for a place that two strided views share

_NAMES = {np.dtype(name): name for name in NUMBERS}  # a type takes long to tell its name


@final
@dataclass(frozen=True)
class Places:
    """Offsets of the entries of a tensor, in numbers: by strides, or one by one.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int, optional
    table : bytes, optional
        Of int64 offsets by rows, where there are no strides.
    """

    shape: Shape
    strides: tuple[int, ...] | None
    table: bytes = b""

    @staticmethod
    def of_table(table: Table) -> Places:
        """Places at given offsets, the first of which is 0 for strided ones."""
        strides = tuple(
            int(np.take(table, 1, axis=k).flat[0] - table.flat[0]) if size > 1 else 0
            for k, size in enumerate(table.shape)
        )
        found = Places(table.shape, strides)
        if np.array_equal(found.offsets, table):
            return found
        return Places(table.shape, None, np.ascontiguousarray(table, dtype=np.int64).tobytes())

    @property
    def offsets(self) -> Table:
        """Offset of each entry, of the tensor's shape."""
        return _offsets(self)


@lru_cache(maxsize=512)
def _offsets(places: Places) -> Table:
    if places.strides is None:
        return np.frombuffer(places.table, dtype=np.int64).reshape(places.shape)
    table = np.zeros(places.shape, dtype=np.int64)
    for k, stride in enumerate(places.strides):
        steps = stride * np.arange(places.shape[k], dtype=np.int64)
        table += steps.reshape([-1 if j == k else 1 for j in range(len(places.shape))])
    table.flags.writeable = False
    return table


@lru_cache(maxsize=512)
def _reach(places: Places) -> int:
    """Distance between the first and the last place that an output's entries have."""
    check_apart(places.offsets, "the output")
    return int(np.ptp(places.offsets)) if places.offsets.size else 0


@final
@dataclass(frozen=True, eq=False)
class View:
    """Places in the memory of an array.

    Attributes
    ----------
    places : Places
    array : array
        What owns the memory: flat, or the entries themselves, (members, *shape).
    start : int
        Numbers from the first entry of a flat array to the first member.
    stride : int
        Numbers from a group of members to the next; 0 where one tensor is all members'.
    lanes, members : int
        Members of a group, and in all.
    """

    places: Places
    array: Array
    start: int
    stride: int
    lanes: int
    members: int
    flat: bool = True

    @staticmethod
    def of_array(array: Array, *, shared: bool = False) -> View:
        """View of an array (members, *shape), or (*shape) that all members share.

        Raises
        ------
        TensorError
            A type of numbers that tensors do not have, or numbers at fractions of their size.
        """
        if not isinstance(array, np.ndarray):
            raise TensorError(
                f"{type(array).__name__} in place of an array: give a NumPy array or a "
                "femops.tensor.Batch"
            )
        if array.dtype not in _NAMES:
            raise TensorError(
                f"an array of {array.dtype}: convert it to one of {', '.join(NUMBERS)}"
            )
        size = array.itemsize
        if not array.flags.aligned or any(stride % size for stride in array.strides):
            raise TensorError("the array's entries are not whole numbers apart: copy it")
        lengths = zip(array.shape, array.strides, strict=True)
        strides = tuple([0 if length == 1 else stride // size for length, stride in lengths])
        if shared:
            return View(Places(array.shape, strides), array, 0, 0, 1, 1, flat=False)
        if not array.ndim:
            raise TensorError("a number is no batch: give an array (members, *shape)")
        places = Places(array.shape[1:], strides[1:])
        return View(places, array, 0, strides[0], 1, array.shape[0], flat=False)

    @staticmethod
    def grouped(shape: Shape, dtype: np.dtype[Any], lanes: int, members: int) -> View:
        """New memory, zero, in which so many members stand together, entry by entry."""
        numbers = int(np.prod(shape, dtype=int))
        flat = np.zeros(-(-members // lanes) * numbers * lanes, dtype)
        table = lanes * np.arange(numbers, dtype=np.int64).reshape(shape)
        return View(Places.of_table(table), flat, 0, numbers * lanes, lanes, members)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.array.dtype

    @property
    def shared(self) -> bool:
        """True if one tensor stands for those of all members."""
        return self.stride == 0 and self.members == 1

    @property
    def address(self) -> int:
        """Address of the first member."""
        # ctypes.data takes several times as long
        first: int = self.array.__array_interface__["data"][0]
        return first + self.start * self.array.itemsize

    @property
    def number(self) -> str:
        """Name of the type of the numbers."""
        return _NAMES[self.array.dtype]

    @property
    def step(self) -> int:
        """Bytes from a group of members to the next."""
        return self.stride * self.array.itemsize

    @property
    def groups(self) -> int:
        """The number of groups of members."""
        return -(-self.members // self.lanes)

    def _strided(self) -> Array | None:
        """The entries as a strided array, if they are one."""
        if not self.flat:
            return self.array
        if self.places.strides is None or self.lanes > 1:
            return None
        size = self.array.itemsize
        strides = [size * stride for stride in (self.stride, *self.places.strides)]
        return as_strided(self.array[self.start :], (self.members, *self.places.shape), strides)

    def _indices(self) -> Table:
        """Positions of all entries in the array, which is flat."""
        member = np.arange(self.members, dtype=np.int64)
        first = self.start + member // self.lanes * self.stride + member % self.lanes
        return np.asarray(np.add.outer(first, self.places.offsets))

    def read(self) -> Array:
        """Entries (members, *shape): a view if that can be, else a copy."""
        strided = self._strided()
        return self.array[self._indices()] if strided is None else strided

    def write(self, values: Any) -> None:
        """Set the entries."""
        self.check_writable()
        whole = (self.members, *self.places.shape)
        try:
            given = np.broadcast_to(array_of(values, "values", TensorError), whole)
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
        if strided is None:
            self.array[self._indices()] = given
        else:
            strided[...] = given

    def check_writable(self) -> None:
        """Refuse memory that can't be written, and entries that share a place.

        Raises
        ------
        TensorError
            Says which.
        """
        if not self.array.flags.writeable:
            raise TensorError("the output can't be written: copy it")
        reach = _reach(self.places)
        if self.members > 1 and abs(self.stride) <= reach and not self._interlocked():
            raise TensorError("members of the output overlap: copy it")

    def _interlocked(self) -> bool:
        """True if members that reach into each other share no place."""
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
        """True if two views of memory have a place in common."""
        if not (self.members and other.members and np.may_share_memory(self.array, other.array)):
            return False
        strided = self._strided(), other._strided()
        if strided[0] is not None and strided[1] is not None:
            with suppress(np.exceptions.TooHardError):
                most: Any = _EFFORT  # NumPy's stubs know of two special values only
                return np.shares_memory(strided[0], strided[1], max_work=most)
        mine, others = (one.spots() for one in (self, other))
        first = int(min(mine.min(), others.min()))
        taken = np.zeros(int(max(mine.max(), others.max())) - first + 1, bool)
        taken[mine - first] = True
        return bool(taken[others - first].any())

    def spots(self) -> Table:
        """Addresses of all entries, in numbers."""
        first = self.address // self.array.itemsize
        member = np.arange(self.members, dtype=np.int64)
        begin = first + member // self.lanes * self.stride + member % self.lanes
        return np.asarray(np.add.outer(begin, self.places.offsets)).reshape(-1)

    def part(self, key: tuple[Any, ...]) -> View:
        """View of some members and ranges of indices.

        Raises
        ------
        TensorError
            Out of bounds, more indices than there are, or parts of groups.
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
        if not picked.size:
            raise TensorError(f"{rest} picks nothing: the tensors are of shape {table.shape}")
        if not self.flat:
            return View.of_array(self.array[(slice(first, last), *rest)])
        begin = int(picked.flat[0])
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
