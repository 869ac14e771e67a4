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


@entry
def combine(table, x, y, task, work, alpha: float, beta: float):
    """Add the contributions of other chunks to the chunk's dofs, then set constrained rows."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    size, (first, end) = word(table, ROW_BYTES), group_columns(table, group, 0)
    x, y = panel_of(table, group, x, y)
    for block in range(word(table, TESTED)):
        own = table + block * BLOCK_BYTES
        starts, dofs, slots = (
            word(own, COMBINE_START),
            word(own, COMBINE_DOF),
            word(own, COMBINE_SLOT),
        )
        buffer = buffer_of(own, group)
        for k in range(word(starts, chunk), word(starts, chunk + 1)):
            for c in range(NCOMP_OUT):
                row = buffer + (word(slots, k) * NCOMP_OUT + c) * size
                add_row(row, y + (word(dofs, k) * NCOMP_OUT + c) * size, first, end)
    kept, rows = word(table, KEPT_START), word(table, KEPT)
    keep = alpha * get(LANE, word(table, KEEP), 0)
    for k in range(word(kept, chunk), word(kept, chunk + 1)):
        source, target = x + word(rows, k) * size, y + word(rows, k) * size
        for i in range(first, end):
            value = keep * get(LANE, source, i) if keep != 0.0 else 0.0
            put(LANE, target, i, value if beta == 0.0 else get(LANE, target, i) + value)
