"""States at which residuals are differentiated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.snapshots import Field
from femops.spaces.base import Space

Fill = Callable[[Any, Any, np.dtype[Any], int], NDArray[Any] | None]


class State(ABC):
    """Fields at which a residual is differentiated."""

    # space of each field. The key is the name of the field's values among the static inputs of a
    # trace. Reference derivatives have the key with a d in front.
    spaces: Mapping[str, Space]
    # whether the device that has the fields computes the numbers at points. Else the host
    # computes them.
    filled: bool
    # data that all derivatives of one form share: splits by level, and programs with their data
    # by the nodes that they compute
    setups: dict[Any, Any]

    @abstractmethod
    def field(self, name: str) -> Field:
        """Return a field as a copy on the host."""

    @abstractmethod
    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> State:
        """Copy of the state for another form, with the fields ``names`` and other setups."""

    @abstractmethod
    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """Compute the numbers (nbatch, points, numbers, width) that a form stores at points.

        None if NumPy should compute them instead.
        """


@final
class NoState(State):
    """State of a linear form. It has no fields."""

    spaces: Mapping[str, Space] = {}
    filled = False

    def __init__(self, fill: Fill | None = None) -> None:
        self._fill = fill

    @property
    def setups(self) -> dict[Any, Any]:  # type: ignore[override]  # nothing is shared
        """See `State.setups`. Forms without a state share nothing."""
        return {}

    def field(self, name: str) -> Field:
        raise KeyError(name)

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> State:  # noqa: ARG002
        return self

    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        return None if self._fill is None else self._fill(form, qdata_split, dtype, width)


NO_STATE = NoState()


@final
class HostState(State):
    """State whose fields are on the host."""

    filled = False

    def __init__(
        self,
        fields: Mapping[str, Field],
        setups: dict[Any, Any] | None = None,
        fill: Fill | None = None,
    ) -> None:
        self._fields, self._fill = dict(fields), fill
        self.spaces = {name: field.space for name, field in fields.items()}
        self.setups = {} if setups is None else setups

    def field(self, name: str) -> Field:
        return self._fields[name]

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> HostState:
        return HostState({name: self._fields[name] for name in names}, setups, self._fill)

    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        return None if self._fill is None else self._fill(form, qdata_split, dtype, width)
