"""What holds for all tests."""

import os

# Three threads on any machine, so that "the same bits for any number of threads" is always tried.
# Numba reads this when it is first imported.
os.environ.setdefault("NUMBA_NUM_THREADS", "3")

# Small problems run on one thread by themselves: not here, where threads are what is tried.
from femops_kernels import sweep

sweep.PARALLEL_EFFORT = 1
