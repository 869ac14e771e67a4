"""Numbers in lanes, real or complex: entries of matrices of which each slot has one.

A complex one is two lane vectors, of the real and of the imaginary parts. Kernels that are written
with these functions and with ``+ - *`` work on either: the format NUMBER says which.
"""

from __future__ import annotations

from typing import Any, final

from llvmlite import ir

from femops_kernels.errors import KernelError
from femops_kernels.simd.lane_math import Mask
from femops_kernels.simd.lanes import Lane, as_vector, call_llvm, load_at, splat, store_at
from femops_kernels.simd.tensor.members import gathered
from femops_kernels.simd.values import Traced, build

_CONTRACT = ("contract",)  # a product and a sum may be rounded once

Parts = list[Any]
"""Real part of a number, and the imaginary part of a complex one, as vectors of LLVM."""


@final
class ComplexLane:
    """Format of complex numbers in lanes. It is the kind of such numbers."""

    rank = 1  # an operation of complex numbers and real ones is one of complex numbers

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers of all slots."""
        return 2 * self.lane.nbytes

    @property
    def llvm(self) -> Any:
        """LLVM's type: a structure of both parts."""
        return ir.LiteralStructType([self.lane.llvm] * 2)

    def operation(self, name: str, a: Any, b: Any) -> Traced:
        """Emit an operation of two numbers. In a product one may be real, and a divisor is."""
        x, y = _operand(self, a), _operand(self, b)
        if name == "mul":
            return _whole(self, emit_product(x, y))
        if name == "truediv" and len(y) == 1:
            return _whole(self, [build().fdiv(one, y[0]) for one in x])
        if name not in ("add", "sub") or len(x) != len(y):
            raise KernelError(f"kernels have no {name} of such complex numbers in lanes")
        return _whole(self, (_emit_sum if name == "add" else emit_difference)(x, y))

    def negative(self, value: Any) -> Any:
        """Emit the negative of a number of LLVM."""
        return _whole(self, [*map(build().fneg, _parts(Traced(self, value)))]).value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComplexLane) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"ComplexLane({self.lane!r})"


Kind = Lane | ComplexLane
"""Kind of numbers in lanes."""


def part_of(kind: Kind) -> Lane:
    """Kind of the parts of numbers."""
    return kind.lane if isinstance(kind, ComplexLane) else kind


def _parts(number: Traced) -> Parts:
    if isinstance(number.kind, ComplexLane):
        return [build().extract_value(number.value, k) for k in range(2)]
    return [number.value]


def _whole(kind: Kind, parts: Parts) -> Traced:
    """Number of a kind; imaginary parts of real numbers are left out."""
    if isinstance(kind, Lane):
        return Traced(kind, parts[0])
    value = ir.Constant(kind.llvm, ir.Undefined)
    for k, part in enumerate(parts):
        value = build().insert_value(value, part, k)
    return Traced(kind, value)


def _operand(kind: ComplexLane, number: Any) -> Parts:
    """Parts of an operand: of a complex number, or of a real one."""
    if isinstance(number, Traced) and isinstance(number.kind, ComplexLane):
        if number.kind != kind:
            raise KernelError(f"{number.kind} meets {kind}")
        return _parts(number)
    return [as_vector(kind.lane, number)]


# --- arithmetic -----------------------------------------------------------------------------------


def emit_product(x: Parts, y: Parts) -> Parts:
    def times(one: Any, other: Any) -> Any:
        return build().fmul(one, other, flags=_CONTRACT)

    if len(x) == len(y) == 2:
        real = build().fsub(times(x[0], y[0]), times(x[1], y[1]), flags=_CONTRACT)
        imag = build().fadd(times(x[0], y[1]), times(x[1], y[0]), flags=_CONTRACT)
        return [real, imag]
    return [times(one, other) for one in x for other in y]


def _emit_sum(x: Parts, y: Parts) -> Parts:
    return [build().fadd(one, other, flags=_CONTRACT) for one, other in zip(x, y, strict=True)]


def emit_difference(x: Parts, y: Parts) -> Parts:
    return [build().fsub(one, other, flags=_CONTRACT) for one, other in zip(x, y, strict=True)]


def emit_square(x: Parts) -> Parts:
    total = build().fmul(x[0], x[0], flags=_CONTRACT)
    for part in x[1:]:
        total = build().fadd(build().fmul(part, part, flags=_CONTRACT), total, flags=_CONTRACT)
    return [total]


