"""States at which residuals are differentiated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.snapshots import Field
from femops.spaces.base import Space


class State(ABC):
    """Fields at which a residual is differentiated.

    Attributes
    ----------
    spaces : dict of Space
        By the name that a field's values have among the static inputs of a trace; its reference
        derivatives have the same name after a d.
    filled : bool
        Whether kernels compute what a derivative keeps at points, where the fields are; else it is
        computed with NumPy.
    setups : dict
        What all derivatives of one form share: splits by level, and programs that compute what is
        kept, with their data, by the nodes that are kept.
    """

    spaces: Mapping[str, Space]
    filled: bool
    setups: dict[Any, Any]

    @abstractmethod
    def field(self, name: str) -> Field:
        """A field on the host."""

    @abstractmethod
    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> State:
        """Some of the fields, for a form of its own, or for one with other coefficients."""

    @abstractmethod
    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """Numbers that a form keeps at points, (nbatch, points, numbers, width).

        None where NumPy is to compute it.
        """


@final
class NoState(State):
    """No fields: what a form that is linear has."""

    spaces: Mapping[str, Space] = {}
    filled = False

    @property
    def setups(self) -> dict[Any, Any]:  # type: ignore[override]  # nothing is shared
        """See `State.setups`: each form has its own."""
        return {}

    def field(self, name: str) -> Field:
        """See `State.field`.

        Raises
        ------
        KeyError
            There is none.
        """
        raise KeyError(name)

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> State:  # noqa: ARG002
        """See `State.of`."""
        return self

    def points(
        self,
        form: Any,
        qdata_split: Any,
        dtype: np.dtype[Any],
        width: int,
    ) -> None:
        """See `State.points`: NumPy does it."""


NO_STATE = NoState()

Fill = Callable[[Any, Any, np.dtype[Any], int], NDArray[Any] | None]


@final
class HostState(State):
    """Fields on the host.

    Parameters
    ----------
    fields : dict of Field
        See `State`.
    setups : dict, optional
        See `State`.
    fill : callable, optional
        Computes what a form with this state keeps at points, or gives None.
    """

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
        """See `State.field`."""
        return self._fields[name]

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> HostState:
        """See `State.of`."""
        return HostState({name: self._fields[name] for name in names}, setups, self._fill)

    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """See `State.points`."""
        return None if self._fill is None else self._fill(form, qdata_split, dtype, width)
