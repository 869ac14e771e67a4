"""Numbers of a kernel while its code is written, and what is done with one or two of them.

The functions of a kernel run once, in Python, to write its code. A number that is known only when
the kernel runs is a `Traced`. An operation on it writes an instruction. Numbers of Python are
constants of the kernel, and operations on constants write nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, final

from llvmlite import ir

from femops_kernels.errors import KernelError

WORD = ir.IntType(64)


@final
class Writing:
    """A module that is being written, and the position in it."""

    def __init__(self, name: str) -> None:
        self.name, self.module = name, ir.Module(name)
        self.builder: Any = None
        self.functions: dict[Any, Any] = {}
        self.calls: Counter[Any] = Counter()
        self.tables: dict[Any, Any] = {}


_writings: list[Writing] = []  # the one that is being written is the last


def begin_writing(name: str) -> Writing:
    """Begin a module."""
    _writings.append(Writing(name))
    return _writings[-1]


def end_writing() -> None:
    """End the module that is being written."""
    _writings.pop()


def writing() -> Writing:
    """The module that is being written."""
    if not _writings:
        raise KernelError("functions of kernels write code: only kernels can call them")
    return _writings[-1]


def build() -> Any:
    """The builder of instructions, at the present position."""
    return writing().builder


# --- kinds of numbers -----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Whole:
    """Kind of integers of 64 bits, or of truth values, which have one bit."""

    bits: int

    @property
    def llvm(self) -> Any:
        """LLVM's type."""
        return ir.IntType(self.bits)


@final
@dataclass(frozen=True)
class Real:
    """Kind of real numbers of 64 or 32 bits."""

    bits: int

    @property
    def llvm(self) -> Any:
        """LLVM's type."""
        return ir.DoubleType() if self.bits == 64 else ir.FloatType()


@final
@dataclass(frozen=True)
class Numbers:
    """Kind of arrays of real numbers, which are read and written by ``array[k]``."""

    entry: Real

    @property
    def llvm(self) -> Any:
        """LLVM's type."""
        return self.entry.llvm.as_pointer()


INTEGER, TRUTH = Whole(64), Whole(1)
FLOAT64, FLOAT32 = Real(64), Real(32)


@final
class Traced:
    """A number, a lane vector or an array of the kernel: its kind, and LLVM's value."""

    __slots__ = ("kind", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: Any, value: Any) -> None:
        self.kind, self.value = kind, value

    def __repr__(self) -> str:
        return f"a number of kind {self.kind}"

    def __bool__(self) -> bool:
        raise KernelError("this part of a kernel can't decide by a number that is not constant")

    def __neg__(self) -> Traced:
        if hasattr(self.kind, "negative"):
            return Traced(self.kind, self.kind.negative(self.value))
        if isinstance(self.kind, Real):
            return Traced(self.kind, build().fneg(self.value))
        return Traced(INTEGER, build().neg(as_word(self)))

    def __getitem__(self, k: Any) -> Traced:
        if not isinstance(self.kind, Numbers):
            raise KernelError("only arrays are indexed")
        return Traced(self.kind.entry, build().load(build().gep(self.value, [as_word(k)])))

    def __setitem__(self, k: Any, number: Any) -> None:
        if not isinstance(self.kind, Numbers):
            raise KernelError("only arrays are indexed")
        place = build().gep(self.value, [as_word(k)])
        build().store(as_real(self.kind.entry, number), place)


def _method(name: str, swapped: bool) -> Any:
    if swapped:
        return lambda self, other: operation(name, other, self)
    return lambda self, other: operation(name, self, other)


