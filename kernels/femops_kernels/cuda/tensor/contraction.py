"""Contractions of two tensors on a device: sizes, types and layouts that kernels depend on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from femops_kernels.simd.tensor.contraction import PairContraction
from femops_kernels.simd.tensor.offsets import Offsets

_CONSTANT = 2048  # most offsets of a table in constant memory
_MOST = 2**15  # most numbers of a member in shared memory
_SHORT = 16  # bytes of a member up to which shared memory does not pay


@final
@dataclass(frozen=True)
class Image:
    """Range of memory from the first to the last entry of a member."""

    low: int  # offset of the first entry, in numbers
    span: int  # length of the range, in numbers

    @property
    def pitch(self) -> int:
        """Distance of members in shared memory, in numbers: odd, so that their banks differ."""
        return self.span | 1


def image_of(rows: Offsets, columns: Offsets, *, written: bool) -> Image | None:
    """Image of a member with entries at ``rows[i] + columns[j]``; None if too long or sparse.

    If it is read, up to half of the range may be gaps.  If it is written, it must have no gaps.
    """
    span = max(rows) - min(rows) + max(columns) - min(columns) + 1
    if span > _MOST:
        return None
    entries = len(np.unique(np.add.outer(rows, columns)))
    if span > (entries if written else 2 * entries):
        return None
    return Image(min(rows) + min(columns), span)


@final
@dataclass(frozen=True)
class DeviceContraction(PairContraction):
    """Contraction of two tensors of one member, with the layout of members on a device."""

    # for a, b and c, number of members that are interleaved, entry by entry; 1 if members are
    # separate
    lanes: tuple[int, ...] = (1, 1, 1)
    # True for each operand that is one tensor for all members
    shared: tuple[bool, ...] = (False, False, False)
    products: int = 1  # number of products of a member
    reads: bool = False  # True if c is read, to add beta times c
    apart: bool = False  # True if operands are tables of the members' addresses

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.dtype).itemsize

    @cached_property
    def _places(self) -> tuple[tuple[str, Offsets, str, Offsets], ...]:
        return (
            ("a_row", self.a_rows, "a_term", self.a_terms),
            ("b_term", self.b_terms, "b_column", self.b_columns),
            ("c_row", self.c_rows, "c_column", self.c_columns),
        )

    @cached_property
    def images(self) -> dict[str, Image]:
        """Images of the operands (of "abc") that can be staged in shared memory; see `image_of`."""
        images = {}
        for name, lanes, shared, (_, rows, _, columns) in zip(
            "abc", self.lanes, self.shared, self._places, strict=True
        ):
            image = image_of(rows, columns, written=name == "c")
            apart = lanes == 1 and not shared
            if apart and image is not None and image.span * self.itemsize > _SHORT:
                images[name] = image
        return images

    def words(self) -> str:
        """Name in the tuning database: sizes, type and layout."""
        rows, columns, terms = self.sizes
        how = ", ".join(
            f"{name} {'for all' if shared else 'staged' if name in self.images else lanes}"
            for name, lanes, shared in zip("abc", self.lanes, self.shared, strict=True)
        )
        added = ", added" if self.reads else ""
        return f"products {rows} x {columns} x {terms}, {self.dtype}, {how}{added}"

    def offsets_text(self) -> str:
        """C++ functions that return the offsets of rows, columns and terms."""
        ends = [abs(end) for _, one, _, other in self._places for end in (*one, *other)]
        kind = "long long" if 2 * max(ends) >= 2**31 else "int"
        lines = [f"using Offset = {kind};"]
        for one_name, one, other_name, other in self._places:
            lines += [_offsets_text(one_name, one), _offsets_text(other_name, other)]
        return "\n".join(lines)


def _offsets_text(name: str, values: Offsets) -> str:
    head = f"__device__ __forceinline__ Offset {name}(int i) "
    if isinstance(values, range):
        return f"{head}{{ return {values.start} + Offset({values.step}) * i; }}"
    memory = "__constant__" if len(values) <= _CONSTANT else "__device__"
    table = f"{memory} const Offset {name}_table[] = {{{', '.join(map(str, values))}}};"
    return f"{table}\n{head}{{ return {name}_table[i]; }}"
