"""Functions that emit the code of a kernel when they are called with symbolic numbers.

Numba's front end looks at every statement a dozen times, which takes most of the compile time. The
work on a batch does not need the front end. It is a sequence of operations on numbers and lanes, in
loops that carry no variables. So a `traced` function is called once, with `Traced` numbers as
arguments. Each operation on them emits its code, and ``range`` emits a loop.

A traced function has restrictions that numba does not have. A condition on traced numbers is
``for _ in when(a < b):``. A condition on constants may be an ``if``. A loop has no ``break``. A
variable that is set in a loop, or under a condition, is not read in the next pass or afterwards.
"""

from __future__ import annotations

import builtins
import itertools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, final

from llvmlite import ir
from numba import typeof, types
from numba.core import cgutils
from numba.core.callconv import create_error_model
from numba.core.registry import cpu_target

from femops_kernels.errors import KernelError
from femops_kernels.simd.compiling import Part, as_intrinsic, inlined

_WORD = ir.IntType(64)


@final
class _Kernel:
    """Kernel being written: the module, and the position in it."""

    def __init__(self, part: Part) -> None:
        self.module = part.create_ir_module(part.name)
        self.builder: Any = None
        self.loops = 0
        self.functions: dict[Any, Any] = {}


@cache
def _context() -> Any:
    """Numba's target, on which nothing raises."""
    context = cpu_target.target_context.subtarget()
    context.error_model = create_error_model("numpy", context)
    return context


_serial = itertools.count()  # no two functions of one name in a process
_kernels: list[_Kernel] = []  # that which is being written is the last


@final
class Traced:
    """A number or a lane vector of the kernel: its type and its LLVM value."""

    __slots__ = ("type", "value")

    def __init__(self, kind: Any, value: Any) -> None:
        self.type, self.value = kind, value

    def __bool__(self) -> bool:
        raise KernelError("a traced function can't decide by a number of the kernel: use `when`")

    __hash__ = None

    def __neg__(self) -> Any:
        return call(operator.neg, self)


