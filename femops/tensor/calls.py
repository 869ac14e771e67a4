"""Cache of calls with two operands. A repeated call skips checks and preparation.

The key of a call has the types, shapes and strides of the arrays. Only the addresses of the arrays
are not in the key. Compiled code reads them at each call.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from numpy import ndarray
from numpy.typing import NDArray

from femops.tensor.known import KNOWN
from femops.tensor.lowering import Number, Term, launches_on_host
from femops_kernels.cpu.tensor.arrays import ArrayCall, readable

Array = NDArray[Any]


def found(key: Hashable) -> ArrayCall | None:
    """Cached call for a key. None if there is none."""
    try:
        call: ArrayCall | None = KNOWN.get(key)
    except TypeError:  # a part of the key has no hash; a later check refuses it
        return None
    return call


def remember(
    key: Hashable,
    arrays: tuple[Array, Array, Array],
    terms: tuple[Term, ...],
    factors: tuple[Number, Number],
) -> None:
    """Cache a call of two operands and a result. Cache None if it can't be repeated on arrays."""
    known = KNOWN.get(key)
    if key in KNOWN and (known is None or known.current()):
        return
    # the key can't tell the factors 0.0 and -0.0 apart
    plain = factors[0] != 0 and all(type(one) is ndarray for one in arrays)
    KNOWN.keep(key, _call(arrays, terms, factors) if plain else None)


def _call(
    arrays: tuple[Array, Array, Array], terms: tuple[Term, ...], factors: tuple[Number, Number]
) -> ArrayCall | None:
    views, lanes = [term.view for term in terms], terms[2].view.lanes
    copies = any(not view.shared and view.lanes != lanes for view in views)  # groups differ
    empty = any(view.empty for view in views)
    if copies or empty or views[2].device is not None or not readable(*arrays):
        return None
    first = [view.address - one.ctypes.data for view, one in zip(views, arrays, strict=True)]
    kernel, runs = launches_on_host(terms[2], terms[0], terms[1], *factors)
    size = views[2].array.itemsize
    launches = [
        (launch, [at + size * one for at, one in zip(first, run.begin, strict=True)])
        for launch, run in runs
    ]
    ends = [
        (at + low, at + high)
        for at, (low, high) in zip(first, (view.ends() for view in views), strict=True)
    ]
    return ArrayCall(arrays[2], ends, launches, exchanged=kernel.exchanged)
