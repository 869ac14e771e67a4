"""Compiled contractions of two tensors for all members of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
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

# Bytes of a task, on which one thread works. Least bytes of members for several threads.
_TASK, _SHARED = 2**16, 2**18
# Bytes by which tuning tries to prefetch ahead, and most bytes of members for which it does. The
# default is no prefetch: on some processors it gains a fifth, on others it takes twice the time.
_AHEAD, _SHORT = 4096, 2048
# Cost, in multiply-adds of lane vectors, of a number that is moved alone.
_ALONE = 2.0

Factor = tuple[float, float]
"""Real and imaginary part."""


@final
@dataclass(frozen=True)
class Contraction(PairContraction):
    """Contraction of two tensors of one member, with the layout of members on the host."""

    # number of members that are interleaved, entry by entry; 1 if members are separate
    lanes: int = 1
    # letters of "abc" for the operands that are interleaved.  If an operand is interleaved, all
    # members share the operands that are not.
    members: str = ""

    @property
    def turned(self) -> Contraction:
        """Contraction with a and b exchanged, so that rows of the result become columns."""
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
        """Slots of a lane vector, in real numbers, that suit the columns of the result."""
        if self.members:
            return self.lanes * self.parts
        real = np.finfo(self.dtype).dtype
        width = machine.lane_width(real)
        longest = max(count for _, count in pieces(self.c_columns, width // self.parts or 1))
        while width > 2 and width // 2 >= longest * self.parts:
            width //= 2
        return width

    def vectors(self) -> list[tuple[int, int]]:
        """First column and number of columns of each lane vector of a row of the result."""
        return pieces(self.c_columns, 1 if self.members else self.width() // self.parts)

    def gathers(self) -> bool:
        """True if lane vectors of b are collected number by number."""
        return not self.members and not consecutive(self.b_columns, self.vectors())

    def reaches(self) -> tuple[int, int, int]:
        """Bytes of a, b and c of one member; 0 if a member uses less than half of its span."""
        size = np.dtype(self.dtype).itemsize * (self.lanes if self.members else 1)
        reaches = []
        for one, other in (
            (self.a_rows, self.a_terms),
            (self.b_terms, self.b_columns),
            (self.c_rows, self.c_columns),
        ):
            entries = (max(one) - min(one)) + (max(other) - min(other)) + 1
            dense = entries <= 2 * len(one) * len(other) * (self.lanes if self.members else 1)
            reaches.append(entries * size if dense else 0)
        a, b, c = reaches
        return a, b, c

    def lengths(self) -> tuple[int, ...]:
        """Bytes of a, b and c; empty unless they are real and C-contiguous."""
        rows, columns, terms = self.sizes
        lengths = []
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
            lengths.append(many * length * np.dtype(self.dtype).itemsize)
        return tuple(lengths)

    def words(self) -> str:
        """Name in the tuning database: sizes, type and layout."""
        rows, columns, terms = self.sizes
        how = f"{self.lanes} members a group" if self.members else "members apart"
        return f"gemm {rows} x {columns} x {terms}, {self.dtype}, {how}"

    def cost(self) -> float:
        """Estimated cost of a member, in multiply-adds of lane vectors."""
        rows, columns, terms = self.sizes
        vectors = self.vectors()
        gathered = _ALONE * terms * columns if self.gathers() else 0.0
        whole = consecutive(self.c_columns, vectors)
        scattered = 0.0 if whole else _ALONE * rows * columns
        return rows * len(vectors) * terms * self.parts + gathered + scattered


def registers() -> int:
    """Number of registers for lane vectors."""
    return 16 if machine.register_bytes() == 32 else 32


def default_block(rows: int, vectors: int, parts: int, members: bool) -> tuple[int, int]:
    """Rows and lane vectors of the result that are kept in registers.

    Each term of the sum loads the lane vectors of b, and for each row a number of a.  This number
    is an operand of the multiply-add.  If members are interleaved, it is a lane vector, which needs
    a register.
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
    """Settings of a contraction kernel that can be tuned."""

    # rows and vectors: rows and lane vectors of the result in registers
    rows: int
    vectors: int
    ahead: int  # number of members by which memory is prefetched ahead; 0 for no prefetch

    @staticmethod
    def default(contraction: Contraction) -> Variant:
        """Settings without tuning: the block of `default_block`, and no prefetch."""
        rows, parts = contraction.sizes[0], contraction.parts
        block = default_block(rows, len(contraction.vectors()), parts, bool(contraction.members))
        return Variant(*block, ahead=0)

    @staticmethod
    def candidates(contraction: Contraction) -> list[Variant]:
        """Settings that are worth trying, the default first.

        Blocks fill more than half of the registers.  Another row would not fit, or the block has
        all rows.
        """
        chosen, parts = Variant.default(contraction), contraction.parts
        rows, vectors = contraction.sizes[0], len(contraction.vectors())
        variants = [chosen, *(replace(chosen, ahead=ahead) for ahead in _aheads(contraction))]
        for width in range(1, min(vectors, 8) + 1):
            for height in range(1, min(rows, registers()) + 1):
                used = height * width * parts + width
                full = height == rows or used + width * parts > registers() - 2
                if used <= registers() - 2 and 2 * used > registers() and full:
                    variants.append(replace(chosen, rows=height, vectors=width))
        return list(dict.fromkeys(variants))


