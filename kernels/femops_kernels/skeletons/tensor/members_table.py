"""Run a kernel on all groups of matrices; threads share them."""

# <defaults>
from femops_kernels.skeletons.tensor.cholesky import work_on
from femops_kernels.skeletons.tensor.lanes_of_members import *

READ, WRITTEN = (True, False), (True, True)
FIRST_RUN, SECOND_RUN = 16, 0  # real numbers of operands whose members are runs, else 0
FIRST_REALS, SECOND_REALS = 16, 4  # real numbers of operands
WORK_BYTES = 4096
# </defaults>

SECOND = ROWS[0] * COLUMNS[0]
PLACES = (SECOND + ROWS[1] * COLUMNS[1]) * BYTES
STATUS = PLACES + 8 * WIDTH


@shared
def some_groups(group, thread, sources, targets, status, members, memory):
    """One group."""
    work = memory + thread * WORK_BYTES
    last, places, other = members - 1 - group * WIDTH, work + PLACES, work + SECOND * BYTES
    if READ[0]:
        locate_members(sources[0], group, last, places)
        if FIRST_RUN > 0:
            gather_run(LANE, places, FIRST_RUN, work)
        else:
            copy_in(places, ROWS[0], COLUMNS[0], ENTRY_ROWS[0], ENTRY_COLUMNS[0], work)
    if READ[1]:
        locate_members(sources[1], group, last, places)
        if SECOND_RUN > 0:
            gather_run(LANE, places, SECOND_RUN, other)
        else:
            copy_in(places, ROWS[1], COLUMNS[1], ENTRY_ROWS[1], ENTRY_COLUMNS[1], other)
    store(LANE, work + STATUS, 0, fill(LANE, ZERO))
    work_on(work, other, work + STATUS)
    if WRITTEN[0]:
        locate_members(targets[0], group, last, places)
        scatter_run(LANE, places, FIRST_REALS, work)
    if WRITTEN[1]:
        locate_members(targets[1], group, last, places)
        scatter_run(LANE, places, SECOND_REALS, other)
    store(LANE, status, group, load(LANE, work + STATUS, 0))


@function(
    "void(intp, UniTuple(UniTuple(intp, 3), 2), UniTuple(UniTuple(intp, 3), 2), intp, intp, intp)"
)
def run_groups(team, sources, targets, status, members, memory):
    """Work on all groups.

    Sources and targets are the two operands where they are read, and where they are written:
    (address, bytes between groups, bytes between slots). Status has a number of each slot; memory
    has WORK_BYTES for each thread.
    """
    some_groups(team, -(-members // WIDTH), sources, targets, status, members, memory)
