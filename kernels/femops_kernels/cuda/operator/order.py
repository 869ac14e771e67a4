"""Order in which a launch works on its elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.device import Device


@final
@dataclass(frozen=True, eq=False)
class Order:
    """Elements in the order of a launch. Those that touch ghosts are last, in separate blocks."""

    # (blocks * group,): element at each place of the blocks.  Surplus places of a block have ~e <
    # 0, where e is the block's last element.
    elements: NDArray[np.int32]
    group: int  # elements of a thread block
    plain: int  # number of blocks without ghosts, which come first

    @staticmethod
    def of(with_ghosts: NDArray[np.bool_], group: int) -> Order:
        """Order of elements, from flags (ne,) that tell which elements touch ghosts."""
        parts = [_filled(np.flatnonzero(which), group) for which in (~with_ghosts, with_ghosts)]
        return Order(np.concatenate(parts), group, len(parts[0]) // group)

    def of_parts(self, group: int) -> Order:
        """Same order in blocks of ``group`` elements, which must divide the present group."""
        return Order(self.elements, group, self.plain * self.group // group)

    @property
    def blocks(self) -> int:
        """Number of thread blocks of a launch on all elements."""
        return len(self.elements) // self.group

    def taken(self, device: Device, points: NDArray[Any], begin: int, end: int) -> Any:
        """Qdata of the elements at the places begin to end - 1; zeros at places without element.

        Complete batches are copied to the device, which puts their elements in order.

        Shapes: `points` (nbatch, points, n, width), returned (end - begin, points, n).
        """
        elements, width = self.elements[begin:end], points.shape[-1]
        batches, inverse = np.unique(np.maximum(elements, 0) // width, return_inverse=True)
        device_batches = device.upload(points[batches])
        flat = device_batches.transpose(0, 3, 1, 2).reshape(-1, *points.shape[1:3])
        places = inverse.reshape(-1) * width + np.maximum(elements, 0) % width
        values = flat[device.upload(places)]
        if (elements < 0).any():
            values[device.upload(np.flatnonzero(elements < 0))] = 0
        return values


def _filled(elements: NDArray[np.int64], group: int) -> NDArray[np.int32]:
    """Places of full blocks: the elements, then ~e of the last element e to fill the last block."""
    more = -len(elements) % group
    return np.concatenate([elements, np.repeat(~elements[-1:], more)]).astype(np.int32)
