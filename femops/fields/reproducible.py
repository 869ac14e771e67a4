"""Sums and random numbers of vectors on reproducible meshes: the same on any number of ranks."""

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
    """Return where the entries begin that each element group meets first, and the end.

    Parameters
    ----------
    space : Space or Product
        On a mesh that was made with ``reproducible=True``.
    """
    parts, first = [], 0
    for one in [space] if isinstance(space, Space) else space.spaces.values():
        assert one.distributed is not None
        assert one.distributed.element_groups is not None
        touched = one.restriction.first_touch[one.distributed.element_groups[:-1]]
        parts.append(first + touched * one.ncomp)
        first += one.size
    return np.concatenate([*parts, [first]])


def rounded_sum(numbers: Floats) -> float:
    """Return the sum of numbers, rounded once, so that it does not depend on their order.

    It is infinite or not a number where the sum of floating-point numbers is.
    """
    try:
        return math.fsum(numbers.tolist())
    except ValueError:  # inf and -inf are among them
        return math.nan
    except OverflowError:  # of a part of the sum: the sum itself may be in range
        return rounded_sum(numbers * 2.0**-64) * 2.0**64


def exact_totals(comm: Communicator, partial: Floats, most: int) -> Floats:
    """Return the totals (k,) of sums (k, segments) of segments, each rounded once. Collective.

    So it does not matter which rank has which segment.

    Parameters
    ----------
    comm : Communicator
    partial : (k, segments) array
    most : int
        The largest number of segments that a rank has.
    """
    padded = np.zeros((len(partial), most))
    padded[:, : partial.shape[1]] = partial
    gathered = comm.gather_all(padded, alike=True).swapaxes(0, 1).reshape(len(partial), -1)
    return np.array([rounded_sum(row) for row in gathered])


def group_totals(
    space: Space | Product, parts: Iterable[Array], shape: tuple[int, ...], kind: np.dtype[Any]
) -> Array:
    """Return the sum of arrays that a rank has of its groups, of all ranks. Collective.

    Parameters
    ----------
    space : Space or Product
    parts : iterable of arrays
    shape, kind
        Of each of them; float64 or complex128.
    """
    flat = [np.ascontiguousarray(part, dtype=kind).reshape(-1) for part in parts]
    sums = np.array(flat, dtype=kind).reshape(len(flat), math.prod(shape)).view(np.float64)
    totals = exact_totals(space.comm, sums.T, space.comm.max(len(flat)))
    return totals.view(kind).reshape(shape)


def rows_times(space: Space | Product, rows: Array, matrix: Array) -> Array:
    """Return the product (n, m) of rows with a small matrix; BLAS rounds them as n has it.

    So on a reproducible mesh each row is multiplied by itself.
    """
    if not space.any_width:
        product: Array = rows @ matrix
        return product
    total = np.zeros((len(rows), matrix.shape[1]), np.result_type(rows, matrix))
    for column, factors in zip(rows.T, matrix, strict=True):
        total += column[:, np.newaxis] * factors
    return total


def random_draws(space: Space | Product, seed: int) -> Callable[[], Floats]:
    """Return a function whose results (size,) are independent random numbers of mean zero.

    They are normal, other ones on each rank. On a reproducible mesh they are uniform, and depend on
    the place of an entry in the whole vector.
    """
    if not space.any_width:
        random = np.random.default_rng((seed, space.comm.rank))
        return lambda: random.standard_normal(space.size)
    draws = count()
    return lambda: _whole_random(space, seed, next(draws))


class _Columns(Protocol):
    """Vectors that can be set one by one, as those of a `MultiVector`."""

    space: Space | Product

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the vectors."""

    def __setitem__(self, key: Any, values: Any) -> None:
        """Set a vector."""


def random_columns(X: _Columns, which: Iterable[int], seed: int, free: Array | None = None) -> None:
    """Set some vectors to independent random numbers, see `random_draws`.

    ``free`` (size,) multiplies the random numbers; see `MultiVector.orthonormalise`.
    """
    draw, memory = random_draws(X.space, seed), X.space.memory
    for i in which:
        values: Array = draw() + 1j * draw() if X.dtype.kind == "c" else draw()
        values = values if free is None else values * memory.get(free)
        X[int(i)] = memory.put(values.astype(X.dtype))


def _whole_random(space: Space | Product, *seed: int) -> Floats:
    """Random numbers in [-1, 1): a counter, mixed as MurmurHash3 ends, with Stafford's factors."""
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
