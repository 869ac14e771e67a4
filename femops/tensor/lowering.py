"""Contractions of two tensors as matrix products: offsets of rows, columns and terms.

An index of one tensor and the result counts rows or columns. A summation index counts terms. An
index of both tensors and the result counts products. If a tensor lacks an index, its offsets do not
depend on the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.known import remembered
from femops.tensor.places import Places, View, check_devices
from femops_kernels.cpu.tensor.contraction import Contraction, ContractionKernel, Launch
from femops_kernels.cuda.device.arguments import Place
from femops_kernels.cuda.tensor.contraction import DeviceContraction
from femops_kernels.cuda.tensor.kernel import Batches, DeviceContractionKernel
from femops_kernels.device import Device
from femops_kernels.simd.lanes import WIDEST
from femops_kernels.simd.tensor.offsets import Offsets, offsets

Table = NDArray[np.int64]
Number = complex | float


@final
@dataclass(frozen=True)
class Term:
    """A tensor and the letters of its indices."""

    view: View
    letters: str

    @property
    def named(self) -> tuple[str, tuple[int, ...]]:
        """Letters of the indices, and the tensor's shape."""
        return self.letters, self.view.places.shape


@final
@dataclass(frozen=True)
class Run:
    """Products of a member, at equal distances in memory, that one launch computes.

    ``begin`` has the offsets of the first product in a, b and c. ``distance`` has the strides to
    the next product. Both are counted in numbers.
    """

    begin: tuple[int, int, int]
    products: int
    distance: tuple[int, int, int]


_Six = tuple[Offsets, Offsets, Offsets, Offsets, Offsets, Offsets]

Forms = tuple[tuple[Places, str], ...]
"""Places and index letters of a, b and c."""


def sizes_of(named: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, int]:
    """Size of each index by letter, from letters and shapes of operands, which must agree."""
    sizes: dict[str, int] = {}
    for letters, shape in named:
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise TensorError(
                    f"index {letter} is {sizes[letter]} long in one operand and {size} in another"
                )
    return sizes


def contract_pair(c: Term, a: Term, b: Term, alpha: Number = 1.0, beta: Number = 0.0) -> None:
    """Set c = alpha a b + beta c, summed over the indices that c lacks.

    Raises
    ------
    TensorError
        If the tensors do not fit together.
    """
    members, factors = _members(c, a, b), (as_pair(alpha, c.view), as_pair(beta, c.view))
    if a.view.empty or b.view.empty or c.view.empty:
        scale(c.view, factors[1])
        return
    if c.view.device is not None:
        reads = factors[1] != (0.0, 0.0)
        device_kernel, many = launches_on_device((a, b, c), members, reads, c.view.device)
        for places, batches in many:
            device_kernel.run(places, batches, *factors)
        return
    a, b = (_regrouped(one, c) for one in (a, b))
    kernel, launches = launches_on_host(c, a, b, alpha, beta)
    size = c.view.array.itemsize
    first = a.view.address, b.view.address, c.view.address
    for launch, run in launches:
        a_at, b_at, c_at = (at + begin * size for at, begin in zip(first, run.begin, strict=True))
        kernel.run_launch(launch, (a_at, b_at, c_at))


def scale(view: View, factor: tuple[float, float]) -> None:
    """Multiply the tensors by a factor. If it is zero, they are not read."""
    number = complex(*factor) if view.dtype.kind == "c" else factor[0]
    view.write(number * view.read() if number else 0.0)


