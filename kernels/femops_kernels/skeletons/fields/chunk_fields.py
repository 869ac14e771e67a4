"""A chunk of elements for a form on several fields, and then a chunk of the result.

It has the entry points of ``chunk.py``, so the same drivers run it.  Elements leave their results
in memory; each entry of y is the sum of its own, by ascending element: the same bits for any number
of threads.
"""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.simd.lanes import get, put, word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *
from femops_kernels.skeletons.fields.batch_fields import batch_fields
from femops_kernels.skeletons.fields.fields_table import *

# </defaults>


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def sweep(table, x, y, chunk, work, alpha, beta):
    """The elements of one chunk."""
    firsts = word(table, FIRST_BATCH)
    for b in range(word(firsts, chunk), word(firsts, chunk + 1)):
        batch_fields(table, b, x, work)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def combine(table, x, y, chunk, work, alpha, beta):
    """A chunk of y = alpha F(x) + beta y; y is not read if beta is zero."""
    chunks, starts = word(table, ENTRY_CHUNK), word(table, ENTRY_START)
    slots, results = word(table, ENTRY_SLOT), word(table, RESULTS)
    for i in range(word(chunks, chunk), word(chunks, chunk + 1)):
        total = 0.0 if beta == 0.0 else beta * get(LANE, y, i)
        for k in range(word(starts, i), word(starts, i + 1)):
            total += alpha * get(LANE, results, word(slots, k))
        put(LANE, y, i, total)
