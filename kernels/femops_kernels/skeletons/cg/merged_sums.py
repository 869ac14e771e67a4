"""Sums of a merged pass, and what changes them."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import Lane, get, put
from femops_kernels.skeletons.cg.merged_table import *

# </defaults>

FLOAT64 = Lane(2, "float64")  # how sums and factors are read


@inner
def add_number(sums, k, value):
    """Add a number to a sum."""
    put(FLOAT64, sums, k, get(FLOAT64, sums, k) + value)


@inner
def corrected(total, r, p, old, new, m):
    """Sums of products for an entry of v that was ``old`` and is ``new``."""
    pv, rv, vv, rmv, vmv = total
    c = new - old
    square = (new + old) * c
    return pv + p * c, rv + r * c, vv + square, rmv + r * m * c, vmv + m * square


@inner
def add_products(sums, total):
    """Add sums of products."""
    pv, rv, vv, rmv, vmv = total
    add_number(sums, PV, pv)
    add_number(sums, RV, rv)
    add_number(sums, VV, vv)
    add_number(sums, RMV, rmv)
    add_number(sums, VMV, vmv)
