"""Numbers that are put into a compiled module."""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir

from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.values import WORD, writing


def variable_table(lane: Lane, values: Any) -> Any:
    """Pointer to an array that the optimiser must assume to change.

    So it does not load a number long before it is used.
    """
    module, kind = writing().module, ir.ArrayType(lane.real.llvm, len(values))
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    name = f"{writing().name}.coefficients.{lane.real.bits}.{digest}"
    table = module.globals.get(name)
    if table is None:
        table = ir.GlobalVariable(module, kind, name)
        table.linkage = "weak"
        table.initializer = ir.Constant(kind, [float(v) for v in values])
    return table


def constant_table(lane: Lane, rows: Any) -> Any:
    """Pointer to the entries of a matrix, put into the compiled module."""
    return _constant(lane.real.llvm, [float(v) for v in rows.flat])


def word_table(words: Any) -> Any:
    """Pointer to integers of 64 bits, put into the compiled module."""
    return _constant(WORD, [int(w) for w in words])


def _constant(kind: Any, numbers: list[Any]) -> Any:
    here, key = writing(), (str(kind), tuple(map(repr, numbers)))
    table = here.tables.get(key)
    if table is None:
        array, name = ir.ArrayType(kind, len(numbers)), f"{here.name}.numbers.{len(here.tables)}"
        table = here.tables[key] = ir.GlobalVariable(here.module, array, name)
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(array, numbers)
    return here.builder.bitcast(table, kind.as_pointer())
