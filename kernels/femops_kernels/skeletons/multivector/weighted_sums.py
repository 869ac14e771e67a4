"""Weighted sums of vectors, several one after the other in one pass over memory.

Each number is computed by the same operations as with NumPy, each rounded by itself. So vectors
that are too short for compiled code get the same bits.
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import Lane, fill, fma, get, load, put, store, word

LANE_WIDTH = 8
REAL = "float64"
PIECE = 64
BLOCK = 4
ROW = 12
# </defaults>

LANE = Lane(LANE_WIDTH, REAL)
ITEM, CACHE_LINE = LANE.itemsize, 64
OUT, MEAN, TERMS, FIRST = 0, 1, 2, 3  # in a row of the tables


@inner
def rounded(weight, lanes):
    """Product of a number and a lane vector. It is not fused with the sum that it is added to."""
    return fma(fill(LANE, weight), lanes, -0.0)


@inner
def product(weight, number):
    """Product of two numbers."""
    return weight * number


@inner
def set_entries(addresses, weights, k, offset, i, n, read, write, times):
    """Set n entries or lanes of the k-th sum, from the i-th on after an offset in bytes.

    The number n is a constant: tables are read once for n lanes. The last arguments are functions.
    """
    row = k * ROW
    begin, end = row + FIRST, row + FIRST + word(addresses, row + TERMS)
    weight, vector = get(LANE, weights, begin), word(addresses, begin) + offset
    totals = tuple([times(weight, read(LANE, vector, i + j)) for j in range(n)])
    for term in range(begin + 1, end):
        weight, vector = get(LANE, weights, term), word(addresses, term) + offset
        totals = tuple([totals[j] + times(weight, read(LANE, vector, i + j)) for j in range(n)])
    out = word(addresses, row + OUT) + offset
    if word(addresses, row + MEAN) != 0:
        share, mean = get(LANE, weights, row + MEAN), word(addresses, row + MEAN) + offset
        gaps = [read(LANE, mean, i + j) - totals[j] for j in range(n)]
        totals = tuple([totals[j] + times(share, gaps[j]) for j in range(n)])
    for j, total in enumerate(totals):
        write(LANE, out, i + j, total)


@shared
def set_piece(piece, thread, addresses, weights, sums, offset, blocks):
    """Set the entries of all sums in a piece, which is PIECE blocks of lanes."""
    for block in range(piece * PIECE, min((piece + 1) * PIECE, blocks)):
        for k in range(sums):
            lane = block * BLOCK
            set_entries(addresses, weights, k, offset, lane, BLOCK, load, store, rounded)


@inner
def set_rest(addresses, weights, sums, begin, end):
    """Set the entries ``begin`` to ``end`` of all sums one by one."""
    for i in range(begin, end):
        for k in range(sums):
            set_entries(addresses, weights, k, 0, i, 1, get, put, product)


@function
def set_sums(team, addresses, weights, sums, count):
    """Set vectors of ``count`` entries to weighted sums, entry by entry.

    Each sum has a row of ``ROW`` numbers in two tables. In ``addresses`` it has the result, the
    vector of the mean or 0, the number of terms, and their vectors. In ``weights``, of type REAL,
    it has the weights at the same positions.
    """
    # stores across two cache lines are slow
    begin = min(-word(addresses, OUT) % CACHE_LINE // ITEM, count)
    blocks = (count - begin) // (BLOCK * LANE_WIDTH)
    set_piece(team, -(-blocks // PIECE), addresses, weights, sums, begin * ITEM, blocks)
    set_rest(addresses, weights, sums, 0, begin)
    set_rest(addresses, weights, sums, begin + blocks * BLOCK * LANE_WIDTH, count)
