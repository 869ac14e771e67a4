"""Launch shapes of kernels, and their entries in the tuning database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from femops_kernels.tuning import database
from femops_kernels.tuning.database import TuningKey

MOST_THREADS = 1024
"""Most threads that a block can have on any device."""

SPILLED = 64
"""Most bytes that a thread may spill. They cost less time than twice as many threads save."""


@final
@dataclass(frozen=True)
class Shape:
    """Launch shape of a kernel."""

    elements: int  # elements per block
    # least number of blocks that a multiprocessor should hold.  It bounds the registers.
    blocks: int = 1
    # True if one thread copies all qdata of a block to shared memory first; see
    # ``staged_stream.cuh``
    staged: bool = False
    # True if the kernel launches only as many blocks as a device has room for at a time.  Each
    # block works on one portion of the elements after the other.  It needs ``staged``, and
    # kernels of many vectors do not use it.
    persistent: bool = False


def measured_shape(key: TuningKey) -> Shape | None:
    """Launch shape of a kernel on a device in the tuning database; None if it has none."""
    match database.find(key):
        case {"elements": int(elements), "blocks": int(blocks), **more}:
            return Shape(elements, blocks, "staged" in more, "persistent" in more)
    return None


def record(shapes: Mapping[TuningKey, Shape]) -> Path:
    """Add measured shapes to the user's table; see `femops_kernels.tuning.database.record`."""
    return database.record({key: _settings(shape) for key, shape in shapes.items()})


def _settings(shape: Shape) -> database.Settings:
    """Settings of a shape for the database, which takes integers from 1 on: zeros are left out."""
    return {name: int(value) for name, value in asdict(shape).items() if value}
