"""CUDA C++ text of the tables and matrices of a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from femops_kernels.simd.matrix import Matrix1D


def table(name: str, values: NDArray[np.float64]) -> str:
    """C++ table of numbers in constant memory, from an array of any shape."""
    numbers = ", ".join(f"T({float(v)!r})" for v in np.asarray(values).ravel())
    return f"__constant__ T {name}[] = {{{numbers}}};\n"


def columns(name: str, values: NDArray[np.float64]) -> str:
    """C++ text of a matrix (rows, columns), and of two masks with a bit for each column.

    A bit of NAME_ZEROS is set if all entries of the column are 0, of NAME_ONES if they are 1.
    """
    lines = [table(name, values)]
    for what, number in (("ZEROS", 0), ("ONES", 1)):
        bits = sum(1 << int(m) for m in np.flatnonzero((values == number).all(axis=0)))
        lines.append(f"constexpr unsigned {name}_{what} = {bits};\n")
    return "".join(lines)


def squares(name: str, value: NDArray[np.float64], slope: NDArray[np.float64]) -> str:
    """C++ table of value**2, value * slope and slope**2. Both arrays have the same shape."""
    return table(name, np.array([value**2, value * slope, slope**2]))


def matrix_type(name: str, matrix: Matrix1D) -> str:
    """C++ type of a matrix, as ``contraction.cuh`` takes it, with its tables."""
    rows, cols = matrix.shape
    split = bool(matrix.symmetry)
    even, odd = matrix.split() if split else (np.array(matrix.rows), np.zeros((1, 1)))
    entries = {"even": even, "odd": odd} if split else {"entry": even}
    tables, functions = "", ""
    for part, values in entries.items():
        if values.size:
            tables += table(f"{name}_{part}", values)
            functions += _entry(part, f"{name}_{part}[r * {values.shape[1]} + c]")
    for part in [p for p in ("even", "odd", "entry") if p not in entries or not entries[p].size]:
        functions += _entry(part, "T(0)")
    return (
        f"{tables}struct {name} {{\n"
        f"    static constexpr int rows = {rows}, cols = {cols}, sign = {matrix.symmetry};\n"
        f"    static constexpr bool identity = {str(matrix.is_identity).lower()};\n"
        f"{functions}}};\n"
    )


def _entry(part: str, value: str) -> str:
    head = f"    static __device__ __forceinline__ T {part}(int r, int c)"
    return f"{head} {{ (void)r; (void)c; return {value}; }}\n"
