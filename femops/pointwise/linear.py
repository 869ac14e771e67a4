"""Forms that are linear in their fields: derivative D of outputs by inputs at a point.

If a form has several fields, D consists of blocks, one for each test function and field. Each block
is also a form, in which the other fields are zero.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import TraceError
from femops.pointwise.expressions.derivative import derivatives
from femops.pointwise.expressions.graph import Graph, Node, ancestors, substitute
from femops.pointwise.expressions.identities import Identity, identities, letter
from femops.pointwise.expressions.operations import LAW, RESULT
from femops.pointwise.sides import Argument, Objects, shown_name
from femops.pointwise.trace import INVERSE, OTHER, Trace
from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.cache import read_private
from femops_kernels.errors import CacheError
from femops_kernels.laws.law import Law

Encoded = dict[str, Any]


def encode(nodes: Iterable[Node]) -> Encoded:
    """Encode nodes and their ancestors as numbers and text."""
    wanted = list(nodes)
    order = ancestors(wanted)
    row = {node.number: k for k, node in enumerate(order)}
    rows = [[node.op, [row[a.number] for a in node.args], _data(node)] for node in order]
    return {"rows": rows, "nodes": [row[node.number] for node in wanted]}


def _data(node: Node) -> str | None:
    if node.op == "const":
        return node.value.hex()
    return str(node.data) if node.op in ("input", LAW, RESULT) else None


def decode(graph: Graph, encoded: Encoded) -> list[Node]:
    """Add encoded nodes to a graph, unless they are there already, and return them."""
    made: list[Node] = []
    for op, args, data in encoded["rows"]:
        if op == "const":
            made.append(graph.constant(float.fromhex(data)))
        elif op == "input":
            made.append(graph.input(data))
        else:
            kept = Law.of_text(data) if op == LAW else int(data) if op == RESULT else None
            made.append(graph.make(op, tuple(made[k] for k in args), kept))
    return [made[k] for k in encoded["nodes"]]


def remembered(question: Any, compute: Callable[[], Any]) -> Any:
    """Read an answer from disk, or compute and store it."""
    text = json.dumps([_sources(), question])
    name, answer = f"trace_{_sum(text)[:24]}.json", cache(lambda: json.dumps(compute()))

    def look_up(folder: Path) -> Any:
        found = _read(folder / name)
        if found is None:
            kept = {"sum": _sum(answer()), "answer": answer()}
            kernel_cache.write_once(folder / name, json.dumps(kept))
            found = json.loads(answer())
        return found

    return kernel_cache.keep(look_up)


def _read(path: Path) -> Any:
    """Answer in a file, read safely because it becomes code. None if missing or damaged."""
    try:
        kept = json.loads(read_private(path))
        answer = kept["answer"]
        kernel_cache.note_use(path)
        return json.loads(answer) if kept["sum"] == _sum(answer) else None
    except CacheError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _sources() -> str:
    """Hash of this package's sources."""
    folder = Path(__file__).parent
    parts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    return _sum("\0".join(parts))


Pair = tuple[str, str]
"""Names of the test function and of the field of a block."""

_REMEDY = "use femops.residual"


