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
def set_entries(addresses, weights, k, i, n, read, write, times):
    """Set n entries or lanes of the k-th sum, from the i-th on. The last arguments are functions.

    The number n is a constant. Tables are read once for n lanes.
    """
    row = k * ROW
    begin, end = row + FIRST, row + FIRST + word(addresses, row + TERMS)
    weight, vector = get(LANE, weights, begin), word(addresses, begin)
    totals = tuple([times(weight, read(LANE, vector, i + j)) for j in range(n)])
    for term in range(begin + 1, end):
        weight, vector = get(LANE, weights, term), word(addresses, term)
        totals = tuple([totals[j] + times(weight, read(LANE, vector, i + j)) for j in range(n)])
    mean, out = word(addresses, row + MEAN), word(addresses, row + OUT)
    if mean != 0:
        share = get(LANE, weights, row + MEAN)
        gaps = [read(LANE, mean, i + j) - totals[j] for j in range(n)]
        totals = tuple([totals[j] + times(share, gaps[j]) for j in range(n)])
    for j, total in enumerate(totals):
        write(LANE, out, i + j, total)


@shared
def set_piece(piece, thread, addresses, weights, sums, blocks):
    """Some blocks of lanes of all sums."""
    for block in range(piece * PIECE, min((piece + 1) * PIECE, blocks)):
        for k in range(sums):
            set_entries(addresses, weights, k, block * BLOCK, BLOCK, load, store, rounded)


@function
def set_sums(team, addresses, weights, sums, count):
    """Set vectors of ``count`` entries to weighted sums, entry by entry.

    Each sum has a row of ``ROW`` numbers in two tables. In ``addresses`` it has the result, the
    vector of the mean or 0, the number of terms, and their vectors. In ``weights``, of type REAL,
    it has the weights at the same positions.
    """
    blocks = count // (BLOCK * LANE_WIDTH)
    set_piece(team, -(-blocks // PIECE), addresses, weights, sums, blocks)
    for i in range(blocks * BLOCK * LANE_WIDTH, count):
        for k in range(sums):
            set_entries(addresses, weights, k, i, 1, get, put, product)
