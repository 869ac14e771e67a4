"""Garbage of a test, collected without a look at all that the process has."""

import gc


def collect() -> None:
    """Collect what was made a short while ago.

    A whole collection of a process with thousands of compiled kernels takes seconds.
    """
    gc.collect(1)