def _aheads(contraction: Contraction) -> tuple[int, ...]:
    longest = max(contraction.reaches())
    if not 0 < longest <= _SHORT:
        return 1, 2
    ahead = -(-_AHEAD // longest)
    return ahead // 2, ahead, 2 * ahead


@final
@dataclass(frozen=True, eq=False)
class Launch:
    """Compiled products of matrices, and their arguments but for the addresses of operands."""

    module: CompiledKernel  # the compiled products
    words: NDArray[np.int64]  # arguments, see ``simd/tensor/launches.py``
    copies: NDArray[np.uint8]  # memory for copies of b, whose address is one of the words
    threads: int  # number of threads that share the work
    small: bool  # True if the work is so little that one thread does it


@final
class ContractionKernel:
    """Compiled kernel of a contraction."""

    def __init__(self, contraction: Contraction, reads: bool) -> None:
        turned = contraction.turned
        self.exchanged = not contraction.members and turned.cost() < contraction.cost()
        self._contraction = turned if self.exchanged else contraction
        self._reads = reads
        self._modules: dict[tuple[bool, bool, bool, bool], tuple[CompiledKernel, int]] = {}

    @cached_property
    def variant(self) -> Variant:
        """Settings from the tuning database, or default settings where it has none."""
        default = Variant.default(self._contraction)
        tuned = database.find(self.tuning_key())
        names = ("rows", "vectors", "ahead")
        chosen = {name: int(tuned[name]) for name in names if name in tuned}
        if "ahead" in chosen:
            chosen["ahead"] -= 1  # numbers in the database begin with 1
        return replace(default, **chosen)

    def tuning_key(self) -> TuningKey:
        """Key of the kernel's settings in the tuning database."""
        return machine.tuning_key(self._contraction.words())

    def candidates(self) -> list[Variant]:
        """Settings that tuning tries."""
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
    ) -> tuple[CompiledKernel, int]:
        key = once, apart, several, close
        if key not in self._modules:
            self._modules[key] = self._compile(*key)
        return self._modules[key]

    def _compile(
        self, once: bool, apart: bool, several: bool, close: bool
    ) -> tuple[CompiledKernel, int]:
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
        """Compute c = alpha a b + beta c for all members of a batch.

        Shapes: `operands` (a, b, c), `inside` (members, products).
        """
        self.run_launch(self.launch(strides, inside, alpha, beta, apart=apart), operands)

    def run_launch(self, launch: Launch, operands: tuple[int, int, int]) -> None:
        """Run a launch on operands a, b and c; see `run`."""
        if self.exchanged:
            operands = (operands[1], operands[0], operands[2])
        with LAUNCH:
            team = machine.team_of(launch.threads)
            launch.module.products(team, *operands, launch.words.ctypes.data)

    def launch(
        self,
        strides: tuple[int, ...],
        inside: tuple[int, int],
        alpha: Factor,
        beta: Factor,
        *,
        apart: bool = False,
    ) -> Launch:
        """Launch with all arguments but the addresses of the operands; see `run`.

        If the kernel exchanges a and b, exchange their addresses when you call its function.
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
        return Launch(module, words, copies, threads, small)
