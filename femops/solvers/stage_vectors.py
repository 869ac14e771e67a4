"""Vectors of explicit methods: results of the user's functions, stages, and work space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.spaces.weighted_sums import Term, memory_of_array, short, sums_of
from femops_common.arguments import shown

Vector = NDArray[Any]

_ROW = 16  # rows of work space begin at multiples of 16 numbers, which are full cache lines


@final
class StageVectors:
    """Vectors of the length, type and memory of a solution.

    `start` (size,): the vector u, as an array of NumPy or CuPy.

    Shapes: `u` (size,).
    """

    def __init__(self, u: Any) -> None:
        self._memory, self._shape, self._dtype = memory_of_array(u), u.shape, np.dtype(u.dtype)
        self._table: Vector  # work space (count, size)
        self._work, self._free = list[Vector](), list[Vector]()
        self.start = self._adopted(u, "u")
        self.set = sums_of(self._memory, len(self.start))
        self._short = short(self._memory, len(self.start))

    def new(self) -> Vector:
        """Return a new vector without values, or one that was given back."""
        if self._free:
            return self._free.pop()
        made: Vector = self._memory.xp.empty_like(self.start)
        return made

    def give_back(self, vector: Vector) -> None:
        """Let `new` return a vector again, unless it is the user's: new memory takes time."""
        if vector is not self.start:
            self._free.append(vector)

    def work(self, count: int) -> list[Vector]:
        """Return the vectors of the work space, which are the same each time."""
        if not self._work:
            size = self._shape[0]
            row = -(-size // _ROW) * _ROW
            self._table = self._memory.xp.empty((count, row), self._dtype)[:, :size]
            self._work = [self._table[n] for n in range(count)]
        return self._work

    def combine(
        self, out: Vector, factors: Sequence[float], term: Term, newest: Vector | None = None
    ) -> None:
        """Set a vector to a term plus the first k vectors of the work space times ``factors``.

        Shapes: `out` (size,), `factors` (k,), `newest` (size,), which first replaces the k-th one.
        """
        rates = self._work[: len(factors)]
        if self._short:  # one call of NumPy for all of them
            if newest is not None:
                rates[-1][:] = newest
            np.dot(np.array(factors, self._dtype), self._table[: len(factors)], out)
            weight, vector = term
            out += vector if weight == 1.0 else weight * vector
            return
        before = () if newest is None else ((rates[-1], ((1.0, newest),), None),)
        terms = [(a, rate) for a, rate in zip(factors, rates, strict=True) if a]
        self.set(*before, (out, (*terms, term), None))

    def shown(self, vector: Vector) -> Vector:
        """Return a view (size,) for a user's function, read-only if the memory supports this."""
        view = vector.view()
        self._memory.protect(view)
        return view

    def rate(self, f: Callable[[float, Vector], Any]) -> Callable[[float, Vector], Vector]:
        """Return the user's f(t, u), which gets read-only views and whose results are checked."""
        checked_f = self.result(f, "f(t, u)")
        return lambda t, u: checked_f(t, self.shown(u))

    def result(self, function: Callable[..., Any], call: str) -> Callable[..., Vector]:
        """Return a user's function with results that are checked and have the vectors' type."""
        shape, dtype = self._shape, self._dtype
        usual = np.ndarray if self._memory.device is None else None

        def checked_function(*arguments: Any) -> Vector:
            found = function(*arguments)
            if type(found) is usual and found.dtype == dtype and found.shape == shape:
                return found
            if getattr(found, "shape", None) != shape:
                raise SolverError(
                    f"{call} returned {shown(found)}: return an array of shape {shape}"
                )
            return self._adopted(found, call)

        return checked_function

    def change(self, limiter: Callable[[Vector], Any]) -> Callable[[Vector], Vector]:
        """Return a function that replaces a vector by the user's limiter of it."""
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
        return found if found.dtype == self._dtype else found.astype(self._dtype)
