"""Run a kernel on all groups of matrices; threads share them."""

# <defaults>
from femops_kernels.skeletons.tensor.cholesky import work_on
from femops_kernels.skeletons.tensor.lanes_of_members import *

READ, WRITTEN = (True, False), (True, True)
FIRST_RUN, SECOND_RUN = 16, 0  # real numbers of operands whose members are runs, else 0
FIRST_REALS, SECOND_REALS = 16, 4  # real numbers of operands
FIRST_ROW, SECOND_ROW = (4, 4), (1, 1)  # real numbers of a row, from a row to the next in lanes
LOWER = 0  # rows of the first operand if it is a lower triangle
WORK_BYTES = 4096
LANE_BYTES = 64
LATER = False  # the method reads the second operand, by addresses behind its work space
STREAMS = False  # results go past the caches
# </defaults>

ALL_PASSES = True  # measured: small matrices gain 2 to 3 %
AHEAD = 2  # groups that are prefetched before they are worked on
SECOND = ROWS[0] * STEP
PLACES = (SECOND + ROWS[1] * RIGHT_STEP) * BYTES
STATUS = PLACES + 8 * WIDTH
copy_out = stream_run if STREAMS else scatter_run


@inner
def ask_ahead(first, step):
    """Prefetch the matrices of a later group. Where rows are long, leave out the upper triangle."""
    row = ENTRY_ROWS[0]
    if LOWER > 0 and row >= 128:
        for slot in range(WIDTH):
            for i in range(LOWER):
                for line in range(0, (i + 1) * ENTRY_COLUMNS[0] + 63, 64):
                    prefetch(first + slot * step + i * row, line, 2)
    else:
        for line in range(0, FIRST_REALS * LANE_BYTES, 64):
            prefetch(first, line, 2)


@shared
def some_groups(group, thread, sources, targets, status, members, memory):
    """Work on one group."""
    work = memory + thread * WORK_BYTES
    last, places, other = members - 1 - group * WIDTH, work + PLACES, work + SECOND * BYTES
    if READ[0]:
        locate_members(sources[0], group, last, places)
        if FIRST_RUN > 0:
            gather_run(LANE, places, FIRST_RUN, LOWER, FIRST_ROW, work)
        else:
            copy_in(places, ROWS[0], COLUMNS[0], ENTRY_ROWS[0], ENTRY_COLUMNS[0], STEP, work)
    if LATER:
        locate_members(sources[1], group, last, work + STATUS + LANE_BYTES + 3 * N * BYTES)
    elif READ[1]:
        locate_members(sources[1], group, last, places)
        if SECOND_RUN > 0:
            gather_run(LANE, places, SECOND_RUN, 0, SECOND_ROW, other)
        else:
            copy_in(places, ROWS[1], COLUMNS[1], ENTRY_ROWS[1], ENTRY_COLUMNS[1], RIGHT_STEP, other)
    ask_ahead(sources[0][0] + (group + AHEAD) * sources[0][1], sources[0][2])
    store(LANE, work + STATUS, 0, fill(LANE, ZERO))
    work_on(work, other, work + STATUS)
    if WRITTEN[0]:
        locate_members(targets[0], group, last, places)
        copy_out(LANE, places, FIRST_REALS, LOWER, FIRST_ROW, work)
    if WRITTEN[1]:
        locate_members(targets[1], group, last, places)
        copy_out(LANE, places, SECOND_REALS, 0, SECOND_ROW, other)
    store(LANE, status, group, load(LANE, work + STATUS, 0))


@function
def run_groups(
    team, a, x, a_out, x_out, a_step, x_step, a_out_step, x_out_step, status, members, memory
) -> int:
    """Work on all groups. Return 1 if a member failed, else 0.

    Each of the two operands has an address to read from and an address to write to. Steps are bytes
    from one member to the next. ``status`` has a number for each slot. ``memory`` has WORK_BYTES
    for each thread.
    """
    sources = (a, a_step * WIDTH, a_step), (x, x_step * WIDTH, x_step)
    targets = (a_out, a_out_step * WIDTH, a_out_step), (x_out, x_out_step * WIDTH, x_out_step)
    some_groups(team, -(-members // WIDTH), sources, targets, status, members, memory)
    failed = 0
    for slot in range(-(-members // WIDTH) * WIDTH):
        if get(LANE, status, slot) > ZERO:
            failed = 1
    return failed
