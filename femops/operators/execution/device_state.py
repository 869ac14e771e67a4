"""States on a device, at which nonlinear forms are differentiated."""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.state import State
from femops.pointwise.qdata_split import QDataSplit
from femops.spaces.base import Space
from femops_kernels.pointwise.qdata import Data


@final
class DeviceState(State):
    """A vector on a device, of a space that one rank has.

    Parameters
    ----------
    space : Space
    vector : array of the device
    setups : dict, optional
        See `State`.
    """

    filled = True

    def __init__(
        self, space: Space, vector: Any, setups: dict[Any, tuple[QDataSplit, Data]] | None = None
    ) -> None:
        self.space, self.vector = space, vector
        self.setups = {} if setups is None else setups

    @cached_property
    def l_vec(self) -> NDArray[Any]:
        """See `State.l_vec`; copied when it is asked for."""
        return self.space.l_vec(self.space.memory.get(self.vector))

    def renewed(self) -> DeviceState:
        """See `State.renewed`: nothing that was computed of other coefficients."""
        return DeviceState(self.space, self.vector)

    def points(
        self,
        form: Any,
        qdata_split: Any,
        dtype: np.dtype[Any],
        width: int,
    ) -> None:
        """See `State.points`: kernels there do it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Recipe for another process: the programs are made again there."""
        return _restored, (self.space, self.space.memory.get(self.vector))


def _restored(space: Space, vector: NDArray[Any]) -> DeviceState:
    return DeviceState(space, space.memory.put(vector))
