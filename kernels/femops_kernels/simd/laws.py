"""Laws on lanes: their blocks run for all slots at once, and a mask tells which slots a block has.

Numbers that several blocks use are variables on the stack, which LLVM turns into registers. A block
is left out while no slot has it, and a loop runs until no slot is left in it (Karrenberg and Hack,
Whole-Function Vectorization, 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from llvmlite import ir

from femops_kernels.errors import KernelError
from femops_kernels.laws.law import SIGNS, Block, Choice, Instruction, Law, Operand
from femops_kernels.simd.compiling import body_of
from femops_kernels.simd.lane_math import ELEMENTARY, lane_of, of_library
from femops_kernels.simd.lanes import as_vector
from femops_kernels.simd.values import TRUTH, Traced, build, declared, on_stack, writing

_SCALARS = {"f64": ir.DoubleType(), "f32": ir.FloatType()}
MOST_ROUNDS = 2**20
"""Rounds of a loop after which a law fails: for slots without a point it may never end."""
_LEFT_OUT = 6
"""Instructions from which on a block is left out while no slot has it."""


def law(text: str) -> Callable[..., tuple[Traced, ...]]:
    """``law(text)``: a law as a function of lane vectors and numbers; its results are a tuple.

    It computes in float64, whatever the type of the lanes.
    """
    program = Law.of_text(text)

    def call(*arguments: Any) -> tuple[Traced, ...]:
        lane = lane_of(*arguments)
        wide = ir.VectorType(ir.DoubleType(), lane.width)
        values = [_converted(as_vector(lane, one), wide) for one in arguments]
        function = _written(program, lane.width)
        writing().calls[function] += 1
        found = build().call(function, values)
        parts = [build().extract_value(found, k) for k in range(program.results)]
        return tuple(Traced(lane, _converted(part, lane.llvm)) for part in parts)

    return call


def _converted(value: Any, kind: Any) -> Any:
    """A vector of real numbers as another one."""
    if value.type == kind:
        return value
    wider = isinstance(kind.element, ir.DoubleType)
    return (build().fpext if wider else build().fptrunc)(value, kind)


def _written(program: Law, width: int) -> Any:
    """The function of a law on vectors, which a module has once."""
    here, key = writing(), (program.name, width)
    if key not in here.functions:
        vector = ir.VectorType(ir.DoubleType(), width)
        results = ir.LiteralStructType([vector] * program.results)
        sort = ir.FunctionType(results, [vector] * program.inputs)
        made = ir.Function(here.module, sort, f"{here.name}.{program.name}.{width}")
        made.linkage = "internal"
        here.functions[key] = made
        with body_of(made):
            build().ret(_Body(program, width, made.args).result())
    return here.functions[key]


@final
class _Body:
    """Writes a law on vectors."""

    def __init__(self, program: Law, width: int, arguments: Sequence[Any]) -> None:
        self.program, self.width = program, width
        self.known = {f"%{k}": value for k, value in enumerate(arguments)}
        self.one_block = len(program.blocks) == 1

    def result(self) -> Any:
        """Emit the law; a struct of its results."""
        blocks = self.program.blocks
        self.failed = self._variable("i1")
        self.given = [self._variable("f64") for _ in range(self.program.results)]
        self.masks = [self._variable("i1") for _ in blocks]
        # variables of choices, as blocks before assign them, and of numbers that others use
        self.chosen = {c.name: self._variable(c.kind) for b in blocks for c in b.choices}
        self.kept = {name: self._variable(self.program.kinds[name]) for name in self._shared()}
        build().store(self._constant("i1", 1), self.masks[0])
        self._emit(frozenset(range(len(blocks))))
        failed, nan = build().load(self.failed), self._constant("f64", float("nan"))
        found = ir.Constant(ir.LiteralStructType([nan.type] * len(self.given)), ir.Undefined)
        for k, place in enumerate(self.given):
            value = build().select(failed, nan, build().load(place))
            found = build().insert_value(found, value, k)
        return found

    def _shared(self) -> list[str]:
        """Numbers that are used outside of the block that makes them."""
        made = {name: k for k, b in enumerate(self.program.blocks) for name, _ in b.numbers()}
        found: dict[str, None] = {}
        for k, block in enumerate(self.program.blocks):
            uses = [one for each in block.instructions for one in each.operands]
            uses.append(block.end[1])
            outside = [one for one in uses if made.get(_name(one), k) != k]
            # what a choice takes is read at the end of the block from which one comes
            outside += [
                value
                for choice in block.choices
                for origin, value in choice.values
                if made.get(_name(value), origin) != origin
            ]
            found |= dict.fromkeys(outside)
        return list(found)

    # --- blocks -----------------------------------------------------------------------------------

    def _emit(self, inside: frozenset[int]) -> None:
        """Emit some of the blocks."""
        for region in _regions(self.program, inside):
            if isinstance(region, int):
                self._maybe(region)
                continue
            self._loop(region[0], frozenset(region[1:]))

    def _loop(self, header: int, rest: frozenset[int]) -> None:
        """Emit a loop. Slots that are in it for too long leave it, and fail."""
        count, place = ir.IntType(64), self.masks[header]
        rounds = on_stack(count)
        build().store(count(MOST_ROUNDS), rounds)
        again = build().append_basic_block("loop")
        build().branch(again)
        build().position_at_end(again)
        self._maybe(header)
        self._emit(rest)
        left = build().sub(build().load(rounds), count(1))
        build().store(left, rounds)
        some = build().icmp_unsigned("!=", left, count(0))
        after = build().append_basic_block("after")
        build().cbranch(build().and_(self._any(build().load(place)), some), again, after)
        build().position_at_end(after)
        inside = build().load(place)
        build().store(build().or_(build().load(self.failed), inside), self.failed)
        build().store(self._constant("i1", 0), place)

    def _maybe(self, k: int) -> None:
        """Emit a block, which is left out while no slot has it."""
        block = self.program.blocks[k]
        if k == 0 or len(block.instructions) < _LEFT_OUT:
            self._block(k, block)
            return
        with build().if_then(self._any(build().load(self.masks[k]))):
            self._block(k, block)

    def _any(self, mask: Any) -> Any:
        bits = ir.IntType(self.width)
        return build().icmp_unsigned("!=", build().bitcast(mask, bits), bits(0))

    def _block(self, k: int, block: Block) -> None:
        self.mask = build().load(self.masks[k])
        build().store(self._constant("i1", 0), self.masks[k])
        self.local: dict[str, Any] = {}
        for choice in block.choices:
            self._define(choice.name, build().load(self.chosen[choice.name]))
        for one in block.instructions:
            if one.operation == "result":
                self._assign(self.given[one.detail], self._as_float(one))
            else:
                self._define(one.name, self._instruction(one))
        self._end(k, block)

    def _define(self, name: str, value: Any) -> None:
        self.local[name] = value
        if name in self.kept:
            self._assign(self.kept[name], value)

    def _assign(self, place: Any, value: Any, mask: Any = None) -> None:
        """Set the slots of a variable that a mask has."""
        mask = self.mask if mask is None else mask
        build().store(build().select(mask, value, build().load(place)), place)

    def _end(self, k: int, block: Block) -> None:
        if block.end[0] == "end":
            status = block.end[1]
            if status != 0:
                wrong = self._operand(status, self.program.kinds.get(_name(status), "i32"))
                wrong = build().icmp_signed("!=", wrong, ir.Constant(wrong.type, None))
                self._fail(wrong)
            return
        ways = [(block.end[-1], self.mask)]
        if block.end[0] == "branch":
            condition = self._operand(block.end[1], "i1")
            none = self._constant("i1", 0)
            first = build().select(self.mask, condition, none)  # `and` would pass on poison
            second = build().select(self.mask, build().not_(condition), none)
            ways = [(block.end[2], first), (block.end[3], second)]
        for follower, mask in ways:
            place = self.masks[follower]
            build().store(build().or_(build().load(place), mask), place)
            self._choose(k, self.program.blocks[follower].choices, mask)

    def _choose(self, origin: int, choices: Sequence[Choice], mask: Any) -> None:
        """Give the choices of a block the numbers that they have from another block."""
        values = [self._operand(dict(one.values)[origin], one.kind) for one in choices]
        for one, value in zip(choices, values, strict=True):
            self._assign(self.chosen[one.name], value, mask)

    def _fail(self, where: Any) -> None:
        wrong = build().select(self.mask, where, self._constant("i1", 0))
        build().store(build().or_(build().load(self.failed), wrong), self.failed)

    # --- numbers ----------------------------------------------------------------------------------

    def _type(self, kind: str) -> Any:
        return ir.VectorType(_scalar(kind), self.width)

    def _variable(self, kind: str) -> Any:
        """A variable on the stack, which is zero."""
        place = on_stack(self._type(kind))
        build().store(ir.Constant(self._type(kind), None), place)
        return place

    def _constant(self, kind: str, number: float) -> Any:
        return ir.Constant(self._type(kind), [ir.Constant(_scalar(kind), number)] * self.width)

    def _operand(self, one: Operand, kind: str) -> Any:
        if not isinstance(one, str):
            return self._constant(kind, float(one) if kind[0] == "f" else int(one))
        if one in self.local:
            return self.local[one]
        return build().load(self.kept[one]) if one in self.kept else self.known[one]

    def _kind(self, one: Instruction) -> str:
        """Kind of an instruction's first number that is no constant, or of its result."""
        kinds = self.program.kinds
        return next((kinds[x] for x in one.operands if _name(x) in kinds), one.kind)

    def _as_float(self, one: Instruction) -> Any:
        """A result as float64."""
        value = self._operand(one.operands[0], one.kind)
        if one.kind[0] == "f":
            return _converted(value, self._type("f64"))
        # a truth value has one bit, Numba's byte of it is 0 or 1
        convert = build().uitofp if one.kind in ("i1", "i8") else build().sitofp
        return convert(value, self._type("f64"))

    def _instruction(self, one: Instruction) -> Any:
        operation, make = one.operation, build()
        if operation == "table":
            return self._table(one)
        if operation == "select":
            condition, *sides = one.operands
            mask = self._operand(condition, "i1")
            return make.select(mask, *(self._operand(side, one.kind) for side in sides))
        if operation in _CASTS:
            value = self._operand(one.operands[0], self._kind(one))
            return getattr(make, operation)(value, self._type(one.kind))
        kind = self._kind(one)
        values = [self._operand(x, kind) for x in one.operands]
        if operation == "fcmp":
            return _compared(one.detail, *values)
        if operation == "icmp":
            compare = make.icmp_unsigned if one.detail[0] == "u" else make.icmp_signed
            return compare(SIGNS[one.detail.lstrip("us")], *values)
        if operation == "class":
            return self._of_class(one.detail, values[0])
        if operation == "call":
            return self._call(one.detail, kind, values)
        if operation in ("sdiv", "udiv", "srem", "urem"):
            # slots that the block has not may divide by zero
            values[1] = make.select(self.mask, values[1], self._constant(kind, 1))
        if operation == "freeze":
            return values[0]
        return getattr(make, _NAMES.get(operation, operation))(*values)

    def _of_class(self, tests: int, value: Any) -> Any:
        """True where numbers are NaN, infinite, ... (bits of ``llvm.is.fpclass``)."""
        bits = ir.IntType(32)
        sort = ir.FunctionType(self._type("i1"), [value.type, bits])
        suffix = _suffix(value.type)
        return build().call(declared(sort, f"llvm.is.fpclass.{suffix}"), [value, bits(tests)])

    def _call(self, name: str, kind: str, values: list[Any]) -> Any:
        if name in _VECTORS:
            vector = self._type(kind)
            rest = [TRUTH.llvm] if name == "abs" else []
            sort = ir.FunctionType(vector, [vector] * len(values) + rest)
            called = declared(sort, f"llvm.{_VECTORS[name]}.{_suffix(vector)}")
            return build().call(called, [*values, *(one(0) for one in rest)])
        if name in ELEMENTARY and kind == "f64":
            return ELEMENTARY[name](*values)
        return of_library(name, *values)

    def _table(self, one: Instruction) -> Any:
        """Entries of an array of constants; the first operand has their offsets in bytes."""
        offsets, entries = self._operand(one.operands[0], "i64"), one.operands[1]
        real, word = _scalar(one.kind), ir.IntType(64)
        size = int(one.kind[1:]) // 8
        array = ir.ArrayType(real, len(entries))
        here = writing()
        key = (one.kind, str(entries))  # -0.0 == 0.0
        if key not in here.tables:
            name = f"{here.name}.table.{len(here.tables)}"
            made = here.tables[key] = ir.GlobalVariable(here.module, array, name)
            made.linkage, made.global_constant = "internal", True
            made.initializer = ir.Constant(array, [ir.Constant(real, x) for x in entries])
        index = build().ashr(offsets, self._constant("i64", size.bit_length() - 1))
        inside = build().icmp_unsigned("<", index, self._constant("i64", len(entries)))
        self._fail(build().not_(inside))
        index = build().select(inside, index, self._constant("i64", 0))

        found = ir.Constant(self._type(one.kind), ir.Undefined)
        for slot in map(ir.IntType(32), range(self.width)):
            k = build().extract_element(index, slot)
            entry = build().load(build().gep(here.tables[key], [word(0), k], inbounds=True))
            found = build().insert_element(found, entry, slot)
        return found


