"""Files of a series in time: the interface that formats implement."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from femops.errors import FileError
from femops.io.vtk.vtu import Owner

Existing = Literal["refuse", "continue", "replace"]


class Store(ABC):
    """Files of a series in one format. All methods are collective."""

    @property
    @abstractmethod
    def times(self) -> tuple[float, ...]:
        """Times of the steps, ascending."""

    @property
    @abstractmethod
    def fields(self) -> set[str] | None:
        """Names of the fields of each step; None if the format does not have them all in one place.

        It is None before the first step, too.
        """

    @abstractmethod
    def begin(self, existing: Existing, until: float) -> None:
        """Read the steps of an existing series or remove them, and write the series without more.

        Steps later than the time ``until`` are removed.
        """

    @abstractmethod
    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        """Add a step. Return the file that has it."""


def check_steps(path: Path, same: bool) -> None:
    """Raise unless the file has the ``same`` steps as after the last step of this program."""
    if not same:
        raise FileError(
            f"'{path}' has other steps than this series has saved: another program, or another "
            "TimeSeries, writes to it; take another name, or open it again with "
            "existing='continue'"
        )


def check_times(times: Sequence[float]) -> None:
    """Raise unless the times of a file ascend: steps after a time are the last ones of the file."""
    if not all(map(math.isfinite, times)) or any(a >= b for a, b in pairwise(times)):
        raise ValueError("the times of its steps do not ascend")
