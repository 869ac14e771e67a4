"""Interface between operators and the machine that they are compiled for: host or device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.operators.assembly.csr import Summands
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.kernel_term import KernelTerm
from femops.operators.integrals.state import State
from femops.spaces.base import Space
from femops_kernels.codegen.specialize import Parts
from femops_kernels.compiled import (
    ONE,
    CompiledOperator,
    Exchanges,
    Launch,
    Panels,
    Places,
    Routes,
)
from femops_kernels.cpu.kernels.kernel import OperatorKernel
from femops_kernels.instruction import Instruction
from femops_kernels.pointwise.qdata import Data
from femops_kernels.vector_updates import VectorUpdates

Ints = NDArray[np.int64]
Sizes = Mapping[int, int]
"""Count of the numbers that are sent to each rank, or received from it."""
Work = tuple[OperatorKernel, Data]
"""A kernel of the host, and the data that it reads."""


@final
@dataclass(frozen=True, eq=False)
class Step:
    """A launch as a summand of an operator, with its factor and its parts of the vectors.

    Attributes
    ----------
    alpha : float
        Factor of the launch.
    launch : Launch
    fields, tests : Arguments
        Fields that the launch reads and test functions that it writes, in the operator's vectors.
    begins : bool
        Whether the launch may overwrite its test functions' entries. Else it only adds to them.
    place : (int, int)
        First entry of the launch's vectors in the operator's input and output vector.
    """

    alpha: float
    launch: Launch
    fields: Arguments
    tests: Arguments
    begins: bool
    place: tuple[int, int] = (0, 0)


class Backend(ABC):
    """A machine that operators are compiled for: the host, or a device.

    Attributes
    ----------
    levels : tuple of str
        Levels that the machine has kernels for.
    measures : bool
        Whether the level "auto" is chosen by measured times. Else it is chosen by bytes read.
    separates : bool
        Whether there are kernels for element matrices that are sums of Kronecker products.
    compiles_sequences : bool
        Whether one compiled call can do several operations, see `femops_kernels.cpu.sequence`.
    updates : VectorUpdates
        Vector updates of multigrid cycles.
    """

    levels: tuple[str, ...]
    measures: bool
    separates: bool
    compiles_sequences: bool = False
    updates: VectorUpdates

    @abstractmethod
    def compile_ahead(self, needed: Callable[[], Sequence[Parts]], ranks: int) -> None:
        """Begin to compile kernels of the host in the background, if a core is idle.

        Parameters
        ----------
        needed : callable
            Returns the parts of the kernels, those that are needed last first.
        ranks : int
            Number of ranks that share the cores.
        """

    # --- checks of options -----------------------------------------------------------------------

    @abstractmethod
    def check_level(self, level: str) -> None:
        """Raise if the machine has no kernels for a level.

        Raises
        ------
        OperatorError
        """

    @abstractmethod
    def check_lanes(self, lanes: int | None) -> None:
        """Raise if a number of lanes is asked for and the machine's kernels have no lanes.

        Raises
        ------
        OperatorError
        """

    # --- launches --------------------------------------------------------------------------------

    @abstractmethod
    def launch(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work] | None = None,
    ) -> Launch:
        """Launch of a term's kernel, bound to dofs and data; `idle` on a rank without elements.

        Parameters
        ----------
        term : Term
        constraints : Constraints
            Entries in the constrained columns are read as zero. The result in a constrained row
            is ``keep`` times the field's entry.
        keep : float
        work : callable, optional
            Returns a kernel of the host and its data. By default the kernel of sum factorisation.
        """

    @abstractmethod
    def fewest_at_once(self, width: int, *, ordered: bool) -> tuple[int, int]:
        """Fewest vectors that an operator is applied to at once, and fewest vectors of a panel.

        Parameters
        ----------
        width : int
            Slots of a lane. On a reproducible mesh slots of the widest lanes of any processor.
        ordered : bool
            Whether ranks share dofs, or the user asked for an order of the sums over elements.

        Returns
        -------
        int, int
            The first is 0 if vectors are always applied one after the other.
        """

    @abstractmethod
    def launch_panels(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work],
        panels: Panels,
    ) -> Launch:
        """Launch of a term's kernel for many vectors.

        Parameters
        ----------
        term, constraints, keep
            See `launch`.
        work : callable
            Returns a kernel of the host that reads no geometry, and its data.
        panels : Panels
        """

    @abstractmethod
    def element_products(
        self, source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
    ) -> Launch:
        """Launch that multiplies each element's dofs by a matrix in each direction and sums.

        Parameters
        ----------
        source, target : Space
            On one mesh, with the same number of components.
        matrix : (target.p1d, source.p1d) float64
        dtype : dtype
            Type of the vectors.
        """

    @abstractmethod
    def rows(self, matrix: csr_array, dtype: np.dtype[Any], *, any_width: bool = False) -> Launch:
        """Launch that multiplies by the matrix of one process, converted to ``dtype``.

        With ``any_width`` results have the same bits for lanes of any width.
        """

    @abstractmethod
    def idle(self) -> Launch:
        """Launch of a term on a rank that has none of its elements."""

    @abstractmethod
    def start(
        self, size: int, rows: Ints, keep: float, dtype: np.dtype[Any], panels: Panels = ONE
    ) -> Launch:
        """Launch that sets a result to ``keep`` times the field in some rows and to 0 elsewhere.

        Parameters
        ----------
        size : int
            Entries of a vector.
        rows : (n,) int64
            Flat positions of these rows.
        keep : float
        dtype : dtype
        panels : Panels
        """

    # --- sequences -------------------------------------------------------------------------------

    def least_instruction(
        self,
        launch: Launch,  # noqa: ARG002
        functional: int,  # noqa: ARG002
        scalar: int,  # noqa: ARG002
    ) -> Instruction | None:
        """Instruction of a host sequence that finds a functional's least value over the elements.

        None if Python has to find the least value.

        Parameters
        ----------
        launch : Launch
            Launch of a residual.
        functional : int
            Number of the functional.
        scalar : int
            Number of the sequence's scalar that gets the result.
        """
        return None

    # --- operators -------------------------------------------------------------------------------

    @abstractmethod
    def operator(
        self, launches: Sequence[tuple[float, Any]], places: Places | None = None
    ) -> CompiledOperator:
        """Compile a sum of launches with factors.

        Parameters
        ----------
        launches : sequence of (float, Launch)
        places : Places, optional
        """

    @abstractmethod
    def diagonal(
        self, summands: Summands, compiled: Callable[[], CompiledOperator]
    ) -> NDArray[Any]:
        """Diagonal (size,) of a sum of square terms, without essential conditions. Collective.

        Entries of constrained rows are undefined.

        Parameters
        ----------
        summands : sequence of (float, Term)
        compiled : callable
            Returns the compiled operator of these terms, with any essential conditions.
        """

    @abstractmethod
    def state(self, vectors: Mapping[str, tuple[Space, Any]], setups: dict[Any, Any]) -> State:
        """Copy vectors into a state at which a residual is differentiated. Collective.

        Parameters
        ----------
        vectors : dict of (Space, vector)
            Fields by name, see `State`.
        setups : dict
            See `State`.
        """

    @abstractmethod
    def placed(self, vector: Any) -> Any:
        """Return the vector, or a copy in memory near the threads that will work on it."""

    # --- ranks -----------------------------------------------------------------------------------

    @abstractmethod
    def way(self, space: Space, send: Sizes, receive: Sizes, dtype: np.dtype[Any]) -> Any:
        """Open a channel for messages of fixed sizes between ranks. Collective.

        Parameters
        ----------
        space : Space
            Space whose ranks exchange entries of its vectors.
        send, receive : dict of int
            Count of the numbers sent to each rank, and received from it.
        dtype : numpy.dtype
        """

    @abstractmethod
    def forward(self, way: Any, positions: Ints) -> Any:
        """Exchange that sends entries of a vector; for a negative position it sends zero."""

    @abstractmethod
    def reverse(self, way: Any, positions: Ints, starts: Ints | None = None) -> Any:
        """Exchange that adds received numbers to entries of a vector.

        Numbers for negative positions are ignored.

        Parameters
        ----------
        way
            Channel, see `way`.
        positions, starts
            See `femops_kernels.cpu.exchange.Reverse`.
        """

    @abstractmethod
    def distributed(
        self, local: Any, forwards: Exchanges, reverses: Exchanges, routes: Routes, at_once: bool
    ) -> CompiledOperator:
        """Compiled operator that also runs exchanges between ranks; see `DistributedOperator`."""
