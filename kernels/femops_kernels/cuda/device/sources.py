"""Text of kernels, put together from files of ``src``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from femops_kernels.cuda.device.arguments import Layout

TYPES = {"float64": "double", "float32": "float"}
"""Types of numbers in C++."""

_FOLDER = Path(__file__).parents[1] / "src"

SIMPLE_THREADS = 256
"""Threads per block of kernels whose threads work on entries."""


def simple_text(layout: Layout, dtype: np.dtype[Any], *names: str, **numbers: int) -> str:
    """A kernel whose threads work on entries, from files of these names.

    ``numbers`` are constants of C++.
    """
    types = f"using T = {TYPES[dtype.name]};"
    lines = constants_text({"THREADS": SIMPLE_THREADS, **numbers})
    return "\n".join([types, lines, layout.text, *map(source_of, names)])


def constants_text(numbers: Mapping[str, int]) -> str:
    """Constants in C++."""
    return "\n".join(f"constexpr int {name} = {int(n)};" for name, n in numbers.items())


def source_of(name: str) -> str:
    """Text of ``name.cuh``."""
    (path,) = _FOLDER.rglob(f"{name}.cuh")
    return path.read_text(encoding="utf-8")
