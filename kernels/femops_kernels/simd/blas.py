"""Products of matrices by BLAS, called from compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import scalar_ir

_WORD = ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def call_gemm(
    typingctx: Any, lane: Any, gemm: Any, sizes: Any, matrix: Any, values: Any, results: Any
) -> Any:
    """``call_gemm(LANE, address, (rows, count, columns), matrix, values, results)``.

    Sets ``results`` (rows, count) to ``matrix`` (rows, columns) times ``values`` (columns, count),
    all C-ordered, by the function at an address: ``dgemm`` or ``sgemm``, called as from Fortran.
    """
    three = types.UniTuple(types.intp, 3)
    sig = types.void(lane, types.intp, three, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        real, small = scalar_ir(sig.args[0].lane), ir.IntType(32)

        def place(value: Any) -> Any:
            return builder.ptrtoint(cgutils.alloca_once_value(builder, value), _WORD)

        rows, count, columns = (
            place(builder.trunc(builder.extract_value(args[2], i), small)) for i in range(3)
        )
        plain = place(ir.Constant(ir.IntType(8), ord("N")))
        one, zero = place(ir.Constant(real, 1.0)), place(ir.Constant(real, 0.0))
        # BLAS counts columns first: it sees all three matrices transposed
        arguments = [plain, plain, count, rows, columns, one, args[4], count]
        arguments += [args[3], columns, zero, args[5], count]
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * len(arguments))
        builder.call(builder.inttoptr(args[1], kind.as_pointer()), arguments)
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["call_gemm"]