def launches_on_host(
    c: Term, a: Term, b: Term, alpha: Number, beta: Number
) -> tuple[ContractionKernel, list[tuple[Launch, Run]]]:
    """Kernel and launches on the host of a contraction whose batches have equal groups."""
    lanes, members = c.view.lanes, c.view.members
    factors = as_pair(alpha, c.view), as_pair(beta, c.view)
    standing = "".join(
        name for name, one in zip("abc", (a, b, c), strict=True) if one.view.lanes > 1
    )
    views = a.view, b.view, c.view
    size = c.view.array.itemsize
    steps = tuple(one.step for one in views)
    reads = factors[1] != (0.0, 0.0)
    parts = 2 if c.view.dtype.kind == "c" else 1
    lanes_of_kernel = min(lanes, WIDEST // parts)  # larger groups are done in parts
    kernel, runs = launches_of(_forms(a, b, c), c.view.number, lanes_of_kernel, standing, reads)
    launches = []
    for run in runs:
        strides = (*steps, *(size * one for one in run.distance))
        inside = -(-members // lanes), run.products
        launch = kernel.launch(strides, inside, *factors)
        for part in range(0, lanes, lanes_of_kernel):
            first, second, third = (
                at + part * (one.lanes > 1) for at, one in zip(run.begin, views, strict=True)
            )
            launches.append((launch, replace(run, begin=(first, second, third))))
    return kernel, launches


def _forms(*terms: Term) -> Forms:
    return tuple((one.view.places, one.letters) for one in terms)


def launches_on_device(
    terms: tuple[Term, Term, Term], members: int, reads: bool, device: Device
) -> tuple[DeviceContractionKernel, list[tuple[tuple[Place, Place, Place], Batches]]]:
    """Kernel and launches on a device. Operands may have different groups."""
    views = [one.view for one in terms]
    lanes, shared = tuple(one.lanes for one in views), tuple(one.shared for one in views)
    kernel, runs = device_launches_of(_forms(*terms), views[2].number, lanes, shared, reads, device)
    size = views[2].array.itemsize
    launches = []
    for run in runs:
        a, b, c = (
            Place(one.array, (one.start + begin) * size)
            for one, begin in zip(views, run.begin, strict=True)
        )
        steps = views[0].stride, views[1].stride, views[2].stride
        launches.append(((a, b, c), Batches(members, steps, run.products, run.distance)))
    return kernel, launches


def as_pair(number: Number, view: View) -> tuple[float, float]:
    """Real and imaginary part of a factor, checked against the type of the tensors."""
    if not isinstance(number, int | float | complex | np.number) or isinstance(number, bool):
        raise TensorError(f"a factor is {type(number).__name__}: give a number")
    whole = complex(number)
    if whole.imag and view.dtype.kind != "c":
        raise TensorError(f"a factor {number} for tensors of {view.dtype}: give a real one")
    return whole.real, whole.imag


def _members(c: Term, a: Term, b: Term) -> int:
    """Number of members. Raise if the tensors differ in members, type or device."""
    check_devices(c.view, a.view, b.view)
    counts = {c.view.members} | {one.view.members for one in (a, b) if not one.view.shared}
    if len(counts) > 1:
        raise TensorError(
            f"batches of {sorted(counts)} members: give all the same number, or one tensor"
        )
    kinds = {one.view.dtype for one in (a, b, c)}
    if len(kinds) > 1:
        names = ", ".join(sorted(one.view.number for one in (a, b, c)))
        raise TensorError(f"tensors of {names}: convert them to one type, by astype")
    return c.view.members


def _regrouped(one: Term, like: Term) -> Term:
    """Term with the same groups of members as ``like``. It is copied if its groups differ."""
    view = one.view
    if view.shared or view.lanes == like.view.lanes:
        return one
    if like.view.lanes == 1:
        return Term(View.of_array(np.ascontiguousarray(view.read())), one.letters)
    made = View.grouped(view.places.shape, view.dtype, like.view.lanes, view.members)
    made.write(view.read())
    return Term(made, one.letters)


@remembered
def launches_of(
    forms: Forms, dtype: str, lanes: int, standing: str, reads: bool
) -> tuple[ContractionKernel, tuple[Run, ...]]:
    """Kernel of a contraction on the host, and the runs of products to launch."""
    places, runs = _lowered(forms)
    contraction = Contraction(dtype, *places, lanes=lanes, members=standing)
    return ContractionKernel(contraction, reads), runs


@remembered
def device_launches_of(
    forms: Forms,
    dtype: str,
    lanes: tuple[int, ...],
    shared: tuple[bool, ...],
    reads: bool,
    device: Device,
    apart: bool = False,
) -> tuple[DeviceContractionKernel, tuple[Run, ...]]:
    """Kernel of a contraction on a device, and the runs of products to launch."""
    places, runs = _lowered(forms)
    contraction = DeviceContraction(
        dtype,
        *places,
        lanes=lanes,
        shared=shared,
        products=max(run.products for run in runs),
        reads=reads,
        apart=apart,
    )
    return DeviceContractionKernel(contraction, device), runs


def _lowered(forms: Forms) -> tuple[_Six, tuple[Run, ...]]:
    """Offsets of rows and terms of a, terms and columns of b, rows and columns of c; and runs."""
    tables, letters = zip(*(_diagonal(places.offsets, word) for places, word in forms), strict=True)
    sizes = sizes_of(zip(letters, (table.shape for table in tables), strict=True))
    in_a, in_b, in_c = letters
    each = [x for x in in_c if x in in_a and x in in_b]
    rows = [x for x in in_c if x in in_a and x not in in_b]
    columns = [x for x in in_c if x not in in_a]
    terms = [x for x in dict.fromkeys(in_a + in_b) if x not in in_c]
    parts = [
        _separated(table, word, groups, sizes)
        for table, word, groups in (
            (tables[0], in_a, (each, rows, terms)),
            (tables[1], in_b, (each, terms, columns)),
            (tables[2], in_c, (each, rows, columns)),
        )
    ]
    (a_each, a_rows, a_terms), (b_each, b_terms, b_columns), (c_each, c_rows, c_columns) = parts
    six = (
        *(offsets(a_rows), offsets(a_terms)),
        *(offsets(b_terms), offsets(b_columns)),
        *(offsets(c_rows), offsets(c_columns)),
    )
    return six, tuple(_runs(np.stack([a_each, b_each, c_each])))


def _diagonal(table: Table, letters: str) -> tuple[Table, str]:
    """Offsets of the entries whose repeated indices are equal, and the distinct letters."""
    if len(letters) != table.ndim:
        raise TensorError(
            f"{letters!r} names {len(letters)} indices of a tensor of shape {table.shape}"
        )
    once = "".join(dict.fromkeys(letters))
    if once == letters:
        return table, letters
    try:
        return np.asarray(np.einsum(f"{letters}->{once}", table)), once
    except ValueError as error:
        raise TensorError(
            f"{letters!r} repeats an index of a tensor of shape {table.shape}: its sizes differ"
        ) from error


def _separated(
    table: Table, letters: str, groups: Sequence[Sequence[str]], sizes: dict[str, int]
) -> list[Table]:
    """Split a table of offsets into a sum of one table for each group of indices."""
    order = [letter for group in groups for letter in group if letter in letters]
    moved = table.transpose([letters.index(letter) for letter in order])
    shape = [sizes[x] if x in letters else 1 for group in groups for x in group]
    whole = np.broadcast_to(moved.reshape(shape), [sizes[x] for group in groups for x in group])
    whole = whole.reshape([int(np.prod([sizes[x] for x in group], dtype=int)) for group in groups])
    first = whole[0, 0, 0]
    parts = [whole[:, 0, 0], whole[0, :, 0] - first, whole[0, 0, :] - first]
    again = parts[0][:, None, None] + parts[1][:, None] + parts[2]
    if not np.array_equal(again, whole):
        raise TensorError(
            f"the layout of {letters!r} is no sum of offsets of its indices: copy the tensor to a "
            "strided one"
        )
    return parts


def _runs(places: Table) -> list[Run]:
    """Group products with offsets ``places`` (operand, product) into runs of equal distance."""
    runs, begin, count = [], 0, places.shape[1]
    while begin < count:
        end = begin + 1
        distance = places[:, end] - places[:, begin] if end < count else np.zeros(3, np.int64)
        while end < count and np.array_equal(places[:, end] - places[:, end - 1], distance):
            end += 1
        runs.append(Run(_three(places[:, begin]), end - begin, _three(distance)))
        begin = end
    return runs


def _three(numbers: Table) -> tuple[int, int, int]:
    a, b, c = (int(number) for number in numbers)
    return a, b, c
