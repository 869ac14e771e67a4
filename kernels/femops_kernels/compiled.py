"""Interface of compiled operators, which is the same for the host and for devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import Reduction, Solve
from femops_kernels.channel import Route
from femops_kernels.instruction import Instruction

Places = Sequence[tuple[int, int, bool]]
"""For each launch, offsets in bytes of its piece of x and of its piece of y, and True if it adds to
the results of earlier launches."""
Exchanges = Sequence[tuple[Any, int]]
"""Exchanges, each with the offset in bytes of its piece of the vector."""
Routes = Sequence[Route]


@final
@dataclass(frozen=True)
class Panels:
    """Number of vectors that an operator is applied to at once: ``count`` times ``nvec``."""

    nvec: int = 1  # number of vectors of a panel, which is a C-ordered array (size, nvec)
    count: int = 1  # number of panels.  They follow each other in memory.


ONE = Panels()
"""A single vector."""


class Launch(ABC):
    """Compiled work on two vectors: one summand of an operator."""

    # True if the launch works on elements, whose dofs may be ghosts.  A rank without elements has
    # True too.
    on_elements: bool
    # forward exchange that only this launch needs, and that must be done before the launch
    forward: Any = None

    def contributed(self, target: int) -> NDArray[np.int64]:  # noqa: ARG002  (of none)
        """Ghost number (n,) of each contribution that a launch leaves to other ranks, ascending."""
        return np.empty(0, dtype=np.int64)

    @property
    def functionals(self) -> Any:
        """Functionals (ne, functionals) of the last application, in the memory of the launch."""
        return np.empty((0, 0))


class CompiledOperator(ABC):
    """A sum of launches with factors, ready to be run: ``y = sum_i alpha_i A_i x``."""

    sweeps: tuple[Any, ...]
    alphas: Any
    solves: ClassVar[type[Any]]  # class of the operator's solves by conjugate gradients

    @abstractmethod
    def apply(self, x: Any, y: Any) -> None:
        """Set y to the operator applied to x. All ranks that share dofs call this.

        Shapes: `x`, `y` (n,).
        """

    def instruction(self, x: Any, y: Any) -> Instruction | None:  # noqa: ARG002
        """Instruction that does the same as `apply` on the host; None if only Python can call it.

        Shapes: `x`, `y` (n,).
        """
        return None

    @abstractmethod
    def mergeable(self, size: int, *, many: bool) -> bool:
        """True if conjugate gradients can use merged sweeps of the operator."""

    def conjugate_gradients(
        self,
        b: Any,
        x: Any | None,
        inverse: Any | None,
        merged: bool,
        sums: Reduction,
        natural: bool = False,
    ) -> Solve:
        """Begin a solve with the operator, which is symmetric positive definite. All ranks call it.

        Shapes: `b` (n,), `x` (n,), `inverse` (n,).
        """
        solve: Solve = self.solves(self, b, x, inverse, merged, sums, natural)
        return solve


class DistributedOperator(CompiledOperator, ABC):
    """An operator that all ranks apply together. Each rank has the part of its own elements."""

    local: Any  # operator of this rank's launches, of the machine's own class

    def __init__(
        self,
        local: CompiledOperator,
        forwards: Exchanges,
        reverses: Exchanges,
        routes: Routes,
        at_once: bool = False,
    ) -> None:
        self.local, self.sweeps, self.alphas = local, local.sweeps, local.alphas
        self.forwards, self.reverses = tuple(forwards), tuple(reverses)
        self.routes, self.overlap, self._at_once = tuple(routes), True, at_once
        last = {n: k for k, route in enumerate(routes) for n in route.reverses}
        # True for each reverse exchange whose message is complete after launch k
        self._due = [
            [n is not None and (at_once or last[n] == k) for n in route.reverses]
            for k, route in enumerate(routes)
        ]
