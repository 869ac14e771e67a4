"""Small kernels that tests write: compiled from their text, and the same text run by Python."""

from __future__ import annotations

import math
from textwrap import dedent, indent
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen import native, specialize

PLACES = 64
"""Numbers of the array of a program."""

_RUN = """
@inner
def program(out, {names}):
{body}

@function
def run(out, {annotated}):
    program(numbers(Lane(2, {dtype!r}), out), {names})
"""


def compiled(text: str, **known: Any) -> native.CompiledKernel:
    """Compile a source with the names of all kernels and those of ``known``, and load it."""
    source = specialize._HEADER + dedent(text)
    content = native.compiled("kernel", source, "kernel.py", known)
    return native.loaded("kernel", content)


def compiled_program(body: str, names: dict[str, bool], dtype: str) -> Any:
    """Function of the statements of a program: from an array's address, integers and reals.

    Parameters
    ----------
    names : dict
        For each argument behind ``out``, whether it is real.
    """
    annotated = ", ".join(name + ": float" * real for name, real in names.items())
    given = {"names": ", ".join(names), "annotated": annotated, "dtype": dtype}
    return compiled(_RUN.format(body=indent(dedent(body), "    "), **given)).run


def of_both(
    body: str, *cases: dict[str, float], dtype: str = "float64"
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Array ``out`` after a program, run as a kernel and by Python, for each case of arguments."""
    names = {name: isinstance(value, float) for name, value in cases[0].items()}
    run = compiled_program(body, names, dtype)
    plain: dict[str, Any] = {"sqrt": math.sqrt}
    exec(f"def program(out, {', '.join(names)}):\n{indent(dedent(body), '    ')}", plain)
    found = []
    for case in cases:
        mine, other = np.full((2, PLACES), -7.0, dtype)
        run(mine.ctypes.data, *case.values())
        plain["program"](other, *case.values())
        found.append((mine, other))
    return found


def check_both(body: str, *cases: dict[str, float], dtype: str = "float64") -> None:
    """A kernel writes the numbers that Python writes, with their signs, and writes some."""
    results = of_both(body, *cases, dtype=dtype)
    for case, (mine, other) in zip(cases, results, strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=f"{case}\n{body}")
        same = np.signbit(mine) == np.signbit(other)
        assert (same | np.isnan(other)).all(), (case, body)
    assert any((other != -7.0).any() for _, other in results), body
