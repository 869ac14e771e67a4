"""Forms that are linear in a field: the derivative D of outputs by inputs at a point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.pointwise.errors import TraceError
from femops.pointwise.expressions.derivative import derivatives
from femops.pointwise.expressions.graph import Node, ancestors, substitute
from femops.pointwise.expressions.identities import Identity, identities, letter
from femops.pointwise.trace import INVERSE, Objects, Trace
from femops.pointwise.trace_cache import decode, encode, remembered


@final
class LinearQFunction:
    """D of a form that is linear in one field, with its zeros and its equal entries found.

    Parameters
    ----------
    trace : Trace
    field, test : str

    Attributes
    ----------
    outputs : list of Node
        The factors of the test function, in the order of `Argument.flat`, with constants computed.
    entries : (outputs, inputs) array of Node
        D, with constants computed.
    structure : (outputs, inputs) int64
        0 for a zero entry, else plus or minus the number of the distinct entry, counted from one.
    distinct : list of Node

    Raises
    ------
    TraceError
        If the form is not linear in the field.
    """

    def __init__(self, trace: Trace, field: str, test: str) -> None:
        self.trace = trace
        self.field, self.test = trace.fields[field], trace.tests[test]
        self.moving = {
            node.number for argument in trace.fields.values() for node in argument.flat()
        }
        argument, tests, static = self.field.flat(), self.test.flat(), trace.static.items()
        # before anything is examined: the order in which a graph's nodes are made shows in programs
        self.outputs = substitute(tests, {})
        fields = [str(node.data) for a in trace.fields.values() for node in a.flat()]
        question = [
            encode([*tests, *argument]),
            len(tests),
            fields,
            [[name, [str(node.data) for node in nodes.flat]] for name, nodes in static],
        ]
        found = remembered(question, lambda: self._examine(field, test))
        shape = (len(tests), len(argument))
        self.entries: Objects = np.empty(shape, dtype=object)
        self.entries.reshape(-1)[:] = decode(trace.graph, found["entries"])
        self.structure = np.array(found["structure"], dtype=np.int64).reshape(shape)
        self.distinct: list[Node] = [self.entries.flat[k] for k in found["distinct"]]

    def _examine(self, field: str, test: str) -> dict[str, Any]:
        """Find D, its zeros and equal entries, as `remembered` keeps them."""
        entries = entries_of(self.trace, field, test)
        needed = {node.number for node in ancestors(entries.flat)}
        if self.moving & needed or compares(self.test.flat(), self.moving):
            raise TraceError(f"the form is not linear in {field}")
        self._check_homogeneous()
        flat = list(entries.flat)
        structure, distinct = self._distinct(flat)
        return {
            "entries": encode(substitute(flat, {})),
            "structure": structure.tolist(),
            "distinct": distinct,
        }

    def _check_homogeneous(self) -> None:
        zero = self.trace.graph.constant(0.0)
        rest = substitute(self.test.flat(), dict.fromkeys(self.moving, zero))
        if not all(identity.zero for identity in identities(rest)):
            raise TraceError(
                "the form has a part that does not depend on the field: give that to femops.load"
            )

    def _distinct(self, flat: list[Node]) -> tuple[NDArray[np.int64], list[int]]:
        """Find which entries are zero, equal or opposite.

        Returns
        -------
        structure : (entries,) int64
            0 for a zero entry, else plus or minus the number of the distinct entry, counted from
            one.
        distinct : list of int
            Their places among the entries.
        """
        structure = np.zeros(len(flat), dtype=np.int64)
        distinct: list[int] = []
        numbers: dict[Identity, int] = {}
        for k, identity in enumerate(identities(flat)):
            if identity.zero:
                continue
            if identity not in numbers:
                distinct.append(k)
                numbers[identity.opposite] = -len(distinct)
                numbers[identity] = len(distinct)
            structure[k] = numbers[identity]
        if not distinct:
            raise TraceError("the form is zero whatever the field: it defines no operator")
        return structure, distinct

    def used(self) -> list[str]:
        """Names of the static inputs that the form needs."""
        needed = {node.number for node in ancestors(self.test.flat())}
        static = self.trace.static.items()
        return [name for name, nodes in static if any(n.number in needed for n in nodes.flat)]

    @property
    def symmetric(self) -> bool:
        """True if D is symmetric."""
        return self.structure.shape[0] == self.structure.shape[1] and np.array_equal(
            self.structure, self.structure.T
        )

    @cached_property
    def degree(self) -> int | None:
        """Power of the inverse Jacobian in D; None if entries differ in it.

        0 for products of values (mass), 1 of a value and a gradient, 2 of gradients (diffusion).
        """
        nodes, factor = list(self.entries.flat), letter("@factor")
        inverse = list(self.trace.static[INVERSE].flat)
        given = zip(inverse, identities(inverse), strict=True)
        plain = identities(nodes)
        times = identities(nodes, {node.number: one.scaled(factor) for node, one in given})
        for power in (0, 1, 2):
            if times == [one.scaled(factor**power) for one in plain]:
                return power
        return None

    def transposed(self) -> tuple[list[Node], list[Node]]:
        """The step with field and test function exchanged, as inputs and outputs."""
        graph = self.trace.graph
        inputs = [graph.input(f"transposed[{k}]") for k in range(len(self.entries))]
        outputs = []
        for column, signs in zip(self.entries.T, self.structure.T, strict=True):
            total: Any = graph.constant(0.0)
            for entry, sign, node in zip(column, signs, inputs, strict=True):
                if sign:
                    total = total + entry * node
            outputs.append(total)
        return inputs, outputs


def compares(outputs: Sequence[Node], moving: set[int]) -> bool:
    """True if a choice depends on inputs: its jumps don't show in derivatives.

    Parameters
    ----------
    outputs : sequence of Node
    moving : set of int
        Numbers of the inputs.
    """
    conditions = [node for node in ancestors(outputs) if node.is_condition]
    return any(node.number in moving for node in ancestors(conditions))


def entries_of(trace: Trace, field: str, test: str) -> Objects:
    """Derivatives of the factors of a test function by a field, with the other fields fixed.

    Parameters
    ----------
    trace : Trace
    field, test : str

    Returns
    -------
    (outputs, inputs) array of Node
        In the order of `Argument.flat`.
    """
    graph, outputs = trace.graph, trace.tests[test].flat()
    zero, one = graph.constant(0.0), graph.constant(1.0)
    still = {node.number: zero for argument in trace.fields.values() for node in argument.flat()}
    columns = [
        derivatives(outputs, still | {node.number: one}) for node in trace.fields[field].flat()
    ]
    return np.array(columns, dtype=object).T.reshape(len(outputs), len(columns))
