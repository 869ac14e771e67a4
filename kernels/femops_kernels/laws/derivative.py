"""Derivatives of laws: each number is followed by its derivatives, also in loops and branches.

This is what dual numbers do (Griewank and Walther, Evaluating Derivatives, 2008, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, final

from femops_kernels.errors import KernelError
from femops_kernels.laws.law import Block, Choice, Instruction, Law, Operand


@cache
def derivative(law: Law, by: tuple[int, ...]) -> Law:
    """Derivatives of a law by some of its inputs: of each result all, before the next result's.

    A choice between numbers that follows a comparison has the derivative of the number that it
    takes.
    """
    if law.rule is False:
        raise KernelError(
            f"{law.title} has no derivative, and one is needed: give derivatives='forward', or the "
            "function of its derivatives"
        )
    return _Dual(law, by).law() if law.rule is True else _selected(law.rule, law.inputs, by)


def _selected(rule: Law, inputs: int, by: tuple[int, ...]) -> Law:
    """Law with the results that are derivatives by some inputs."""
    places = {
        k * inputs + j: k * len(by) + column
        for k in range(rule.results // inputs)
        for column, j in enumerate(by)
    }
    blocks = []
    for block in rule.blocks:
        kept = (
            replace(one, detail=places[one.detail]) if one.operation == "result" else one
            for one in block.instructions
            if one.operation != "result" or one.detail in places
        )
        blocks.append(replace(block, instructions=tuple(kept)))
    return replace(rule, results=len(places), blocks=tuple(blocks))


def _renamed(
    source: Law, blocks: Sequence[Block], same: Mapping[str, Operand]
) -> tuple[Block, ...]:
    """Blocks whose numbers have the names that a reader would give them.

    ``same`` has numbers that are others, or constants.
    """
    names = {f"%{k}": f"%{k}" for k in range(source.inputs)}
    for block in blocks:
        for name, _ in block.numbers():
            names[name] = f"%{len(names)}"

    def new(one: Any) -> Any:
        while one in same:
            one = same[one]
        return names[one] if isinstance(one, str) else one

    return tuple(
        Block(
            tuple(
                replace(one, name=new(one.name), values=tuple((k, new(x)) for k, x in one.values))
                for one in block.choices
            ),
            tuple(
                replace(
                    one,
                    name=one.name and new(one.name),
                    operands=_operands(one, new),
                )
                for one in block.instructions
            ),
            (block.end[0], new(block.end[1]), *block.end[2:]),
        )
        for block in blocks
    )


def _operands(one: Instruction, new: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Operands with new names; the last one of a table has its entries."""
    if one.operation == "table":
        return new(one.operands[0]), one.operands[1]
    return tuple(map(new, one.operands))


