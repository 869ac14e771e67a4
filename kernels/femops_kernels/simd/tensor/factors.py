"""Cholesky factors of matrices in lanes without loops: columns begin while earlier ones end."""

from __future__ import annotations

from typing import Any, final

from femops_kernels.simd.lanes import call_llvm, splat, store_at
from femops_kernels.simd.tensor.numbers import (
    ComplexLane,
    Kind,
    Parts,
    emit_difference,
    emit_product,
    emit_square,
    load_number,
    part_of,
    store_number,
)
from femops_kernels.simd.values import build


@final
class _Cholesky:
    """Emits the factors of matrices of n rows at an address."""

    def __init__(self, kind: Kind, n: int, a: Any) -> None:
        self.kind, self.n, self.a = kind, n, a
        self.lane = part_of(kind)
        self.zero, self.one = (splat(self.lane, one) for one in (0.0, 1.0))
        self.failed = self.zero
        self.rows: list[list[Parts]] = [[] for _ in range(n)]

    def emit(self) -> Any:
        """Emit all columns. Return in each slot the first column, from 1, without a positive pivot.

        It is 0 if all pivots are positive.
        """
        for j in range(self.n):
            scale = self.diagonal(j)
            factors = [self.conjugate(one) for one in self.rows[j]]
            for i in range(j + 1, self.n):
                total = load_number(self.kind, self.a, i * self.n + j)
                for one, factor in zip(self.rows[i], factors, strict=True):
                    total = emit_difference(total, emit_product(one, factor))
                self.rows[i].append(emit_product(total, scale))
                self.keep(i, j, self.rows[i][j])
        return self.failed

    def diagonal(self, j: int) -> Parts:
        """Emit the root of a pivot, and return one divided by the root."""
        pivot = load_number(self.kind, self.a, j * self.n + j)[:1]
        for one in self.rows[j]:
            pivot = emit_difference(pivot, emit_square(one))
        good = build().fcmp_ordered(">", pivot[0], self.zero)
        none = build().fcmp_ordered("==", self.failed, self.zero)
        first = build().select(none, splat(self.lane, 1.0 + j), self.failed)
        self.failed = build().select(good, self.failed, first)
        root = call_llvm("sqrt", self.lane, build().select(good, pivot[0], self.one))
        self.keep(j, j, [root, self.zero])
        return [build().fdiv(self.one, root)]

    def conjugate(self, number: Parts) -> Parts:
        return [number[0], *map(build().fneg, number[1:])]

    def keep(self, i: int, j: int, parts: Parts) -> None:
        parts = parts if isinstance(self.kind, ComplexLane) else parts[:1]
        store_number(self.kind, self.a, i * self.n + j, parts)


def factor_lower(form: Kind, n: int, a: Any, status: Any) -> None:
    """``factor_lower(NUMBER, n, address, status)``: L in place of the lower triangle of A = L L^H.

    ``status`` gets the first column, from 1, without a positive pivot, or 0; n is a constant.
    """
    store_at(part_of(form), status, 0, _Cholesky(form, n, a).emit())


__all__ = ["factor_lower"]
