"""Contractions of two tensors on a device: what their kernels are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from femops_kernels.simd.tensor.contraction import PairContraction
from femops_kernels.simd.tensor.offsets import Offsets

_CONSTANT = 2048  # offsets in a table that constant memory takes
_MOST = 2**15  # numbers that shared memory may hold
_SHORT = 16  # bytes of a member that a thread may as well read by itself


@final
@dataclass(frozen=True)
class Image:
    """Memory of a member's entries, from the first to the last.

    Attributes
    ----------
    low : int
        Offset of the first, in numbers.
    span : int
        Numbers from there to the last.
    """

    low: int
    span: int

    @property
    def pitch(self) -> int:
        """Numbers from one member's to the next in shared memory: odd, so that banks differ."""
        return self.span | 1


def image_of(rows: Offsets, columns: Offsets, *, written: bool) -> Image | None:
    """Memory of a member whose entries are at sums of two offsets, None if they are no run.

    What is read may have gaps, what is written has none.
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
    """Sums of one member on a device.

    Attributes
    ----------
    lanes : three of int
        Members of a, b and c that stand together, entry by entry; 1 where each is for itself.
    shared : three of bool
        True for one tensor that all members share.
    products : int
        Products of a member.
    reads : bool
        True if the result is added to what is there.
    apart : bool
        True if members are named by tables of their addresses.
    """

    lanes: tuple[int, ...] = (1, 1, 1)
    shared: tuple[bool, ...] = (False, False, False)
    products: int = 1
    reads: bool = False
    apart: bool = False

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
        """Operands (of "abc") whose members are runs in memory, to be copied as a whole.

        What is read may have gaps, what is written has none.
        """
        found = {}
        for name, lanes, shared, (_, rows, _, columns) in zip(
            "abc", self.lanes, self.shared, self._places, strict=True
        ):
            image = image_of(rows, columns, written=name == "c")
            apart = lanes == 1 and not shared
            if apart and image is not None and image.span * self.itemsize > _SHORT:
                found[name] = image
        return found

    def words(self) -> str:
        """Sizes, type and layout, for the database of settings."""
        rows, columns, terms = self.sizes
        how = ", ".join(
            f"{name} {'for all' if shared else 'staged' if name in self.images else lanes}"
            for name, lanes, shared in zip("abc", self.lanes, self.shared, strict=True)
        )
        added = ", added" if self.reads else ""
        return f"products {rows} x {columns} x {terms}, {self.dtype}, {how}{added}"

    def offsets_text(self) -> str:
        """Functions of C++ that say where entries are."""
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
