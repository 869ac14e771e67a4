"""Several solves at once: each is done by one thread from its beginning to its end."""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.simd.lanes import get, word
from femops_kernels.simd.threads import shared
from femops_kernels.skeletons.cg.cg import iterations
from femops_kernels.skeletons.cg.cg_begin import beginning
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64

# </defaults>


@shared
def whole_solve(k, thread, tables, goals, limit):
    """One solve, of its own table, which says that no thread helps."""
    table, tolerance = word(tables, k), get(FLOAT64, goals, k)
    beginning(table, tolerance)
    iterations(table, tolerance, limit, limit)


@entry("void(intp, intp, intp, intp, intp)", thorough=False)
def together(tables, goals, count, limit, team):
    """Solve to tolerances ``goals``, or for ``limit`` iterations each."""
    whole_solve(team, count, tables, goals, limit)