_Region = tuple[int, ...] | int
"""A block; or the blocks of a loop, of which the first is the one where it begins."""


def _regions(program: Law, inside: frozenset[int]) -> list[_Region]:
    """Some blocks, and loops of them, each before those that follow."""
    blocks = program.blocks
    reached = {k: _reached(blocks, k, inside) for k in inside}
    loops = {k: frozenset({one for one in reached[k] if k in reached[one]} | {k}) for k in inside}
    order: list[_Region] = []
    # a block that others follow reaches more than these
    for k in sorted(inside, key=lambda one: (-len(reached[one] | loops[one]), one)):
        if k not in reached[k]:
            order.append(k)
        elif k == min(loops[k]):
            entered = {
                one
                for before, block in enumerate(blocks)
                for one in block.followers
                if one in loops[k] and before not in loops[k]
            }
            if len(entered) != 1:
                raise KernelError(f"{program.title} has a loop with several beginnings")
            order.append((*entered, *sorted(loops[k] - entered)))
    return order


def _reached(blocks: Sequence[Block], start: int, inside: frozenset[int]) -> set[int]:
    """Blocks among some to which a block may lead."""
    found: set[int] = set()
    left = [*blocks[start].followers]
    while left:
        k = left.pop()
        if k in inside and k not in found:
            found.add(k)
            left += blocks[k].followers
    return found


