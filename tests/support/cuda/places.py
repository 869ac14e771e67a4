"""Where small tensors are worked on: the host, and a device that tests run there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
from numpy.typing import NDArray

from support.cuda.guarded import GuardedDevice, guarded_device


@final
@dataclass(frozen=True)
class Place:
    """The host, for None, or a device."""

    device: GuardedDevice | None

    def put(self, value: Any) -> Any:
        """The value; of an array a copy on a device."""
        there = self.device is not None and isinstance(value, np.ndarray)
        return self.device.upload(value) if there else value

    def get(self, found: Any) -> Any:
        """An array or batch of this place on the host; of a tuple each part."""
        if isinstance(found, tuple):
            return tuple(map(self.get, found))
        assert self.device is None or self.device.owns(found) or found.device is self.device
        return np.asarray(found if isinstance(found, np.ndarray) else found_on_host(found))

    def move(self, batch: Any) -> Any:
        """A batch or group of the host, copied to a device."""
        return batch if self.device is None else batch.to(self.device)

    def call(self, method: Callable[..., Any], *arrays: Any, **rest: Any) -> Any:
        """What a function returns for arrays that are worked on here."""
        return self.get(method(*map(self.put, arrays), **rest))


def found_on_host(found: Any) -> NDArray[Any]:
    """Numbers of a batch, or of a device's array."""
    numbers: NDArray[Any] = found.numpy() if hasattr(found, "numpy") else found.get()
    return numbers


@pytest.fixture(scope="module", params=["host", "device"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of them."""
    return Place(None if request.param == "host" else guarded_device())
