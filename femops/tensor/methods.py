"""Methods for the small matrices of a batch, run where they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.batch import Batch
from femops.tensor.gemm import Operand
from femops.tensor.memory import functions_of
from femops.tensor.places import Places, View
from femops_kernels.cpu.tensor.linear import LinearKernel, Matrices, Members
from femops_kernels.cuda.device.arguments import Place
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.tensor import linear as there

Array = NDArray[Any]
Triangle = tuple[bool, bool, bool, bool]

GENERAL: Triangle = (True, False, False, False)
"""The triangle of a method that has none."""


@final
@dataclass(frozen=True, eq=False)
class Output:
    """An array or batch that a method makes.

    Attributes
    ----------
    shape : (members, rows, columns)
    like : array or Batch, optional
        It has the shape and layout of this; an array if omitted.
    """

    shape: tuple[int, int, int]
    like: Operand | None = None

    def finished(self, values: Array) -> Any:
        """Values in the layout that was asked for."""
        if self.like is None:
            return values
        if not isinstance(self.like, Batch):
            return values.reshape(self.like.shape)
        made = self.empty(values.dtype, self.like.device)
        return made.assign(values.reshape(made.members, *made.shape))

    def empty(self, dtype: np.dtype[Any], device: Device | None) -> Any:
        """New memory for it."""
        if isinstance(self.like, Batch):
            return Batch(self.like.shape, self.shape[0], dtype, self.like.layout, device)
        shape = self.shape if self.like is None else self.like.shape
        return functions_of(device).empty(shape, dtype)


def run(
    method: str,
    operands: tuple[View, View | None],
    outputs: tuple[Output | None, Output | None],
    triangle: Triangle = GENERAL,
) -> tuple[list[Any], NDArray[Any]]:
    """Run a method on operands; what it does not take, or does not write, is None.

    Returns
    -------
    outputs : list
    status : array
        0 for members that succeeded, else where they failed, from 1.

    Raises
    ------
    TensorError
        Matrices that are too large for a device.
    """
    device = operands[0].device
    if device is not None:
        return _run_on_device(method, operands, outputs, triangle, device)
    return _run_on_host(method, operands, outputs, triangle)


def _run_on_host(
    method: str,
    operands: tuple[View, View | None],
    outputs: tuple[Output | None, Output | None],
    triangle: Triangle,
) -> tuple[list[Any], NDArray[Any]]:
    sources = [None if one is None else one.read() for one in operands]
    first, members = operands[0].read(), operands[0].members
    targets = [None if one is None else np.empty(one.shape, first.dtype) for one in outputs]
    status: NDArray[Any] = np.zeros(0)
    if members:
        others = (one for one in (sources[1], targets[1]) if one is not None)
        pair = first, next(others, first[:, :1, :1])
        a, x = (Matrices(*one.shape[1:], *one.strides[1:]) for one in pair)
        kernel = LinearKernel(method, operands[0].number, a, x, triangle)
        read, written = (
            (_members(one), _members(other)) for one, other in (tuple(sources), tuple(targets))
        )
        status = kernel.run(read, written, members)
    made = zip(outputs, targets, strict=True)
    finished = [
        None if one is None or array is None else one.finished(array) for one, array in made
    ]
    return finished, status


def _members(one: Array | None) -> Members:
    return Members(0, 0) if one is None else Members(one.ctypes.data, one.strides[0])


def _run_on_device(
    method: str,
    operands: tuple[View, View | None],
    outputs: tuple[Output | None, Output | None],
    triangle: Triangle,
    device: Device,
) -> tuple[list[Any], NDArray[Any]]:
    n, members, dtype = operands[0].places.shape[0], operands[0].members, operands[0].dtype
    if n > there.MOST_ROWS:
        raise TensorError(
            f"matrices of {n} rows on {device.name}, where at most {there.MOST_ROWS} are worked "
            "on: copy them to 'cpu'"
        )
    made = [None if one is None else one.empty(dtype, device) for one in outputs]
    written = [_written(one, array) for one, array in zip(outputs, made, strict=True)]
    views: dict[str, View | None] = dict(zip(("first", "second"), operands, strict=True))
    views |= dict(zip(("first_out", "second_out"), written, strict=True))
    others = [None if one is None else _device_matrices(one) for one in (operands[1], *written)]
    matrices = there.Matrices(_device_matrices(operands[0]), *others)
    status: NDArray[Any] = np.zeros(0)
    if members:
        given = {name: one for name, one in views.items() if one is not None}
        places = {k: Place(one.array, one.start * dtype.itemsize) for k, one in given.items()}
        steps = {k: one.stride for k, one in given.items()}
        kernel = there.linear_kernel(method, dtype.name, matrices, triangle, device)
        status = device.download(kernel.run(places, steps, members))
    for array, view in zip(made, written, strict=True):
        if isinstance(array, Batch) and view is not None and view.array is not array.view.array:
            array.assign(view.array.reshape(members, *array.shape))
    return made, status


def _written(output: Output | None, made: Any) -> View | None:
    """View of an output as matrices; of one whose layout has no strides, memory in between."""
    if output is None:
        return None
    view: View = made.view if isinstance(made, Batch) else View.of_array(made)
    if view.places.strides is None:
        between = functions_of(view.device).empty(output.shape, view.dtype)
        return View.of_array(between)
    return by_columns(view)


def by_columns(view: View) -> View:
    """Vectors as matrices of one column."""
    if view.places.strides is None or len(view.places.shape) == 2:
        return view
    places = Places((*view.places.shape, 1), (*view.places.strides, 0))
    if view.flat:
        return replace(view, places=places)
    return replace(view, places=places, array=view.array[:, :, np.newaxis])


def _device_matrices(view: View) -> there.DeviceMatrices:
    (rows, columns), (row, column) = view.places.shape, view.places.strides or (0, 0)
    return there.DeviceMatrices(rows, columns, row, column, view.lanes)
