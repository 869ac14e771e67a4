"""One batch of elements whose matrices are sums of Kronecker products of 1-D matrices.

Where D is constant in an element but for the weights, and diagonal (boxes along the reference
axes), the integral over an element falls apart into integrals of one direction: with the 1-D mass
matrix M and stiffness matrix K,

    A = a M x M x M + a_1 M x M x K + a_2 M x K x M + a_3 K x M x M        (z, y, x).

K may also have the integrals of derivatives of test functions times values of the field, or the
other way round. Then a_d are the velocities of a convection along the element's directions.

Direction by direction, z first, p -> M p and s -> M s + a_d K p; s is the result after the last
one, where a p is added to s beforehand.  This takes half of the contractions that ``batch.py``
takes (3 and 7 lines of nodes per direction instead of 6 and 15 lines of points), and no work at
points.

``ELEMENT`` holds a (if VALUE_IN) and a_1, a_2, a_3 (if GRAD_IN) of each component.  Work arrays
are ``value`` and ``flux`` (p and s after z), both (O3, I2, P_IN), ``slab`` and ``slope`` after y,
(O2, P_IN).
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lane_math import scale_and_add, scale_line
from femops_kernels.simd.lines import contract, load_line, store_line
from femops_kernels.skeletons.batch.ahead import ask_reads, ask_writes
from femops_kernels.skeletons.batch.pieces import *
from femops_kernels.skeletons.batch.stored import element_line
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

SOURCE, TARGET = SOURCES[0], TARGETS[0]
_, I2, I3 = SOURCE.shape
_, O2, O3 = TARGET.shape
SIDE = I2 * P_IN + (DIM > 2 and I2 * P_IN % PAGE == 0)  # lane vectors from a plane to the next
FACTORS = (1 if VALUE_IN else 0) + (DIM if GRAD_IN else 0)  # factors of a component
A1 = 1 if VALUE_IN else 0  # where a_1 stands among them
# nodes of one component, in place
IN_PIECES = by_pieces(SOURCE) and NCOMP_IN == 1 and SOURCE.shape == TARGET.shape
OUT_PIECES = IN_PIECES and added_by_pieces(TARGET)
WORK_LANES = 2 * (O3 * SIDE + O2 * P_IN)
# Asked for line by line memory has more time; measured: with shorter lines it does not pay.
ASK_BY_LINE, ASK_BY_PLANE = P_IN > 5, P_IN <= 5


@inner
def last(a, p, s):
    """Return the result of the step along the last direction, x."""
    if GRAD_IN:
        if VALUE_IN:
            s = scale_and_add(a[0], p, s)
        return scale_and_add(a[A1], contract(STIFF[0], p), contract(MASS[0], s))
    return contract(MASS[0], scale_line(a[0], p))


@inner
def along_first(a, x, c, nodes, value, flux, ahead):
    """Do the step along the first direction, in which lines are gathered: y in 2-D, z in 3-D."""
    count, layer, length = (I2 * P_IN, SIDE, I3) if DIM > 2 else (P_IN, P_IN, I2)
    mass, stiffness = MASS[DIM - 1], STIFF[DIM - 1]
    for j in range(count):
        ask_writes(ahead, c * count + j, NCOMP_IN * count)
        if IN_PIECES:
            line = load_line(LANE, nodes, j, layer, length)
        else:
            line = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, DIM - 1, j, c)
        store_line(LANE, value, j, layer, contract(mass, line))
        if GRAD_IN:
            store_line(LANE, flux, j, layer, scale_line(a[FACTORS - 1], contract(stiffness, line)))


@inner
def along_y(a, value, flux, slab, slope, k3):
    """Do the step along y for the lines of plane k3, in 3-D."""
    for j in range(P_IN):
        line = load_line(LANE, value, k3 * SIDE + j, P_IN, I2)
        store_line(LANE, slab, j, P_IN, contract(MASS[1], line))
        if GRAD_IN:
            s = contract(MASS[1], load_line(LANE, flux, k3 * SIDE + j, P_IN, I2))
            s = scale_and_add(a[A1 + 1], contract(STIFF[1], line), s)
            store_line(LANE, slope, j, P_IN, s)


@inner
def along_x(a, y, c, nodes, slab, slope, k3, ahead):
    """Do the step along x for the lines of plane k3, and add the results to y."""
    for k2 in range(O2):
        if ASK_BY_LINE:
            ask_reads(ahead, (c * O3 + k3) * O2 + k2, NCOMP_IN * O3 * O2)
        p = load_line(LANE, slab, k2 * P_IN, 1, P_IN)
        s = load_line(LANE, slope, k2 * P_IN, 1, P_IN)
        line = last(a, p, s)
        if OUT_PIECES:
            store_line(LANE, nodes, k3 * SIDE + k2 * P_OUT, 1, line)
        else:
            scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 0, k3 * O2 + k2, c, line)


@inner
def segment(a, x, y, c):
    """Add the product with the element matrix to y, in 1-D."""
    p = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, 0, 0, c)
    if VALUE_IN:
        result = contract(MASS[0], scale_line(a[0], p))
        if GRAD_IN:
            result = scale_and_add(a[A1], contract(STIFF[0], p), result)
    else:
        result = scale_line(a[A1], contract(STIFF[0], p))
    scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 0, 0, c, result)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``."""
    value = work
    flux = value + O3 * SIDE * LANE_BYTES
    slab = flux + O3 * SIDE * LANE_BYTES
    slope = slab + O2 * P_IN * LANE_BYTES
    for c in range(NCOMP_IN):
        a = element_line(table, b, c * FACTORS, FACTORS)
        if DIM == 1:
            segment(a, x, y, c)
        if IN_PIECES:
            gather_runs(x, SOURCE, value, SIDE, 0)
        if DIM == 3:
            along_first(a, x, c, value, value, flux, ahead)
        if DIM > 1:
            for k3 in range(O3):
                if not ASK_BY_LINE:
                    ask_reads(ahead, c * O3 + k3, NCOMP_IN * O3)
                if DIM == 3:
                    along_y(a, value, flux, slab, slope, k3)
                else:
                    along_first(a, x, c, value, slab, slope, ahead)
                along_x(a, y, c, value, slab, slope, k3, ahead)
        if OUT_PIECES:
            scatter_runs(y, TARGET, value, SIDE, 0)
