"""Numbers that are put into a compiled module."""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from femops_kernels.simd.lanes import LaneType, scalar_ir


def variable_table(builder: Any, lane: LaneType, values: Any) -> Any:
    """Pointer to an array that the optimiser must assume to change.

    So it does not load a number long before it is used.
    """
    kind = ir.ArrayType(scalar_ir(lane), len(values))
    name = f"coefficients.{lane.scalar}.{hashlib.sha256(values.tobytes()).hexdigest()[:16]}"
    table = builder.module.globals.get(name)
    if table is None:
        table = ir.GlobalVariable(builder.module, kind, name)
        table.linkage = "weak"
        table.initializer = ir.Constant(kind, [float(v) for v in values])
    return table


def constant_table(builder: Any, lane: LaneType, rows: Any) -> Any:
    """Pointer to the entries of a matrix, put into the compiled module."""
    kind = ir.ArrayType(scalar_ir(lane), rows.size)
    table = cgutils.global_constant(
        builder, "matrix", ir.Constant(kind, [float(v) for v in rows.flat])
    )
    return builder.bitcast(table, scalar_ir(lane).as_pointer())


def word_table(builder: Any, words: Any) -> Any:
    """Pointer to integers of 64 bits, put into the compiled module."""
    kind = ir.ArrayType(ir.IntType(64), len(words))
    table = cgutils.global_constant(builder, "words", ir.Constant(kind, [int(w) for w in words]))
    return builder.bitcast(table, ir.IntType(64).as_pointer())
