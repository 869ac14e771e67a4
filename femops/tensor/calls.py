"""Calls that were made before: their checks and launches are remembered.

What a call needs to know of arrays is in their types, shapes and strides, and these in the key of a
call.  Where arrays lie, compiled code finds out.
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
    """The call of a key, if it was made before."""
    try:
        call: ArrayCall | None = KNOWN.get(key)
    except TypeError:  # something in the key has no hash, and is refused elsewhere
        return None
    return call


def remember(
    key: Hashable,
    arrays: tuple[Array, Array, Array],
    terms: tuple[Term, ...],
    factors: tuple[Number, Number],
) -> None:
    """Remember a call of two operands and a result in arrays, if nothing is copied for it."""
    known = KNOWN.get(key)
    if key in KNOWN and (known is None or known.current()):
        return
    # zero as a factor has a sign, which the key does not tell
    plain = factors[0] != 0 and all(type(one) is ndarray for one in arrays)
    KNOWN.keep(key, _call(arrays, terms, factors) if plain else None)


def _call(
    arrays: tuple[Array, Array, Array], terms: tuple[Term, ...], factors: tuple[Number, Number]
) -> ArrayCall | None:
    views, lanes = [term.view for term in terms], terms[2].view.lanes
    apart = any(not view.shared and view.lanes != lanes for view in views)  # these are copied
    if apart or views[2].device is not None or views[2].members == 0 or not readable(*arrays):
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
