"""Files of a series in time: the interface that formats implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

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
    def begin(self, existing: Existing) -> None:
        """Read the steps of an existing series or remove them, and write the series without more.

        Raises
        ------
        FileError
            The series cannot be read or written, or was not written by femops.
        """

    @abstractmethod
    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        """Add a step. Return the file that has it.

        Raises
        ------
        FileError
            The file cannot be written. Then the series does not change.
        """
