"""Functions of kernels: those that other functions call, loops that threads share, entry points.

A kernel is one module of LLVM. Its entry points are called from outside, by their addresses or from
Python. The functions that they call are written into them (`inner`), or once for the module
(`traced`, `shared`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, final

from llvmlite import ir

from femops_kernels.errors import KernelError
from femops_kernels.simd.threads import call_loop
from femops_kernels.simd.values import (
    FLOAT64,
    INTEGER,
    WORD,
    Traced,
    as_word,
    converted,
    kind_of,
    on_stack,
    writing,
)

Function = TypeVar("Function", bound=Callable[..., Any])


def inner(function: Function) -> Function:
    """Decorator of functions that are written into the functions that call them."""
    return function


# --- functions of the module ----------------------------------------------------------------------


def _kinds(value: Any) -> Any:
    """Kinds of an argument: of a number, or of each of a tuple. Other objects are constants."""
    if isinstance(value, tuple):
        return tuple(_kinds(each) for each in value)
    if isinstance(value, Traced):
        return value.kind
    return kind_of(value) if isinstance(value, int | float) else _Constant(value)


@final
@dataclass(frozen=True)
class _Constant:
    """An argument that is no number: part of the function."""

    value: Any


def _flat(kinds: Any, value: Any) -> list[tuple[Any, Any]]:
    """Kinds and LLVM's values of an argument, one for each number."""
    if isinstance(kinds, tuple):
        return [part for pair in zip(kinds, value, strict=True) for part in _flat(*pair)]
    return [] if isinstance(kinds, _Constant) else [(kinds, converted(kinds, value))]


def _taken(kinds: Any, values: Iterator[Any]) -> Any:
    """An argument, made from LLVM's values."""
    if isinstance(kinds, tuple):
        return tuple(_taken(each, values) for each in kinds)
    return kinds.value if isinstance(kinds, _Constant) else Traced(kinds, next(values))


def _parameters(kinds: Any) -> list[Any]:
    if isinstance(kinds, tuple):
        return [kind for each in kinds for kind in _parameters(each)]
    return [] if isinstance(kinds, _Constant) else [kinds.llvm]


@contextmanager
def body_of(function: Any) -> Iterator[Any]:
    """Write a function of LLVM for a while."""
    here = writing()
    before = here.builder
    here.builder = ir.IRBuilder(function.append_basic_block("entry"))
    yield here.builder
    here.builder = before


def _name(function: Callable[..., Any]) -> str:
    here = writing()
    return f"{here.name}.{function.__name__}.{len(here.functions)}"


def traced(function: Callable[..., None]) -> Any:
    """Decorator of functions that return nothing and are written once for arguments of a kind.

    Arguments are numbers, tuples of these, and objects, which are constants of the function.
    """

    def call(*arguments: Any) -> None:
        here, kinds = writing(), tuple(_kinds(value) for value in arguments)
        made = here.functions.get((function, kinds))
        if made is None:
            sort = ir.FunctionType(ir.VoidType(), _parameters(kinds))
            made = here.functions[function, kinds] = ir.Function(here.module, sort, _name(function))
            made.linkage = "internal"
            with body_of(made):
                values = iter(made.args)
                function(*(_taken(each, values) for each in kinds))
                here.builder.ret_void()
        here.calls[made] += 1
        here.builder.call(made, [value for _, value in _flat(kinds, arguments)])

    return call


_ITEM = ir.FunctionType(ir.VoidType(), [WORD] * 3)


def shared(function: Callable[..., Any]) -> Any:
    """Decorator that turns the work on one item into a loop that a team of threads shares.

    The function has the arguments ``(item, thread, *arguments)``. Compiled code calls the loop with
    ``(team, items, *arguments)``. Each item is worked on once, by any thread, in any order.
    """

    def call(team: Any, items: Any, *arguments: Any) -> None:
        kinds = tuple(_kinds(value) for value in arguments)
        values = [value for _, value in _flat(kinds, arguments)]
        kept = on_stack(ir.LiteralStructType([WORD, *[value.type for value in values]]))
        builder = writing().builder
        for k, value in enumerate(values):
            builder.store(value, _entry(builder, kept, k + 1))
        call_loop(team, items, _item(function, kinds, kept.type), builder.ptrtoint(kept, WORD))

    return call


def _entry(builder: Any, struct: Any, k: int) -> Any:
    narrow = ir.IntType(32)
    return builder.gep(struct, [narrow(0), narrow(k)], inbounds=True)


def _item(function: Callable[..., Any], kinds: Any, kept: Any) -> Any:
    """The function that threads call for an item. It loads its arguments from memory."""
    here = writing()
    made = here.functions.get((function, kinds))
    if made is None:
        made = here.functions[function, kinds] = ir.Function(here.module, _ITEM, _name(function))
        made.linkage = "internal"
        with body_of(made) as builder:
            there, count = builder.inttoptr(made.args[0], kept), len(kept.pointee.elements)
            values = iter([builder.load(_entry(builder, there, k)) for k in range(1, count)])
            arguments = [_taken(each, values) for each in kinds]
            item, thread = (Traced(INTEGER, value) for value in made.args[1:])
            function(item, thread, *arguments)
            here.builder.ret_void()
    return made


# --- entry points ---------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Entry:
    """An entry point of a kernel."""

    name: str
    # for each argument, whether it is a real number (float64). The others are integers.
    reals: tuple[bool, ...]
    result: bool  # True if the entry point returns an integer
    called: bool  # True if Python calls it


def _marked(function: Function, called: bool) -> Function:
    kinds = inspect.get_annotations(function)
    returned = kinds.pop("return", None)
    if returned not in (None, int) or not {*kinds.values()} <= {float}:
        raise KernelError(f"{function.__name__}: annotate with float, and the result with int")
    result = returned is int
    reals = tuple(kinds.get(name) is float for name in inspect.signature(function).parameters)
    vars(function)["entry"] = Entry(function.__name__, reals, result, called)
    return function


def entry(function: Function) -> Function:
    """Decorator of entry points, which are called by their address.

    Arguments are integers, or real numbers if they are annotated with ``float``. Nothing is
    returned, or an integer if the result is annotated with ``int``.
    """
    return _marked(function, called=False)


def function(function: Function) -> Function:
    """Decorator of entry points that Python calls, too."""
    return _marked(function, called=True)


def written_entry(function: Any) -> None:
    """Write an entry point into the module."""
    here, made = writing(), function.entry
    kinds = [FLOAT64 if real else INTEGER for real in made.reals]
    result = WORD if made.result else ir.VoidType()
    sort = ir.FunctionType(result, [kind.llvm for kind in kinds])
    point = ir.Function(here.module, sort, f"{here.name}.{made.name}")
    with body_of(point):
        value = function(*(Traced(*pair) for pair in zip(kinds, point.args, strict=True)))
        if made.result:
            here.builder.ret(as_word(value))
        elif value is None:
            here.builder.ret_void()
        else:
            raise KernelError(f"{made.name} returns what its annotation does not say")


__all__ = ["entry", "function", "inner", "shared", "traced"]
