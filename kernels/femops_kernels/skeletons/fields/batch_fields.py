"""One batch of elements, for several fields and test functions of different spaces.

The components of all fields stand one after the other, as do those of all test functions, so the
work at the points is that of ``batch.py``.  The last components that come out are functionals:
their values at the points are not integrated against a test function, but summed, or the least is
taken.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lane_math import lane_minimum
from femops_kernels.simd.lanes import load, store, word
from femops_kernels.simd.line_math import add_lines
from femops_kernels.simd.lines import contract, gather, load_line, store_line
from femops_kernels.simd.tracing import traced
from femops_kernels.skeletons.batch.batch import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *
from femops_kernels.skeletons.fields.fields_table import *

FIELDS = ((0, 0, 1, 2, B),)  # number, first component, components, nodes per direction, matrix
TESTS = ((0, 0, 1, 2, BT),)  # lanes of a batch's results before it, the same of the test function
MINIMA, SUMS = (0,), (0,)  # components that are functionals
RESULT_LANES = 4  # of a batch
# </defaults>

NFUNCTIONALS = len(MINIMA) + len(SUMS)
NODE_LANES = max(nodes**DIM for _, _, _, nodes, _ in FIELDS)
FIELD_LANES = WORK_LANES + NODE_LANES


@inner
def points_of_field(table, b, x, field, value, slab, local):
    """Values at the points of all components of a field."""
    number, first, ncomp, p, matrix = field
    p2, p3 = p if DIM > 1 else 1, p if DIM > 2 else 1
    indices = word(table, NODES + number) + b * (p * p2 * p3) * LANE_WIDTH * 4
    for c in range(ncomp):
        at = value + (first + c) * VALUE_BYTES
        for k in range(p * p2 * p3):
            store(LANE, local, k, gather(LANE, x + c * REAL_BYTES, indices, k))
        if DIM == 3:
            for j in range(p * p):
                line = load_line(LANE, local, j, p * p, p)
                store_line(LANE, at, j, PLANE, contract(matrix, line))
        for k3 in range(Q3):
            if DIM > 1:
                for j1 in range(p):
                    if DIM == 3:
                        line = load_line(LANE, at, k3 * PLANE + j1, p, p)
                    else:
                        line = load_line(LANE, local, j1, p, p)
                    store_line(LANE, slab, j1, p, contract(matrix, line))
            for k2 in range(Q2):
                line = load_line(LANE, slab if DIM > 1 else local, k2 * p, 1, p)
                store_line(LANE, at, k3 * PLANE + k2 * Q1D, 1, contract(matrix, line))


@inner
def results_of_test(results, test, value, along_z, slab):
    """Contributions of a batch's elements to all components of a test function."""
    begin, first, ncomp, p, matrix = test
    p2, p3 = p if DIM > 1 else 1, p if DIM > 2 else 1
    for c in range(ncomp):
        at, out = value + (first + c) * VALUE_BYTES, results + begin * LANE_BYTES
        out += c * (p * p2 * p3) * LANE_BYTES
        if DIM == 3:
            for k in range(PLANE):
                line = load_line(LANE, at, k, PLANE, Q3)
                if GRAD_OUT:
                    z_line = load_line(LANE, along_z, (first + c) * POINTS + k, PLANE, Q3)
                    line = add_lines(line, contract(DT, z_line))
                store_line(LANE, at, k, PLANE, contract(matrix, line))
        for j3 in range(p3):
            if DIM > 1:
                for k1 in range(Q1D):
                    line = load_line(LANE, at, j3 * PLANE + k1, Q1D, Q2)
                    store_line(LANE, slab, k1, Q1D, contract(matrix, line))
            for j2 in range(p2):
                line = load_line(LANE, slab if DIM > 1 else at, j2 * Q1D, 1, Q1D)
                store_line(LANE, out, (j3 * p2 + j2) * p, 1, contract(matrix, line))


@inner
def functionals_of(out, value):
    """The least values at the points of a batch's elements, and sums."""
    for n, c in enumerate((*MINIMA, *SUMS)):
        at = value + c * VALUE_BYTES
        store(LANE, out, n, load(LANE, at, 0))
        for k in range(1, POINTS):
            last, new = load(LANE, out, n), load(LANE, at, k)
            store(LANE, out, n, lane_minimum(last, new) if n < len(MINIMA) else last + new)


@traced
def batch_fields(table, b, x, work):
    """Results and functionals of batch b; x is the address of the vector."""
    value = work
    slab = value + NCOMP * VALUE_BYTES
    along_x = slab + PLANE * LANE_BYTES
    along_y = along_x + NCOMP * Q1D * LANE_BYTES
    along_z = along_y + NCOMP * PLANE * LANE_BYTES
    local = work + WORK_LANES * LANE_BYTES
    modes, plane = modes_of(table, b), work + OWN_LANES * LANE_BYTES
    for field in FIELDS:
        points_of_field(table, b, x, field, value, slab, local)
    if GRAD_IN and DIM == 3:
        for c in range(NCOMP_IN):
            for k in range(PLANE):
                line = load_line(LANE, value, c * POINTS + k, PLANE, Q3)
                store_line(LANE, along_z, c * POINTS + k, PLANE, contract(D, line))
    source = sources(table, b)
    for k3 in range(Q3):
        points_of_plane(source, value, along_x, along_y, along_z, modes, plane, (), k3)
    functionals_of(word(table, FUNCTIONALS) + b * NFUNCTIONALS * LANE_BYTES, value)
    for test in TESTS:
        results = word(table, RESULTS) + b * RESULT_LANES * LANE_BYTES
        results_of_test(results, test, value, along_z, slab)
