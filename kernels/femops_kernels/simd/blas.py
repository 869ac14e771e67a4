"""Products of matrices by BLAS, called from compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.values import WORD, as_word, build, call_address, on_stack


def call_gemm(
    lane: Lane, gemm: Any, sizes: tuple[Any, Any, Any], matrix: Any, values: Any, results: Any
) -> None:
    """``call_gemm(LANE, address, (rows, count, columns), matrix, values, results)``.

    Sets ``results`` (rows, count) to ``matrix`` (rows, columns) times ``values`` (columns, count),
    all C-ordered, by the function at an address: ``dgemm`` or ``sgemm``, called as from Fortran.
    """
    real, small = lane.real.llvm, ir.IntType(32)
    rows, count, columns = (_placed(build().trunc(as_word(size), small)) for size in sizes)
    plain = _placed(ir.Constant(ir.IntType(8), ord("N")))
    one, zero = _placed(ir.Constant(real, 1.0)), _placed(ir.Constant(real, 0.0))
    # BLAS counts columns first: it sees all three matrices transposed
    arguments = [plain, plain, count, rows, columns, one, as_word(values), count]
    arguments += [as_word(matrix), columns, zero, as_word(results), count]
    call_address(gemm, ir.FunctionType(ir.VoidType(), [WORD] * len(arguments)), arguments)


def _placed(value: Any) -> Any:
    """Emit the address of a number on the stack."""
    place = on_stack(value.type)
    build().store(value, place)
    return build().ptrtoint(place, WORD)


__all__ = ["call_gemm"]
