"""Conditions and loops of kernels.

``rewriting.py`` replaces the statements of Python by these classes. Each is told the variables that
its statements set. Where the kernel decides which of several values a variable has, the variable is
joined from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

from llvmlite import ir

from femops_kernels.errors import KernelError
from femops_kernels.simd.values import (
    FLOAT64,
    INTEGER,
    WORD,
    Real,
    Traced,
    Whole,
    as_truth,
    as_word,
    build,
    converted,
    kind_of,
)

Variables = tuple[Any, ...]


@final
class Undefined:
    """Value of a variable that has none, or not one kind on all ways to where it is read."""

    def __repr__(self) -> str:
        return "a variable that is not set on all ways to where it is read"

    def __bool__(self) -> bool:
        raise KernelError(f"a kernel can't decide by {self!r}")

    def __eq__(self, other: object) -> bool:
        raise KernelError(f"a kernel can't compare {self!r}")

    __hash__ = object.__hash__


UNDEFINED = Undefined()


def _common_kind(first: Any, second: Any) -> Any:
    """Kind of a variable that has values of two kinds; None if there is no such kind."""
    if first == second:
        return first
    if all(isinstance(kind, Whole | Real) for kind in (first, second)):
        return FLOAT64 if isinstance(first, Real) or isinstance(second, Real) else INTEGER
    return None


def _same(first: Any, second: Any) -> bool:
    """True if two branches give a variable the same object, or equal constants."""
    if first is second:
        return True
    if isinstance(first, Undefined) or isinstance(second, Undefined):
        return False
    constants = int, float, str
    alike = type(first) is type(second) and isinstance(first, constants)
    return alike and first == second and str(first) == str(second)  # 0.0 is not -0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, Traced | int | float)


@final
class If:
    """A condition: of the kernel, or of Python if it is known now.

    Iterating yields True while the first branch is written, and False while the other is.
    """

    def __init__(self, condition: Any, before: Variables) -> None:
        self._known = not isinstance(condition, Traced)
        self._condition, self._now = condition, before
        self._before, self._ends = before, list[tuple[Variables, Any]]()

    def __iter__(self) -> Iterator[bool]:
        if self._known:
            yield bool(self._condition)
            return
        builder = build()
        condition = as_truth(self._condition)
        blocks = [builder.append_basic_block(name) for name in ("then", "else")]
        builder.cbranch(condition, *blocks)
        for block, taken in zip(blocks, (True, False), strict=True):
            builder.position_at_end(block)
            yield taken

    def enter(self) -> Variables:
        """Variables at the beginning of a branch."""
        return self._before

    def leave(self, variables: Variables) -> None:
        """Variables at the end of a branch."""
        self._now = variables
        self._ends.append((variables, build().block))

    def after(self) -> Variables:
        """Variables after the condition."""
        if self._known:
            return self._now
        builder = build()
        join = builder.append_basic_block("join")
        (first, one), (second, other) = self._ends
        pairs = zip(first, second, strict=True)
        joined = [_join(pair, (one, other)) for pair in pairs]
        for block in (one, other):
            builder.position_at_end(block)
            builder.branch(join)
        builder.position_at_end(join)
        return tuple(each() for each in joined)


def _join(pair: tuple[Any, Any], blocks: tuple[Any, Any]) -> Callable[[], Any]:
    """Convert a variable's values at the ends of two blocks; the result joins them."""
    first, second = pair
    if _same(first, second):
        return lambda: first
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        parts = [_join(each, blocks) for each in zip(first, second, strict=True)]
        return lambda: tuple(part() for part in parts)
    kind = None
    if _is_number(first) and _is_number(second):
        kind = _common_kind(kind_of(first), kind_of(second))
    if kind is None:
        return lambda: UNDEFINED
    values = []
    for value, block in zip(pair, blocks, strict=True):
        build().position_at_end(block)
        values.append(converted(kind, value))

    def joined() -> Traced:
        phi = build().phi(kind.llvm)
        for value, block in zip(values, blocks, strict=True):
            phi.add_incoming(value, block)
        return Traced(kind, phi)

    return joined


@final
class _Carried:
    """Variables that a loop carries from one pass to the next.

    Those that no pass reads before it has set them are ``fresh``: they may change their kind.
    """

    def __init__(self, before: Variables, fresh: tuple[bool, ...]) -> None:
        self._before, self._phis = before, list[tuple[Any, Any]]()
        self._kinds, self._fresh = [self._kind(value) for value in before], fresh

    def _kind(self, value: Any) -> Any:
        if isinstance(value, tuple):
            kinds = tuple(self._kind(each) for each in value)
            return None if None in kinds else kinds
        return kind_of(value) if _is_number(value) else None

    def start(self) -> list[Any]:
        """Emit the values before the first pass."""
        return [v for pair in zip(self._kinds, self._before, strict=True) for v in _flat(*pair)]

    def at_head(self, values: list[Any], block: Any) -> Variables:
        """Emit the variables at the head of the loop, which ``block`` enters with the values."""
        given = iter(values)
        variables = tuple(
            before if kind is None else self._phi(kind, given, block)
            for kind, before in zip(self._kinds, self._before, strict=True)
        )
        self._head = variables
        return variables

    def _phi(self, kind: Any, values: Iterator[Any], block: Any) -> Any:
        if isinstance(kind, tuple):
            return tuple(self._phi(each, values, block) for each in kind)
        phi = build().phi(kind.llvm)
        phi.add_incoming(next(values), block)
        self._phis.append((kind, phi))
        return Traced(kind, phi)

    def again(self, variables: Variables) -> None:
        """Emit the values at the end of a pass."""
        values, self._lost = [], []
        for k, (kind, value) in enumerate(zip(self._kinds, variables, strict=True)):
            lost = kind is None and not _same(self._head[k], value)
            try:
                values += _flat(kind, value)
            except KernelError:
                if not self._fresh[k]:
                    raise
                lost = True
                values += [ir.Constant(one.llvm, ir.Undefined) for one in _each(kind)]
            if lost and not self._fresh[k]:
                raise KernelError("a loop changes a variable that is no number of the kernel")
            self._lost.append(lost)
        for (_, phi), value in zip(self._phis, values, strict=True):
            phi.add_incoming(value, build().block)

    def after(self) -> Variables:
        """Variables after the loop, which is left at its head."""
        pairs = zip(self._lost, self._head, strict=True)
        return tuple(UNDEFINED if lost else value for lost, value in pairs)


