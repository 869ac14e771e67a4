"""An operator compiled for a machine: what everything above it asks of it, wherever it runs."""

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
"""Places of launches on pieces of x and y: where they begin, bytes, and whether the result is
added to what earlier ones left there."""
Exchanges = Sequence[tuple[Any, int]]
"""Exchanges, and where in a vector the piece of each begins, bytes."""
Routes = Sequence[Route]


@final
@dataclass(frozen=True)
class Panels:
    """Number of vectors that an operator is applied to at once.

    Attributes
    ----------
    nvec : int
        Vectors of a panel: an array (size, nvec), the vectors of an entry next to each other.
    count : int
        Panels, one behind the other.
    """

    nvec: int = 1
    count: int = 1


ONE = Panels()
"""A single vector."""


class Launch(ABC):
    """Compiled work on two vectors: one of the summands of an operator.

    Attributes
    ----------
    on_elements : bool
        Whether it reads and writes dofs of elements, so those of other ranks too, or would if
        there were any elements.
    forward : object or None
        The exchange that a launch has of its own, to be done before it.
    """

    on_elements: bool
    forward: Any = None

    def contributed(self, target: int) -> NDArray[np.int64]:  # noqa: ARG002  (of none)
        """The ghost of each contribution that it leaves for other ranks, ascending.

        Parameters
        ----------
        target : int
            Number of the test function.
        """
        return np.empty(0, dtype=np.int64)

    @property
    def functionals(self) -> Any:
        """Functionals of each element in the last application, one row each, where it runs."""
        return np.empty((0, 0))


class CompiledOperator(ABC):
    """A sum of launches with factors, ready to be run: ``y = sum_i alpha_i A_i x``.

    Attributes
    ----------
    sweeps : tuple of Launch
    alphas : sequence of float
    solves : type of Solve
        Class of its solves by conjugate gradients.
    """

    sweeps: tuple[Any, ...]
    alphas: Any
    solves: ClassVar[type[Any]]

    @abstractmethod
    def apply(self, x: Any, y: Any) -> None:
        """Overwrite y by the operator applied to x. All ranks that share dofs call this.

        Both are contiguous, of the kernels' type, and where the operator runs.
        """

    def instruction(self, x: Any, y: Any) -> Instruction | None:  # noqa: ARG002
        """Instruction that does `apply` on the host; None if Python is to call that."""
        return None

    @abstractmethod
    def mergeable(self, size: int, *, many: bool) -> bool:
        """True if a sweep can update vectors of conjugate gradients on its way.

        Parameters
        ----------
        size : int
            Entries of a vector.
        many : bool
            Whether inner products are sums of many ranks'.
        """

    def conjugate_gradients(
        self,
        b: Any,
        x: Any | None,
        inverse: Any | None,
        merged: bool,
        sums: Reduction,
        natural: bool = False,
    ) -> Solve:
        """Begin a solve; the operator is symmetric and positive definite. All ranks call it.

        Parameters
        ----------
        b : (n,) array
            Right-hand side, of the kernels' type.
        x : (n,) array or None
            First guess; without one zero, and no product is needed.
        inverse : (n,) array or None
            Entries of a diagonal preconditioner.
        merged : bool
            Whether vectors are updated inside the operator's sweep; only if it is mergeable.
        sums : Reduction
        natural : bool
            Whether the residual's norm is sqrt(r . M r), not sqrt(r . r).
        """
        solve: Solve = self.solves(self, b, x, inverse, merged, sums, natural)
        return solve


class DistributedOperator(CompiledOperator, ABC):
    """An operator of which each rank has its part, run by all of them together.

    Parameters
    ----------
    local : CompiledOperator
        Of this rank's elements.
    forwards, reverses : Exchanges
        What is exchanged before, and afterwards.
    routes : sequence of Route
        For each launch.
    at_once : bool
        Whether results of a launch are exchanged before the next: so they are added to those of
        other ranks in the order of the launches.

    Attributes
    ----------
    local : CompiledOperator
    overlap : bool
        Whether elements are worked on while messages are on their way; on unless it is set to
        False.
    """

    local: Any  # as `sweeps`, of the machine's own kind

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
        # whether a launch's results are complete for other ranks
        self._due = [
            [n is not None and (at_once or last[n] == k) for n in route.reverses]
            for k, route in enumerate(routes)
        ]
