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
    staged : bool
        Whether what is stored at points goes to shared memory first, by a copy of the whole block;
        see ``staged_stream.cuh``.
    persistent : bool
        Whether there are only as many blocks as a device has room for at a time, each of which
        works on one portion of the elements after the other; only if staged, and not of many
        vectors.
    """

    elements: int
    blocks: int = 1
    staged: bool = False
    persistent: bool = False


def measured_shape(key: TuningKey) -> Shape | None:
    """The shape that the database has for a kernel on a device; None without one."""
    match database.find(key):
        case {"elements": int(elements), "blocks": int(blocks), **more}:
            return Shape(elements, blocks, "staged" in more, "persistent" in more)
    return None


def record(shapes: Mapping[TuningKey, Shape]) -> Path:
    """Add measured shapes to the user's table; see `femops_kernels.tuning.database.record`."""
    return database.record({key: _settings(shape) for key, shape in shapes.items()})


def _settings(shape: Shape) -> database.Settings:
    """Whole numbers of at least 1: what a shape is not, it does not say."""
    return {name: int(value) for name, value in asdict(shape).items() if value}