@final
class LinearQFunction:
    """Derivative D of a form that is linear in its fields, with its zeros and equal entries.

    `entries` (outputs, inputs): D, with operations on constants evaluated. `structure` (outputs,
    inputs): 0 for a zero entry. Else the number of the distinct entry, counted from one, with its
    sign.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.field = Argument.joined([*trace.fields.values()])
        self.test = Argument.joined([*trace.tests.values()])
        self.moving = {node.number for node in self.field.flat()}
        argument, tests, static = self.field.flat(), self.test.flat(), trace.static.items()
        # this comes first, because the order of nodes in the graph shows in programs
        self.outputs = substitute(tests, {})
        fields = [str(node.data) for node in argument]
        question = [
            encode([*tests, *argument]),
            len(tests),
            fields,
            [[name, [str(node.data) for node in nodes.flat]] for name, nodes in static],
        ]
        answer = remembered(question, self._examine)
        shape = (len(tests), len(argument))
        self.entries: Objects = np.empty(shape, dtype=object)
        self.entries.reshape(-1)[:] = decode(trace.graph, answer["entries"])
        self.structure = np.array(answer["structure"], dtype=np.int64).reshape(shape)
        self.distinct: list[Node] = [self.entries.flat[k] for k in answer["distinct"]]

    def _examine(self) -> dict[str, Any]:
        """Compute D, its zeros and its equal entries, as values that JSON can hold."""
        entries = self._derivatives()
        for test in self.trace.tests:
            self._check_linear(test, entries[self.places(self.trace.tests, test)])
        for test in self.trace.tests:
            self._check_homogeneous(test)
        flat = list(entries.flat)
        structure, distinct = self._distinct(flat)
        return {
            "entries": encode(substitute(flat, {})),
            "structure": structure.tolist(),
            "distinct": distinct,
        }

    def _derivatives(self) -> Objects:
        """Derivatives (outputs, inputs) of the factors of all test functions by all fields."""
        graph, outputs = self.trace.graph, self.test.flat()
        zero, one = graph.constant(0.0), graph.constant(1.0)
        still = dict.fromkeys(self.moving, zero)
        columns = [derivatives(outputs, still | {node.number: one}) for node in self.field.flat()]
        return np.array(columns, dtype=object).T.reshape(len(outputs), len(columns))

    def places(self, arguments: Mapping[str, Argument], name: str) -> list[int]:
        """Positions of a field in `field.flat`, or of a test function in `test.flat`."""
        sizes = {key: len(argument.values) for key, argument in arguments.items()}
        names, whole = list(sizes), sum(sizes.values())
        first = sum(sizes[key] for key in names[: names.index(name)])
        slots = 1 + self.trace.dim
        return [k * whole + first + c for k in range(slots) for c in range(sizes[name])]

    def _check_linear(self, test: str, entries: Objects) -> None:
        """Raise if entries (outputs of a test function, inputs) of D depend on a field."""
        fields, several = self.trace.fields, len(self.trace.fields) > 1
        place = repr(shown_name(test))
        result = f": see the result for {place}" if several else ""
        for field in fields:
            by_field = entries[:, self.places(fields, field)]
            needed = {node.number for node in ancestors(by_field.flat)}
            guilty = [n for n, a in fields.items() if needed & {node.number for node in a.flat()}]
            if field in guilty:
                raise TraceError(
                    f"the form is not linear in {shown_name(field)}{result}; {_REMEDY}"
                )
            if guilty:
                raise TraceError(
                    f"the result for {place} has a product, quotient or function of "
                    f"{shown_name(field)} and {shown_name(guilty[0])}: a form must be linear in "
                    "all its fields together"
                )
        if compares(self.trace.tests[test].flat(), self.moving):
            what = f"the result for {place} compares a field with something: that is not linear"
            what = what if several else f"the form is not linear in {next(iter(fields))}"
            raise TraceError(f"{what}; {_REMEDY}")

    def _check_homogeneous(self, test: str) -> None:
        """Raise if the result for a test function is not zero although all fields are zero."""
        zero = self.trace.graph.constant(0.0)
        rest = substitute(self.trace.tests[test].flat(), dict.fromkeys(self.moving, zero))
        if not all(identity.zero for identity in identities(rest)):
            several = len(self.trace.fields) > 1
            what = f"the result for {shown_name(test)!r}" if several else "the form"
            cure = "femops.load" if shown_name(test) == test else "femops.residual"
            raise TraceError(
                f"{what} has a part that does not depend on the field{'s' * several}: "
                f"give that to {cure}"
            )

    @property
    def pairs(self) -> list[Pair]:
        """Test function and field of each block that is not zero."""
        tests, fields = self.trace.tests, self.trace.fields
        return [
            (test, field)
            for test in tests
            for field in fields
            if self.structure[np.ix_(self.places(tests, test), self.places(fields, field))].any()
        ]

    def zeros(self, *, transpose: bool) -> tuple[int, ...]:
        """Components of each test function (field if ``transpose``) whose factors are all zero."""
        sides = self.trace.fields if transpose else self.trace.tests
        entries = self.structure.T if transpose else self.structure
        found: list[int] = []
        for name, side in sides.items():
            places = self.places(sides, name)
            found += [] if entries[places].any() else places[: len(side.values)]
        return tuple(found)

    def block(self, test: str, field: str) -> LinearQFunction:
        """Part of the form that couples one test function with one field. It is made once."""
        if (test, field) not in self._blocks:
            self._blocks[test, field] = self._block(test, field)
        return self._blocks[test, field]

    @cached_property
    def _blocks(self) -> dict[Pair, LinearQFunction]:
        return {}

    def _block(self, test: str, field: str) -> LinearQFunction:
        trace, zero = self.trace, self.trace.graph.constant(0.0)
        others: dict[int, Node] = {
            node.number: zero
            for name, argument in trace.fields.items()
            if name != field
            for node in argument.flat()
        }
        result = trace.tests[test]
        alone = Argument.of_flat(substitute(result.flat(), others), len(result.values))
        return LinearQFunction(
            replace(trace, fields={field: trace.fields[field]}, tests={test: alone})
        )

    def _distinct(self, flat: list[Node]) -> tuple[NDArray[np.int64], list[int]]:
        """Find the entries that are zero, equal or opposite.

        Shapes: `structure` (entries,).
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
            several = "s" * (len(self.trace.fields) > 1)
            raise TraceError(
                f"the form is zero whatever the field{several}: it defines no operator"
            )
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
        """Power of the inverse Jacobian in D. None if entries have different powers.

        0 for products of two values (mass), 1 for a value and a gradient, 2 for two gradients
        (diffusion).
        """
        nodes, factor = list(self.entries.flat), letter("@factor")
        static = self.trace.static
        maps = [static[name] for name in (INVERSE, OTHER) if name in static]
        inverse = [node for entries in maps for node in entries.flat]
        given = zip(inverse, identities(inverse), strict=True)
        plain = identities(nodes)
        times = identities(nodes, {node.number: one.scaled(factor) for node, one in given})
        for power in (0, 1, 2):
            if times == [one.scaled(factor**power) for one in plain]:
                return power
        return None

    def transposed(self) -> tuple[list[Node], list[Node]]:
        """Inputs and outputs of the transposed form: field and test function are exchanged."""
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
    """True if a condition depends on the fields. Derivatives miss the jumps of such a choice."""
    conditions = [node for node in ancestors(outputs) if node.is_condition]
    return any(node.number in moving for node in ancestors(conditions))
