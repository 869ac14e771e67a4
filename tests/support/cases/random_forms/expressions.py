"""Expressions: text, and its numbers at the points."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.oracles.form_names import FEMOPS, NUMPY
from support.oracles.running_error import Num, Unsure, stored


@dataclass(frozen=True)
class Expr:
    """Text, and what it is at the points: a Num; how it was made, to write it differently."""

    text: str
    value: Any
    op: str = "leaf"
    args: tuple[Any, ...] = ()

    @property
    def largest(self) -> float:
        return float(np.abs(self.value.v).max())

    @property
    def least(self) -> float:
        return float(np.abs(self.value.v).min())

    @property
    def plain(self) -> bool:
        """Whether Python computes it, not the form: nothing but literals."""
        return not re.search(r"\b[a-z]+\d*(\b\[|\b(?![.(]))", self.text)

    @property
    def positive(self) -> bool:
        return bool(np.all(self.value.v > 1000 * self.value.e) and np.all(self.value.v > 0))


_BINARY = ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^")
NAMESPACE = {"np": NUMPY, "femops": FEMOPS}


def _text(op: str, texts: list[str]) -> str:
    if op in _BINARY:
        return f"({texts[0]} {op} {texts[1]})"
    if op == "**":
        return f"({texts[0]}) ** {texts[1]}"
    if op in ("neg", "~"):
        return f"({'-' if op == 'neg' else '~'}{texts[0]})"
    return f"{op}({', '.join(texts)})"


def make(op: str, *args: Expr) -> Expr:
    """An operation on expressions."""
    values = {f"a{k}": a.value for k, a in enumerate(args)}
    value = eval(_text(op, list(values)), NAMESPACE | values)
    if not isinstance(value, Num):
        value = Num(float(value), 0.0, isinstance(value, bool | np.bool_))
    if not np.all(np.isfinite(value.v)):
        raise Unsure("not finite")
    text = _text(op, [a.text for a in args])
    return Expr(f"({text})" if op == "**" else text, value, op, args)


def literal(number: float) -> Expr:
    """A number in the text."""
    text = repr(number)
    return Expr(f"({text})" if number < 0 else text, Num(float(number), stored(number)))