def _emit_size(lane: Lane, x: Parts) -> Any:
    total, *rest = (call_llvm("fabs", lane, part) for part in x)
    for part in rest:
        total = build().fadd(total, part)
    return total


def conjugate(x: Traced) -> Traced:
    """``conjugate(x)``: a real number is its own."""
    real, *imag = _parts(x)
    return _whole(x.kind, [real, *map(build().fneg, imag)])


def real_part(x: Traced) -> Traced:
    """``real_part(x)``: real parts of complex numbers, a lane vector."""
    return Traced(part_of(x.kind), _parts(x)[0])


def square(x: Traced) -> Traced:
    """``square(x)``: square of the absolute value, a lane vector."""
    return Traced(part_of(x.kind), emit_square(_parts(x))[0])


def size_of(x: Traced) -> Traced:
    """``size_of(x)``: sum of the absolute values of the parts, a lane vector."""
    lane = part_of(x.kind)
    return Traced(lane, _emit_size(lane, _parts(x)))


def length_of(x: Traced) -> Traced:
    """``length_of(x)``: absolute value, a lane vector."""
    lane = part_of(x.kind)
    if lane == x.kind:
        return size_of(x)
    return Traced(lane, call_llvm("sqrt", lane, *emit_square(_parts(x))))


def inverse(x: Traced) -> Traced:
    """``inverse(x)``: one divided by a number."""
    lane, parts = part_of(x.kind), _parts(x)
    if len(parts) == 1:
        return Traced(lane, build().fdiv(splat(lane, 1.0), parts[0]))
    # divided by its size first: the square is then from 1/2 to 1
    size = _emit_size(lane, parts)
    small = [build().fdiv(part, size) for part in parts]
    (whole,) = emit_square(small)
    real, imag = (build().fdiv(build().fdiv(part, whole), size) for part in small)
    return _whole(x.kind, [real, build().fneg(imag)])


def number(form: Kind, value: Any) -> Traced:
    """``number(NUMBER, lane)``: real lane as numbers of the format, with zero imaginary parts."""
    lane = part_of(form)
    return _whole(form, [as_vector(lane, value), splat(lane, 0.0)])


def choose(mask: Traced, x: Traced, y: Traced) -> Traced:
    """``choose(mask, x, y)``: in each slot x if the mask is set, else y. Both have one kind."""
    if not isinstance(mask.kind, Mask) or x.kind != y.kind:
        raise KernelError(f"numbers {x.kind} and {y.kind}, chosen by {mask.kind}")
    pairs = zip(_parts(x), _parts(y), strict=True)
    return _whole(x.kind, [build().select(mask.value, *pair) for pair in pairs])


# --- memory ---------------------------------------------------------------------------------------


def _place(kind: Kind, k: Any, part: int) -> Any:
    """Emit the number of the lane vector that is a part of number ``k``."""
    return k * 2 + part if isinstance(kind, ComplexLane) else k


def _each(kind: Kind) -> range:
    return range(2 if isinstance(kind, ComplexLane) else 1)


def load_number(kind: Kind, base: Any, k: Any) -> Parts:
    """Emit the load of number ``k`` in lanes from an address on."""
    places = (_place(kind, k, part) for part in _each(kind))
    return [load_at(part_of(kind), base, place) for place in places]


def store_number(kind: Kind, base: Any, k: Any, parts: Parts) -> None:
    """Emit the store of a number, see `load_number`."""
    for part, value in enumerate(parts):
        store_at(part_of(kind), base, _place(kind, k, part), value)


def fetch(form: Kind, base: Any, k: Any) -> Traced:
    """``fetch(NUMBER, address, k)``: number ``k`` in lanes from an address on."""
    return _whole(form, load_number(form, base, k))


def keep(form: Kind, base: Any, k: Any, value: Traced) -> None:
    """``keep(NUMBER, address, k, value)``: set number ``k`` of those in lanes."""
    if value.kind != form:
        raise KernelError(f"{value.kind} is not {form}")
    store_number(form, base, k, _parts(value))


def gather_members(form: Kind, places: Any, offset: Any) -> Traced:
    """``gather_members(NUMBER, places, offset)``: the number ``offset`` bytes after each place."""
    lane = part_of(form)
    return _whole(form, [gathered(lane, places, offset + p * lane.itemsize) for p in _each(form)])


__all__ = [
    "ComplexLane",
    "choose",
    "conjugate",
    "fetch",
    "gather_members",
    "inverse",
    "keep",
    "length_of",
    "number",
    "real_part",
    "size_of",
    "square",
]
