"""Arithmetic of lines, entry by entry."""

from __future__ import annotations

from typing import Any

from numba.extending import intrinsic

from femops_kernels.simd.lanes import call_llvm
from femops_kernels.simd.lines import pack, unpack


@intrinsic  # type: ignore[untyped-decorator]
def add_lines(typingctx: Any, a: Any, b: Any) -> Any:
    """Sum of two lines of one length."""
    sig = a(a, a)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line = sig.return_type
        pairs = zip(
            unpack(builder, args[0], line.count),
            unpack(builder, args[1], line.count),
            strict=True,
        )
        return pack(context, builder, line, [builder.fadd(x, y) for x, y in pairs])

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def scale_line(typingctx: Any, a: Any, x: Any) -> Any:
    """``scale_line(a, x)``: a lane vector times a line."""
    sig = x(a, x)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line = sig.return_type
        values = [builder.fmul(args[0], value) for value in unpack(builder, args[1], line.count)]
        return pack(context, builder, line, values)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def scale_and_add(typingctx: Any, a: Any, x: Any, y: Any) -> Any:
    """``scale_and_add(a, x, y)``: a lane vector times a line, plus another line."""
    sig = y(a, x, y)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line = sig.return_type
        pairs = zip(
            unpack(builder, args[1], line.count),
            unpack(builder, args[2], line.count),
            strict=True,
        )
        values = [call_llvm(builder, "fma", line.dtype, args[0], x, y) for x, y in pairs]
        return pack(context, builder, line, values)

    return sig, codegen


__all__ = ["add_lines", "scale_and_add", "scale_line"]
