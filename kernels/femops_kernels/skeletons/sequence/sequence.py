"""A sequence of operations on vectors: each is a function that gets its row of a table.

An operation that ends the sequence returns 1, all others 0.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, function, inner
from femops_kernels.simd.lanes import Lane, get, numbers, put, word
from femops_kernels.simd.lines import call_driver
from femops_kernels.simd.threads import call_system, shared
from femops_kernels.skeletons.chunk.defaults import LANE, REAL_BYTES
from femops_kernels.skeletons.sequence.sequence_context import *
from femops_kernels.skeletons.sequence.sequence_table import *

# </defaults>

ALL_PASSES = True  # LLVM turns loops over numbers into vectors
FLOAT64 = Lane(2, "float64")  # how scalars and factors are read
PIECE = 2048  # entries that a thread works on at a time, all terms of a sum: they stay in cache
BLOCKS = 32


@inner
def seconds(context):
    """Time on the system's clock."""
    clock, stamp = word(context, CLOCK), context + 8 * STAMP
    if clock == 0:
        return 0.0
    call_system(clock, word(context, CLOCK_NAME), stamp)
    return word(stamp, 0) + 1e-9 * word(stamp, 1)


@inner
def team_of(row, context):
    """Return the team if an instruction is shared by threads, else 0."""
    return word(context, SHARERS) if word(row, SHARED) != 0 else 0


@inner
def add_term(t, term, row, begin, end, factor):
    """Add term t to entries ``begin`` up to ``end`` of a sum. The first term sets the entries."""
    v, y = numbers(LANE, word(term, VECTOR)), numbers(LANE, word(row, OUT))
    step, out_step = word(term, STRIDE), word(row, OUT_STRIDE)
    if t == 0 and step == 1 and out_step == 1:
        for i in range(begin, end):
            y[i] = factor * v[i]
    elif t == 0:
        for i in range(begin, end):
            y[i * out_step] = factor * v[i * step]
    elif step == 1 and out_step == 1:
        for i in range(begin, end):
            y[i] += factor * v[i]
    else:
        for i in range(begin, end):
            y[i * out_step] += factor * v[i * step]


@shared
def combine_piece(k, thread, row, scalars):
    """Compute piece k of a sum of vectors with factors."""
    begin, end = k * PIECE, min((k + 1) * PIECE, word(row, COUNT))
    for t in range(word(row, NTERMS)):
        term = word(row, TERMS) + t * TERM_BYTES
        factor, k_scalar = get(FLOAT64, term, FACTOR), word(term, SCALAR)
        if k_scalar >= 0:
            factor *= get(FLOAT64, scalars, k_scalar)
        add_term(t, term, row, begin, end, factor)


@entry
def combine(row, context) -> int:
    """Set a vector to a sum of vectors with factors."""
    pieces = -(-word(row, COUNT) // PIECE)
    combine_piece(team_of(row, context), pieces, row, word(context, SCALARS))
    return 0


@entry
def apply(row, context) -> int:
    """Apply an operator."""
    rows, alphas, count = word(row, ROWS), word(row, ALPHAS), word(row, LAUNCHES)
    work, work_bytes, team = word(context, SPACE), word(context, SPACE_BYTES), team_of(row, context)
    x, y = word(row, X), word(row, Y)
    call_driver(word(context, DRIVE), rows, alphas, count, x, y, work, work_bytes, team)
    return 0


@entry
def least(row, context) -> int:
    """Set a scalar to the least of some numbers, or to NaN if one of the numbers is NaN."""
    values, step, width = numbers(LANE, word(row, VALUES)), word(row, BATCH_STEP), word(row, WIDTH)
    found = values[0]
    for e in range(1, word(row, COUNT)):
        value = values[e // width * step + e % width]
        if not value >= found:  # as it is if the value, and stays if the least, is not a number
            found = value if found == found else found
    put(FLOAT64, word(context, SCALARS), word(row, RESULT), 1.0 * found)
    return 0


@entry
def require(row, context) -> int:
    """End the sequence unless FACTOR_OF times scalar THIS >= FACTOR_THAT times scalar THAT."""
    scalars = word(context, SCALARS)
    this = get(FLOAT64, row, FACTOR_OF) * get(FLOAT64, scalars, word(row, THIS))
    that = get(FLOAT64, row, FACTOR_THAT) * get(FLOAT64, scalars, word(row, THAT))
    return 0 if this >= that else 1


@shared
def block_piece(k, thread, row):
    """Multiply by the k-th piece of blocks."""
    n, x, y = word(row, N), numbers(LANE, word(row, X)), numbers(LANE, word(row, Y))
    for e in range(k * BLOCKS, min((k + 1) * BLOCKS, word(row, MANY))):
        a = numbers(LANE, word(row, MATRICES) + e * n * n * REAL_BYTES)
        for i in range(n):
            y[e * n + i] = 0.0
        for j in range(n):
            factor = x[e * n + j]
            for i in range(n):
                y[e * n + i] += a[j * n + i] * factor


@entry
def multiply_blocks(row, context) -> int:
    """Multiply each piece of a vector by its own matrix."""
    pieces = -(-word(row, MANY) // BLOCKS)
    block_piece(team_of(row, context), pieces, row)
    return 0


@function
def run(rows, begin, end, context) -> int:
    """Run instructions. Return the number of the instruction that ended the run, or ``end``."""
    k, over = begin, 0
    while over == 0 and k < end:
        row = rows + k * ROW_BYTES
        before = seconds(context)
        over = call_system(word(row, FUNCTION), row, context)
        put(FLOAT64, row, SECONDS, get(FLOAT64, row, SECONDS) + seconds(context) - before)
        k = k + 1 if over == 0 else k
    return k
