"""Context that the instructions of a sequence share, and entries that all their rows have.

Both are int64; SECONDS and scalars are float64 in the same eight bytes.
"""

# Words of the context: addresses of the scalars and of the work space; bytes of it for each thread;
# threads, and their team; the driver of operators; the system's clock, or 0, its argument, and room
# for its result.
SCALARS, SPACE, SPACE_BYTES, USABLE, SHARERS, DRIVE, CLOCK, CLOCK_NAME, STAMP = range(9)
CONTEXT_SIZE = STAMP + 2

FUNCTION, SECONDS = 0, 1  # address of an instruction's function; time spent in it
ROW_SIZE = 9
ROW_BYTES = 8 * ROW_SIZE

GROUP = 2  # address of the table of solves at once, see ``cg_table.py``
