"""A chunk of rows of a matrix in compressed rows (CSR) times many vectors; see ``csr.py``.

Rows of x and y are those of many vectors: NVEC numbers, ROW_BYTES apart.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import fill, fma, get, half_word, load, put, store, word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.row_table import *

# </defaults>


@inner
def whole(values, columns, count, x, size, i):
    """The i-th lane of the product of a row of ``count`` entries by the rows of x."""
    total = fill(LANE, 0.0)
    for k in range(count):
        row = x + half_word(columns, k) * size
        total = fma(fill(LANE, get(LANE, values, k)), load(LANE, row, i), total)
    return total


@entry
def sweep(table, x, y, chunk, work, alpha: float, beta: float):
    """Rows of one chunk: ``y = alpha A x + beta y``; y is not read if beta is zero."""
    rows, starts = word(table, FIRST_ROW), word(table, ROW_START)
    size, nvec = word(table, ROW_BYTES), word(table, NVEC)
    lanes = nvec // LANE_WIDTH
    for r in range(word(rows, chunk), word(rows, chunk + 1)):
        first, count = word(starts, r), word(starts, r + 1) - word(starts, r)
        values, columns = word(table, VALUES) + first * REAL_BYTES, word(table, COLUMNS) + first * 4
        target = y + r * size
        for i in range(lanes):
            product = fill(LANE, alpha) * whole(values, columns, count, x, size, i)
            if beta != 0.0:
                product = fma(fill(LANE, beta), load(LANE, target, i), product)
            store(LANE, target, i, product)
        for i in range(lanes * LANE_WIDTH, nvec):
            total = 0.0
            for k in range(count):
                row = x + half_word(columns, k) * size
                total += get(LANE, values, k) * get(LANE, row, i)
            total *= alpha
            if beta != 0.0:
                total += beta * get(LANE, target, i)
            put(LANE, target, i, total)


@entry
def combine(table, x, y, chunk, work, alpha: float, beta: float):
    """Do nothing: chunks share no row."""
