"""A field or a test function of a kernel: sizes that are known when the kernel is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from femops_kernels.simd.runs import DofRuns


@final
@dataclass(frozen=True)
class ElementSide:
    """A field or a test function of a kernel.

    Attributes
    ----------
    block : int
        Block of the table that describes its dofs.
    first : int
        Components of the fields (or test functions) before it.
    ncomp : int
        Components.
    first_run : int
        Runs of the fields (or test functions) before it.
    index_bytes : int
        2 or 4, the width of a chunk-local dof number.
    runs : DofRuns
        Nodes of an element that have consecutive numbers.
    """

    block: int
    first: int
    ncomp: int
    first_run: int
    index_bytes: int
    runs: DofRuns

    @property
    def p1d(self) -> int:
        """Nodes per direction."""
        return self.runs.p1d

    @property
    def num_runs(self) -> int:
        """Runs of an element."""
        return len(self.runs.nodes)


__all__ = ["ElementSide"]
