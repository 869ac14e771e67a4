"""A field or a test function of a kernel: constants with which the kernel is compiled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from femops_kernels.simd.runs import DofRuns


@final
@dataclass(frozen=True)
class ElementSide:
    """A field or a test function of a kernel."""

    block: int  # number of the table's block that describes its dofs
    first: int  # number of components of the fields (or test functions) before it
    ncomp: int  # number of components
    first_run: int  # number of runs of the fields (or test functions) before it
    index_bytes: int  # 2 or 4, the width of a chunk-local dof number
    runs: DofRuns  # nodes of an element that have consecutive numbers

    @property
    def shape(self) -> tuple[int, int, int]:
        """Nodes along x, y and z; one along a direction that the element does not have."""
        x, y, z = (*self.runs.shape, 1, 1)[:3]
        return x, y, z

    @property
    def p1d(self) -> int:
        """Nodes per direction of an element behind a face."""
        return self.runs.p1d

    @property
    def all_nodes(self) -> int:
        """Number of nodes of an element, read or not."""
        return math.prod(self.runs.shape)

    @property
    def layers(self) -> int:
        """Number of nodes that are read of a line that leads inwards from a face."""
        return self.runs.layers or self.runs.p1d

    @property
    def num_nodes(self) -> int:
        """Number of nodes that are read of an element."""
        return self.runs.num_nodes

    @property
    def num_runs(self) -> int:
        """Number of runs of an element."""
        return len(self.runs.nodes)


__all__ = ["ElementSide"]
