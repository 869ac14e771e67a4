"""Arguments of operator kernels, and the bits that mark entries of vectors."""

from __future__ import annotations

from collections.abc import Mapping

from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.device.sources import TYPES
from femops_kernels.cuda.operator.sides import arguments_of
from femops_kernels.spec import PointSpec

CLEARED, CONSTRAINED = 1, 2
"""Bits of marks: entries that are read as zero, entries of constrained rows."""

MARKS = {"CLEARED": CLEARED, "CONSTRAINED": CONSTRAINED}
"""Bits of marks as constants of kernels."""

STATE = {"state": "double*", "partial": "double*", "counters": "unsigned*"}
"""Arguments of kernels that sum over all threads and change the state of a solve."""

_ARGUMENTS = {
    "order": "const int*",
    "points": "",  # their type is that of the data
    "elements": "const T*",
    "modes": "const T*",
    "constants": "const T*",
    "alpha": "T",
    "keep": "T",
    "add": "int",
    "count": "int",
    "first_portion": "int",
    "row": "int",
    "groups": "int",
    "panel_in": "long long",
    "panel_out": "long long",
    "r": "const T*",
    "inverse": "const T*",
    "p": "T*",
    "functionals": "T*",
    "ahead": "int",
    "behind": "int",
    **STATE,
}


def layout_of(spec: PointSpec, more: Mapping[str, str] | None = None) -> Layout:
    """Layout of the arguments of a kernel, which may have some of its own."""
    none = {"touched": "const int*"}  # kernels without test functions have it too
    points = {"points": f"const {TYPES[spec.stored.name]}*"}
    sides = arguments_of(spec.sources, spec.targets)
    return Layout(sides | none | _ARGUMENTS | points | dict(more or {}), spec.dtype)
