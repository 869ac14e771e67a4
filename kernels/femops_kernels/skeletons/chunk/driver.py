"""Driver: run the terms of an operator over all their chunks."""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.simd.lanes import Lane, get, word
from femops_kernels.skeletons.chunk.driver_loops import combine_chunks, sweep_chunks

# </defaults>

FLOAT64 = Lane(2, "float64")  # how factors are read
ROW_BYTES = 7 * 8


@function
def apply(rows, alphas, count, x, y, work, work_bytes, team):
    """Set y = sum_i alpha_i A_i x for ``count`` terms.

    ``rows`` and ``alphas`` are the addresses of the arrays of `femops_kernels.cpu.sweep.LaunchSum`;
    they say where in x and y each term begins, and whether it is added to what stands there; each
    thread has its own work space, ``work_bytes`` apart.
    """
    for t in range(count):
        row = rows + t * ROW_BYTES
        chunks, source, target = word(row, 3), x + word(row, 4), y + word(row, 5)
        alpha, beta = get(FLOAT64, alphas, t), 0.0 if word(row, 6) == 0 else 1.0
        sweep_chunks(team, chunks, row, source, target, work, work_bytes, alpha, beta)
        combine_chunks(team, chunks, row, source, target, work, alpha, beta)
