"""Jacobians and positions at a list of points, by tables, from the modes of an element's map.

They take the place of those in ``geometry.py``. A batch has these modes, in lane vectors: for
Jacobians those of all entries, (modes, DIM, DIM), and the sign of the determinant; for positions
(modes, DIM). The first mode is constant. The quadrature weight times the sign, as q-functions
take it, makes weights times determinants positive in mirrored elements.
"""

# <defaults>

from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import fma, load
from femops_kernels.simd.lines import fill_entry, load_line
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

SIGN_AT = SLOPE.shape[1] * NJACOBIAN
POSITION_AT = SIGN_AT + (NJACOBIAN > 0)
MODE_LANES = POSITION_AT + MODE.shape[1] * NPOSITION


@inner
def of_modes(matrix, k, modes, first, count):
    """Values at point k of ``count`` polynomials, whose modes begin at lane vector ``first``."""
    sums = load_line(LANE, modes, first, 1, count)
    for m in range(1, matrix.shape[1]):
        factor, at = fill_entry(LANE, matrix, k * matrix.shape[1] + m), first + m * count
        sums = tuple([fma(factor, load(LANE, modes, at + i), one) for i, one in enumerate(sums)])
    return sums


@inner
def jacobian(modes, k):
    """Jacobian of the position at a point, by rows."""
    return of_modes(SLOPE, k, modes, 0, DIM * DIM)


@inner
def position(modes, k):
    """Position of a point."""
    return of_modes(MODE, k, modes, POSITION_AT, DIM)
