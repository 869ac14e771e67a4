"""Arithmetic of lines, entry by entry."""

from __future__ import annotations

from femops_kernels.simd.lanes import fma
from femops_kernels.simd.values import Traced, build

Line = tuple[Traced, ...]


def add_lines(a: Line, b: Line) -> Line:
    """Sum of two lines of one length."""
    pairs = zip(a, b, strict=True)
    return tuple(Traced(x.kind, build().fadd(x.value, y.value)) for x, y in pairs)


def scale_line(a: Traced, x: Line) -> Line:
    """``scale_line(a, x)``: a lane vector times a line."""
    return tuple(Traced(a.kind, build().fmul(a.value, each.value)) for each in x)


def scale_and_add(a: Traced, x: Line, y: Line) -> Line:
    """``scale_and_add(a, x, y)``: a lane vector times a line, plus another line."""
    return tuple(fma(a, each, other) for each, other in zip(x, y, strict=True))


__all__ = ["add_lines", "scale_and_add", "scale_line"]
