"""Sums of chunks' contributions to rows that other chunks own, by ascending chunk.

The rows are those of many vectors.

Compiled once for all forms, orders and levels; see ``vector_rows.py``.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import get, load, put, store, word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_groups import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>


@inner
def add_row(source, target, first, end):
    """Add entries ``first`` up to ``end`` of a row to another row; first is at a full lane."""
    whole = end // LANE_WIDTH
    for i in range(first // LANE_WIDTH, whole):
        store(LANE, target, i, load(LANE, target, i) + load(LANE, source, i))
    for i in range(whole * LANE_WIDTH, end):
        put(LANE, target, i, get(LANE, target, i) + get(LANE, source, i))


@inner
def add_contributions(table, y, buffer, chunk, first, end):
    """Add the contributions of other chunks to the chunk's rows of a test function."""
    starts, dofs, slots = (
        word(table, COMBINE_START),
        word(table, COMBINE_DOF),
        word(table, COMBINE_SLOT),
    )
    size, ncomp = word(table, ROW_BYTES), word(table, OUT_COMPONENTS)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        for c in range(ncomp):
            row = buffer + (word(slots, k) * ncomp + c) * size
            add_row(row, y + (word(dofs, k) * ncomp + c) * size, first, end)


@inner
def set_constrained(table, x, y, chunk, first, end, alpha, beta):
    """Set the constrained rows of a test function that the chunk owns."""
    kept, rows, size = word(table, KEPT_START), word(table, KEPT), word(table, ROW_BYTES)
    keep = alpha * get(LANE, word(table, KEEP), 0)
    for k in range(word(kept, chunk), word(kept, chunk + 1)):
        source, target = x + word(rows, k) * size, y + word(rows, k) * size
        for i in range(first, end):
            value = keep * get(LANE, source, i) if keep != 0.0 else 0.0
            put(LANE, target, i, value if beta == 0.0 else get(LANE, target, i) + value)


@entry
def combine(table, x, y, task, work, alpha: float, beta: float):
    """Add the contributions of other chunks to the chunk's dofs, then set constrained rows."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    first, end = group_columns(table, group, 0)
    x, y = panel_of(table, group, x, y)
    for block in range(word(table, BLOCKS)):
        own = table + block * BLOCK_BYTES
        source, target = x + word(own, IN_ORIGIN), y + word(own, OUT_ORIGIN)
        if word(own, OUT_COMPONENTS) > 0:
            add_contributions(own, target, buffer_of(own, group), chunk, first, end)
            set_constrained(own, source, target, chunk, first, end, alpha, beta)
