"""Divisions by determinants as GPUs do them: their assembly, with the worst start there may be."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

WORST = 2.0**-18
"""Error of the hardware's reciprocal."""

EPS = 2.0**-53
"""Error of a rounding."""


@cache
def assembly() -> list[str]:
    """Instructions and labels of ``by_determinant``."""
    text = (files("femops_kernels.cuda") / "src" / "device.cuh").read_text()
    (body,) = re.findall(r"double by_determinant\(.*?asm\((.*?)\n\s*:", text, re.DOTALL)
    lines = re.findall(r'"(.*)\\n"', body)
    return [line.rstrip(";") for line in lines if line[0] not in "{}" and line[:4] != ".reg"]


def number(text: str, registers: dict[str, Any]) -> Any:
    """A register, or a number: 0x of integers, 0d of the bits of float64."""
    if text[:2] == "0d":
        return struct.unpack(">d", bytes.fromhex(text[2:]))[0]
    return int(text, 16) if text[:2] == "0x" else registers[text]


def fused(a: float, b: float, c: float) -> float:
    """Return a b + c, rounded once."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "sub.u32": lambda a, b: (a - b) % 2**32,
    "setp.gt.u32": lambda a, b: a > b,
    "neg.f64": lambda a: -a,
    "fma.rn.f64": fused,
    "mul.rn.f64": lambda a, b: a * b,
    "div.rn.f64": lambda a, b: float(np.float64(a) / np.float64(b)),
}


def quotient(a: float, det: float, error: float) -> float:
    """Return a / det by the assembly; ``error`` is that of the start."""
    lines, at = assembly(), 0
    operations = OPERATIONS | {"rcp.approx.ftz.f64": lambda x: 1.0 / x * (1.0 + error)}
    registers: dict[str, Any] = {"%1": a, "%2": det}
    while at < len(lines):
        line, at = lines[at], at + 1
        operation, *operands = re.findall(r"[^ ,{}]+", line)
        if operation[0] == "@":
            operation = "bra.uni" if registers[operation[1:]] else ""
            operands = operands[1:]
        if operation == "bra.uni":
            at = lines.index(f"{operands[0]}:")
        elif operation == "mov.b64":
            high, low = struct.unpack(">II", struct.pack(">d", registers[operands[2]]))
            registers |= {operands[0]: low, operands[1]: high}
        elif operation and operation[-1] != ":":
            given = [number(text, registers) for text in operands[1:]]
            registers[operands[0]] = operations[operation](*given)
    return float(registers["%0"])


@pytest.mark.parametrize("error", [WORST, 0.6 * WORST, 0.0, -WORST])
def test_all_digits_from_any_start(error: float) -> None:
    rng = np.random.default_rng(1)
    for exponent in [*range(-1007, 993, 3), 992]:
        det = float(np.ldexp(rng.uniform(1.0, 2.0), exponent))
        wrong = abs(Fraction(quotient(1.0, det, error)) * Fraction(det) - 1)
        assert wrong <= 1.51 * EPS, det  # less than one unit in the last place
        a = float(np.ldexp(rng.uniform(-3.0, 3.0), exponent // 2))
        exact = Fraction(a) / Fraction(det)
        assert abs(Fraction(quotient(a, det, error)) - exact) <= 2.51 * EPS * abs(exact), det


def test_other_determinants_are_divided_by_as_ever() -> None:
    rng = np.random.default_rng(2)
    exponents = [*range(-1074, -1007), *range(994, 1024)]
    sizes = np.ldexp(rng.uniform(1.0, 2.0, len(exponents)), exponents)
    for det in [*sizes, *-sizes, -1.0, -3.0, 0.0, -0.0, np.inf, -np.inf, np.nan]:
        a = rng.uniform(-3.0, 3.0)
        with np.errstate(all="ignore"):
            found, expected = quotient(a, float(det), WORST), a / np.float64(det)
        np.testing.assert_array_equal(found, expected, err_msg=str(det))
