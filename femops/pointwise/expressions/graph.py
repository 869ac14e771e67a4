"""Expression graph of a form's q-function.

Equal expressions are one node. Constants keep all their digits. Nothing is rearranged, so a kernel
computes the user's expressions in the user's order. The only simplifications are exact in floating
point (x + 0, 1 x, 0 x, -(-x), the order of two summands or factors). For 0 x and 0 / x this holds
if the result is finite, and up to the sign of zeros.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

import numpy as np

from femops.errors import NoAttributeError, TraceError
from femops.pointwise.expressions.operations import (
    BITWISE,
    COMPARE,
    COMPARISONS,
    FUNCTIONS,
    LAW,
    LIBRARY,
    LOGICAL,
    ON_NUMBERS,
    RESULT,
    UFUNCS,
)
from femops_common.arguments import type_name
from femops_kernels.laws.law import Law

# Integer powers up to this are computed by multiplications.
_MOST_FACTORS = 16


@final
class Graph:
    """Nodes of one trace. Equal expressions share one node."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self._order: list[Node] = []

    def constant(self, value: float) -> Node:
        """Node of a constant."""
        number = float(value)
        if not math.isfinite(number):
            raise TraceError(f"a constant is {number}: use finite numbers")
        # 0.0 and -0.0 are equal as keys, but not the same number
        return self.make("const", (), (number, math.copysign(1.0, number)))

    def input(self, name: str) -> Node:
        """Node of an input of a kernel's program."""
        return self.make("input", (), name)

    def make(self, op: str, args: tuple[Node, ...], data: Any) -> Node:
        """Node of an operation, constant or input, without simplification."""
        key = (op, tuple(a.number for a in args), data)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(self, op, args, data, len(self._order))
            self._order.append(node)
        return node

    def __getstate__(self) -> list[tuple[str, list[int], Any]]:
        """List of all nodes by number. So deep graphs can be pickled without recursion."""
        return [(node.op, [a.number for a in node.args], node.data) for node in self._order]

    def __setstate__(self, rows: list[tuple[str, list[int], Any]]) -> None:
        Graph.__init__(self)
        for op, args, data in rows:
            self.make(op, tuple(self._order[k] for k in args), data)

    def at(self, number: int) -> Node:
        """Node with the number ``number``."""
        return self._order[number]

    def node(self, value: Any) -> Node:
        """Convert a symbol or a real number to a node."""
        if isinstance(value, Node):
            if value.graph is not self:
                raise TraceError(
                    "a symbol of another form is used: use only the function's arguments"
                )
            return value
        if isinstance(value, np.ndarray) and value.ndim == 0:
            return self.node(value.item())
        if isinstance(value, bool | np.bool_) or not isinstance(value, REAL):
            raise TraceError(
                f"a symbol is combined with {type_name(type(value))}: give a real number or an "
                "array of them"
            )
        try:
            return self.constant(float(value))
        except OverflowError as error:
            raise TraceError("a constant is beyond the range of float64") from error

    def unary(self, op: str, a: Node) -> Node:
        """Node of an operation on one node, simplified if that is exact."""
        if op in ("neg", "pos") and a.is_condition:
            raise TraceError(f"a condition has no sign: write {'~' if op == 'neg' else ''}(a > b)")
        if op == "not":
            return self.binary("eq", self.number(a), self.constant(0.0))
        a = self.number(a)
        if op == "pos":
            return a
        if op == "square":
            return self.binary("mul", a, a)
        if op == "sign":
            zero = self.constant(0.0)
            below = self.where(self.binary("lt", a, zero), self.constant(-1.0), zero)
            return self.where(self.binary("gt", a, zero), self.constant(1.0), below)
        if op == "neg":
            if a.op == "neg":
                return a.args[0]
            if a.op == "const":
                return self.constant(-a.value)
        return self.make(op, (a,), None)

    def binary(self, op: str, a: Node, b: Node) -> Node:
        """Node of an operation on two nodes, simplified if that is exact.

        In arithmetic, conditions behave like NumPy's booleans.
        """
        if a.is_condition and b.is_condition and op in ("add", "sub"):
            if op == "sub":
                raise TraceError("two conditions are subtracted: write (a > b) ^ (c > d)")
            op = "or"
        if op in LOGICAL:
            return self._joined(op, self.condition(a), self.condition(b))
        a, b = self.number(a), self.number(b)
        if op in ("fmin", "fmax"):  # NaN counts as missing
            first = self.binary("le" if op == "fmin" else "ge", a, b)
            return self.where(self.binary("or", first, self.binary("ne", b, b)), a, b)
        if op in COMPARE and a.op == b.op == "const":
            return self.truth(COMPARISONS[op](a.value, b.value))
        simple = _simplify(self, op, a, b)
        if simple is not None:
            return simple
        if op in ("add", "mul", "minimum", "maximum", "hypot") and b.number < a.number:
            a, b = b, a
        return self.make(op, (a, b), None)

    def _joined(self, op: str, a: Node, b: Node) -> Node:
        """Condition that joins two conditions by "and", "or" or "xor"."""
        first, second = self.number(a), self.number(b)
        if op == "xor":
            return self.binary("ne", first, second)
        zero, one = self.constant(0.0), self.constant(1.0)
        both = self.where(a, second, zero) if op == "and" else self.where(a, one, second)
        return self.condition(both)

    def where(self, condition: Node, a: Node, b: Node) -> Node:
        """Node that is ``a`` where the condition holds, else ``b``."""
        condition, a, b = self.condition(condition), self.number(a), self.number(b)
        if condition.is_known:
            return a if condition.op == "eq" else b
        return a if a is b else self.make("where", (condition, a, b), None)

    def results(self, law: Law, args: Sequence[Node]) -> list[Node]:
        """Nodes of the results of a law."""
        called = self.make(LAW, tuple(self.number(a) for a in args), law)
        return [self.make(RESULT, (called,), k) for k in range(law.results)]

    def computed(self, op: str, args: Sequence[Node]) -> Node | None:
        """Constant that is the result of an operation on constants. None if it is not finite."""
        if op not in ON_NUMBERS or any(a.op != "const" for a in args):
            return None
        try:
            value = ON_NUMBERS[op](*(a.value for a in args))
        except (ArithmeticError, ValueError):
            return None
        return self.constant(value) if math.isfinite(value) else None

    def number(self, node: Node) -> Node:
        """Convert a node to a number. A condition becomes 1 where it holds, else 0."""
        if not node.is_condition:
            return node
        if node.is_known:
            return self.constant(float(node.op == "eq"))
        return self.make("where", (node, self.constant(1.0), self.constant(0.0)), None)

    def truth(self, value: bool) -> Node:
        """Condition that holds everywhere (0 == 0) or nowhere (0 != 0).

        The condition is a comparison, so that it can be joined with other conditions.
        """
        zero = self.constant(0.0)
        return self.make("eq" if value else "ne", (zero, zero), None)

    def condition(self, node: Node) -> Node:
        """Convert a node to a condition. A number becomes the condition "not zero"."""
        if node.is_condition:
            return node
        if node.op == "const":
            return self.truth(node.value != 0.0)
        if node.op == "where" and node is self.number(node.args[0]):
            return node.args[0]
        return self.make("ne", (node, self.constant(0.0)), None)


