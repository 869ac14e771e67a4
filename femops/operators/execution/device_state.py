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
    """A vector on a device.

    Parameters
    ----------
    space : Space
    vector : array of the device
    setups : dict, optional
        See `State`.
    ghosts : array of the device, optional
        Values at dofs of other ranks.
    """

    filled = True

    def __init__(
        self,
        space: Space,
        vector: Any,
        setups: dict[Any, tuple[QDataSplit, Data]] | None = None,
        ghosts: Any = None,
    ) -> None:
        self.space, self.vector, self.ghosts = space, vector, ghosts
        self.setups = {} if setups is None else setups

    @cached_property
    def l_vec(self) -> NDArray[Any]:
        """See `State.l_vec`; copied when it is asked for."""
        get, parts = self.space.memory.get, [self.vector]
        if self.ghosts is not None:
            parts.append(self.ghosts)
        whole = np.concatenate([get(part) for part in parts])
        ncomp = self.space.ncomp
        return whole.reshape(-1, ncomp) if ncomp > 1 else whole

    def renewed(self) -> DeviceState:
        """See `State.renewed`: nothing that was computed of other coefficients."""
        return DeviceState(self.space, self.vector, ghosts=self.ghosts)

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
        get = self.space.memory.get
        ghosts = None if self.ghosts is None else get(self.ghosts)
        return _restored, (self.space, get(self.vector), ghosts)


def _restored(space: Space, vector: NDArray[Any], ghosts: NDArray[Any] | None) -> DeviceState:
    put = space.memory.put
    there = None if ghosts is None else put(ghosts)
    return DeviceState(space, put(vector), ghosts=there)
