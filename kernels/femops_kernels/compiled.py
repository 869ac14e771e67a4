"""Things compiled for a machine: operators, conjugate gradients, updates; one interface for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.skeletons.cg import cg_state as at
from femops_kernels.skeletons.cg.cg_state import BREAKDOWN, CONVERGED, LEAST_NORM
from femops_kernels.skeletons.cg.decisions import first, following


@final
@dataclass(frozen=True, eq=False)
class Instruction:
    """An operation that compiled code of the host does; see ``skeletons/sequence``."""

    function: int  # address of the compiled function
    # arguments of the operation: addresses, counts and factors.  They are the entries of the
    # instruction's row after the two entries that all rows have.
    words: tuple[int | float, ...]
    work_bytes: int = 0  # bytes of work space that a thread needs
    kept: Any = None  # arrays and objects that must live as long as the instruction can run
    # Returns False if the instruction is out of date and must be made again
    current: Callable[[], bool] | None = None


class Channel(ABC):
    """Channel that repeats an exchange of messages of fixed size with some other ranks."""

    # outgoing and incoming are (n,): numbers to send, and numbers received.  Each rank has a
    # contiguous piece, by ascending rank.
    outgoing: NDArray[Any]
    incoming: NDArray[Any]

    @abstractmethod
    def start(self) -> None:
        """Begin to send ``outgoing``. Do not write to it before `finish` has returned."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all numbers of ``incoming`` have arrived."""


@final
@dataclass(frozen=True)
class Route:
    """Exchanges that a launch needs, by their numbers in a `DistributedOperator`."""

    # for each field of the launch, the forward exchange that brings its ghosts.  None if ranks
    # share no dofs of the field.
    forwards: tuple[int | None, ...] = ()
    # for each test function, the reverse exchange that takes the contributions to ghosts
    reverses: tuple[int | None, ...] = ()


DType = np.dtype[Any]
Factors = tuple[float, float, float, float]
Ints = NDArray[np.int64]
Totals = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Function that takes this rank's sums (k, segments) and returns the totals (k,) of all ranks."""
WeightedSum = tuple[Any, Sequence[tuple[float, Any]], tuple[float, Any] | None]
"""A vector that is set, the terms of its sum, and a mean or None; all vectors are (n,) arrays.

A term is a weight and a vector. With the mean (share, vector) the vector becomes
sum + share (vector - sum).
"""


class Directions(ABC):
    """Inner products and updates of conjugate gradients around a preconditioner.

    The vectors of the preconditioner may have another dtype than those of conjugate gradients.
    """

    @abstractmethod
    def inner(self, a: Any, b: Any) -> float:
        """Inner product of a vector a and a preconditioner's vector b, both (n,). Collective."""

    @abstractmethod
    def inners(self, a: Any, c: Any, b: Any) -> tuple[float, float]:
        """Inner products of two vectors a and c with a preconditioner's vector b, all (n,).

        Collective, with one message for both.
        """

    @abstractmethod
    def move(self, vectors: tuple[Any, ...], alpha: float, scale: float) -> float:
        """Set x += alpha p, r -= alpha product and right = scale r. Return r.r. Collective.

        Shapes: `vectors` (x, r, p, product, right).
        """

    @abstractmethod
    def turn(self, p: Any, z: Any, beta: float, scale: float) -> None:
        """Set p = scale z + beta p, where z is a preconditioner's vector; both (n,)."""


class CoarsestVectors(ABC):
    """Right-hand side and solution of the coarsest level, whose system the host solves."""

    # right and found are (n,): right-hand side and solution, in the memory of the cycle's other
    # vectors
    right: Any
    found: Any

    @abstractmethod
    def fetch(self) -> NDArray[np.float64]:
        """Wait until the right-hand side is computed, and return a copy (n,) on the host."""

    @abstractmethod
    def give(self, solution: NDArray[np.float64]) -> None:
        """Copy a solution (n,) from the host to `found`."""


class VectorUpdates(ABC):
    """Vectors of a multigrid cycle on the host or on a device, and their updates."""

    xp: ModuleType  # NumPy's functions for the vectors
    repeats: bool  # True if work from `repeatable` is faster than the original

    @abstractmethod
    def put(self, values: NDArray[Any]) -> Any:
        """Copy an array (n,) from the host to the memory of the vectors; the host returns it."""

    @abstractmethod
    def vector(self, size: int, dtype: DType) -> Any:
        """Make a vector (size,) of zeros. On the host it is padded to whole cache lines."""

    @abstractmethod
    def coarsest(self, size: int, dtype: DType) -> CoarsestVectors:
        """Make the vectors of the coarsest level, (size,)."""

    @abstractmethod
    def step(
        self, old: Any, product: Any, right: Any, scales: Any, current: Any, factors: Factors
    ) -> None:
        """Set old = scales (a product + f right) + b current + c old, in one pass over memory.

        Shapes: `old`, `product`, `right`, `scales`, `current` (n,), `factors` (a, f, b, c).
        """

    @abstractmethod
    def directions(self, edges: Ints, total: Totals, real: DType, other: DType) -> Directions:
        """Make the inner products and updates of conjugate gradients around a preconditioner.

        Shapes: `edges` (segments + 1,).
        """

    @abstractmethod
    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats ``work``, in less time if `repeats` is True.

        The work must have been done once.  It may only launch kernels and clear vectors, with the
        same arguments each time.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until all launched updates are done."""


__all__ = [
    "BREAKDOWN",
    "CONVERGED",
    "LEAST_NORM",
    "Reduction",
    "Solve",
    "SolveGroup",
    "between_messages",
    "segment_edges",
]

SEGMENT = 4096  # numbers of a segment: 32 kB of float64, three vectors of it stay in cache

_PLACES = {0: [], 1: [at.S_PV], 2: [at.S_RHO, at.S_RR], at.NSUMS: [*range(at.NSUMS)]}
"""Positions of an action's sums among all sums, by the number of its sums. All others are NaN."""


