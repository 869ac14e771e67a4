"""Rows of a sequence's instructions: the meaning of each int64 entry from the third on.

FACTOR, FACTOR_OF and FACTOR_THAT are float64 in the same eight bytes.
"""

# A sum: addresses of its terms and of the result; numbers from one entry of this to the next
TERMS, NTERMS, OUT, OUT_STRIDE, COUNT, SHARED = 2, 3, 4, 5, 6, 7
VECTOR, STRIDE, FACTOR, SCALAR = 0, 1, 2, 3  # words of a term; SCALAR -1: FACTOR alone
TERM_SIZE = 4
TERM_BYTES = 8 * TERM_SIZE

# An operator's application: see the driver
ROWS, ALPHAS, LAUNCHES, X, Y = 2, 3, 4, 5, 6

# The least of COUNT numbers, by batches that are BATCH_STEP numbers apart and have WIDTH each
VALUES, BATCH_STEP, WIDTH, RESULT = 2, 3, 4, 5

# A demand: that FACTOR_OF times the scalar THIS is at least FACTOR_THAT times the scalar THAT
THIS, FACTOR_OF, THAT, FACTOR_THAT = 2, 3, 4, 5

# A product with MANY blocks of N rows, of which columns are contiguous; X and Y as above
MATRICES, N, MANY = 2, 3, 4
