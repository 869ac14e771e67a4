"""Updates of vectors in a multigrid cycle, each in one pass over memory.

A step of a relaxation, a weighted residual and a weighted correction are all

    old = scales (a product + f right) + b current + c old,

entry by entry. Vectors are whole lanes, and aligned; threads share pieces of them.
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import Lane, fill, fma, load, store

LANE_WIDTH = 16
REAL = "float32"
PIECE = 256
# </defaults>

LANE = Lane(LANE_WIDTH, REAL)


@inner
def update(vectors, i, a, f, b, c):
    """Update one lane of all vectors. The address of an absent vector is 0."""
    old, product, right, scales, current = vectors
    total = fill(LANE, 0.0)
    if product != 0:
        total = fill(LANE, a) * load(LANE, product, i)
    if right != 0:
        total = fma(fill(LANE, f), load(LANE, right, i), total)
    total = total * load(LANE, scales, i)
    if current != 0:
        total = fma(fill(LANE, b), load(LANE, current, i), total)
    if c != 0.0:
        total = fma(fill(LANE, c), load(LANE, old, i), total)
    store(LANE, old, i, total)


@shared
def update_piece(k, thread, vectors, lanes, a, f, b, c):
    """Update the lanes of piece k."""
    for i in range(k * PIECE, min((k + 1) * PIECE, lanes)):
        update(vectors, i, a, f, b, c)


@function
def step(team, old, product, right, scales, current, lanes, a: float, f: float, b: float, c: float):
    """Set old = scales (a product + f right) + b current + c old.

    The vectors product, right and current may be left out, as 0. Old is not read where c is zero.
    """
    vectors = old, product, right, scales, current
    update_piece(team, -(-lanes // PIECE), vectors, lanes, a, f, b, c)
