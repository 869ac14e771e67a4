"""Contractions of two tensors, for all members of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.simd.tensor.contraction import PairContraction
from femops_kernels.simd.tensor.launches import ALPHA, LAUNCH_WORDS
from femops_kernels.simd.tensor.offsets import consecutive, pieces
from femops_kernels.simd.tensor.products import Product
from femops_kernels.simd.tensor.together import members_together
from femops_kernels.tuning import database
from femops_kernels.tuning.database import TuningKey

# Bytes of members that a thread works on at a time, and from which on several threads do.
_TASK, _SHARED = 2**16, 2**18
# Bytes ahead of a member that a search tries to ask for, of members not longer than so many bytes.
# The model asks for none: on some processors that gains a fifth, on others it takes twice the time.
_AHEAD, _SHORT = 4096, 2048
# Multiply-adds that make up for a number moved alone, which is not in a lane vector.
_ALONE = 2.0

Factor = tuple[float, float]
"""Real and imaginary part."""


@final
@dataclass(frozen=True)
class Contraction(PairContraction):
    """Sums of one member on the host.

    Attributes
    ----------
    lanes : int
        Members that stand together, entry by entry; 1 where each is for itself.
    members : str
        Operands (of "abc") that stand so; others are one for all members.
    """

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

    def reaches(self) -> tuple[int, int, int]:
        """Bytes from the first entry of a, b and c to their last; 0 where most are of others."""
        size = np.dtype(self.dtype).itemsize * (self.lanes if self.members else 1)
        found = []
        for one, other in (
            (self.a_rows, self.a_terms),
            (self.b_terms, self.b_columns),
            (self.c_rows, self.c_columns),
        ):
            entries = (max(one) - min(one)) + (max(other) - min(other)) + 1
            dense = entries <= 2 * len(one) * len(other) * (self.lanes if self.members else 1)
            found.append(entries * size if dense else 0)
        a, b, c = found
        return a, b, c

    def lengths(self) -> tuple[int, ...]:
        """Bytes of real matrices that are by rows without gaps; of others nothing."""
        rows, columns, terms = self.sizes
        found = []
        for one, other, many, length in (
            (self.a_rows, self.a_terms, rows, terms),
            (self.b_terms, self.b_columns, terms, columns),
            (self.c_rows, self.c_columns, rows, columns),
        ):
            dense = (many == 1 or one == range(0, many * length, length)) and (
                length == 1 or other == range(length)
            )
            if self.members or self.parts > 1 or one[0] or other[0] or not dense:
                return ()
            found.append(many * length * np.dtype(self.dtype).itemsize)
        return tuple(found)

    def words(self) -> str:
        """Sizes, type and layout, for the database of settings."""
        rows, columns, terms = self.sizes
        how = f"{self.lanes} members a group" if self.members else "members apart"
        return f"gemm {rows} x {columns} x {terms}, {self.dtype}, {how}"

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
@dataclass(frozen=True)
class Variant:
    """Settings of a kernel.

    Attributes
    ----------
    rows, vectors : int
        Rows and lane vectors of the result in registers.
    ahead : int
        Members ahead of the one at hand that are asked for from memory; 0 for none.
    """

    rows: int
    vectors: int
    ahead: int

    @staticmethod
    def default(contraction: Contraction) -> Variant:
        """The model's choice."""
        rows, parts = contraction.sizes[0], contraction.parts
        block = default_block(rows, len(contraction.vectors()), parts, bool(contraction.members))
        return Variant(*block, ahead=0)

    @staticmethod
    def candidates(contraction: Contraction) -> list[Variant]:
        """Variants that the model does not rule out, the default first.

        Blocks fill more than half of the registers, or the whole result.
        """
        chosen, parts = Variant.default(contraction), contraction.parts
        rows, vectors = contraction.sizes[0], len(contraction.vectors())
        found = [chosen, *(replace(chosen, ahead=ahead) for ahead in _aheads(contraction))]
        for width in range(1, min(vectors, 8) + 1):
            for height in range(1, min(rows, registers()) + 1):
                used = height * width * parts + width
                full = height == rows or used + width * parts > registers() - 2
                if used <= registers() - 2 and 2 * used > registers() and full:
                    found.append(replace(chosen, rows=height, vectors=width))
        return list(dict.fromkeys(found))


