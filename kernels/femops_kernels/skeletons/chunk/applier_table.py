"""Words of the table that an applier reads."""

BUSY = 0  # whether a thread applies the operator
ROWS, ALPHAS, COUNT, WORK, WORK_BYTES = 1, 2, 3, 4, 5  # arguments of the driver
TEAM, THREADS, CLAIM = 6, 7, 8  # a team, its threads, and the address of the word that claims it
LOCK, UNLOCK = 9, 10  # addresses of the system's functions, or 0 where it has none
MUTEX, MUTEX_WORDS = 16, 16  # callers at the same time wait for each other