def _simplify(graph: Graph, op: str, a: Node, b: Node) -> Node | None:
    zero_a, zero_b = a.is_constant(0.0), b.is_constant(0.0)
    if op == "add" and (zero_a or zero_b):
        return b if zero_a else a
    if op == "sub" and (zero_a or zero_b):
        return a if zero_b else graph.unary("neg", b)
    if op == "mul":
        if zero_a or zero_b:
            return graph.constant(0.0)
        for one, other in ((a, b), (b, a)):
            if one.is_constant(1.0):
                return other
            if one.is_constant(-1.0):
                return graph.unary("neg", other)
    if op == "div":
        if zero_a:
            return a
        if b.is_constant(1.0):
            return a
    if op == "pow":
        return _power(graph, a, b)
    return None


def _power(graph: Graph, a: Node, b: Node) -> Node | None:
    if b.op != "const":
        return None
    exponent = b.value
    if exponent == 0.5:
        return graph.unary("sqrt", a)
    if exponent != int(exponent) or abs(exponent) > _MOST_FACTORS:
        return None
    if exponent < 0:
        return graph.binary(
            "div", graph.constant(1.0), graph.binary("pow", a, graph.constant(-exponent))
        )
    if exponent == 0:
        return graph.constant(1.0)
    half = graph.binary("pow", a, graph.constant(exponent // 2)) if exponent > 1 else None
    square = a if half is None else graph.binary("mul", half, half)
    return graph.binary("mul", square, a) if half is not None and exponent % 2 else square


def _method(ufunc: Any) -> Any:
    def method(self: Node, *others: Any) -> Any:
        return ufunc(self, *others)

    return method


class Symbolic(np.lib.mixins.NDArrayOperatorsMixin, ABC):
    """Immutable operand of NumPy's functions. ``a += b`` computes a new object a + b."""

    __slots__ = ()

    @abstractmethod
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any: ...

    def _not_in_place(self, *_: Any) -> Any:
        return NotImplemented

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = _not_in_place
    __iand__ = __ior__ = __ixor__ = __imatmul__ = __ifloordiv__ = __imod__ = _not_in_place


def symbol_array(array: Any) -> Any:
    """View of an array of symbols as `SymbolArray`. Other values are returned unchanged."""
    return array.view(SymbolArray) if type(array) is np.ndarray else array


class Symbols(np.ndarray[Any, np.dtype[Any]], ABC):
    """Array of symbols, whose `clip` goes entry by entry. NumPy's would compare symbols."""

    def clip(self, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:  # type: ignore[override]  # noqa: ARG002
        """See `numpy.clip`, which calls this."""
        found: Any = self
        for function, bound in ((np.maximum, a_min), (np.minimum, a_max)):
            if bound is not None:
                found = np.frompyfunc(function, 2, 1)(found, np.asarray(bound, dtype=object))
        return found

    def dot(self, b: Any, out: Any = None) -> Any:  # noqa: ARG002
        return np.dot(self, b)

    # Results without an axis are symbols, as those of plain arrays are.
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        found = super().__array_wrap__(array, context, return_scalar)
        return found if found.ndim else found[()]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = super().__array_function__(function, types, args, kwargs)
        return found[()] if isinstance(found, Symbols) and not found.ndim else found


@final
class SymbolArray(Symbols):
    """Array of real symbols."""


@final
class Node(Symbolic):
    """Symbol: stands for a number whose value is known when a kernel runs.

    It supports arithmetic with numbers, symbols and arrays of them, and NumPy's functions.
    """

    __slots__ = ("args", "data", "graph", "number", "op")

    def __init__(
        self, graph: Graph, op: str, args: tuple[Node, ...], data: Any, number: int
    ) -> None:
        self.graph, self.op, self.args, self.data, self.number = graph, op, args, data, number

    @property
    def value(self) -> float:
        """Value of a constant. To a user's function, all symbols are without one."""
        if self.op != "const":
            raise AttributeError("value")  # `__getattr__` explains
        return float(self.data[0])

    @property
    def is_condition(self) -> bool:
        """True if the node is a condition, not a number."""
        return self.op in COMPARE

    @property
    def is_known(self) -> bool:
        """True if the node is a condition that holds everywhere, or nowhere."""
        return self.is_condition and all(a.op == "const" for a in self.args)

    def is_constant(self, value: float) -> bool:
        """True if the node is a constant with this value."""
        return self.op == "const" and self.data[0] == value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(value, complex | np.complexfloating) for value in inputs):
            raise TraceError(_COMPLEX)
        others = [value for value in inputs if not isinstance(value, _OPERANDS)]
        if any(isinstance(value, Symbolic) for value in others):
            return NotImplemented  # a field, whose own method then continues with its value
        for value in others:
            self.graph.node(value)  # raises the error
        if ufunc is np.matmul:
            raise TraceError("`@` multiplies vectors and matrices, one of these is a scalar: use *")
        op = UFUNCS.get(ufunc)
        if op is None or method != "__call__" or options:
            raise TraceError(
                f"numpy.{ufunc.__name__} has no meaning for symbols here: "
                f"use + - * / **, sqrt, {', '.join(FUNCTIONS)}, arctan2, hypot, "
                "abs, sign, square, minimum, maximum, clip, comparisons, & | ^ ~ of these"
            )
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            arrays = np.broadcast_arrays(*[np.asarray(value, dtype=object) for value in inputs])
            out = np.empty(arrays[0].shape, dtype=object)
            for index in np.ndindex(out.shape):
                out[index] = self._apply(op, [a[index] for a in arrays])
            return out
        return self._apply(op, inputs)

    def _apply(self, op: str, values: Sequence[Any]) -> Node:
        nodes = [self.graph.node(float(v) if _is_bool(v) else v) for v in values]
        if op in BITWISE:
            for node, value in zip(nodes, values, strict=True):
                if not (node.is_condition or _is_bool(value)):
                    raise TraceError(
                        f"`{op}` takes conditions, not numbers: put each comparison in "
                        "parentheses, (a > b) & (c > d)"
                    )
            op = BITWISE[op]
        return self.graph.unary(op, *nodes) if len(nodes) == 1 else self.graph.binary(op, *nodes)

    def __getitem__(self, index: Any) -> Any:
        name = self._coefficient
        raise TraceError(
            f"{name} is a scalar, of shape (): write {name} without an index"
            if name
            else "a scalar is indexed: leave out the index"
        )

    if not TYPE_CHECKING:  # type checkers must see that there are no other attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error that tells that the symbol is a number."""
            if name.startswith("_"):  # NumPy looks for some of these
                raise AttributeError(name)
            known = self._coefficient or "this symbol"
            remedy = "use arithmetic, NumPy's functions, and those of femops such as femops.where"
            if name == "value":
                remedy = "leave out .value"
            elif name == "grad":
                remedy = "give it as a coefficient of its own, V.gradient(u) at the points"
            raise NoAttributeError(f"{known} is a scalar, which has no {name}: {remedy}")

    @property
    def _coefficient(self) -> str:
        """Name of the coefficient if the node is a scalar coefficient. Else empty."""
        name = str(self.data) if self.op == "input" else ""
        return name[2:-1] if name.startswith("c(") and name.endswith(")") else ""

    def clip(self, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:  # noqa: ARG002
        """See `numpy.clip`, which calls this."""
        low: Any = self
        low = low if a_min is None else np.maximum(low, a_min)
        return low if a_max is None else np.minimum(low, a_max)

    # the hash is by identity, because `==` makes a condition
    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        return Graph.at, (self.graph, self.number)

    def conjugate(self) -> Node:
        """The node itself, because symbols are real."""
        return self

    def __bool__(self) -> bool:
        raise TraceError(
            "a Python `if`, `and`, `or`, `not`, `min` or `max` asks whether a symbol is true: "
            "the answer differs from point to point; write femops.where(condition, a, b), "
            "femops.minimum or femops.maximum, and compare entries of an array one by one"
        )

    def __float__(self) -> float:
        raise TraceError(
            "a symbol is made a Python number: use numpy's functions, not math's, and no float()"
        )

    __int__ = __index__ = __complex__ = __float__

    def __repr__(self) -> str:
        if self.op == "const":
            return repr(self.value)
        return (
            str(self.data)
            if self.op == "input"
            else f"{self.op}({', '.join('...' if a.args else repr(a) for a in self.args)})"
        )


# NumPy's functions call these on the entries of an array of symbols.
for _name in ("sqrt", *FUNCTIONS, "arctan2", "hypot"):
    setattr(Node, _name, _method(getattr(np, _name)))

_COMPLEX = (
    "a complex number in a form of real numbers: make the form with dtype='complex128', which "
    "femops.form takes"
)
REAL = (int, float, Fraction, np.number)
"""Types of real numbers in forms. Truth values are no numbers."""

_OPERANDS = (Node, bool, *REAL, np.bool_, np.ndarray)


def same(a: Sequence[Node], b: Sequence[Node]) -> bool:
    """True if two sequences have the same nodes of one graph."""
    return [node.number for node in a] == [node.number for node in b]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def ancestors(outputs: Iterable[Node], known: Container[int] = ()) -> list[Node]:
    """Outputs and all nodes on which they depend. Each node comes after its arguments."""
    found: dict[int, Node] = {}
    stack = [(node, False) for node in outputs]
    while stack:
        node, ready = stack.pop()
        if ready or node.number in known:
            found.setdefault(node.number, node)
        elif node.number not in found:
            stack.append((node, True))
            stack += [(a, False) for a in reversed(node.args)]
    return list(found.values())


def substitute(outputs: Iterable[Node], mapping: dict[int, Node]) -> list[Node]:
    """Replace the nodes whose ``number`` is in ``mapping``. Evaluate operations on constants.

    The graph does not evaluate an operation on constants when it is added. The result would be
    rounded, and then `identities` could not tell exactly which nodes are equal.
    """
    wanted = list(outputs)
    new = dict(mapping)
    for node in ancestors(wanted, mapping):
        if node.number not in new:
            args = [new[a.number] for a in node.args]
            constant = node.graph.computed(node.op, args)
            new[node.number] = _again(node, args) if constant is None else constant
    return [new[node.number] for node in wanted]


def _again(node: Node, args: list[Node]) -> Node:
    """Node of the same operation on other arguments."""
    if same(node.args, args):
        return node
    if node.op == "where":
        return node.graph.where(*args)
    if node.op in (LAW, RESULT):
        return node.graph.make(node.op, tuple(args), node.data)
    return node.graph.unary(node.op, *args) if len(args) == 1 else node.graph.binary(node.op, *args)


def frontier(outputs: Sequence[Node], moving: set[int], *, deep: bool = False) -> list[Node]:
    """Nodes that can be computed once and that each application needs."""
    order = ancestors(outputs)
    moves = dependent(outputs, moving)
    met = [n for n in outputs if n.number not in moves]
    met += [a for n in order if n.number in moves for a in n.args if a.number not in moves]
    # a condition is no number and can't be stored, but the two numbers that it compares can
    return opened(met, lambda n: n.is_condition or (deep and bool(n.args) and n.op not in LIBRARY))


def opened(nodes: Iterable[Node], through: Callable[[Node], bool]) -> list[Node]:
    """Replace nodes by their arguments, recursively, while ``through`` is true."""
    left = list(nodes)
    seen: set[int] = set()
    found = []
    while left:
        node = left.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if through(node):
            left += node.args
        elif node.op != "const":
            found.append(node)
    return sorted(found, key=lambda node: node.number)


def dependent(nodes: Iterable[Node], on: set[int]) -> set[int]:
    """Numbers of ``nodes`` and ancestors of ``nodes`` that depend on the nodes ``on``."""
    moves = set(on)
    for node in ancestors(nodes):
        if any(a.number in moves for a in node.args):
            moves.add(node.number)
    return moves


def guarded(outputs: Sequence[Node], nodes: Iterable[Node], moving: set[int]) -> list[Node]:
    """Make nodes that equal ``nodes`` where an output uses them, and are zero elsewhere."""
    order, wanted = ancestors(outputs), list(nodes)
    if not any(node.op == "where" for node in order):
        return wanted
    graph, moves = order[0].graph, dependent(outputs, moving)
    always, never = graph.constant(1.0), graph.constant(0.0)
    taken = {node.number: always for node in outputs}
    for node in reversed(order):  # each node before its arguments
        here = taken[node.number]
        sides = [here] * len(node.args)
        if node.op == "where":
            condition = node.args[0]
            known = condition.number not in moves
            other = graph.unary("not", condition)
            sides[1:] = [
                graph.binary("and", here, c) if known else never for c in (condition, other)
            ]
        for argument, side in zip(node.args, sides, strict=True):
            before = taken.setdefault(argument.number, never)
            if before is never:
                taken[argument.number] = side
            elif before is not always and side is not never:
                taken[argument.number] = graph.binary("or", before, side)
    return [graph.where(taken.get(n.number, always), n, never) for n in wanted]