def _each(kind: Any) -> list[Any]:
    return [one for part in kind for one in _each(part)] if isinstance(kind, tuple) else [kind]


def _flat(kind: Any, value: Any) -> list[Any]:
    """Emit a variable as values of LLVM, one for each number."""
    if kind is None:
        return []
    if isinstance(kind, tuple):
        if not isinstance(value, tuple) or len(value) != len(kind):
            raise KernelError("a variable that a loop carries must stay a tuple of one length")
        return [v for pair in zip(kind, value, strict=True) for v in _flat(*pair)]
    if not _is_number(value) or _common_kind(kind, kind_of(value)) != kind:
        raise KernelError(f"a variable that a loop carries begins as {kind}, ends as {value!r}")
    return [converted(kind, value)]


@final
class For:
    """A loop over a range: of the kernel, or of Python if it is known to have at most one pass."""

    def __init__(self, bounds: Variables, before: Variables, fresh: tuple[bool, ...] = ()) -> None:
        self._fresh = fresh
        start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, int) or step < 1:
            raise KernelError("a loop of a kernel has a constant step of at least 1")
        self._range, self._now = (start, stop, step), before
        constant = not any(isinstance(bound, Traced) for bound in (start, stop, step))
        self._known = constant and stop - start <= step

    def __iter__(self) -> Iterator[Any]:
        if self._known:
            yield from range(*self._range)
            return
        builder = build()
        start, stop, step = (as_word(bound) for bound in self._range)
        self._carried = _Carried(self._now, self._fresh)
        values, before = self._carried.start(), builder.block
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        count = builder.phi(WORD)
        count.add_incoming(start, before)
        self._now = self._carried.at_head(values, before)
        builder.cbranch(builder.icmp_signed("<", count, stop), body, end)
        builder.position_at_end(body)
        yield Traced(INTEGER, count)
        count.add_incoming(builder.add(count, step, flags=("nsw",)), builder.block)
        builder.branch(head)
        builder.position_at_end(end)

    def enter(self) -> Variables:
        """Variables at the beginning of a pass."""
        return self._now

    def leave(self, variables: Variables) -> None:
        """Variables at the end of a pass."""
        if self._known:
            self._now = variables
        else:
            self._carried.again(variables)

    def after(self) -> Variables:
        """Variables after the loop."""
        return self._now if self._known else self._carried.after()

    def last(self, index: Any) -> Any:
        """The loop's own variable after it; it has no value if the kernel decides on passes."""
        return index if self._known else UNDEFINED


@final
class While:
    """A loop as long as a condition of the kernel holds."""

    def __init__(self, before: Variables, fresh: tuple[bool, ...]) -> None:
        self._carried = _Carried(before, fresh)

    def __iter__(self) -> Iterator[None]:
        builder = build()
        values, before = self._carried.start(), builder.block
        head, body, self._end = (
            builder.append_basic_block(name) for name in ("while", "body", "end")
        )
        builder.branch(head)
        builder.position_at_end(head)
        self._body, self._now = body, self._carried.at_head(values, before)
        yield
        builder.branch(head)
        builder.position_at_end(self._end)

    def enter(self) -> Variables:
        """Variables before the condition."""
        return self._now

    def test(self, condition: Any) -> None:
        """Leave the loop unless the condition holds."""
        build().cbranch(as_truth(condition), self._body, self._end)
        build().position_at_end(self._body)

    def leave(self, variables: Variables) -> None:
        """Variables at the end of a pass."""
        self._carried.again(variables)

    def after(self) -> Variables:
        """Variables after the loop."""
        return self._carried.after()


def choose(condition: Any, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """``first if condition else second``."""
    branches = If(condition, (UNDEFINED,))
    for taken in branches:
        branches.leave((first() if taken else second(),))
    (value,) = branches.after()
    return value


def both(first: Any, second: Callable[[], Any]) -> Any:
    """``first and second``."""
    return choose(first, second, lambda: first)


def either(first: Any, second: Callable[[], Any]) -> Any:
    """``first or second``."""
    return choose(first, lambda: first, second)


def identical(first: Any, second: Any) -> bool:
    """``first is second``."""
    for one in (first, second):
        if one is UNDEFINED:
            raise KernelError(f"a kernel can't compare {one!r}")
    return first is second


def negated(value: Any) -> Any:
    """``not value``."""
    if not isinstance(value, Traced):
        return not value
    return Traced(Whole(1), build().not_(as_truth(value)))