_CASTS = (
    *("fptosi", "fptoui", "sitofp", "uitofp", "fpext", "fptrunc"),
    *("zext", "sext", "trunc", "bitcast"),
)
_NAMES = {"and": "and_", "or": "or_"}  # llvmlite's names
_VECTORS = {
    name: name
    for name in (
        *("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "round", "nearbyint", "copysign"),
        *("fma", "minimum", "maximum", "smin", "smax", "umin", "umax", "abs"),
    )
} | {"fmin": "minnum", "fmax": "maxnum"}
"""Functions that LLVM has for vectors. It calls the C library for the others, slot by slot."""


def _compared(predicate: str, a: Any, b: Any) -> Any:
    compare = build().fcmp_ordered if predicate[0] == "o" else build().fcmp_unordered
    return compare(SIGNS.get(predicate[1:], predicate), a, b)


def _scalar(kind: str) -> Any:
    return _SCALARS.get(kind) or ir.IntType(int(kind[1:]))


def _suffix(vector: Any) -> str:
    element = vector.element
    if isinstance(element, ir.IntType):
        return f"v{vector.count}i{element.width}"
    return f"v{vector.count}f{64 if isinstance(element, ir.DoubleType) else 32}"


def _name(operand: Any) -> str:
    return operand if isinstance(operand, str) else ""


__all__ = ["law"]
