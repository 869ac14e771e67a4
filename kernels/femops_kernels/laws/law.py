"""A law: blocks of instructions on numbers, in static single assignment, as LLVM has them.

Kernels write a law on lanes or in CUDA C++, and `femops_kernels.laws.derivative` differentiates it,
whatever language it comes from. A law has no memory, so it may run for many points at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

Operand = str | int | float
"""The name of a number (``%3``), or a constant."""
SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""Signs of comparisons, by the last letters of LLVM's names."""


@final
@dataclass(frozen=True)
class Instruction:
    """An operation that makes a number of a kind: "f64", "f32", or an integer of k bits, "i64".

    Operations have LLVM's names. There are three more: "table" reads an entry of an array of
    constants, the last operand, and an index outside makes the law fail; "call" calls the function
    of the C library that its ``detail`` names; "result" gives result number ``detail``.
    """

    name: str  # of the number that it makes
    operation: str
    kind: str
    operands: tuple[Any, ...]
    detail: Any = None  # of a comparison its predicate, see also "call" and "result"


@final
@dataclass(frozen=True)
class Choice:
    """A number that depends on the block from which one comes (a *phi*)."""

    name: str
    kind: str
    values: tuple[tuple[int, Operand], ...]  # block, and the number if one comes from it


@final
@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other."""

    choices: tuple[Choice, ...]
    instructions: tuple[Instruction, ...]
    # its end: ("jump", block), ("branch", condition, block, other block), or ("end", status),
    # where a status that is not zero says that the law failed
    end: tuple[Any, ...]

    @property
    def followers(self) -> tuple[int, ...]:
        """Blocks that may come next."""
        return tuple(self.end[1 + (self.end[0] == "branch") :]) if self.end[0] != "end" else ()

    def numbers(self) -> Iterator[tuple[str, str]]:
        """Names and kinds of the numbers that the block makes."""
        yield from ((one.name, one.kind) for one in self.choices)
        yield from ((one.name, one.kind) for one in self.instructions if one.name)


@final
@dataclass(frozen=True)
class Law:
    """A function of ``inputs`` real numbers, ``%0``, ``%1`` ..., that has ``results`` ones.

    All are float64. If the law fails at a point, all its results are NaN there.
    """

    title: str  # the name of the function that a user wrote
    inputs: int
    results: int
    blocks: tuple[Block, ...]  # the first is the beginning
    # its derivatives: a law whose results are those of each result by each input; True if they
    # follow from the instructions, and False if there are none
    rule: Law | bool = True

    @cached_property
    def text(self) -> str:
        """The law as JSON, a line for each block."""
        rule = self.rule.text if isinstance(self.rule, Law) else self.rule
        return "\n".join([json.dumps([self.title, self.inputs, self.results, rule]), *self._lines])

    @cached_property
    def _lines(self) -> list[str]:
        return [json.dumps(_plain(block)) for block in self.blocks]

    @staticmethod
    def of_text(text: str) -> Law:
        """The law with a text."""
        (title, inputs, results, rule), *blocks = map(json.loads, text.split("\n"))
        rule = Law.of_text(rule) if isinstance(rule, str) else rule
        return Law(title, inputs, results, tuple(map(_block, blocks)), rule)

    @cached_property
    def name(self) -> str:
        """A name in programs, which only laws with the same instructions have."""
        text = "\n".join([str(self.inputs), str(self.results), *self._lines])
        return f"law_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @cached_property
    def definition(self) -> str:
        """Statement of a kernel's program that makes the law a function of lanes."""
        plain = replace(self, rule=False)
        return f'{self.name} = law(r"""{plain.text}""")'

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Kind of each number."""
        given = {f"%{k}": "f64" for k in range(self.inputs)}
        return given | dict(pair for block in self.blocks for pair in block.numbers())

    @cached_property
    def failing(self) -> bool:
        """True if the law may fail: at an end, at a table, or in a loop that lasts too long."""
        ends = any(block.end[0] == "end" and block.end[1] != 0 for block in self.blocks)
        tables = (one.operation == "table" for block in self.blocks for one in block.instructions)
        return ends or any(tables) or self._has_loops

    @property
    def _has_loops(self) -> bool:
        left = {k: set(block.followers) for k, block in enumerate(self.blocks)}
        while ended := [k for k, followers in left.items() if not followers & left.keys()]:
            for k in ended:
                del left[k]
        return bool(left)

    @cached_property
    def known(self) -> tuple[tuple[bool, Any], ...]:
        """For each result True and a number, or False and the first result that is the same.

        Numbers that are not finite are no constants here.
        """
        given: dict[int, list[tuple[int, str, Any]]] = {k: [] for k in range(self.results)}
        for k, block in enumerate(self.blocks):
            for one in block.instructions:
                if one.operation == "result":
                    given[one.detail].append((k, one.kind, repr(one.operands[0])))
        first = {str(places): k for k, places in reversed(given.items())}
        constants = {k: {value for *_, value in places} for k, places in given.items()}
        return tuple(
            (True, float(next(iter(constants[k]))))
            if len(constants[k]) == 1 and math.isfinite(_constant(*constants[k]))
            else (False, first[str(places)])
            for k, places in given.items()
        )

    def failure(self, *, of_tables: bool = False) -> Law:
        """Law with one result, which is NaN where this law fails, and else zero.

        With ``of_tables`` it is NaN only where an index is outside of a table, or where a loop
        lasts too long.
        """
        blocks = tuple(
            replace(
                block,
                instructions=tuple(x for x in block.instructions if x.operation != "result"),
                end=("end", 0) if of_tables and block.end[0] == "end" else block.end,
            )
            for block in self.blocks
        )
        return Law(self.title, self.inputs, 1, blocks)

    @property
    def size(self) -> int:
        """Number of instructions."""
        return sum(len(block.choices) + len(block.instructions) for block in self.blocks)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Law) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def _constant(text: str) -> float:
    """Constant of a text; NaN for the name of a number."""
    return math.nan if "%" in text else float(text)


def _plain(block: Block) -> list[Any]:
    choices = [[one.name, one.kind, one.values] for one in block.choices]
    made = [
        [one.name, one.operation, one.kind, one.operands, one.detail] for one in block.instructions
    ]
    return [choices, made, block.end]


def _block(plain: Any) -> Block:
    choices, made, end = plain
    return Block(
        tuple(Choice(n, k, tuple((b, v) for b, v in values)) for n, k, values in choices),
        tuple(Instruction(n, op, k, _fixed(ops), detail) for n, op, k, ops, detail in made),
        tuple(end),
    )


def _fixed(operands: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(one) if isinstance(one, list) else one for one in operands)
