"""Interface between operators and the machine that they are compiled for: host or device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.errors import OperatorError
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.state import State
from femops.operators.integrals.term import KernelTerm, Sum
from femops.spaces.base import Space
from femops_kernels.compiled import (
    ONE,
    CompiledOperator,
    Exchanges,
    Instruction,
    Launch,
    Panels,
    Places,
    Routes,
    VectorUpdates,
)
from femops_kernels.pointwise.qdata import Data
from femops_kernels.spec import KernelSpec

Ints = NDArray[np.int64]
Sizes = Mapping[int, int]
"""Number of entries to send to each rank, or to receive from it."""
Work = tuple[KernelSpec, Data]
"""Specification of a kernel, and the data that it reads."""
TermWork = tuple[KernelTerm, Callable[[], Work]]
"""A term, and a function that makes the work of its kernel."""
Transfer = tuple[Space, Space, NDArray[np.float64], Space]
"""Source and target of an interpolation along each direction, its 1-D matrix, the finer space."""


@final
@dataclass(frozen=True, eq=False)
class Step:
    """Summand of an operator: a launch with its factor and its parts of the vectors."""

    alpha: float  # factor of the launch
    launch: Launch
    # fields and tests: fields that the launch reads and test functions that it writes, in the
    # operator's vectors. On faces between elements these are the sides of fields and tests.
    fields: Arguments
    tests: Arguments
    # True if the launch may overwrite the entries of its test functions, False if it adds to them
    begins: bool
    # position of the launch's vectors in the operator's input and output vector
    place: tuple[int, int] = (0, 0)

    @property
    def written(self) -> set[str]:
        """Names of the test functions that the launch writes: u for its sides u- and u+."""
        return set(self.tests.parts.spaces)

    @property
    def exchanges(self) -> bool:
        """True if ranks must exchange values of dofs for the launch."""
        spaces = [*self.fields.spaces.values(), *self.tests.spaces.values()]
        shared = any(space.halo is not None for space in spaces)
        return self.launch.forward is not None or (self.launch.on_elements and shared)


class Backend(ABC):
    """Machine that operators are compiled for: the host, or a device."""

    levels: tuple[str, ...] = ()  # levels that the machine has kernels for; () means all
    # True if the level "auto" is chosen by measured times, False if by the bytes that levels read
    measures: bool
    # whether there are kernels for element matrices that are sums of Kronecker products
    separates: bool
    # whether one compiled call can do several operations, see `femops_kernels.cpu.sequence`
    compiles_sequences: bool = False
    updates: VectorUpdates  # vector updates of multigrid cycles

    # --- kernels in the background, where a core is idle ------------------------------------------

    def compile_shared(self, term: KernelTerm) -> None:  # noqa: B027  (a device has none)
        """Start to compile kernels that operators of all forms share."""

    @abstractmethod
    def compile_ahead(self, works: Callable[[], Sequence[TermWork]], ranks: int) -> None:
        """Start to compile kernels of terms."""

    @abstractmethod
    def compile_cycle(
        self,
        transfers: Sequence[Transfer],
        modes: Callable[[], Sequence[tuple[Space, NDArray[np.float64]]]],
        outer: np.dtype[Any],
        dtype: np.dtype[Any],
    ) -> None:
        """Start to compile kernels of multigrid cycles, besides those of operators.

        ``modes`` has spaces and eigenvectors of `ElementModes`.
        """

    # --- checks of options -----------------------------------------------------------------------

    def check_level(self, level: str) -> None:
        """Raise if the machine has no kernels for a level."""
        if self.levels and level not in self.levels:
            raise OperatorError(
                f"a GPU has no kernels for level {level!r}: choose one of "
                f"{', '.join(self.levels)} or auto; assemble() gives a matrix for "
                "cupyx.scipy.sparse"
            )

    @abstractmethod
    def check_lanes(self, lanes: int | None) -> None:
        """Raise if ``lanes`` is not None and the machine has no kernels of that width."""

    # --- launches --------------------------------------------------------------------------------

    @abstractmethod
    def launch(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work] | None = None,
    ) -> Launch:
        """Make the launch of a term's kernel, bound to dofs and data; `idle` without elements.

        Without ``work`` the kernel works at the points. A device does not call ``work``.
        """

    @abstractmethod
    def launch_products(self, source: Space, target: Space, work: Work) -> Launch:
        """Make the launch that sums products of element dofs; `idle` without elements.

        Factors of elements or points that the data do not have are 1.
        """

    @abstractmethod
    def slots(self, dtype: np.dtype[Any]) -> int:
        """Number of elements that stand side by side in the data of `launch_products`."""

    @abstractmethod
    def fewest_at_once(self, width: int, *, ordered: bool) -> tuple[int, int]:
        """Fewest vectors for which an operator uses panels, and the smallest panel width."""

    @abstractmethod
    def launch_panels(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work],
        panels: Panels,
    ) -> Launch:
        """Make the launch of a term's kernel for many vectors."""

    @abstractmethod
    def rows(self, matrix: csr_array, dtype: np.dtype[Any], *, any_width: bool = False) -> Launch:
        """Make a launch that multiplies by the matrix of one process, converted to ``dtype``.

        With ``any_width`` the bits of the result do not depend on the number of lanes.
        """

    @abstractmethod
    def idle(self) -> Launch:
        """Launch for a rank that has none of a term's elements."""

    @abstractmethod
    def start(
        self, size: int, rows: Ints, keep: float, dtype: np.dtype[Any], panels: Panels = ONE
    ) -> Launch:
        """Make a launch that sets a result to ``keep`` times the field in ``rows``, else to 0.

        Shapes: `rows` (n,).
        """

    # --- sequences -------------------------------------------------------------------------------

    def least_instruction(
        self,
        launch: Launch,  # noqa: ARG002
        functional: int,  # noqa: ARG002
        scalar: int,  # noqa: ARG002
    ) -> Instruction | None:
        """Instruction of a host sequence that computes the least value of a functional.

        None if Python has to compute the least value.
        """
        return None

    # --- operators -------------------------------------------------------------------------------

    @abstractmethod
    def operator(
        self, launches: Sequence[tuple[float, Any]], places: Places | None = None
    ) -> CompiledOperator:
        """Compile a sum of launches with factors."""

    @abstractmethod
    def diagonal(self, summands: Sum, compiled: Callable[[], CompiledOperator]) -> NDArray[Any]:
        """Diagonal (size,) of a sum of square terms, without essential conditions. Collective.

        Entries of constrained rows are undefined.
        """

    @abstractmethod
    def state(self, vectors: Mapping[str, tuple[Space, Any]], setups: dict[Any, Any]) -> State:
        """Copy vectors into the state at which a residual is differentiated. Collective.

        Without vectors, return the state of a linear form.
        """

    @abstractmethod
    def placed(self, vector: Any) -> Any:
        """Return the vector, or a copy in memory near the threads that use it."""

    # --- ranks -----------------------------------------------------------------------------------

    @abstractmethod
    def way(self, space: Space, send: Sizes, receive: Sizes, dtype: np.dtype[Any]) -> Any:
        """Open a channel for messages of fixed sizes between ranks. Collective."""

    @abstractmethod
    def forward(self, way: Any, positions: Ints) -> Any:
        """Make the exchange that sends entries ``positions`` (n,) of a vector; zero if negative."""

    @abstractmethod
    def reverse(self, way: Any, positions: Ints, starts: Ints | None = None) -> Any:
        """Make the exchange that adds received numbers to entries ``positions`` (n,) of a vector.

        Numbers for negative positions are ignored.
        """

    @abstractmethod
    def distributed(
        self, local: Any, forwards: Exchanges, reverses: Exchanges, routes: Routes, at_once: bool
    ) -> CompiledOperator:
        """Compile an operator that also runs exchanges between ranks; see `DistributedOperator`."""
