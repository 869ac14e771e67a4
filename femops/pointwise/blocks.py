"""Forms on several fields, traced once: one linear step per pair of test function and field.

Such a form is linear in all its fields together: D is a matrix of blocks.  Each block is a form of
its own, the same outputs with the other fields put to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from femops.pointwise.errors import TraceError
from femops.pointwise.expressions.graph import Node, ancestors, substitute
from femops.pointwise.expressions.identities import identities
from femops.pointwise.linear import LinearQFunction, compares, entries_of
from femops.pointwise.trace import Argument, Objects, Trace

Pair = tuple[str, str]
"""Names of the test function and of the field of a block."""


@final
@dataclass(frozen=True)
class BlockQFunctions:
    """A form on several fields, block by block.

    Attributes
    ----------
    steps : dict of LinearQFunction
        By pair; those that are zero are left out.
    symmetric : bool
        Whether the whole D is symmetric.
    """

    steps: Mapping[Pair, LinearQFunction]
    symmetric: bool


def linear_blocks(trace: Trace) -> BlockQFunctions:
    """Split a form that is linear in its fields.

    Parameters
    ----------
    trace : Trace
        With test functions of the same names as the fields.

    Raises
    ------
    TraceError
        A form that is not linear in all fields together, or zero whatever they are.
    """
    pairs = [(test, field) for test in trace.tests for field in trace.fields]
    entries = {(test, field): entries_of(trace, field, test) for test, field in pairs}
    for pair, nodes in entries.items():
        _check_linear(trace, pair, nodes)
    for test in trace.tests:
        _check_homogeneous(trace, test)
    found = {pair: _identities(nodes) for pair, nodes in entries.items()}
    kept = [pair for pair in pairs if not all(entry.zero for entry in found[pair].flat)]
    if not kept:
        raise TraceError("the form is zero whatever the fields: it defines no operator")
    steps = {
        (test, field): LinearQFunction(_alone(trace, field, test), field, test)
        for test, field in kept
    }
    mirrored = all(
        np.array_equal(found[test, field], found[field, test].T) for test, field in pairs
    )
    return BlockQFunctions(steps, mirrored)


def _identities(entries: Objects) -> Objects:
    """Identities of an array of nodes."""
    out = np.empty(entries.shape, dtype=object)
    out.reshape(-1)[:] = identities(entries.flat)
    return out


def _check_linear(trace: Trace, pair: Pair, entries: Objects) -> None:
    """Refuse derivatives that depend on a field."""
    test, field = pair
    needed = {node.number for node in ancestors(entries.flat)}
    guilty = [n for n, a in trace.fields.items() if needed & {node.number for node in a.flat()}]
    if field in guilty:
        raise TraceError(f"the form is not linear in {field}: see the result for {test!r}")
    if guilty:
        raise TraceError(
            f"the result for {test!r} has a product, quotient or function of {field} and "
            f"{guilty[0]}: a form must be linear in all its fields together"
        )


def _check_homogeneous(trace: Trace, test: str) -> None:
    """Refuse terms that remain when all fields are zero, and choices that depend on a field."""
    moving = {node.number for argument in trace.fields.values() for node in argument.flat()}
    outputs = trace.tests[test].flat()
    if compares(outputs, moving):
        raise TraceError(
            f"the result for {test!r} compares a field with something: that is not linear"
        )
    rest = substitute(outputs, dict.fromkeys(moving, trace.graph.constant(0.0)))
    if not all(identity.zero for identity in identities(rest)):
        raise TraceError(
            f"the result for {test!r} has a part that does not depend on the fields: "
            "give that to femops.load"
        )


def _alone(trace: Trace, field: str, test: str) -> Trace:
    """The part of a form that couples one test function with one field."""
    zero = trace.graph.constant(0.0)
    others: dict[int, Node] = {
        node.number: zero
        for name, argument in trace.fields.items()
        if name != field
        for node in argument.flat()
    }
    result = trace.tests[test]
    alone = Argument.of_flat(substitute(result.flat(), others), len(result.values))
    return replace(trace, fields={field: trace.fields[field]}, tests={test: alone})
