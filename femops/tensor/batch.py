"""Batches: tensors of one shape in one block of memory."""

from __future__ import annotations

from operator import index
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import TensorError
from femops.tensor.indexed import Index, Indexed
from femops.tensor.layouts import Layout, Shape, Strided
from femops.tensor.memory import DeviceName, check_stream, find_device, located
from femops.tensor.places import NUMBERS, Places, View
from femops_common.arguments import checked, shown
from femops_kernels.device import Device
from femops_kernels.pointwise.qdata import aligned_array

Array = NDArray[Any]


@final
@checked(TensorError)
class Batch:
    """Tensors of one shape and type in one block of memory, initially zero.

    Parameters
    ----------
    shape : tuple of int
        Shape of one tensor.  Extents may be 0, as in NumPy.
    members : int
        Number of tensors.
    dtype : dtype
        float64, float32, complex128 or complex64.
    layout : Layout
        Order of the entries; see `femops.tensor.Strided`.
    device : str, optional
        "cuda", or "cuda:1" for the second GPU.  If omitted, the batch is on the host.

    Raises
    ------
    TensorError
        If sizes, type or layout are invalid.
    femops.errors.DeviceError
        If there is no such device.

    Examples
    --------
    >>> import femops
    >>> A = femops.tensor.Batch((3, 4), 1000, layout=femops.tensor.Interleaved())
    >>> A[10:20, 1:3].shape if A.lanes == 1 else A[:, 1:3].shape
    (2, 4)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        members: int,
        dtype: DTypeLike = np.float64,
        layout: Layout = Strided(),  # noqa: B008  (it has no state)
        device: DeviceName = None,
    ) -> None:
        where = find_device(device)
        kind, shape = _number_type(dtype), _whole(shape)
        if members < 0 or any(size < 0 for size in shape):
            raise TensorError(
                f"{members} tensors of shape {shape}: give sizes >= 0, and members >= 0"
            )
        table, lanes = layout.table(tuple(shape)), layout.lanes(kind)
        numbers = int(table.max()) + 1 if table.size else 0
        try:
            flat = _zeros(-(-members // lanes) * numbers * lanes, kind, where)
        except (MemoryError, ValueError, OverflowError) as error:
            raise TensorError(
                f"{members} tensors of shape {shape} are more than memory holds: make fewer"
            ) from error
        places = Places.of_table(table * lanes)
        self._view = View(places, flat, 0, numbers * lanes, lanes, members, device=where)
        self.layout = layout

    @classmethod
    @checked(TensorError)
    def wrap(cls, array: Array, layout: Layout | None = None, members: int | None = None) -> Batch:
        """Make a batch in the memory of an array, without a copy.

        Parameters
        ----------
        array : (members, *shape) array
            Array of NumPy or CuPy, or with ``__cuda_array_interface__``, with any strides. With a
            layout, the array is contiguous, ``(groups, *shape, width)``.
        layout : Layout, optional
            An `Interleaved` layout.
        members : int, optional
            Number of members, needed if the last group of an interleaved batch is not full.

        Raises
        ------
        TensorError
            If the array does not fit.
        """
        self = cls.__new__(cls)
        self.layout = Strided() if layout is None else layout
        if layout is None:
            self._view = View.of_array(array)
            return self
        array, device = located(array)
        kind = _number_type(array.dtype)
        lanes = layout.lanes(kind)
        if lanes == 1 or array.ndim < 2 or array.shape[-1] != lanes or not array.flags.c_contiguous:
            raise TensorError(
                f"an array of shape {array.shape} is no block of {layout!r}: give a contiguous "
                f"one, (groups, *shape, {lanes})"
            )
        most = array.shape[0] * lanes
        count = most if members is None else members
        if not most - lanes < count <= most:
            raise TensorError(f"{count} members in {array.shape[0]} groups of {lanes}")
        table = layout.table(array.shape[1:-1])
        if table.size and table.max() + 1 != table.size:
            raise TensorError(
                f"{layout!r} puts tensors of shape {array.shape[1:-1]} on no run of places: give a "
                "layout without gaps"
            )
        places, step = Places.of_table(table * lanes), table.size * lanes
        self._view = View(places, array.reshape(-1), 0, step, lanes, count, device=device)
        return self

    @property
    def device(self) -> Device | None:
        """Device of the batch; None for the host."""
        return self._view.device

    @checked(TensorError)
    def to(self, device: DeviceName, stream: Any = None) -> Batch:
        """Copy of the batch on a device or on the host, in the same layout.

        If the batch is on this device already, return the batch itself.

        Parameters
        ----------
        device : str
            "cuda", "cuda:1" or "cpu".
        stream : cupy.cuda.Stream, optional
            Stream in which the copy runs after the stream's earlier work.  The call does not wait.
            Use the copy in this stream, or after ``stream.synchronize()``.

        Raises
        ------
        TensorError
            If ``device`` is no device, or ``stream`` no stream.
        femops.errors.DeviceError
            If there is no such device.
        """
        check_stream(stream)
        where = find_device(device)
        if where is self.device:
            return self
        made = Batch.__new__(Batch)
        made.layout, made._view = self.layout, self._view.to(where, stream)
        return made

    @property
    def shape(self) -> Shape:
        """Shape of one tensor."""
        return self._view.places.shape

    @property
    def members(self) -> int:
        """Number of tensors."""
        return self._view.members

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self._view.array.dtype

    def layout_for(self, shape: Shape) -> Layout:
        """Layout for new tensors of a shape: the batch's layout if it fits, else `Strided`.

        A `Mapped` layout, or a layout class of your own, fits only the shape of this batch. A
        `Tiled` layout fits all shapes with as many indices.
        """
        return self.layout if self.layout.takes(shape, self.shape) else Strided()

    @property
    def lanes(self) -> int:
        """Number of members whose entries are interleaved."""
        return self._view.lanes

    @property
    def view(self) -> View:
        """Offsets of the entries, and the memory."""
        return self._view

    def __len__(self) -> int:
        return self.members

    def __repr__(self) -> str:
        return f"Batch({self.shape}, {self.members}, {self.dtype.name!r}, {self.layout!r})"

    def __getitem__(self, key: Any) -> Any:
        """View of some members, with ranges of indices: ``A[10:20, 1:3, 0]``.

        The first part selects members. The other parts select entries as in NumPy. A single member
        gives a batch of one member. Copies of the view have the view's ``layout``, see
        `layout_for`.

        If a part is an `Index`, all parts are indices of a tensor. Then the expression is an
        operand of a contraction of all members: ``C[i, j] += A[i, k] * B[k, j]``.
        """
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, Index) for part in parts):
            return Indexed(self.view, parts)
        made = Batch.__new__(Batch)
        made._view = self._view.part(parts)
        made.layout = self.layout_for(made.shape)
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set entries (see `assign`). If a part is an `Index`, compute a contraction."""
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, Index) for part in parts):
            Indexed(self.view, parts).become(value)
        else:
            self[key].assign(value)

    def numpy(self) -> Array:
        """Entries as a NumPy array (members, *shape).

        The result is a view if entries are strided and on the host, else a copy.
        """
        return self._view.to(None).read()

    def array(self) -> Array:
        """Entries as an array (members, *shape) of NumPy or CuPy, on the batch's device.

        The result is a view of the batch's memory if possible, else a copy.
        """
        return self._view.read()

    @checked(TensorError)
    def assign(self, values: Any) -> Batch:
        """Set all entries to values. Return the batch.

        Parameters
        ----------
        values : number, Batch, or array that broadcasts to (members, *shape)
            Values on this batch's device. A Batch may have any layout, and may overlap this batch.

        Raises
        ------
        TensorError
            If the values have another shape, or this batch's memory can't be written.
        """
        if isinstance(values, Batch):
            shared = self._view.overlaps(values.view)
            values = values.array().copy() if shared else values.array()
        self._view.write(values)
        return self

    @checked(TensorError)
    def copy(self, layout: Layout | None = None) -> Batch:
        """Copy of the batch in new memory, in this or another layout."""
        chosen = self.layout if layout is None else layout
        made = Batch(self.shape, self.members, self.dtype, chosen, self.device)
        return made.assign(self.array())


def _number_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise TensorError(f"dtype is {shown(dtype)}: choose one of {', '.join(NUMBERS)}") from error
    if kind.name not in NUMBERS or not kind.isnative:
        raise TensorError(f"tensors of {kind}: choose one of {', '.join(NUMBERS)}")
    return kind


def _zeros(count: int, dtype: np.dtype[Any], device: Device | None) -> Array:
    if device is None:
        return aligned_array((count,), dtype)
    made: Array = device.xp.zeros(count, dtype)
    return made


def _whole(shape: Any) -> Shape:
    """Shape as a tuple of int. Raise if a size is no whole number."""
    try:
        return tuple(index(size) for size in shape)
    except TypeError as error:
        raise TensorError(f"shape is {shown(shape)}: give a tuple of whole numbers") from error
