"""Loops that threads share: atomic operations, waiting, and a loop's body as a function.

`shared` makes a loop of a function of one index.  Who runs it, and how threads wait, is written in
``skeletons/chunk/worker.py``.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from femops_kernels.simd.compiling import Part, as_intrinsic, compiled_part, inner

LINE_WORDS = 16
"""Words between what different threads write: two cache lines, which are fetched in pairs."""

# Positions in a team's memory, in words; what one thread writes often has a line of its own.
JOBS = 0  # how many loops there have been; workers wait for another
SLEEPERS = LINE_WORDS  # workers that do not look at JOBS any more
ACTIVE = 2 * LINE_WORDS  # workers that may be in a loop
CALLER_SLEEPS = 3 * LINE_WORDS  # whether who began the loop waits for ACTIVE to be zero, asleep
OPEN = 4 * LINE_WORDS  # whether there is a loop to take part in
BODY, ARGUMENTS, WIDTH = OPEN + 1, OPEN + 2, OPEN + 3  # of that loop; how many threads share it
STRICT = OPEN + 4  # whether each thread does its own items, and no other
SPINS = OPEN + 5  # how often it is looked before one goes to sleep
LONG_SPINS = OPEN + 6  # how often a worker looks while that pays
LOCK, UNLOCK, WAIT, WAKE = (5 * LINE_WORDS + k for k in range(4))  # functions of pthreads
WHO = 5 * LINE_WORDS + 4  # the function that tells a thread's number in the system, or 0
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
    """``atomic_add(address, k, value)``: add to word k, in one step; what stood there before."""
    sig = types.intp(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0], args[1]), args[2], "seq_cst")

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_get(typingctx: Any, base: Any, k: Any) -> Any:
    """``atomic_get(address, k)``: word k as other threads have left it."""
    sig = types.intp(types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0], args[1]), "seq_cst", 8)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_put(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``atomic_put(address, k, value)``: set word k; all written before is seen with it."""
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _pointer(builder, args[0], args[1]), "seq_cst", 8)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_claim(typingctx: Any, base: Any, k: Any, free: Any, mine: Any) -> Any:
    """``atomic_claim(address, k, free, mine)``: set word k if it is ``free``; whether it was."""
    sig = types.boolean(*[types.intp] * 4)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _pointer(builder, args[0], args[1])
        found = builder.cmpxchg(place, args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def relax(typingctx: Any) -> Any:
    """``relax()``: tell the processor that this thread looks again and again."""
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
    """``call_system(address, first, second)``: the int of a C function of up to two pointers."""
    sig = types.intp(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [_WORD, _WORD])
        return builder.sext(
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:]), _WORD
        )

    return sig, codegen


_BODY = ir.FunctionType(ir.VoidType(), [_WORD, _WORD, _WORD])


