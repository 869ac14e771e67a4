"""Vectors of explicit methods: results of the user's functions, stages, and work space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.spaces.weighted_sums import memory_of_array, set_sums
from femops_kernels.vector_updates import WeightedSum
from femops_meshes.arguments import shown

Vector = NDArray[Any]


@final
class StageVectors:
    """Vectors of the length, type and memory of a solution.

    Parameters
    ----------
    u : (size,) array

    Attributes
    ----------
    start : (size,) array
        The vector u, as an array of NumPy or CuPy without gaps.
    """

    def __init__(self, u: Any) -> None:
        self._memory = memory_of_array(u)
        self._shape, self._dtype = u.shape, np.dtype(u.dtype)
        self._work: list[Vector] = []
        self.start = self._adopted(u, "u")

    def new(self) -> Vector:
        """Return a new vector without values."""
        made: Vector = self._memory.xp.empty(self._shape, self._dtype)
        return made

    def work(self, count: int) -> list[Vector]:
        """Return the first vectors of the work space. The next call returns the same vectors."""
        self._work += [self.new() for _ in range(count - len(self._work))]
        return self._work[:count]

    def set(self, *sums: WeightedSum) -> None:
        """Set vectors to weighted sums in one pass; see `femops.spaces.weighted_sums.set_sums`."""
        set_sums(self._memory, *sums)

    def result(self, function: Callable[..., Any], call: str) -> Callable[..., Vector]:
        """Return a user's function whose results are checked, and converted to the vectors' type.

        Parameters
        ----------
        function : callable
        call : str
            Call of the function for messages, as "f(t, u)".
        """
        shape, dtype, on_host = self._shape, self._dtype, self._memory.device is None

        def checked_function(*arguments: Any) -> Vector:
            found = function(*arguments)
            if getattr(found, "shape", None) != shape:
                raise SolverError(
                    f"{call} returned {shown(found)}: return an array of shape {shape}"
                )
            if on_host and type(found) is np.ndarray and found.dtype == dtype:
                result: Vector = found
                return result
            return self._adopted(found, call)

        return checked_function

    def change(self, limiter: Callable[[Vector], Any]) -> Callable[[Vector], Vector]:
        """Return a function that overwrites a vector by what the user's limiter makes of it."""
        limited = self.result(limiter, "limiter(u)")

        def changed(u: Vector) -> Vector:
            found = limited(u)
            if found is not u:  # the limiter may return the same array each time, or a view of u
                u[...] = found if found.flags.c_contiguous else found.copy()
            return u

        return changed

    def _adopted(self, array: Any, what: str) -> Vector:
        """Return an array of this memory and of the vectors' type, a copy only if needed."""
        found = self._memory.factor(array, what)
        if found.dtype.kind not in "biuf":
            raise SolverError(f"{what} has type {found.dtype}: real numbers are needed")
        return found.astype(self._dtype, copy=False)