def segment_edges(n: int) -> NDArray[np.int64]:
    """First entry of each segment of a vector of ``n`` numbers, then n: (segments + 1,)."""
    return np.append(np.arange(0, n, SEGMENT), n)


class Reduction(ABC):
    """Sum over the entries of vectors of which each rank has a piece."""

    # (segments + 1,): first entry of each segment of this rank's piece, then the length of the
    # piece.  Each segment is summed by itself.
    edges: NDArray[np.int64]
    many: bool  # True if there are several ranks, or if one rank must sum in the order of several

    @abstractmethod
    def __call__(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        """Totals (k,) over all ranks, from this rank's sums (k, segments). Collective."""


class Solve(ABC):
    """One solve by conjugate gradients. ``skeletons/cg/decisions.py`` chooses its next action.

    Shapes: `state` (n,).
    """

    # number of steps for which a call of `advance` is fastest.  If None, the caller chooses a
    # number of steps that take much longer than a call of Python.
    every: int | None = None
    _b: NDArray[Any]
    _vectors: NDArray[Any]

    def __init__(
        self, state: NDArray[np.float64], *, natural: bool, merged: bool, scale: float = 1.0
    ) -> None:
        self.merged, self._state = merged, state
        state[[at.NATURAL, at.MERGED, at.SCALE]] = natural, merged, scale

    @abstractmethod
    def restart(self, b: NDArray[Any], x: NDArray[Any] | None) -> None:
        """Begin again with another right-hand side and first guess. All ranks call it.

        Shapes: `b` (n,), `x` (n,).
        """

    def _renew(self, *, guessed: bool) -> None:
        """Reset the state, so that the next action is the start."""
        self._state[: at.GOAL] = 0.0
        self._state[[at.ITERATIONS, at.RHO, at.DROP, at.RELATIVE]] = -1.0, np.inf, guessed, 0.0

    @abstractmethod
    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """Iterate until the residual's norm is at most ``tolerance``.

        This call does at most ``steps`` iterations, and all calls together at most ``limit``.  If
        ``show`` is False, x may lack its last updates until the solve ends, which can be faster.
        """

    def group(self, others: Sequence[Solve]) -> SolveGroup | None:  # noqa: ARG002
        """Group that runs this solve and others at once; None if they can't form a group."""
        return None

    @property
    def x(self) -> NDArray[Any]:
        """View of the iterate, (n,)."""
        iterate: NDArray[Any] = self._vectors[0, : len(self._b)]
        return iterate

    @property
    def right(self) -> NDArray[Any]:
        """Right-hand side, (n,)."""
        return self._b

    @property
    def iterations(self) -> int:
        """Number of iterations done."""
        return max(0, int(self._state[at.ITERATIONS]))

    @property
    def norms(self) -> tuple[float, float]:
        """Two norms of the first residual: that of `residual`, and the Euclidean norm."""
        return float(self._state[at.FIRST]), float(self._state[at.NORM])

    @property
    def residual(self) -> float:
        """Norm of the residual, which each iteration updates without computing b - A x."""
        return float(self._state[at.RESIDUAL])

    @property
    def status(self) -> int:
        """0 while the solve runs, then ``CONVERGED`` or ``BREAKDOWN``."""
        return int(self._state[at.STATUS])


class SolveGroup(ABC):
    """Solves that run at the same time. One thread at a time works on each solve."""

    @abstractmethod
    def restart(
        self, rights: Sequence[NDArray[Any]], relative: float, least: Sequence[float]
    ) -> None:
        """Begin all solves again from zero, with other right-hand sides.

        Shapes: `rights` (n,).
        """

    @abstractmethod
    def advance(self, limit: int, tolerances: Sequence[float] | None = None) -> None:
        """Iterate until all solves end, or have done ``limit`` iterations."""

    @abstractmethod
    def instruction(
        self,
        rights: Sequence[NDArray[Any]],
        relative: float,
        least: Sequence[float],
        limit: int,
        done: NDArray[np.float64],
    ) -> Instruction:
        """Instruction that does the same as `restart` and `advance` in a sequence.

        The instruction ends the sequence if a solve breaks down, or if a right-hand side has
        entries that are not finite or whose squares underflow.

        Shapes: `done` (1,).
        """


def between_messages(
    state: NDArray[np.float64],
    steps: int,
    show: bool,
    act: Callable[[int], NDArray[np.float64]],
) -> None:
    """Iterate as `Solve.advance`, with inner products summed over many ranks. All ranks call it.

    Shapes: `state` (n,).
    """
    sums, action = np.full(at.NSUMS, np.nan), first(state, steps, show)
    while action != at.STOP:
        totals = act(action)
        sums[at.S_RHO] = state[at.RHO]  # a sweep that is not merged does not compute it
        sums[_PLACES[len(totals)]] = totals
        action = following(state, action, sums)


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
