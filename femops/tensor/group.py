"""Groups: matrices that were allocated separately and are multiplied together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, final

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.gemm import product_shape
from femops.tensor.lowering import (
    Forms,
    Number,
    Term,
    as_pair,
    device_launches_of,
    launches_of,
    scale,
)
from femops.tensor.memory import DeviceName, check_stream, find_device, functions_of, is_array
from femops.tensor.places import View, check_devices
from femops_common.arguments import checked, shown
from femops_kernels.cuda.tensor.kernel import Batches
from femops_kernels.device import Device

Array = NDArray[Any]

_APART = (1, 1, 1), (False, False, False)  # members are not interleaved, and no operand is shared


@final
@checked(TensorError)
class Group:
    """Matrices of one type and any sizes that were allocated separately.

    Parameters
    ----------
    arrays : iterable of (rows, columns) arrays
        Arrays of NumPy or of one GPU, with any strides: float64, float32, complex128 or complex64.
        The arrays are not copied.

    Raises
    ------
    TensorError
        If an array does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A = femops.tensor.Group([np.ones((2, 3)), np.ones((4, 3))])
    >>> A.append(np.ones((2, 3)))
    >>> B = femops.tensor.Group(np.ones((3, 5)) for _ in A)
    >>> [one.shape for one in femops.tensor.group_gemm(A, B)]
    [(2, 5), (4, 5), (2, 5)]
    """

    def __init__(self, arrays: Iterable[Array] = ()) -> None:
        self._views: list[View] = []
        try:
            given = list(arrays)
        except TypeError as error:
            raise TensorError(f"arrays is {shown(arrays)}: give a list of arrays") from error
        for array in given:
            self.append(array)

    def append(self, array: Array) -> None:
        """Add a matrix (rows, columns) of any size.

        Raises
        ------
        TensorError
            If the array is no matrix, or has another type or device than the others.
        """
        if not is_array(array) or array.ndim != 2:
            raise TensorError(f"{shown(array)} in a group: give NumPy arrays (rows, columns)")
        view = View.of_array(array, shared=True)
        if self._views and view.dtype != self._views[0].dtype:
            raise TensorError(
                f"{view.dtype} in a group of {self._views[0].dtype}: convert it, by astype"
            )
        check_devices(*self._views[:1], view)
        self._views.append(view)

    def __len__(self) -> int:
        return len(self._views)

    def __getitem__(self, k: int) -> Array:
        return self._views[k].array

    def __iter__(self) -> Iterator[Array]:
        return (view.array for view in self._views)

    @property
    def device(self) -> Device | None:
        """Device of all matrices; None for the host."""
        return self._views[0].device if self._views else None

    @checked(TensorError)
    def to(self, device: DeviceName, stream: Any = None) -> Group:
        """Group of copies on a device or on the host, by rows in one block of memory.

        If the group is on this device already, return the group itself.

        Parameters
        ----------
        device, stream
            See `Batch.to`.

        Raises
        ------
        TensorError
            If ``device`` is no device, or ``stream`` no stream.
        femops.errors.DeviceError
            If there is no such device.
        """
        check_stream(stream)
        where = find_device(device)
        if where is self.device or not self._views:
            return self
        functions = functions_of(self.device)
        block = functions.concatenate(tuple(view.array.reshape(-1) for view in self._views))
        moved = View.of_array(block, shared=True).to(where, stream).array
        return Group(_cut(moved, [view.places.shape for view in self._views]))

    @property
    def views(self) -> list[View]:
        """View of each matrix: offsets of its entries, and its memory."""
        return self._views


@checked(TensorError)
def group_gemm(
    a: Group,
    b: Group,
    out: Group | None = None,
    *,
    alpha: Number = 1.0,
    beta: Number = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Group:
    """Products ``out = alpha a b + beta out`` of all matrices of groups, pair by pair.

    Pairs of equal shapes are multiplied together.

    Parameters
    ----------
    a, b : Group
        Factors. Both groups have the same number of matrices.
    out : Group, optional
        Output. By default a new group.
    alpha, beta : number
        As for `gemm`.
    transpose_a, transpose_b : bool
        As for `gemm`.

    Returns
    -------
    Group
        ``out``, or the new output.

    Raises
    ------
    TensorError
        If numbers of matrices, shapes or types do not fit, or the output is missing, can't be
        written, or overlaps another matrix.
    """
    letters = "ki" if transpose_a else "ik", "jk" if transpose_b else "kj"
    pairs = _pairs(a, b, letters)
    if out is None and beta != 0:
        raise TensorError(f"beta is {beta} without out: give the output that is added to")
    shapes = [product_shape(*pair) for pair in pairs]
    if out is None:
        target = _outputs(shapes, a)
    else:
        target = out
        _check_output(out, shapes, (a, b))
    buckets: dict[Forms, list[int]] = {}
    for k, (first, second) in enumerate(pairs):
        places = first.view.places, second.view.places, target.views[k].places
        forms = tuple(zip(places, (*letters, "ij"), strict=True))
        buckets.setdefault(forms, []).append(k)
    for forms, chosen in buckets.items():
        _multiply(forms, [[one.views[k] for k in chosen] for one in (a, b, target)], alpha, beta)
    return target


def _outputs(shapes: list[tuple[int, int]], like: Group) -> Group:
    """New matrices of these shapes. On a device they lie in one block."""
    if like.device is None:
        return Group(np.empty(shape, like[0].dtype) for shape in shapes)
    block = like.device.xp.empty(sum(m * n for m, n in shapes), like[0].dtype)
    return Group(_cut(block, shapes))


def _cut(block: Array, shapes: Iterable[tuple[int, ...]]) -> Iterator[Array]:
    """Yield consecutive views of a block, as matrices of these shapes."""
    first = 0
    for shape in shapes:
        last = first + prod(shape)
        yield block[first:last].reshape(shape)
        first = last


def _pairs(a: Group, b: Group, letters: tuple[str, str]) -> list[tuple[Term, Term]]:
    if len(a) != len(b):
        raise TensorError(f"groups of {len(a)} and {len(b)} matrices: give both the same number")
    check_devices(*a.views[:1], *b.views[:1])
    if len(a) and a[0].dtype != b[0].dtype:
        raise TensorError(f"groups of {a[0].dtype} and {b[0].dtype}: convert them to one type")
    views = zip(a.views, b.views, strict=True)
    return [(Term(x, letters[0]), Term(y, letters[1])) for x, y in views]


def _check_output(out: Group, shapes: list[tuple[int, int]], operands: tuple[Group, Group]) -> None:
    check_devices(*out.views[:1], *operands[0].views[:1])
    found = [view.places.shape for view in out.views]
    if found != shapes:
        raise TensorError(f"out has matrices of shapes {found[:3]}...: give {shapes[:3]}...")
    if shapes and out[0].dtype != operands[0][0].dtype:
        raise TensorError(f"out is of {out[0].dtype}: convert it to {operands[0][0].dtype}")
    for view in out.views:
        view.check_writable()
    # in order of their begins, each output must end before the next matrix begins
    ranges = [
        (*byte_bounds(view.on_host().array), one is out)
        for one in (out, *operands)
        for view in one.views
        if not view.empty
    ]
    reached, of_output, all_reached = 0, False, 0
    for begin, end, written in sorted(ranges):
        if (written and begin < all_reached) or (of_output and begin < reached):
            raise TensorError("out overlaps another matrix: give memory of its own")
        if written:
            reached, of_output = max(reached, end), True
        all_reached = max(all_reached, end)


def _multiply(forms: Forms, views: list[list[View]], alpha: Number, beta: Number) -> None:
    """Multiply pairs of matrices with equal places. Each run takes one launch."""
    like, size = views[2][0], views[2][0].array.itemsize
    factors = as_pair(alpha, like), as_pair(beta, like)
    if any(many[0].empty for many in views):
        for view in views[2]:
            scale(view, factors[1])
        return
    reads, device, count = factors[1] != (0.0, 0.0), like.device, len(views[0])
    where = [np.array([view.address for view in many], dtype=np.int64) for many in views]
    if device is not None:
        there, runs = device_launches_of(forms, like.number, *_APART, reads, device, apart=True)
        for run in runs:
            starts = zip(where, run.begin, strict=True)
            a, b, c = (device.upload(table + begin * size) for table, begin in starts)
            there.run((a, b, c), Batches(count, (0, 0, 0), run.products, run.distance), *factors)
        return
    here, runs = launches_of(forms, like.number, 1, "", reads)
    for run in runs:
        tables = [table + begin * size for table, begin in zip(where, run.begin, strict=True)]
        a, b, c = (table.ctypes.data for table in tables)
        distance = [size * one for one in run.distance]
        here.run((a, b, c), (0, 0, 0, *distance), (count, run.products), *factors, apart=True)
