"""States on a device, at which nonlinear forms are differentiated."""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

from numpy.typing import NDArray

from femops.pointwise.cut import Cut
from femops.spaces.base import Space
from femops.spaces.devices import put
from femops_kernels.pointwise.qdata import Data


@final
class DeviceState:
    """A vector on a device, of a space on one rank.

    Parameters
    ----------
    space : Space
    vector : array of the device
    setups : dict, optional
        Programs that compute what a derivative keeps, and their data, by the nodes that are kept;
        those of all derivatives of one form.
    """

    def __init__(
        self, space: Space, vector: Any, setups: dict[Any, tuple[Cut, Data]] | None = None
    ) -> None:
        self.space, self.vector = space, vector
        self.setups = {} if setups is None else setups

    @cached_property
    def l_vec(self) -> NDArray[Any]:
        """The vector on the host, copied when it is asked for."""
        assert self.space.device is not None
        there: NDArray[Any] = self.space.device.download(self.vector)
        return self.space.l_vec(there)

    def __reduce__(self) -> tuple[Any, ...]:
        """State for another process: the programs are made again there."""
        assert self.space.device is not None
        return _restored, (self.space, self.space.device.download(self.vector))


def _restored(space: Space, vector: NDArray[Any]) -> DeviceState:
    return DeviceState(space, put(space, vector))