_BITS = {"and": "and_", "or": "or_", "xor": "xor", "lshift": "shl", "rshift": "ashr"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", *_BITS):
    setattr(Traced, f"__{_name}__", _method(_name, False))
    setattr(Traced, f"__r{_name}__", _method(_name, True))
for _name in _COMPARED:
    setattr(Traced, f"__{_name}__", _method(_name, False))


# --- conversions ----------------------------------------------------------------------------------


def as_word(number: Any) -> Any:
    """Emit an integer as LLVM's value."""
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise KernelError(f"{number} has more than 64 bits")
        return WORD(int(number))
    if not isinstance(number, Traced) or not isinstance(number.kind, Whole):
        raise KernelError(f"{number!r} is no integer")
    return number.value if number.kind == INTEGER else build().zext(number.value, WORD)


def as_real(kind: Real, number: Any) -> Any:
    """Emit a number as a real number of LLVM."""
    if isinstance(number, int | float):
        return ir.Constant(kind.llvm, float(number))
    if not isinstance(number, Traced) or not isinstance(number.kind, Whole | Real):
        raise KernelError(f"{number!r} is no number")
    if number.kind == kind:
        return number.value
    if number.kind == TRUTH:
        return build().uitofp(number.value, kind.llvm)
    if number.kind == INTEGER:
        return build().sitofp(number.value, kind.llvm)
    if kind.bits == 64:
        return build().fpext(number.value, kind.llvm)
    return build().fptrunc(number.value, kind.llvm)


def as_truth(number: Any) -> Any:
    """Emit a truth value; other numbers are true unless they are zero."""
    if not isinstance(number, Traced):
        return ir.Constant(TRUTH.llvm, int(bool(number)))
    if number.kind == TRUTH:
        return number.value
    if isinstance(number.kind, Whole):
        return build().icmp_signed("!=", number.value, WORD(0))
    if not isinstance(number.kind, Real):
        raise KernelError(f"a kernel can't decide by {number!r}")
    return build().fcmp_unordered("!=", number.value, ir.Constant(number.value.type, 0.0))


def kind_of(number: Any) -> Any:
    """Kind of a number. For a constant it is the kind of its value in the kernel."""
    if isinstance(number, Traced):
        return number.kind
    if isinstance(number, bool):
        return TRUTH
    if isinstance(number, int):
        return INTEGER
    return FLOAT64 if isinstance(number, float) else type(number)


def converted(kind: Any, number: Any) -> Any:
    """Emit a number as LLVM's value of a kind."""
    if isinstance(kind, Real):
        return as_real(kind, number)
    if kind == INTEGER:
        return as_word(number)
    if kind == TRUTH:
        return as_truth(number)
    if kind_of(number) != kind:
        raise KernelError(f"{number!r} is not of kind {kind}")
    return number.value


# --- operations -----------------------------------------------------------------------------------


def operation(name: str, a: Any, b: Any) -> Any:
    """Emit an operation of two numbers, at least one of which is traced."""
    kinds = kind_of(a), kind_of(b)
    vectors = [kind for kind in kinds if hasattr(kind, "operation")]
    if vectors:
        return max(vectors, key=lambda kind: kind.rank).operation(name, a, b)
    if not all(isinstance(kind, Whole | Real) for kind in kinds):
        return NotImplemented
    real = _common(*kinds) if name != "truediv" else _common(*kinds) or FLOAT64
    if real is not None:
        return _of_reals(name, real, as_real(real, a), as_real(real, b))
    same = _unchanged(name, a, b)
    return _of_integers(name, as_word(a), as_word(b)) if same is None else same


def _unchanged(name: str, a: Any, b: Any) -> Traced | None:
    """The operand that is also the result, if the other is zero or one; else None."""
    if name in ("mul", "add") and isinstance(a, int):
        a, b = b, a
    neutral = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}.get(name)
    same = isinstance(b, int) and b == neutral
    return a if same and a.kind == INTEGER else None


def _common(first: Any, second: Any) -> Real | None:
    """Kind of the result of two numbers; None for an integer."""
    reals = [kind for kind in (first, second) if isinstance(kind, Real)]
    if not reals:
        return None
    # an integer has more digits than a float32: the result has 64 bits
    return FLOAT32 if all(kind == FLOAT32 for kind in (first, second)) else FLOAT64


