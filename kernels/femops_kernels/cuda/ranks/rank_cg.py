"""Conjugate gradients on many ranks with a device each: vectors stay there, sums do not."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import RankSolve, Reduction
from femops_kernels.compiled import CompiledOperator
from femops_kernels.cuda.cg.cg import Parts
from femops_kernels.cuda.device.device import Device

_ALPHA, _BETA, _SUMS, _NUMBERS = 5, 6, 9, 11  # as in ``cg_state.cuh``


@final
class DeviceRankConjugateGradients(RankSolve):
    """State of one solve, as `DeviceConjugateGradients`, on one of many ranks.

    Vectors stay on the device. The host waits for the sums of each product, adds those of all ranks
    and tells the device what came of it.

    Parameters
    ----------
    operator : CompiledOperator
    device : Device
    b, x, inverse, sums
        See `CompiledOperator.conjugate_gradients`.
    """

    merged = False

    def __init__(
        self,
        operator: CompiledOperator,
        device: Device,
        b: Any,
        x: Any,
        inverse: Any | None,
        sums: Reduction,
    ) -> None:
        self._operator, self._b, self._reduce = operator, b, sums
        self._vectors = device.xp.zeros((4, max(1, len(b))), b.dtype)
        self.x[:] = x
        self._state = np.array([-1.0, 0.0, 0.0, 0.0])
        self._numbers = device.staging_buffer(_NUMBERS, np.dtype(np.float64), direct=False)
        self._parts = Parts(device, self._vectors, b, inverse, self._numbers.there, ranks=True)
        _, _, self._q, self._p = (row[: len(b)] for row in self._vectors)

    def _begun(self) -> NDArray[np.float64]:
        self._operator.apply(self.x, self._q)
        return self._sums("BEGIN")

    def _curvature(self) -> float:
        self._operator.apply(self._p, self._q)
        return float(self._sums("PRODUCT")[0])

    def _moved(self, alpha: float) -> NDArray[np.float64]:
        self._tell(_ALPHA, alpha)
        return self._sums("STEP")

    def _turn(self, beta: float) -> None:
        self._tell(_BETA, beta)
        self._parts.launch("TURN", self._p)

    def _sums(self, part: str) -> NDArray[np.float64]:
        """Do one of the updates; what it sums, of all ranks."""
        self._parts.launch(part, self._p)
        self._numbers.depart()
        self._numbers.wait()
        return self._reduce(self._numbers.here[_SUMS:].reshape(2, 1))

    def _tell(self, which: int, number: float) -> None:
        """Set a number of the state on the device."""
        self._numbers.here[which] = number
        self._numbers.enter()
