"""Contractions of two tensors, for all members of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.simd.tensor.offsets import Offsets, consecutive, pieces
from femops_kernels.simd.tensor.products import Product

# Bytes of members that a thread works on at a time, and from which on several threads do.
_TASK, _SHARED = 2**16, 2**18
# Multiply-adds that make up for a number moved alone, which is not in a lane vector.
_ALONE = 2.0

Factor = tuple[float, float]
"""Real and imaginary part."""


@final
@dataclass(frozen=True)
class Contraction:
    """Sums ``c[i, j] = alpha sum_k a[i, k] b[k, j] + beta c[i, j]`` of one member.

    Indices stand for any numbers of indices of tensors: offsets say where entries are.

    Attributes
    ----------
    dtype : str
        float32, float64, complex64 or complex128.
    a_rows, a_terms, b_terms, b_columns, c_rows, c_columns : range or tuple of int
        Offsets in numbers; an entry's is the sum of two.
    lanes : int
        Members that stand together, entry by entry; 1 where each is for itself.
    members : str
        Operands (of "abc") that stand so; others are one for all members.
    """

    dtype: str
    a_rows: Offsets
    a_terms: Offsets
    b_terms: Offsets
    b_columns: Offsets
    c_rows: Offsets
    c_columns: Offsets
    lanes: int = 1
    members: str = ""

    @property
    def turned(self) -> Contraction:
        """The same with a and b exchanged: rows are columns."""
        return replace(
            self,
            a_rows=self.b_columns,
            a_terms=self.b_terms,
            b_terms=self.a_terms,
            b_columns=self.a_rows,
            c_rows=self.c_columns,
            c_columns=self.c_rows,
            members=self.members.translate(str.maketrans("ab", "ba")),
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and terms."""
        return len(self.c_rows), len(self.c_columns), len(self.a_terms)

    @property
    def parts(self) -> int:
        """Real numbers of a number."""
        return 2 if self.dtype.startswith("complex") else 1

    def flops(self) -> int:
        """Floating-point operations of one member."""
        rows, columns, terms = self.sizes
        return 2 * rows * columns * terms * self.parts**2

    def width(self) -> int:
        """Slots of a lane vector that suit the columns."""
        if self.members:
            return self.lanes * self.parts
        real = np.finfo(self.dtype).dtype
        width = machine.lane_width(real)
        longest = max(count for _, count in pieces(self.c_columns, width // self.parts or 1))
        while width > 2 and width // 2 >= longest * self.parts:
            width //= 2
        return width

    def vectors(self) -> list[tuple[int, int]]:
        """First column and columns of the lane vectors of a row of the result."""
        return pieces(self.c_columns, 1 if self.members else self.width() // self.parts)

    def gathers(self) -> bool:
        """True if lane vectors of b are collected number by number."""
        return not self.members and not consecutive(self.b_columns, self.vectors())

    def cost(self) -> float:
        """Multiply-adds of lane vectors, and what others have to be counted as."""
        rows, columns, terms = self.sizes
        vectors = self.vectors()
        gathered = _ALONE * terms * columns if self.gathers() else 0.0
        whole = consecutive(self.c_columns, vectors)
        scattered = 0.0 if whole else _ALONE * rows * columns
        return rows * len(vectors) * terms * self.parts + gathered + scattered


def registers() -> int:
    """The number of registers of lane vectors."""
    return 16 if machine.register_bytes() == 32 else 32


def default_block(rows: int, vectors: int, parts: int, members: bool) -> tuple[int, int]:
    """Rows and lane vectors of a result that are kept in registers.

    Each term loads the vectors of b, and a number of a for each row: as an operand of the
    multiply-add where it is one number, into a register where it is a lane vector.
    """
    free = registers() - 2
    if members:
        most = 4 if parts == 1 else 2
        columns = min(vectors, most)
        return min(rows, max(1, (free - columns) // (columns * parts) - 1)), columns
    columns = vectors if vectors <= 4 else 4 if vectors % 4 in (0, 3) else 3
    return min(rows, max(1, (free - columns) // (columns * parts))), columns


@final
class ContractionKernel:
    """Compiled kernel of a contraction.

    Parameters
    ----------
    contraction : Contraction
    reads : bool
        True if the result is added to what is there.
    """

    def __init__(self, contraction: Contraction, reads: bool) -> None:
        turned = contraction.turned
        self.exchanged = not contraction.members and turned.cost() < contraction.cost()
        self._contraction = turned if self.exchanged else contraction
        self._reads = reads

    def product(self, once: bool) -> Product:
        """The product to compile; ``once`` if all members share one b."""
        one = self._contraction
        rows, gathered = one.sizes[0], one.gathers()
        block = default_block(rows, len(one.vectors()), one.parts, bool(one.members))
        fields = {name: getattr(one, name) for name in (
            "dtype", "a_rows", "a_terms", "b_terms", "b_columns", "c_rows", "c_columns", "members"
        )}  # fmt: skip
        return Product(
            **fields,
            width=one.width(),
            packed=gathered and (once or rows > block[0]),
            reads=self._reads,
            block=block,
        )

    @cached_property
    def _apart(self) -> tuple[ModuleType, int]:
        return self._compiled(once=False)

    @cached_property
    def _shared(self) -> tuple[ModuleType, int]:
        return self._compiled(once=True)

    def _compiled(self, once: bool) -> tuple[ModuleType, int]:
        product = self.product(once)
        lines = -(-product.packed_numbers() * np.dtype(product.dtype).itemsize // 128)
        nbytes = lines * 128 if product.packed else 0
        text = f"from femops_kernels.simd.tensor.products import *\n\nPRODUCT = {product!r}\n"
        constants = {"ONCE": once and product.packed, "COPY_BYTES": nbytes}
        return specialize(("gemm",), constants, text), nbytes

    def run(
        self,
        operands: tuple[int, int, int],
        strides: tuple[int, ...],
        inside: tuple[int, int],
        alpha: Factor,
        beta: Factor,
    ) -> None:
        """Run it for all members.

        Parameters
        ----------
        operands : (a, b, c)
            Addresses.
        strides : six of int
            Bytes between members (groups of them, where these stand together), then between the
            products of a member.
        inside : (members, products)
            How many there are, of products for each member.
        alpha, beta : pairs of float
        """
        if self.exchanged:
            operands = (operands[1], operands[0], operands[2])
            strides = tuple(strides[k] for k in (1, 0, 2, 4, 3, 5))
        once = strides[1] == strides[4] == 0
        module, copy_bytes = self._shared if once else self._apart
        members, inner = inside
        moved = max(1, sum(abs(stride) for stride in strides[:3])) * max(1, inner)
        threads = machine.get_threads() if members * moved > _SHARED else 1
        size = max(1, min(_TASK // moved, members // (4 * threads) + 1))
        copies: NDArray[np.uint8] = np.empty(threads * copy_bytes, np.uint8)
        where = copies.ctypes.data if copy_bytes else 0
        rest = (operands, strides, inside, size, where, alpha, beta)
        with LAUNCH:
            module.products(machine.team_of(threads), *rest)
