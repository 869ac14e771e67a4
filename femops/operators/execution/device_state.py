"""States on a device, at which residuals are differentiated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.snapshots import Field
from femops.operators.integrals.state import State
from femops.pointwise.qdata_split import QDataSplit
from femops.spaces.base import Space
from femops_kernels.pointwise.qdata import Data


@final
class DeviceField:
    """A field of a state, stored on a device."""

    def __init__(self, space: Space, vector: Any, ghosts: Any = None) -> None:
        self.space, self.vector, self.ghosts = space, vector, ghosts

    @cached_property
    def on_host(self) -> Field:
        """Copy of the field on the host, made at first use."""
        whole = np.concatenate(self._parts())
        ncomp, indices = self.space.ncomp, self.space.restriction.indices
        return Field(self.space, whole.reshape(-1, ncomp) if ncomp > 1 else whole, indices)

    def _parts(self) -> list[NDArray[Any]]:
        parts = [self.vector] if self.ghosts is None else [self.vector, self.ghosts]
        return [self.space.memory.get(part) for part in parts]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a recipe for another process."""
        return _restored, (self.space, *self._parts())


def _restored(space: Space, *parts: NDArray[Any]) -> DeviceField:
    return DeviceField(space, *(space.memory.put(part) for part in parts))


@final
class DeviceState(State):
    """State whose fields are stored on a device."""

    filled = True

    def __init__(
        self,
        fields: Mapping[str, DeviceField],
        setups: dict[Any, tuple[QDataSplit, Data]] | None = None,
    ) -> None:
        self.fields = dict(fields)
        self.spaces = {name: field.space for name, field in fields.items()}
        self.setups = {} if setups is None else setups

    def field(self, name: str) -> Field:
        return self.fields[name].on_host

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> DeviceState:
        return DeviceState({name: self.fields[name] for name in names}, setups)

    def points(
        self,
        form: Any,
        qdata_split: Any,
        dtype: np.dtype[Any],
        width: int,
    ) -> None:
        """See `State.points`: None, because kernels of the device compute these numbers."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a recipe for another process, which makes new ``setups``."""
        return DeviceState, (self.fields,)
