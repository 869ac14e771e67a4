"""A chunk of rows of a matrix in compressed rows (CSR) times a vector.

It has the entry points of ``chunk.py``, so the same drivers run it.  Each row is summed by one
thread in one order: the same bits for any number of threads.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import fill, fma, get, half_word, load, put, store, word
from femops_kernels.simd.lines import gather
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.row_table import *

# </defaults>

WORK_LANES = 1


@inner
def product(values, columns, count, x, work):
    """Product of a row of ``count`` entries by x: whole lanes in two sums, then the rest."""
    lanes = count // LANE_WIDTH
    a = b = fill(LANE, 0.0)
    for k in range(0, lanes - 1, 2):
        a = fma(load(LANE, values, k), gather(LANE, x, columns, k), a)
        b = fma(load(LANE, values, k + 1), gather(LANE, x, columns, k + 1), b)
    if lanes % 2:
        a = fma(load(LANE, values, lanes - 1), gather(LANE, x, columns, lanes - 1), a)
    store(LANE, work, 0, a + b)
    total = get(LANE, work, 0)
    for i in range(1, LANE_WIDTH):
        total += get(LANE, work, i)
    for k in range(lanes * LANE_WIDTH, count):
        total += get(LANE, values, k) * get(LANE, x, half_word(columns, k))
    return total


@entry
def sweep(table, x, y, chunk, work, alpha: float, beta: float):
    """Rows of one chunk: ``y = alpha A x + beta y``; y is not read if beta is zero."""
    rows, starts = word(table, FIRST_ROW), word(table, ROW_START)
    columns, values = word(table, COLUMNS), word(table, VALUES)
    for i in range(word(rows, chunk), word(rows, chunk + 1)):
        first, count = word(starts, i), word(starts, i + 1) - word(starts, i)
        total = product(values + first * REAL_BYTES, columns + first * 4, count, x, work)
        if beta == 0.0:
            put(LANE, y, i, alpha * total)
        else:
            put(LANE, y, i, alpha * total + beta * get(LANE, y, i))


@entry
def combine(table, x, y, chunk, work, alpha: float, beta: float):
    """Do nothing: chunks share no row."""
