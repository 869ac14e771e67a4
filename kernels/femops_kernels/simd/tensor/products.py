"""Products of the small matrices of one member of a batch, emitted as unrolled vector code.

`multiply` sets ``c[i, j] = alpha sum_k a[i, k] b[k, j] + beta c[i, j]``. A block of c is kept in
registers, as columns by rows. Each term of the sum loads a few lane vectors of b, and adds their
products with one number of a at a time. If lanes are members of the batch, the factor is a lane
vector of a. Entries may have any offsets, so all contractions of two tensors are such products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

import numpy as np
from llvmlite import ir

from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.tensor.access import Access
from femops_kernels.simd.tensor.offsets import Offsets, consecutive, offsets, offsets_at, pieces
from femops_kernels.simd.values import WORD, as_word, build

# Multiply-adds that are written out one by one; more are loops.
_UNROLLED = 320
# Terms of a sum in one pass of a loop.
_TERMS = 4

Factor = tuple[Any, Any]
"""Real and imaginary part of a number of the kernel."""


@final
@dataclass(frozen=True)
class Product:
    """Product of two matrices: numbers and where they are.

    Offsets count numbers (complex ones where they are complex).
    """

    dtype: str  # float32, float64, complex64 or complex128
    width: int  # slots of a lane vector, in real numbers
    # a_rows, a_terms, b_terms, b_columns, c_rows and c_columns: offsets: an entry's is the sum of
    # two
    a_rows: Offsets
    a_terms: Offsets
    b_terms: Offsets
    b_columns: Offsets
    c_rows: Offsets
    c_columns: Offsets
    # operands (of "abc") whose lanes are members of the batch; others have one number a lane
    members: str
    packed: bool  # True if b is read from a copy, made by `pack`
    reads: bool  # True if c is read: beta is not zero
    block: tuple[int, int]  # rows and lane vectors of c in registers

    @property
    def lane(self) -> Lane:
        """Kind of lane vectors."""
        return Lane(self.width, np.finfo(self.dtype).dtype)

    @property
    def parts(self) -> int:
        """Real numbers of a number: 2 of a complex one."""
        return 2 if self.dtype.startswith("complex") else 1

    def vectors(self) -> list[tuple[int, int]]:
        """First column and columns of each lane vector of c."""
        if "c" in self.members:
            return [(j, 1) for j in range(len(self.c_columns))]
        return pieces(self.c_columns, self.width // self.parts)

    def packed_numbers(self) -> int:
        """Numbers of a copy of b."""
        return len(self.b_terms) * len(self.vectors()) * self.width // self.parts


def repeat(count: int, emit: Callable[[Any], None]) -> None:
    """Emit a loop whose body is ``emit(k)``. If there is one pass, k is the int 0."""
    if count == 1:
        emit(0)
    if count <= 1:
        return
    builder = build()
    before = builder.block
    body, end = (builder.append_basic_block(name) for name in ("pass", "after"))
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(WORD)
    k.add_incoming(WORD(0), before)
    emit(k)
    following = builder.add(k, WORD(1))
    k.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, WORD(count)), body, end)
    builder.position_at_end(end)


def cut(total: int, most: int) -> list[tuple[int, int, int]]:
    """Divide ``total`` into blocks of at most ``most``, as even as possible.

    Return (first, size, number of blocks of this size).
    """
    blocks = -(-total // most)
    size, larger = divmod(total, blocks)
    found = [(0, size + 1, larger), (larger * (size + 1), size, blocks - larger)]
    return [one for one in found if one[2]]


@final
class _Writer:
    """Writes one product, of operands at addresses (a, b, c, copy), with factors (alpha, beta)."""

    def __init__(self, product: Product, bases: tuple[Any, ...], *factors: Factor) -> None:
        self.product, self.factors = product, factors
        self.access, vectors = Access(product.lane, product.parts), product.vectors()
        self.firsts = offsets(first for first, _ in vectors)
        self.runs = {
            columns: consecutive(columns, vectors)
            for columns in (product.b_columns, product.c_columns)
        }
        self.a, self.b, self.c, self.copy = (
            build().inttoptr(as_word(base), ir.IntType(8).as_pointer()) for base in bases
        )

    # --- c -------------------------------------------------------------------------------------

    def write(self) -> None:
        """All blocks of c: vectors outside, so that their part of b stays near."""
        rows, vectors = self.product.block
        for first, counts, many in self._vector_blocks(vectors):

            def columns(k: Any, first: int = first, counts: tuple[int, ...] = counts) -> None:
                start = self._plus(first, k, len(counts))
                for row, size, blocks in cut(len(self.product.c_rows), rows):
                    self._rows(row, size, blocks, start, counts)

            repeat(many, columns)

    def _rows(self, row: int, size: int, blocks: int, start: Any, counts: tuple[int, ...]) -> None:
        work = size * len(counts) * len(self.product.a_terms)

        def one(k: Any) -> None:
            self._block(self._plus(row, k, size), size, start, counts)

        if blocks * work <= _UNROLLED:
            for k in range(blocks):
                one(k)
        else:
            repeat(blocks, one)

    def _plus(self, first: int, k: Any, size: int) -> Any:
        if isinstance(k, int):
            return first + k * size
        return build().add(WORD(first), build().mul(k, WORD(size)))

    def _vector_blocks(self, most: int) -> list[tuple[int, tuple[int, ...], int]]:
        """Runs of equal blocks: the first vector, the columns of vectors, the number of blocks."""
        counts = [count for _, count in self.product.vectors()]
        blocks = [
            (first + k * size, tuple(counts[first + k * size : first + (k + 1) * size]))
            for first, size, many in cut(len(counts), most)
            for k in range(many)
        ]
        found = []
        for alike, group in groupby(blocks, key=lambda block: block[1]):
            members = list(group)
            found.append((members[0][0], alike, len(members)))
        return found

    def _places(self, columns: Offsets, start: Any, counts: tuple[int, ...]) -> list[list[Any]]:
        """Offsets of the columns of each vector of a block."""
        places = []
        for k, count in enumerate(counts):
            if isinstance(start, int):
                first: Any = self.firsts[start + k]
            else:
                (first,) = offsets_at(self.firsts, self._further(start, k), 1)
            places.append(offsets_at(columns, first, count))
        return places

    def _further(self, first: Any, more: int) -> Any:
        return build().add(first, WORD(more))

    def _block(self, row: Any, size: int, start: Any, counts: tuple[int, ...]) -> None:
        """Emit the sums of one block, and write them to c."""
        product = self.product
        totals = self._sums(row, size, start, counts)
        (*rows,) = offsets_at(product.c_rows, row, size)
        if self._flat(counts):
            self._write_flat(rows[0], totals, counts)
            return
        run = self.runs[product.c_columns]
        for at, values in zip(rows, totals, strict=True):
            places = self._places(product.c_columns, start, counts)
            for columns, value in zip(places, values, strict=True):
                self._update([build().add(at, one) for one in columns], run, value)

    def _update(self, where: list[Any], run: bool, total: Any) -> None:
        """Write one lane vector of c."""
        access, lanes = self.access, "c" in self.product.members
        value = access.scaled(self.factors[0], total)
        if self.product.reads:
            old = access.read(self.c, where, lanes, run, written=True)
            value = build().fadd(value, access.scaled(self.factors[1], old))
        access.write(self.c, where, lanes, run, value)

    def _flat(self, counts: tuple[int, ...]) -> bool:
        """True if a block's rows follow each other in memory without filling whole vectors."""
        rows, columns = self.product.c_rows, self.product.c_columns
        whole = all(count * self.product.parts == self.product.width for count in counts)
        return (
            "c" not in self.product.members
            and not whole
            and isinstance(rows, range)
            and isinstance(columns, range)
            and columns.step == 1
            and rows.step == len(columns) == sum(counts)
        )

    def _write_flat(self, at: Any, totals: Any, counts: tuple[int, ...]) -> None:
        """Write rows that follow each other in memory, in as few lane vectors as possible."""
        access, parts = self.access, self.product.parts
        ends = [count * parts for count in counts]
        values = [pair for row in totals for pair in zip(row, ends, strict=True)]
        for k, (total, count) in enumerate(access.flat(values)):
            where = self._further(at, k * self.product.width // parts)
            self._update([self._further(where, i) for i in range(count // parts)], True, total)

    # --- sums ----------------------------------------------------------------------------------

    def _sums(self, row: Any, size: int, start: Any, counts: tuple[int, ...]) -> Any:
        """Sums over all terms, (row, vector)."""
        terms, parts = len(self.product.a_terms), self.product.parts
        rows = offsets_at(self.product.a_rows, row, size)
        columns = self._places(self.product.b_columns, start, counts)
        block = (rows, columns, start, len(counts))
        each = size * len(counts) * parts
        totals: list[Any] = [None] * each
        if terms * each <= _UNROLLED:
            totals = self._terms(0, terms, block, totals)
        else:
            totals = self._loop(terms, block, each)
        step = len(counts) * parts
        return [
            [
                self.access.joined(totals[i * step + j * parts : i * step + (j + 1) * parts])
                for j in range(len(counts))
            ]
            for i in range(size)
        ]

    def _loop(self, terms: int, block: Any, each: int) -> list[Any]:
        """Sums over many terms, by a loop over some at a time, and the rest."""
        builder, zero = build(), self.access.zero()
        before, passes = builder.block, terms // _TERMS
        body, end = (builder.append_basic_block(name) for name in ("terms", "summed"))
        builder.branch(body)
        builder.position_at_end(body)
        k = builder.phi(WORD)
        k.add_incoming(WORD(0), before)
        sums = [builder.phi(zero.type) for _ in range(each)]
        for total in sums:
            total.add_incoming(zero, before)
        totals = self._terms(builder.mul(k, WORD(_TERMS)), _TERMS, block, list(sums))
        for old, new in zip(sums, totals, strict=True):
            old.add_incoming(new, builder.block)
        following = builder.add(k, WORD(1))
        k.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, WORD(passes)), body, end)
        builder.position_at_end(end)
        return self._terms(passes * _TERMS, terms - passes * _TERMS, block, totals)

    def _terms(self, first: Any, count: int, block: Any, totals: list[Any]) -> list[Any]:
        """Add some terms to the sums."""
        rows, columns, start, vectors = block
        product, access = self.product, self.access
        a_terms = offsets_at(product.a_terms, first, count)
        b_terms = offsets_at(product.b_terms, first, count)
        for term, (a_term, b_term) in enumerate(zip(a_terms, b_terms, strict=True)):
            k = first + term if isinstance(first, int) else self._further(first, term)
            if product.packed:
                values = [
                    access.lanes_at(self.copy, self._copied(k, start, j)) for j in range(vectors)
                ]
            else:
                values = [self._b_vector(b_term, column) for column in columns]
            for i, a_row in enumerate(rows):
                where = build().add(a_row, a_term)
                factors = access.factors(self.a, where, "a" in product.members)
                for j, value in enumerate(values):
                    for part, factor in enumerate(factors):
                        at = (i * vectors + j) * product.parts + part
                        totals[at] = access.multiply_add(factor, value, totals[at])
        return totals

    def _b_vector(self, term: Any, columns: list[Any]) -> Any:
        where = [build().add(term, one) for one in columns]
        if "c" in self.product.members and "b" not in self.product.members:
            return self.access.fill(self.b, where[0])
        runs = self.runs[self.product.b_columns]
        return self.access.read(self.b, where, "b" in self.product.members, runs)

    # --- the copy of b -------------------------------------------------------------------------

    def _copied(self, k: Any, vector: Any, j: int) -> Any:
        """Number of the lane vector of the copy of b."""
        many = len(self.product.vectors())
        row = WORD(k * many) if isinstance(k, int) else build().mul(k, WORD(many))
        at = WORD(vector + j) if isinstance(vector, int) else self._further(vector, j)
        return build().add(row, at)

    def pack(self) -> None:
        """Copy b, term by term, as lane vectors."""
        product = self.product

        def term(k: Any) -> None:
            (at,) = offsets_at(product.b_terms, k, 1)
            for first, counts, many in self._vector_blocks(1):

                def vector(v: Any, first: int = first, counts: tuple[int, ...] = counts) -> None:
                    start = self._plus(first, v, 1)
                    (columns,) = self._places(product.b_columns, start, counts)
                    value = self._b_vector(at, columns)
                    self.access.store_lanes(self.copy, self._copied(k, start, 0), value)

                repeat(many, vector)

        repeat(len(product.b_terms), term)


def multiply(
    product: Product, a: Any, b: Any, c: Any, copy: Any, alpha: Factor, beta: Factor
) -> None:
    """``multiply(PRODUCT, a, b, c, copy, alpha, beta)`` of addresses and pairs of numbers."""
    _Writer(product, (a, b, c, copy), alpha, beta).write()


def pack(product: Product, b: Any, copy: Any) -> None:
    """``pack(PRODUCT, b, copy)``: copy b for `multiply`."""
    _Writer(product, (0, b, 0, copy)).pack()


__all__ = ["Product", "multiply", "pack"]