def _aheads(contraction: Contraction) -> tuple[int, ...]:
    longest = max(contraction.reaches())
    if not 0 < longest <= _SHORT:
        return 1, 2
    ahead = -(-_AHEAD // longest)
    return ahead // 2, ahead, 2 * ahead


@final
@dataclass(frozen=True, eq=False)
class Launch:
    """Compiled products of matrices, and what they are given beside places of operands.

    Attributes
    ----------
    products : function
    words : (LAUNCH_WORDS,) int64
    copies : array
        Memory that the words tell of.
    threads : int
    small : bool
        True if it is work for one thread, however many there are.
    """

    products: Any
    words: NDArray[np.int64]
    copies: NDArray[np.uint8]
    threads: int
    small: bool


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
        self._modules: dict[tuple[bool, bool, bool, bool], tuple[ModuleType, int]] = {}

    @cached_property
    def variant(self) -> Variant:
        """Settings: those of the database, else the model's."""
        default = Variant.default(self._contraction)
        found = database.find(self.tuning_key())
        names = ("rows", "vectors", "ahead")
        chosen = {name: int(found[name]) for name in names if name in found}
        if "ahead" in chosen:
            chosen["ahead"] -= 1  # the database has numbers from 1 on
        return replace(default, **chosen)

    def tuning_key(self) -> TuningKey:
        """Key of its settings in the database."""
        return machine.tuning_key(self._contraction.words())

    def candidates(self) -> list[Variant]:
        """Settings to try."""
        return Variant.candidates(self._contraction)

    def _block(self) -> tuple[int, int]:
        rows = min(self.variant.rows, self._contraction.sizes[0])
        return rows, min(self.variant.vectors, len(self._contraction.vectors()))

    def product(self, once: bool) -> Product:
        """The product to compile; ``once`` if all members share one b."""
        one = self._contraction
        rows, gathered, block = one.sizes[0], one.gathers(), self._block()
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

    def _compiled(
        self, once: bool, apart: bool = False, several: bool = False, close: bool = False
    ) -> tuple[ModuleType, int]:
        key = once, apart, several, close
        if key not in self._modules:
            self._modules[key] = self._compile(*key)
        return self._modules[key]

    def _compile(
        self, once: bool, apart: bool, several: bool, close: bool
    ) -> tuple[ModuleType, int]:
        product = self.product(once)
        lines = -(-product.packed_numbers() * np.dtype(product.dtype).itemsize // 128)
        nbytes = lines * 128 if product.packed else 0
        text = (
            "from femops_kernels.simd.tensor.launches import *\n"
            "from femops_kernels.simd.tensor.products import *\n"
            f"from femops_kernels.simd.tensor.together import *\n\nPRODUCT = {product!r}\n"
        )
        constants: dict[str, object] = {"ONCE": once and product.packed, "COPY_BYTES": nbytes}
        reaches = self._contraction.reaches()
        constants["AHEAD"], constants["APART"] = 0 if apart else self.variant.ahead, apart
        constants["SEVERAL"] = several
        width = machine.lane_width(np.finfo(product.dtype).dtype)
        count = members_together(self._contraction.sizes, width) if close else 0
        constants["TOGETHER"] = count
        text += f"WIDE = {replace(product, width=width) if count else product!r}\n"
        constants["LINES"] = tuple(-(-min(reach, _SHORT) // 64) for reach in reaches)
        return specialize(("gemm",), constants, text), nbytes

    def run(
        self,
        operands: tuple[int, int, int],
        strides: tuple[int, ...],
        inside: tuple[int, int],
        alpha: Factor,
        beta: Factor,
        *,
        apart: bool = False,
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
        apart : bool
            Operands are tables of addresses, (members,) int64.
        """
        self.run_launch(self.launch(strides, inside, alpha, beta, apart=apart), operands)

    def run_launch(self, launch: Launch, operands: tuple[int, int, int]) -> None:
        """Run a launch on operands a, b and c; see `run`."""
        if self.exchanged:
            operands = (operands[1], operands[0], operands[2])
        with LAUNCH:
            team = machine.team_of(launch.threads)
            launch.products(team, *operands, launch.words.ctypes.data)

    def launch(
        self,
        strides: tuple[int, ...],
        inside: tuple[int, int],
        alpha: Factor,
        beta: Factor,
        *,
        apart: bool = False,
    ) -> Launch:
        """All that a launch depends on but the places of the operands; see `run`.

        Where a and b are exchanged, it is given their places in turns.
        """
        if self.exchanged:
            strides = tuple(strides[k] for k in (1, 0, 2, 4, 3, 5))
        members, inner = inside
        once = strides[1] == strides[4] == 0 and not apart
        close = inner == 1 and not apart and strides[:3] == self._contraction.lengths()
        module, copy_bytes = self._compiled(once, apart, inner > 1, close)
        each = self._contraction.reaches() if apart else strides[:3]
        moved = max(1, sum(abs(stride) for stride in each)) * max(1, inner)
        small = members * moved <= _SHARED
        threads = 1 if small else machine.get_threads()
        size = max(1, min(_TASK // moved, members // (4 * threads) + 1))
        copies: NDArray[np.uint8] = np.empty(threads * copy_bytes, np.uint8)
        words = np.empty(LAUNCH_WORDS, np.int64)
        words[:ALPHA] = *strides, *inside, size, copies.ctypes.data if copy_bytes else 0
        words[ALPHA:].view(np.float64)[:] = *alpha, *beta
        return Launch(module.products, words, copies, threads, small)
