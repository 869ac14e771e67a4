"""Setting a result to zero before elements add to it, but where one alone stores."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.simd.runs import DofRuns

# Part of an element's dofs inside it from which on leaving them out saves more than it reads.
_WORTH = 0.2
_WARP = 32


@final
class Clearing:
    """Zeros at the dofs that an element meets first and shares; none at those inside it.

    Parameters
    ----------
    device : Device
    kernel : CudaKernel
        It stores all dofs inside the elements.
    starts, touched : array
        See `DofTable` and `DeviceDofs`.
    """

    def __init__(self, device: Device, kernel: CudaKernel, starts: Any, touched: Any) -> None:
        pointers = {"y": "T*", "starts": "const int*", "touched": "const int*"}
        layout = Layout(pointers | {"count": "int"}, kernel.dtype)
        runs = _runs(kernel)
        numbers = {"RUNS": len(runs.nodes), "CENTRE": _centre(runs), "INSIDE": len(runs.inside)}
        numbers["NCOMP"] = kernel.target.ncomp
        count = len(touched) - 1
        self._blocks = -(-count * _WARP // SIMPLE_THREADS)
        self._arrays = {"starts": starts, "touched": touched}
        self._packed = layout.pack(device, y=None, count=count, **self._arrays)
        self._function = device.function(simple_text(layout, kernel.dtype, "clear", **numbers))

    @staticmethod
    def pays(
        kernel: CudaKernel, indices: NDArray[np.int64], constrained: NDArray[np.int64]
    ) -> bool:
        """True if many dofs are inside elements, in the order of their numbers, and all free.

        Rows of constrained dofs are zero before anything is added to them, inside elements too.
        """
        inside = _runs(kernel).inside
        if len(inside) < _WORTH * indices.shape[1]:
            return False
        dofs = indices[:, inside]
        if (dofs != dofs[:, :1] + np.arange(len(inside))).any():
            return False
        return not np.isin(constrained // kernel.target.ncomp, dofs).any()

    def launch(self, y: int) -> None:
        """Write to y, given by address."""
        packed = copied(self._packed)
        packed["y"] = y
        self._function.launch(self._blocks, SIMPLE_THREADS, 0, packed)


def _runs(kernel: CudaKernel) -> DofRuns:
    return kernel.target.runs(kernel.dim)


def _centre(runs: DofRuns) -> int:
    """Number of the run inside an element."""
    return next(k for k, nodes in enumerate(runs.nodes) if nodes[0] == runs.inside[0])