def _operation(op: Any, swapped: bool) -> Any:
    if swapped:
        return lambda self, other: call(op, other, self)
    return lambda self, other: call(op, self, other)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Traced, f"__{_name}__", _operation(getattr(operator, _name), False))
    setattr(Traced, f"__r{_name}__", _operation(getattr(operator, _name), True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Traced, f"__{_name}__", _operation(getattr(operator, _name), False))


def _typed(value: Any) -> Any:
    """Numba's type of an argument: traced, known beforehand, or a tuple of such."""
    if isinstance(value, Traced):
        return value.type
    if isinstance(value, tuple):
        return types.Tuple([_typed(v) for v in value])
    return types.literal(value) if isinstance(value, int) else typeof(value)


def _lowered(value: Any, want: Any) -> Any:
    """LLVM value of an argument, as the type that a function wants."""
    context, builder = _context(), _kernels[-1].builder
    if isinstance(value, tuple):
        parts = [_lowered(v, kind) for v, kind in zip(value, want, strict=True)]
        return context.make_tuple(builder, want, parts)
    if isinstance(value, Traced):
        return context.cast(builder, value.value, value.type, want)
    if isinstance(value, int | float) and not isinstance(want, types.Number):
        kind = typeof(value)
        return context.cast(builder, context.get_constant(kind, value), kind, want)
    return context.get_constant_generic(builder, want, value)


def _raised(builder: Any, kind: Any, value: Any) -> Any:
    """A value as traced functions see it: tuples are Python's."""
    if isinstance(kind, types.BaseTuple):
        parts = [builder.extract_value(value, i) for i in range(len(kind))]
        return tuple(_raised(builder, *pair) for pair in zip(kind, parts, strict=True))
    return None if kind == types.none else Traced(kind, value)


_resolved: dict[Any, Any] = {}


def call(function: Any, *args: Any) -> Any:
    """Emit the call of a function that numba knows, an operator or an intrinsic."""
    kinds = tuple(_typed(a) for a in args)
    typing, context = cpu_target.typing_context, _context()
    found = _resolved.get((function, kinds))
    if found is None:
        kind = typing.resolve_value_type(function)
        signature = kind.get_call_type(typing, kinds, {})
        if signature is None:
            raise KernelError(f"{function} can't be traced with arguments of {kinds}")
        found = signature, context.get_function(kind, signature)
        _resolved[function, kinds] = found
    signature, implementation = found
    values = [_lowered(a, want) for a, want in zip(args, signature.args, strict=True)]
    builder = _kernels[-1].builder
    return _raised(builder, signature.return_type, implementation(builder, values))


def _number(value: Any) -> Any:
    return value.value if isinstance(value, Traced) else ir.Constant(_WORD, value)


def loop(*bounds: Any) -> Iterator[Any]:
    """Replacement of ``range`` in a traced function: a kernel loop, its body emitted once."""
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not any(isinstance(b, Traced) for b in (start, stop, step)) and stop - start <= step:
        yield from range(start, stop, step)  # one pass or none
        return
    kernel = _kernels[-1]
    builder, before = kernel.builder, kernel.builder.block
    head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    count = builder.phi(_WORD)
    count.add_incoming(_number(start), before)
    builder.cbranch(builder.icmp_signed("<", count, _number(stop)), body, end)
    builder.position_at_end(body)
    kernel.loops += 1
    yield Traced(types.intp, count)
    kernel.loops -= 1
    count.add_incoming(builder.add(count, _number(step), flags=("nsw",)), builder.block)
    builder.branch(head)
    builder.position_at_end(end)


def least(a: Any, b: Any) -> Any:
    """Replacement of ``min`` in a traced function, of two integers."""
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return min(a, b)
    builder, first, second = _kernels[-1].builder, _number(a), _number(b)
    chosen = builder.select(builder.icmp_signed("<", first, second), first, second)
    return Traced(types.intp, chosen)


def when(condition: bool) -> range:
    """One pass if a condition holds, else none: the ``if`` of traced functions."""
    return range(int(condition))


def _emitted_when(condition: Any) -> Iterator[Any]:
    if not isinstance(condition, Traced):
        yield from range(int(condition))
        return
    kernel = _kernels[-1]
    with kernel.builder.if_then(condition.value):
        kernel.loops += 1
        yield 0
        kernel.loops -= 1


vars(when)["written_when_traced"] = _emitted_when


def _translated(value: Any) -> Any:
    """Replacement of a global of a traced function while it is traced."""
    written = getattr(value, "written_when_traced", None)
    if written is not None:
        return written
    inside = inlined(value)
    if inside is not None:
        return _rebound(inside)
    if not callable(value) or isinstance(value, type):
        return value

    def either(*args: Any) -> Any:
        return call(value, *args) if _is_traced(value, args) else value(*args)

    return either


def _is_traced(function: Any, args: tuple[Any, ...]) -> bool:
    return hasattr(function, "_defn") or any(isinstance(a, Traced) for a in args)


_rebinding: dict[Any, Any] = {}


def _rebound(function: Any) -> Any:
    """A function whose globals are those of tracing."""
    if function not in _rebinding:
        known = vars(builtins) | function.__globals__
        names = {n: _translated(known[n]) for n in function.__code__.co_names if n in known}
        names |= {"range": loop, "min": least}
        _rebinding[function] = FunctionType(
            function.__code__, names, None, function.__defaults__, function.__closure__
        )
    return _rebinding[function]


def _parameters(kind: Any) -> list[Any]:
    """LLVM types of an argument: numbers, and tuples of them one by one."""
    if isinstance(kind, types.BaseTuple):
        return [t for each in kind for t in _parameters(each)]
    return [_context().get_value_type(kind)] if isinstance(kind, types.Type) else []


def _take(kind: Any, values: Iterator[Any]) -> Any:
    if isinstance(kind, types.BaseTuple):
        return tuple(_take(each, values) for each in kind)
    return Traced(kind, next(values)) if isinstance(kind, types.Type) else kind


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [v for each in value for v in _flat(each)]
    return [_number(value)] if isinstance(value, Traced | int) else []


@contextmanager
def _writing(kernel: _Kernel, function: Any) -> Iterator[None]:
    """Emit into another function for a while."""
    builder, loops = kernel.builder, kernel.loops
    kernel.builder, kernel.loops = ir.IRBuilder(function.append_basic_block("entry")), 0
    yield
    if kernel.loops:
        raise KernelError("a traced function left a loop early: use @inner")
    kernel.builder.ret_void()
    kernel.builder, kernel.loops = builder, loops


def _emitted(kernel: _Kernel, function: Any, kinds: tuple[Any, ...]) -> Any:
    """The LLVM function of a traced function for arguments of these types, in a kernel's module."""
    found = kernel.functions.get((function, kinds))
    if found is None:
        kind = ir.FunctionType(ir.VoidType(), [t for k in kinds for t in _parameters(k)])
        name = f"{function.__module__}.{function.__qualname__}.{next(_serial)}"
        found = kernel.functions[function, kinds] = ir.Function(kernel.module, kind, name)
        values = iter(found.args)
        with _writing(kernel, found):
            _rebound(function)(*(_take(k, values) for k in kinds))
    return found


def _shape(value: Any) -> Any:
    """Type of an argument of a traced function: a number, or a tuple of such.

    Any other argument is a constant of the compiled code, and is returned.
    """
    if isinstance(value, tuple):
        return types.Tuple([_shape(v) for v in value])
    if isinstance(value, Traced):
        return value.type
    return types.intp if isinstance(value, int) else value


def traced(function: Callable[..., None]) -> Any:
    """Decorator of functions of numbers, tuples of these, and constants, that return nothing.

    They are traced where traced functions call them, and where numba's do.  `inner` functions that
    they call are traced as well, as part of them.
    """

    def typer(_typingctx: Any, *args: Any) -> Any:
        context = cpu_target.target_context
        part = Part(context.codegen(), function.__name__)
        kernel = _Kernel(part)
        _kernels.append(kernel)
        try:
            with context.push_code_library(part):
                made = _emitted(kernel, function, args)
        finally:
            _kernels.pop()
        part.add_ir_module(kernel.module)
        part.finalize()

        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            part.link_into(context.active_code_library)
            called = cgutils.get_or_insert_function(builder.module, made.function_type, made.name)
            pairs = zip(sig.args, values, strict=True)
            builder.call(called, [v for pair in pairs for v in _flat(_raised(builder, *pair))])
            return context.get_dummy_value()

        return types.void(*args), codegen

    def written(*args: Any) -> None:
        kernel = _kernels[-1]
        made = _emitted(kernel, function, tuple(_shape(a) for a in args))
        kernel.builder.call(made, [v for a in args for v in _flat(a)])

    made = as_intrinsic(typer, function)
    made.written_when_traced = written
    return made


__all__ = ["traced", "when"]
