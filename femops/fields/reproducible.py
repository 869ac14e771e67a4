"""Sums, products and random numbers whose bits do not depend on the number of ranks.

On a reproducible mesh these functions work group by group of elements. On other meshes they are
those of NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from femops.parallel import Communicator
from femops.spaces.base import Space
from femops.spaces.product import Product

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Array = NDArray[Any]


def group_edges(space: Space | Product) -> Ints:
    """First entry of each element group, and the end: (groups + 1,).

    A group's entries are those that no earlier group touches.

    Shapes: returned (groups + 1,).
    """
    parts, first = [], 0
    for one in [space] if isinstance(space, Space) else space.spaces.values():
        for each in one.parts:
            assert each.distributed is not None
            assert each.distributed.element_groups is not None
            touched = each.restriction.first_touch[each.distributed.element_groups[:-1]]
            parts.append(first + touched * one.ncomp)
        first += one.size
    return np.concatenate([*parts, [first]])


def rounded_sum(numbers: Floats) -> float:
    """Return the sum of numbers (n,), rounded once. It does not depend on their order.

    The result is infinite or NaN if the floating-point sum is.
    """
    try:
        return math.fsum(numbers.tolist())
    except ValueError:  # inf and -inf are among them
        return math.nan
    except OverflowError:  # a partial sum is out of range, but the sum may be in range
        return rounded_sum(numbers * 2.0**-64) * 2.0**64


def exact_totals(comm: Communicator, partial: Floats, most: int) -> Floats:
    """Add the segment sums of all ranks, and round each total once. Collective.

    The totals do not depend on the distribution of segments over ranks.

    Shapes: `partial` (k, segments), returned (k,).
    """
    padded = np.zeros((len(partial), most))
    padded[:, : partial.shape[1]] = partial
    gathered = comm.gather_all(padded, alike=True).swapaxes(0, 1).reshape(len(partial), -1)
    return np.array([rounded_sum(row) for row in gathered])


def group_totals(
    space: Space | Product, parts: Iterable[Array], shape: tuple[int, ...], kind: np.dtype[Any]
) -> Array:
    """Add one array per element group over all ranks, and round each entry once. Collective."""
    flat = [np.ascontiguousarray(part, dtype=kind).reshape(-1) for part in parts]
    sums = np.array(flat, dtype=kind).reshape(len(flat), math.prod(shape)).view(np.float64)
    totals = exact_totals(space.comm, sums.T, space.comm.max(len(flat)))
    return totals.view(kind).reshape(shape)


def rows_times(space: Space | Product, rows: Array, matrix: Array) -> Array:
    """Return the product (n, m) of rows (n, k) with a small matrix (k, m).

    BLAS may round a row differently for another number of rows. So on a reproducible mesh the
    product is summed column by column, without BLAS.
    """
    if not space.any_width:
        product: Array = rows @ matrix
        return product
    total = np.zeros((len(rows), matrix.shape[1]), np.result_type(rows, matrix))
    for column, factors in zip(rows.T, matrix, strict=True):
        total += column[:, np.newaxis] * factors
    return total


def random_draws(space: Space | Product, seed: int) -> Callable[[], Floats]:
    """Return a function that returns new independent random numbers (size,) at each call.

    The mean is zero. The numbers are normally distributed, and differ between ranks. On a
    reproducible mesh they are uniformly distributed. Then each number depends only on the seed and
    on the entry's position in the global vector.
    """
    if not space.any_width:
        random = np.random.default_rng((seed, space.comm.rank))
        return lambda: random.standard_normal(space.size)
    draws = count()
    return lambda: _counted_random(space, seed, next(draws))


class _Columns(Protocol):
    """Vectors that can be overwritten separately, such as those of a `MultiVector`."""

    space: Space | Product

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the vectors."""

    def __setitem__(self, key: Any, values: Any) -> None:
        """Overwrite a vector."""


def random_columns(X: _Columns, which: Iterable[int], seed: int, free: Array | None = None) -> None:
    """Overwrite the vectors ``which`` by numbers of `random_draws`, times ``free`` (size,)."""
    draw, memory = random_draws(X.space, seed), X.space.memory
    for i in which:
        values: Array = draw() + 1j * draw() if X.dtype.kind == "c" else draw()
        values = values if free is None else values * memory.get(free)
        X[int(i)] = memory.put(values.astype(X.dtype))


def _counted_random(space: Space | Product, *seed: int) -> Floats:
    """Random numbers (size,) in [-1, 1): hashes of the entries' global positions.

    The hash is the final step of MurmurHash3, with D. Stafford's factors.
    """
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    parts, begin = [], 0
    for one in [space] if isinstance(space, Space) else space.spaces.values():
        first = begin + one.first_dof * one.ncomp
        parts.append(np.arange(first + 1, first + one.size + 1, dtype=np.uint64))
        begin += one.global_size
    mixed: Any = np.concatenate(parts) * np.uint64(0x9E3779B97F4A7C15) + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0)