def _of_reals(name: str, kind: Real, a: Any, b: Any) -> Traced:
    if name in _COMPARED:
        compare = build().fcmp_unordered if name == "ne" else build().fcmp_ordered
        return Traced(TRUTH, compare(_COMPARED[name], a, b))
    emit = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}.get(name)
    if emit is None:
        raise KernelError(f"kernels have no {name} of real numbers")
    return Traced(kind, getattr(build(), emit)(a, b))


def _of_integers(name: str, a: Any, b: Any) -> Traced:
    if name in _COMPARED:
        return Traced(TRUTH, build().icmp_signed(_COMPARED[name], a, b))
    if name in ("floordiv", "mod"):
        return Traced(INTEGER, _divided(a, b)[name == "mod"])
    return Traced(INTEGER, getattr(build(), _BITS.get(name, name))(a, b))


def _divided(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient, rounded down as Python does, and remainder, with the sign of b."""
    builder = build()
    quotient, rest = builder.sdiv(a, b), builder.srem(a, b)
    apart = builder.icmp_signed("<", builder.xor(rest, b), WORD(0))
    less = builder.and_(builder.icmp_signed("!=", rest, WORD(0)), apart)
    lower = builder.sub(quotient, builder.zext(less, WORD))
    return lower, builder.select(less, builder.add(rest, b), rest)


def _chosen(sign: str, a: Any, b: Any) -> Any:
    """One of two numbers, chosen by a comparison, as Python's min and max do."""
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return (min if sign == "<" else max)(a, b)
    kind = _common(kind_of(a), kind_of(b)) or INTEGER
    first, second = converted(kind, a), converted(kind, b)
    compare = build().icmp_signed if kind == INTEGER else build().fcmp_ordered
    return Traced(kind, build().select(compare(sign, second, first), second, first))


def least(first: Any, *others: Any) -> Any:
    """``min`` in kernels."""
    for other in others:
        first = _chosen("<", first, other)
    return first


def greatest(first: Any, *others: Any) -> Any:
    """``max`` in kernels."""
    for other in others:
        first = _chosen(">", first, other)
    return first


def _function(name: str, number: Any) -> Traced:
    kind = number.kind if isinstance(number.kind, Real) else FLOAT64
    sort = ir.FunctionType(kind.llvm, [kind.llvm])
    called = declared(sort, f"llvm.{name}.f{kind.bits}")
    return Traced(kind, build().call(called, [as_real(kind, number)]))


def root(number: Any) -> Any:
    """``sqrt`` in kernels."""
    return _function("sqrt", number) if isinstance(number, Traced) else math.sqrt(number)


def magnitude(number: Any) -> Any:
    """``abs`` in kernels."""
    if not isinstance(number, Traced):
        return abs(number)
    if isinstance(number.kind, Whole):
        return greatest(number, -number)
    return _function("fabs", number)


def integer(number: Any) -> Any:
    """``int`` in kernels."""
    if not isinstance(number, Traced):
        return int(number)
    if isinstance(number.kind, Real):
        return Traced(INTEGER, build().fptosi(number.value, WORD))
    return Traced(INTEGER, as_word(number))


def real(number: Any) -> Any:
    """``float`` in kernels."""
    if not isinstance(number, Traced):
        return float(number)
    return Traced(FLOAT64, as_real(FLOAT64, number))


# --- memory and functions -------------------------------------------------------------------------


def declared(kind: Any, name: str) -> Any:
    """Function of another library, or of LLVM, with a type of LLVM."""
    module = writing().module
    known = module.globals.get(name)
    return ir.Function(module, kind, name) if known is None else known


def on_stack(kind: Any) -> Any:
    """Emit memory on the stack for a type of LLVM, which a function has as long as it runs."""
    with build().goto_entry_block():
        return build().alloca(kind)


def call_address(function: Any, kind: Any, arguments: list[Any]) -> Any:
    """Emit the call of a function at an address; its type and the arguments are LLVM's."""
    return build().call(build().inttoptr(as_word(function), kind.as_pointer()), arguments)