@final
class _Dual:
    """Writes the derivatives of a law."""

    def __init__(self, source: Law, by: tuple[int, ...]) -> None:
        self.source, self.by = source, by
        self.moving = {f"%{k}" for k in by}
        self.unit = {f"%{k}": j for j, k in enumerate(by)}
        self.count = 0
        self.same: dict[str, Operand] = {}  # derivatives that are other numbers, or constants
        self._find_moving()

    def law(self) -> Law:
        """The derivatives, whose own follow from their instructions."""
        blocks = [*map(self._block, self.source.blocks)]
        title, results = f"the derivative of {self.source.title}", self.source.results
        # new names, because the derivatives of this law get names by the same rules
        made = _renamed(self.source, blocks, self.same)
        return Law(title, self.source.inputs, results * len(self.by), made)

    def _find_moving(self) -> None:
        """Find the numbers that have a derivative, and the bits that depend on these."""
        bits: set[str] = set()
        before = -1
        while before != len(self.moving) + len(bits):
            before = len(self.moving) + len(bits)
            for block in self.source.blocks:
                for choice in block.choices:
                    values = [value for _, value in choice.values]
                    self._note(choice.name, choice.kind, values, bits)
                for one in block.instructions:
                    if one.operation == "bitcast" and one.kind[0] == "i":
                        bits |= {one.name} if self._meets(one.operands, self.moving) else set()
                    elif one.operation == "bitcast" and self._meets(one.operands, bits):
                        raise self._missing("changes the bits of a number")
                    elif one.name and one.operation not in _STILL and one.detail not in _STEPS:
                        self._note(one.name, one.kind, one.operands, bits)

    def _note(self, name: str, kind: str, operands: Iterable[Any], bits: set[str]) -> None:
        known = self.moving if kind[0] == "f" else bits
        if self._meets(operands, known):
            known.add(name)

    @staticmethod
    def _meets(operands: Iterable[Any], names: set[str]) -> bool:
        return any(isinstance(one, str) and one in names for one in operands)

    def _missing(self, why: str) -> KernelError:
        return KernelError(
            f"{self.source.title} {why}, which has no derivative here: give the function of its "
            "derivatives"
        )

    # --- writing ----------------------------------------------------------------------------------

    def _block(self, block: Block) -> Block:
        choices = list(block.choices)
        for choice in block.choices:
            if choice.name in self.moving:
                for j in range(len(self.by)):
                    values = tuple((k, self._slope(value, j)) for k, value in choice.values)
                    choices.append(Choice(f"{choice.name}.{j}", choice.kind, values))
        self.made: list[Instruction] = []
        for one in block.instructions:
            if one.operation == "result":
                self._give(one)
                continue
            self.made.append(one)
            if one.name in self.moving:
                self._follow(one)
        return Block(tuple(choices), tuple(self.made), block.end)

    def _slope(self, number: Operand, j: int) -> Operand:
        """Derivative of a number by number ``j`` of the inputs in ``by``."""
        if not isinstance(number, str) or number not in self.moving:
            return 0.0
        if number in self.unit:
            return float(self.unit[number] == j)
        name = f"{number}.{j}"
        return self.same.get(name, name)

    def _give(self, one: Instruction) -> None:
        for j in range(len(self.by)):
            slope = self._slope(one.operands[0], j)
            place = one.detail * len(self.by) + j
            kind = one.kind if isinstance(slope, str) else "f64"
            self.made.append(Instruction("", "result", kind, (slope,), place))

    def _new(self, operation: str, *operands: Any, kind: str, detail: Any = None) -> str:
        self.count += 1
        name = f"%d{self.count}"
        self.made.append(Instruction(name, operation, kind, operands, detail))
        return name

    def _follow(self, one: Instruction) -> None:
        """Write the derivatives of a number."""
        factors = self._factors(one)
        for j in range(len(self.by)):
            slopes = [self._slope(x, j) for x in one.operands]
            if one.operation == "select":
                total = self._chosen(one.operands[0], slopes[1], slopes[2], one.kind)
            elif one.detail in _EXTREMES:
                total = self._chosen(factors[0], slopes[0], slopes[1], one.kind)
            elif one.operation in ("fpext", "fptrunc"):
                total = slopes[0]
                if isinstance(total, str):
                    total = self._new(one.operation, total, kind=one.kind)
            elif one.operation == "freeze":
                total = slopes[0]
            else:
                total = 0.0
                for factor, slope in zip(factors, slopes, strict=True):
                    total = self._sum(total, self._product(factor, slope, one.kind), one.kind)
            self.same[f"{one.name}.{j}"] = total

    def _chosen(self, condition: Operand, a: Operand, b: Operand, kind: str) -> Operand:
        return a if a == b else self._new("select", condition, a, b, kind=kind)

    def _product(self, a: Operand, b: Operand, kind: str) -> Operand:
        if a == 0.0 or b == 0.0:
            return 0.0
        if 1.0 in (a, b):
            return b if a == 1.0 else a
        if a == -1.0:
            return self._new("fneg", b, kind=kind)
        return self._new("fmul", a, b, kind=kind)

    def _sum(self, a: Operand, b: Operand, kind: str) -> Operand:
        if a == 0.0 or b == 0.0:
            return b if a == 0.0 else a
        return self._new("fadd", a, b, kind=kind)

    def _factors(self, one: Instruction) -> Sequence[Operand]:
        """Derivatives of an operation by its operands."""
        name = one.detail if one.operation == "call" else one.operation
        rule = _RULES.get(name)
        if rule is None:
            raise self._missing(f"calls {name}")
        return rule(_Factors(self, one), one.name, *one.operands)


@final
class _Factors:
    """Writes the derivatives of an operation by its operands; each rule returns all of them."""

    def __init__(self, writer: _Dual, one: Instruction) -> None:
        self._writer, self._kind = writer, one.kind
        # of the operands, which of them have derivatives
        self.moves = [writer._meets([x], writer.moving) for x in one.operands]

    def __call__(self, operation: str, *operands: Operand) -> str:
        return self._writer._new(operation, *operands, kind=self._kind)

    def call(self, name: str, *operands: Operand) -> str:
        """Write the call of a function of the C library."""
        return self._writer._new("call", *operands, kind=self._kind, detail=name)

    def minus(self, a: Operand) -> str:
        """Write -a."""
        return self("fneg", a)

    def inverse(self, a: Operand) -> str:
        """Write 1 / a."""
        return self("fdiv", 1.0, a)

    def square(self, a: Operand) -> str:
        """Write a * a."""
        return self("fmul", a, a)

    def ends(self, a: Operand) -> str:
        """Write (1 - a) (1 + a), where 1 - a * a would cancel."""
        return self("fmul", self("fsub", 1.0, a), self("fadd", 1.0, a))

    def equal(self, a: str, b: Operand) -> str:
        """Write the comparison a == b."""
        return self._writer._new("fcmp", a, b, kind="i1", detail="oeq")


def _quotient(w: _Factors, value: Operand, a: Operand, b: Operand) -> Sequence[Operand]:  # noqa: ARG001
    inverse = w.inverse(b)
    return inverse, w.minus(w("fmul", value, inverse)) if w.moves[1] else 0.0


