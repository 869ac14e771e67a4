"""Cholesky factors of matrices in lanes without loops: columns begin while earlier ones end."""

from __future__ import annotations

from typing import Any, final

from numba.core import types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import call_llvm, splat, store_at
from femops_kernels.simd.lines import literal
from femops_kernels.simd.tensor.numbers import (
    Parts,
    emit_difference,
    emit_product,
    emit_square,
    load_number,
    part_of,
    store_number,
)
from femops_kernels.simd.tensor.offsets import WORD


@final
class _Cholesky:
    """Emits the factors of matrices of n rows at an address."""

    def __init__(self, builder: Any, kind: Any, n: int, a: Any) -> None:
        self.builder, self.kind, self.n, self.a = builder, kind, n, a
        self.lane = part_of(kind)
        self.zero, self.one = (splat(builder, self.lane, one) for one in (0.0, 1.0))
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
                total = load_number(self.builder, self.kind, self.a, WORD(i * self.n + j))
                for one, factor in zip(self.rows[i], factors, strict=True):
                    product = emit_product(self.builder, one, factor)
                    total = emit_difference(self.builder, total, product)
                self.rows[i].append(emit_product(self.builder, total, scale))
                self.keep(i, j, self.rows[i][j])
        return self.failed

    def diagonal(self, j: int) -> Parts:
        """Emit the root of a pivot, and return one divided by the root."""
        build, lane = self.builder, self.lane
        pivot = load_number(build, self.kind, self.a, WORD(j * self.n + j))[:1]
        for one in self.rows[j]:
            pivot = emit_difference(build, pivot, emit_square(build, lane, one))
        good = build.fcmp_ordered(">", pivot[0], self.zero)
        none = build.fcmp_ordered("==", self.failed, self.zero)
        first = build.select(none, splat(build, lane, 1.0 + j), self.failed)
        self.failed = build.select(good, self.failed, first)
        root = call_llvm(build, "sqrt", lane, build.select(good, pivot[0], self.one))
        self.keep(j, j, [root, self.zero])
        return [build.fdiv(self.one, root)]

    def conjugate(self, number: Parts) -> Parts:
        return [number[0], *map(self.builder.fneg, number[1:])]

    def keep(self, i: int, j: int, parts: Parts) -> None:
        parts = parts if self.kind is not self.lane else parts[:1]
        store_number(self.builder, self.kind, self.a, WORD(i * self.n + j), parts)


@intrinsic(prefer_literal=True)
def factor_lower(typingctx: Any, form: Any, n: Any, a: Any, status: Any) -> Any:
    """``factor_lower(NUMBER, n, address, status)``: L in place of the lower triangle of A = L L^H.

    ``status`` gets the first column, from 1, without a positive pivot, or 0; n is a constant.
    """
    if literal(n) is None:
        return None
    sig = types.void(form, n, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.args[0].lane
        failed = _Cholesky(builder, kind, literal(sig.args[1]), args[2]).emit()
        store_at(builder, part_of(kind), args[3], WORD(0), failed)
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["factor_lower"]
