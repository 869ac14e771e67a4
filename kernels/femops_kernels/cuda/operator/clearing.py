"""Launch that clears the dofs that elements share. The dofs inside an element need no zeros."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.cuda.operator.dofs import DeviceDofs, centre
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.simd.runs import DofRuns

# Least fraction of an element's dofs inside the element. From this fraction on, the time saved by
# not clearing them is longer than the time to read the numbers of the other dofs.
_WORTH = 0.2
_WARP = 32


@final
class Clearing:
    """Launch that sets y to zero at all dofs but those inside elements.

    Each element clears the dofs that it touches first.
    """

    def __init__(self, device: Device, kernel: CudaKernel, starts: Any, touched: Any) -> None:
        pointers = {"y": "T*", "starts": "const int*", "touched": "const int*"}
        layout = Layout(pointers | {"count": "int"}, kernel.dtype)
        runs = _runs(kernel)
        numbers = {"RUNS": len(runs.nodes), "CENTRE": centre(runs), "INSIDE": len(runs.inside)}
        numbers["NCOMP"] = kernel.target.ncomp
        count = len(touched) - 1
        self._blocks = -(-count * _WARP // SIMPLE_THREADS)
        self._arrays = {"starts": starts, "touched": touched}
        self._packed = layout.pack(device, y=None, count=count, **self._arrays)
        self._function = device.function(simple_text(layout, kernel.dtype, "clear", **numbers))

    @staticmethod
    def pays(kernel: CudaKernel, dofs: DeviceDofs, constrained: NDArray[np.int64]) -> bool:
        """True if many dofs are inside elements and numbered in order, and none is constrained.

        The kernel adds to rows of constrained dofs, also inside elements, so they must be zero.
        ``constrained`` (n,) are their flat positions.
        """
        count = len(_runs(kernel).inside)
        if dofs.inside is None or count < _WORTH * dofs.indices.shape[1]:
            return False
        nodes = constrained // kernel.target.ncomp
        before = np.append(-count, dofs.inside)  # no node is in the run at -count
        before = before[np.searchsorted(before, nodes, side="right") - 1]
        return not (nodes - before < count).any()

    def launch(self, y: int) -> None:
        """Clear the vector y, given by its address."""
        packed = copied(self._packed)
        packed["y"] = y
        self._function.launch(self._blocks, SIMPLE_THREADS, 0, packed)


def _runs(kernel: CudaKernel) -> DofRuns:
    return kernel.target.runs(kernel.dim)