@intrinsic  # type: ignore[untyped-decorator]
def call_body(typingctx: Any, body: Any, arguments: Any, item: Any, thread: Any) -> Any:
    """``call_body(address, arguments, item, thread)``: one item of a shared loop."""
    sig = types.void(types.intp, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.call(builder.inttoptr(args[0], _BODY.as_pointer()), args[1:])
        return context.get_dummy_value()

    return sig, codegen


@inner
def take(team, body, arguments, thread, width):
    """Work on items until all are taken: first on a thread's own, then on those of the others.

    A thread's own are the same in every loop over as many items, so they stay in its caches.
    """
    for k in range(1 if atomic_get(team, STRICT) == 1 else width):
        owner = thread + k if thread + k < width else thread + k - width
        line = team + (FIRST + owner * LINE_WORDS) * 8
        end = atomic_get(line, END)
        while atomic_get(line, NEXT) < end:
            item = atomic_add(line, NEXT, 1)
            if item < end:
                call_body(body, arguments, item, thread)


@inner
def unfinished(team, width):
    """Return 1 if a worker may be in a loop, or one of the threads has not done its own items."""
    if atomic_get(team, ACTIVE) != 0:
        return 1
    for k in range(width):
        line = team + (FIRST + k * LINE_WORDS) * 8
        if atomic_get(line, NEXT) < atomic_get(line, END):
            return 1
    return 0


@inner
def await_workers(team, width):
    """Wait until nothing is unfinished: a few microseconds awake, then asleep."""
    spins = atomic_get(team, SPINS)
    while unfinished(team, width) == 1 and spins > 0:
        relax()
        spins -= 1
    if unfinished(team, width) == 1:
        call_system(atomic_get(team, LOCK), team + MUTEX * 8, 0)
        atomic_put(team, CALLER_SLEEPS, 1)
        while unfinished(team, width) == 1:
            call_system(atomic_get(team, WAIT), team + DONE * 8, team + MUTEX * 8)
        atomic_put(team, CALLER_SLEEPS, 0)
        call_system(atomic_get(team, UNLOCK), team + MUTEX * 8, 0)


@inner
def open_loop(team, body, arguments, items, width):
    """Tell the workers of a loop."""
    for k in range(width):
        line = team + (FIRST + k * LINE_WORDS) * 8
        atomic_put(line, NEXT, k * items // width)
        atomic_put(line, END, (k + 1) * items // width)
    atomic_put(team, BODY, body)
    atomic_put(team, ARGUMENTS, arguments)
    atomic_put(team, OPEN, 1)
    atomic_add(team, JOBS, 1)
    if atomic_get(team, SLEEPERS) > 0:
        call_system(atomic_get(team, LOCK), team + MUTEX * 8, 0)
        call_system(atomic_get(team, WAKE), team + NEWS * 8, 0)
        call_system(atomic_get(team, UNLOCK), team + MUTEX * 8, 0)


@inner
def run(team, body, arguments, items):
    """Run a loop on a team, or on this thread alone if it is 0; back when all items are done.

    Nobody waits for a worker that has not come: it finds the loop closed.  So where another
    program has the processor, those who have one do the work.
    """
    width = atomic_get(team, WIDTH) if team != 0 and items > 1 else 1
    if width == 1:
        for item in range(items):
            call_body(body, arguments, item, 0)
        return
    open_loop(team, body, arguments, items, width)
    take(team, body, arguments, 0, width)
    if atomic_get(team, STRICT) == 1:
        await_workers(team, width)
    # whoever is counted as active from now on finds the loop closed
    atomic_put(team, OPEN, 0)
    await_workers(team, 0)


_RUN = types.void(*[types.intp] * 4)


def shared(function: Callable[..., Any]) -> Any:
    """Decorator that makes a loop, shared by a team of threads, of what is done for one item.

    The function is given ``(item, thread, *arguments)``; compiled code calls the loop with
    ``(team, items, *arguments)``.  Each item is worked on once, by any thread, in any order.
    """

    def typer(typingctx: Any, team: Any, items: Any, *given: Any) -> Any:
        arguments = tuple(types.unliteral(one) for one in given)
        sig = types.void(types.intp, types.intp, *arguments)
        part, result = compiled_part(typingctx, function, (types.intp, types.intp, *arguments))
        runs, running = _compiled_run(typingctx)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            for one in (part, runs):
                one.link_into(context.active_code_library)
            values = args[2:]
            kept = cgutils.alloca_once(
                builder, ir.LiteralStructType([_WORD, *[value.type for value in values]])
            )
            for k, value in enumerate(values):
                builder.store(value, cgutils.gep_inbounds(builder, kept, 0, k + 1))
            body = _body(context, builder.module, result.fndesc, kept.type)
            address = [builder.ptrtoint(body, _WORD), builder.ptrtoint(kept, _WORD)]
            context.call_internal_no_propagate(
                builder, running.fndesc, _RUN, [args[0], *address, args[1]]
            )
            return context.get_dummy_value()

        return sig, codegen

    return as_intrinsic(typer, function, ("team", "items"))


@cache
def _compiled_run(typingctx: Any) -> tuple[Part, Any]:
    """The code of `run`, which is the same for all loops."""
    return compiled_part(typingctx, run.inner_function, _RUN.args)


def _body(context: Any, module: Any, fndesc: Any, kept: Any) -> Any:
    """The function that threads call for an item: it finds the arguments in memory."""
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
    "CALLER_SLEEPS",
    "DONE",
    "JOBS",
    "LOCK",
    "LONG_SPINS",
    "MUTEX",
    "NEWS",
    "NUMBER",
    "OPEN",
    "SLEEPERS",
    "SPINS",
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
    "take",
]
