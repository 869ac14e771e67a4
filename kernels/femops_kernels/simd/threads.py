"""Loops that threads share: atomic operations, waiting, and the call of a loop.

``compiling.shared`` makes a loop from a function of one index. ``skeletons/chunk/worker.py`` runs
the loops, and has the waiting of threads.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from femops_kernels.simd.control import For, If
from femops_kernels.simd.values import (
    INTEGER,
    TRUTH,
    WORD,
    Traced,
    as_word,
    build,
    call_address,
    declared,
)

LINE_WORDS = 16
"""Words between places that different threads write: two cache lines, fetched as a pair."""

# Positions in a team's memory, in words. A word that a thread writes often has its own line.
JOBS = 0  # number of loops so far; workers wait for the next
SLEEPERS = LINE_WORDS  # workers that do not look at JOBS any more
ACTIVE = 2 * LINE_WORDS  # workers that may be in a loop
CALLER_SLEEPS = 3 * LINE_WORDS  # whether the caller sleeps until ACTIVE is zero
CALLER_PAUSE = 3 * LINE_WORDS + 1  # number of loops at whose end the caller spins briefly
OPEN = 4 * LINE_WORDS  # whether there is a loop to take part in
BODY, ARGUMENTS, WIDTH = OPEN + 1, OPEN + 2, OPEN + 3  # the open loop and its number of threads
STRICT = OPEN + 4  # whether each thread does its own items alone
SPINS = OPEN + 5  # number of looks for work before a thread sleeps
LONG_SPINS = OPEN + 6  # the same while long spins pay
LOCK, UNLOCK, WAIT, WAKE = (5 * LINE_WORDS + k for k in range(4))  # functions of pthreads
WHO = 5 * LINE_WORDS + 4  # the function that returns a thread's number in the system, or 0
RUN = 5 * LINE_WORDS + 5  # the compiled function that runs a loop on the team
MUTEX, NEWS, DONE = 6 * LINE_WORDS, 7 * LINE_WORDS, 8 * LINE_WORDS  # a mutex and two conditions
FIRST = 9 * LINE_WORDS  # a line for each thread: NEXT, END, and its worker's arguments
NEXT, END, NUMBER, TEAM, SYSTEM_NUMBER = 0, 1, 2, 3, 4

_PAUSE: tuple[str, list[Any]] = "llvm.x86.sse2.pause", []
_YIELD = "llvm.aarch64.hint", [ir.Constant(ir.IntType(32), 1)]
_RELAX: dict[str, tuple[str, list[Any]]] = {"x86_64": _PAUSE, "aarch64": _YIELD, "arm64": _YIELD}


def _pointer(base: Any, k: Any) -> Any:
    return build().gep(build().inttoptr(as_word(base), WORD.as_pointer()), [as_word(k)])


def atomic_add(base: Any, k: Any, value: Any) -> Traced:
    """``atomic_add(address, k, value)``: add to word k atomically, and return its old value."""
    old = build().atomic_rmw("add", _pointer(base, k), as_word(value), "seq_cst")
    return Traced(INTEGER, old)


def atomic_get(base: Any, k: Any) -> Traced:
    """``atomic_get(address, k)``: load word k atomically."""
    return Traced(INTEGER, build().load_atomic(_pointer(base, k), "seq_cst", 8))


def atomic_put(base: Any, k: Any, value: Any) -> None:
    """``atomic_put(address, k, value)``: store word k atomically.

    Threads that see the value also see all that this thread has written before.
    """
    build().store_atomic(as_word(value), _pointer(base, k), "seq_cst", 8)


def atomic_claim(base: Any, k: Any, free: Any, mine: Any) -> Traced:
    """``atomic_claim(address, k, free, mine)``: set word k to ``mine`` if it equals ``free``.

    Return True if it was set.
    """
    values = as_word(free), as_word(mine)
    found = build().cmpxchg(_pointer(base, k), *values, "seq_cst", "seq_cst")
    return Traced(TRUTH, build().extract_value(found, 1))


def relax() -> None:
    """Tell the processor that this thread spins."""
    hint = _RELAX.get(platform.machine())
    if hint:
        name, arguments = hint
        kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
        build().call(declared(kind, name), arguments)


def call_system(function: Any, first: Any, second: Any) -> Traced:
    """``call_system(address, first, second)``: call a C function of up to two pointers.

    Return its int.
    """
    kind = ir.FunctionType(ir.IntType(32), [WORD, WORD])
    found = call_address(function, kind, [as_word(first), as_word(second)])
    return Traced(INTEGER, build().sext(found, WORD))


_WAIT = ir.FunctionType(ir.IntType(32), [WORD, WORD, ir.IntType(32), ir.IntType(32)])
_FOREVER = ir.IntType(32)(0xFFFFFFFF)


def call_wait(function: Any, condition: Any, lock: Any) -> None:
    """``call_wait(address, condition, lock)``: wait until another thread wakes this one.

    POSIX' function takes two arguments. That of Windows takes the longest time and flags as well,
    which the other does not look at.
    """
    arguments = [as_word(condition), as_word(lock), _FOREVER, ir.IntType(32)(0)]
    call_address(function, _WAIT, arguments)


_BODY = ir.FunctionType(ir.VoidType(), [WORD] * 3)
_RUN = ir.FunctionType(ir.VoidType(), [WORD] * 4)


def call_body(body: Any, arguments: Any, item: Any, thread: Any) -> None:
    """``call_body(address, arguments, item, thread)``: one item of a shared loop."""
    call_address(body, _BODY, [as_word(one) for one in (arguments, item, thread)])


def call_loop(team: Any, items: Any, body: Any, arguments: Any) -> None:
    """Run a loop on a team, or on this thread alone if it is 0.

    ``body`` is LLVM's function of an item, ``arguments`` the address of what it reads.  How a team
    does it is compiled once, see ``run`` in ``skeletons/chunk/worker.py``.
    """
    shared = If(team != 0, ())
    for together in shared:
        if together:
            run = build().load(_pointer(team, RUN))
            given = [as_word(team), build().ptrtoint(body, WORD), arguments, as_word(items)]
            build().call(build().inttoptr(run, _RUN.as_pointer()), given)
        else:
            loop = For((items,), ())
            for item in loop:
                build().call(body, [arguments, as_word(item), WORD(0)])
                loop.leave(())
            loop.after()
        shared.leave(())
    shared.after()


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
    "call_wait",
    "relax",
]
