"""Contractions of NumPy arrays that repeat an earlier call's types, shapes and strides.

For small products the Python code of a call takes longer than the products.  So the first call
stores all that depends on types, shapes and strides.  Compiled code reads the addresses of the
arrays and runs the stored launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.tensor.contraction import Launch
from femops_kernels.cpu.thread_pool import LAUNCH as ALONE
from femops_kernels.simd.tensor.launches import (
    BEGIN,
    CALL_WORDS,
    COUNT,
    ENDS,
    FIRST_LAUNCH,
    FUNCTION,
    LAUNCH,
)

Array = NDArray[Any]


@final
class ArrayCall:
    """Launches on arrays a, b and c of fixed types, shapes and strides."""

    def __init__(
        self,
        like: Array,
        ends: Sequence[tuple[int, int]],
        launches: Sequence[tuple[Launch, Sequence[int]]],
        *,
        exchanged: bool,
    ) -> None:
        self.shape, self.dtype = like.shape, like.dtype
        order = [1, 0, 2] if exchanged else [0, 1, 2]
        words = np.zeros(FIRST_LAUNCH + CALL_WORDS * len(launches), np.int64)
        words[COUNT] = len(launches)
        words[ENDS:FIRST_LAUNCH] = [end for k in order for end in ends[k]]
        for each, (launch, begin) in zip(
            words[FIRST_LAUNCH:].reshape(-1, CALL_WORDS), launches, strict=True
        ):
            each[FUNCTION] = launch.module.addresses["products"]
            each[BEGIN : BEGIN + 3] = [begin[k] for k in order]
            each[LAUNCH:] = launch.words
        self._kept = words, launches
        self._function, self._address = _module().run_on_arrays, words.ctypes.data
        self._exchanged = exchanged
        small = all(launch.small for launch, _ in launches)
        self._threads = 0 if small else max(launch.threads for launch, _ in launches)
        self._alone = not small or any(launch.copies.size for launch, _ in launches)

    def run(self, a: Array, b: Array, c: Array) -> int:
        """Run the launches on arrays with the shapes and strides of the call. Return 1 if done.

        Return 0, and do nothing, if an array is not aligned, c is read-only or too near to a or b,
        or the number of threads has changed.
        """
        if self._threads and not self.current():
            return 0
        if self._exchanged:
            a, b = b, a
        done: int
        if self._alone:
            with ALONE:  # the team and the memory for copies of b serve one call at a time
                team = machine.team_of(max(1, self._threads))
                done = self._function(self._address, team, id(a), id(b), id(c))
        else:
            done = self._function(self._address, 0, id(a), id(b), id(c))
        return done

    def current(self) -> bool:
        """True if the launches are for the number of threads that is set now."""
        return not self._threads or self._threads == machine.get_threads()


@cache
def _module() -> Any:
    return specialize(("arrays",), {"HEAD": object.__basicsize__}, _TEXT)


_TEXT = "from femops_kernels.simd.tensor.launches import *\n"


def readable(*arrays: Array) -> bool:
    """True if compiled code reads the same addresses and flags of arrays (any shape) as NumPy."""
    module = _module()
    return all(
        module.address_in(id(one)) == one.ctypes.data and module.flags_in(id(one)) == one.flags.num
        for one in arrays
    )


__all__ = ["ArrayCall", "readable"]
