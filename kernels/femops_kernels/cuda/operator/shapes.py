"""Launch shapes of kernels, and what the tuning database has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from femops_kernels.tuning import database
from femops_kernels.tuning.database import TuningKey

MOST_THREADS = 1024
"""Most threads that a block can have on any device."""


@final
@dataclass(frozen=True)
class Shape:
    """Launch shape of a kernel.

    Attributes
    ----------
    elements : int
        Elements per block.
    blocks : int
        Blocks that a multiprocessor should hold at least; bounds the registers.
    """

    elements: int
    blocks: int = 1


def measured_shape(key: TuningKey) -> Shape | None:
    """The shape that the database has for a kernel on a device; None without one."""
    match database.find(key):
        case {"elements": int(elements), "blocks": int(blocks)}:
            return Shape(elements, blocks)
    return None


def record(shapes: Mapping[TuningKey, Shape]) -> Path:
    """Add measured shapes to the user's table; see `femops_kernels.tuning.database.record`."""
    return database.record({key: asdict(shape) for key, shape in shapes.items()})
