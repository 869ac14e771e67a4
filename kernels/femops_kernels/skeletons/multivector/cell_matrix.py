"""A chunk of elements for a group of vectors, by products of dense matrices (BLAS).

This is the usual method if the matrices of elements are stored ("cell matrices"). The rows of an
element are copied together, multiplied by its matrix, and added to the result. QDATA has the
matrices by element, (row, column), both component after component. See ``vector_rows.py`` for the
entry points.
"""

# <defaults>
from femops_kernels.simd.blas import call_gemm
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import get, put, word
from femops_kernels.simd.rows import ROW_WORD
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_groups import *
from femops_kernels.skeletons.multivector.vector_rows import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

ALL_PASSES = True  # LLVM turns loops over numbers into vectors
NUMBER_LANES = WORK_LANES = 0


@inner
def copy_rows(rows, first, count, values):
    """Put a group's part of an element's rows together, (row, vector)."""
    for j in range(ROWS_IN):
        row = word(rows, j)
        for i in range(count):
            put(LANE, values, j * count + i, get(LANE, row, first + i))


@inner
def add_rows(rows, first, count, alpha, values):
    """Add results, times a factor, to a group's part of an element's rows."""
    for j in range(ROWS_OUT):
        there, row = word(rows, j), word(rows, ROWS_OUT + j)
        for i in range(count):
            total = get(LANE, there, first + i) + alpha * get(LANE, values, j * count + i)
            put(LANE, row, first + i, total)


@entry
def sweep(table, x, y, task, work, alpha: float, beta: float):
    """Apply the operator to one chunk, for one group of vectors."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    x, y = panel_of(table, group, x, y)
    first, end = group_columns(table, group, 0)
    clear_buffers(table, group, chunk, first, end)
    lists = work + word(table, ROW_BYTES)
    count, elements = end - first, word(table, FIRST_ELEMENT)
    values = lists + LISTS
    results = values + ROWS_IN * count * REAL_BYTES
    for e in range(word(elements, chunk), word(elements, chunk + 1)):
        list_rows(table, x, y, group, chunk, e, beta, lists, work)
        copy_rows(lists, first, count, values)
        matrix = word(table, QDATA) + e * ROWS_IN * ROWS_OUT * REAL_BYTES
        sizes = ROWS_OUT, count, ROWS_IN
        call_gemm(LANE, word(table, GEMM), sizes, matrix, values, results)
        add_rows(lists + ROWS_IN * ROW_WORD, first, count, alpha, results)
