"""Source text of kernels, joined from files of ``src``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from femops_kernels.cuda.device.arguments import Layout

TYPES = {"float64": "double", "float32": "float"}
"""Names of the types of numbers in C++."""

_FOLDER = Path(__file__).parents[1] / "src"

SIMPLE_THREADS = 256
"""Threads per block of kernels that work on vectors entry by entry."""


def simple_text(layout: Layout, dtype: np.dtype[Any], *names: str, **numbers: int) -> str:
    """Source of a kernel that works entry by entry, joined from the named files.

    ``numbers`` become constants in C++.
    """
    types = f"using T = {TYPES[dtype.name]};"
    lines = constants_text({"THREADS": SIMPLE_THREADS, **numbers})
    return "\n".join([types, lines, layout.text, *map(source_of, names)])


def constants_text(numbers: Mapping[str, int]) -> str:
    """C++ definitions of integer constants."""
    return "\n".join(f"constexpr int {name} = {int(n)};" for name, n in numbers.items())


@cache
def source_of(name: str) -> str:
    """Text of ``name.cuh``, found and read once."""
    (path,) = _FOLDER.rglob(f"{name}.cuh")
    return path.read_text(encoding="utf-8")