def _remainder(w: _Factors, value: Operand, a: Operand, b: Operand) -> Sequence[Operand]:  # noqa: ARG001
    return 1.0, w.minus(w.call("trunc", w("fdiv", a, b)))


def _power(w: _Factors, value: Operand, a: Operand, b: Operand) -> Sequence[Operand]:
    by_base = w("fmul", b, w.call("pow", a, w("fsub", b, 1.0))) if w.moves[0] else 0.0
    if not w.moves[1]:
        return by_base, 0.0
    logarithm: Operand = w.call("log", a)
    if isinstance(a, str):
        logarithm = w("select", w.equal(a, 0.0), 0.0, logarithm)  # there is the limit zero
    return by_base, w("fmul", value, logarithm)


def _angle(w: _Factors, value: Operand, y: Operand, x: Operand) -> Sequence[Operand]:  # noqa: ARG001
    norm = w("fadd", w.square(y), w.square(x))
    return w("fdiv", x, norm), w.minus(w("fdiv", y, norm))


def _extreme(w: _Factors, value: Operand, a: Operand, b: Operand) -> Sequence[Operand]:  # noqa: ARG001
    """Write a choice, not a factor: a factor of 0 would not hide a derivative that is NaN."""
    return (w.equal(str(value), a),)


def _of_one(slope: Callable[[_Factors, Operand, Operand], Operand]) -> _Rule:
    """Rule of a function of one number."""
    return lambda w, value, a: (slope(w, value, a),)


_EXTREMES = ("fmin", "fmax", "minimum", "maximum")
_ERF = 2.0 / math.sqrt(math.pi)
_Rule = Callable[..., Sequence[Operand]]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("select", "fpext", "fptrunc", "freeze"), lambda *_: ()),  # see `_follow`
    "fadd": lambda *_: (1.0, 1.0),
    "fsub": lambda *_: (1.0, -1.0),
    "fneg": lambda *_: (-1.0,),
    "fmul": lambda w, value, a, b: (b, a),  # noqa: ARG005
    "fma": lambda w, value, a, b, c: (b, a, 1.0),  # noqa: ARG005
    "fdiv": _quotient,
    "frem": _remainder,
    "fmod": _remainder,
    "pow": _power,
    "atan2": _angle,
    "hypot": lambda w, v, a, b: (w("fdiv", a, v), w("fdiv", b, v)),
    "copysign": lambda w, _, a, b: (
        w("fmul", w.call("copysign", 1.0, a), w.call("copysign", 1.0, b)),
        0.0,
    ),
    **dict.fromkeys(_EXTREMES, _extreme),
    **{
        name: _of_one(slope)
        for name, slope in {
            "sqrt": lambda w, v, _: w("fdiv", 0.5, v),
            "cbrt": lambda w, v, _: w.inverse(w("fmul", 3.0, w.square(v))),
            "fabs": lambda w, _, a: w.call("copysign", 1.0, a),
            "exp": lambda _, v, __: v,
            "exp2": lambda w, v, _: w("fmul", math.log(2.0), v),
            "expm1": lambda w, _, a: w.call("exp", a),
            "log": lambda w, _, a: w.inverse(a),
            "log2": lambda w, _, a: w.inverse(w("fmul", math.log(2.0), a)),
            "log10": lambda w, _, a: w.inverse(w("fmul", math.log(10.0), a)),
            "log1p": lambda w, _, a: w.inverse(w("fadd", 1.0, a)),
            "sin": lambda w, _, a: w.call("cos", a),
            "cos": lambda w, _, a: w.minus(w.call("sin", a)),
            "tan": lambda w, v, _: w("fadd", 1.0, w.square(v)),
            "sinh": lambda w, _, a: w.call("cosh", a),
            "cosh": lambda w, _, a: w.call("sinh", a),
            "tanh": lambda w, _, a: w.inverse(w.square(w.call("cosh", a))),  # 1 - v² would cancel
            "asin": lambda w, _, a: w.inverse(w.call("sqrt", w.ends(a))),
            "acos": lambda w, _, a: w.minus(w.inverse(w.call("sqrt", w.ends(a)))),
            "atan": lambda w, _, a: w.inverse(w("fadd", 1.0, w.square(a))),
            "asinh": lambda w, _, a: w.inverse(w.call("hypot", 1.0, a)),
            "acosh": lambda w, _, a: w.inverse(w.call("sqrt", w.minus(w.ends(a)))),
            "atanh": lambda w, _, a: w.inverse(w.ends(a)),
            "erf": lambda w, _, a: w("fmul", _ERF, w.call("exp", w.minus(w.square(a)))),
            "erfc": lambda w, _, a: w("fmul", -_ERF, w.call("exp", w.minus(w.square(a)))),
        }.items()
    },
}
_STILL = ("fcmp", "icmp", "class", "table", "fptosi", "fptoui", "sitofp", "uitofp", "result")
"""Operations whose result has no derivative."""
_STEPS = ("floor", "ceil", "trunc", "rint", "round", "nearbyint")
"""Functions of the C library with steps: their derivatives are zero."""
