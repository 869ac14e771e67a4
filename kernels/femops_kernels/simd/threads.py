"""Loops that threads share: atomic operations, waiting, and a loop's body as a function.

`shared` makes a loop from a function of one index. ``skeletons/chunk/worker.py`` runs the loops,
and has the waiting of threads.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from femops_kernels.simd.compiling import as_intrinsic, compiled_part

LINE_WORDS = 16
"""Words between what different threads write: two cache lines, which are fetched in pairs."""

# Positions in a team's memory, in words; what one thread writes often has a line of its own.
JOBS = 0  # how many loops there have been; workers wait for another
SLEEPERS = LINE_WORDS  # workers that do not look at JOBS any more
ACTIVE = 2 * LINE_WORDS  # workers that may be in a loop
CALLER_SLEEPS = 3 * LINE_WORDS  # whether who began the loop waits for ACTIVE to be zero, asleep
CALLER_PAUSE = 3 * LINE_WORDS + 1  # how many times who began a loop waits but shortly for the end
OPEN = 4 * LINE_WORDS  # whether there is a loop to take part in
BODY, ARGUMENTS, WIDTH = OPEN + 1, OPEN + 2, OPEN + 3  # of that loop; how many threads share it
STRICT = OPEN + 4  # whether each thread does its own items, and no other
SPINS = OPEN + 5  # how often it is looked before one goes to sleep
LONG_SPINS = OPEN + 6  # how often while that pays
LOCK, UNLOCK, WAIT, WAKE = (5 * LINE_WORDS + k for k in range(4))  # functions of pthreads
WHO = 5 * LINE_WORDS + 4  # the function that tells a thread's number in the system, or 0
RUN = 5 * LINE_WORDS + 5  # the compiled function that runs a loop on the team
MUTEX, NEWS, DONE = 6 * LINE_WORDS, 7 * LINE_WORDS, 8 * LINE_WORDS  # what they work on
FIRST = 9 * LINE_WORDS  # a line for each thread: NEXT, END, and what its worker is told
NEXT, END, NUMBER, TEAM, SYSTEM_NUMBER = 0, 1, 2, 3, 4

_WORD = ir.IntType(64)
_PAUSE = "llvm.x86.sse2.pause", []
_YIELD = "llvm.aarch64.hint", [ir.Constant(ir.IntType(32), 1)]
_RELAX: dict[str, tuple[str, list[Any]]] = {"x86_64": _PAUSE, "aarch64": _YIELD, "arm64": _YIELD}


def _pointer(builder: Any, base: Any, k: Any) -> Any:
    return builder.gep(builder.inttoptr(base, _WORD.as_pointer()), [k])


@intrinsic  # type: ignore[untyped-decorator]
def atomic_add(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``atomic_add(address, k, value)``: add to word k atomically, and return its old value."""
    sig = types.intp(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0], args[1]), args[2], "seq_cst")

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_get(typingctx: Any, base: Any, k: Any) -> Any:
    """``atomic_get(address, k)``: load word k atomically."""
    sig = types.intp(types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0], args[1]), "seq_cst", 8)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_put(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``atomic_put(address, k, value)``: store word k atomically.

    Threads that see the value also see all that this thread has written before.
    """
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _pointer(builder, args[0], args[1]), "seq_cst", 8)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_claim(typingctx: Any, base: Any, k: Any, free: Any, mine: Any) -> Any:
    """``atomic_claim(address, k, free, mine)``: set word k to ``mine`` if it equals ``free``.

    Return True if it was set.
    """
    sig = types.boolean(*[types.intp] * 4)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _pointer(builder, args[0], args[1])
        found = builder.cmpxchg(place, args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def relax(typingctx: Any) -> Any:
    """``relax()``: tell the processor that this thread spins."""
    sig = types.void()

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        hint = _RELAX.get(platform.machine())
        if hint:
            name, arguments = hint
            kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def call_system(typingctx: Any, function: Any, first: Any, second: Any) -> Any:
    """``call_system(address, first, second)``: call a C function of up to two pointers.

    Return its int.
    """
    sig = types.intp(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [_WORD, _WORD])
        return builder.sext(
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:]), _WORD
        )

    return sig, codegen


_BODY = ir.FunctionType(ir.VoidType(), [_WORD] * 3)
_RUN = ir.FunctionType(ir.VoidType(), [_WORD] * 4)


@intrinsic  # type: ignore[untyped-decorator]
def call_body(typingctx: Any, body: Any, arguments: Any, item: Any, thread: Any) -> Any:
    """``call_body(address, arguments, item, thread)``: one item of a shared loop."""
    sig = types.void(types.intp, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.call(builder.inttoptr(args[0], _BODY.as_pointer()), args[1:])
        return context.get_dummy_value()

    return sig, codegen


def shared(function: Callable[..., Any]) -> Any:
    """Decorator that turns the work on one item into a loop that a team of threads shares.

    The function has the arguments ``(item, thread, *arguments)``. Compiled code calls the loop with
    ``(team, items, *arguments)``. Each item is worked on once, by any thread, in any order.
    """

    def typer(typingctx: Any, team: Any, items: Any, *given: Any) -> Any:
        arguments = tuple(types.unliteral(one) for one in given)
        sig = types.void(types.intp, types.intp, *arguments)
        part, result = compiled_part(typingctx, function, (types.intp, types.intp, *arguments))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            part.link_into(context.active_code_library)
            values = args[2:]
            kept = cgutils.alloca_once(
                builder, ir.LiteralStructType([_WORD, *[value.type for value in values]])
            )
            for k, value in enumerate(values):
                builder.store(value, cgutils.gep_inbounds(builder, kept, 0, k + 1))
            body = _body(context, builder.module, result.fndesc, kept.type)
            _call(builder, args[0], args[1], body, builder.ptrtoint(kept, _WORD))
            return context.get_dummy_value()

        return sig, codegen

    return as_intrinsic(typer, function, ("team", "items"))


def _call(builder: Any, team: Any, items: Any, body: Any, arguments: Any) -> None:
    """Run a loop on a team, or on this thread alone if it is 0.

    How a team does it is compiled once, see ``run`` in ``skeletons/chunk/worker.py``.
    """
    with builder.if_else(builder.icmp_unsigned("!=", team, _WORD(0))) as (together, alone):
        with together:
            run = builder.load(_pointer(builder, team, _WORD(RUN)))
            given = [team, builder.ptrtoint(body, _WORD), arguments, items]
            builder.call(builder.inttoptr(run, _RUN.as_pointer()), given)
        with alone, cgutils.for_range(builder, items) as loop:
            builder.call(body, [arguments, loop.index, _WORD(0)])


def _body(context: Any, module: Any, fndesc: Any, kept: Any) -> Any:
    """Emit the function that threads call for an item. It loads its arguments from memory."""
    name = f"{fndesc.mangled_name}.item"
    if name in module.globals:
        return module.globals[name]
    body = ir.Function(module, _BODY, name)
    builder = ir.IRBuilder(body.append_basic_block())
    there = builder.inttoptr(body.args[0], kept)
    values = [
        builder.load(cgutils.gep_inbounds(builder, there, 0, k + 1))
        for k in range(len(kept.pointee.elements) - 1)
    ]
    sig = types.void(*fndesc.argtypes)
    context.call_internal_no_propagate(builder, fndesc, sig, [*body.args[1:], *values])
    builder.ret_void()
    return body


__all__ = [
    "ACTIVE",
    "ARGUMENTS",
    "BODY",
    "CALLER_PAUSE",
    "CALLER_SLEEPS",
    "DONE",
    "END",
    "FIRST",
    "JOBS",
    "LINE_WORDS",
    "LOCK",
    "LONG_SPINS",
    "MUTEX",
    "NEWS",
    "NEXT",
    "NUMBER",
    "OPEN",
    "RUN",
    "SLEEPERS",
    "SPINS",
    "STRICT",
    "SYSTEM_NUMBER",
    "TEAM",
    "UNLOCK",
    "WAIT",
    "WAKE",
    "WHO",
    "WIDTH",
    "atomic_add",
    "atomic_claim",
    "atomic_get",
    "atomic_put",
    "call_body",
    "call_system",
    "relax",
    "shared",
]
