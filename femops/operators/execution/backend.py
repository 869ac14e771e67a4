"""The seam between operators and the machines that they are compiled for."""

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
"""Count of the numbers that go to each rank, or come from it."""
Work = tuple[OperatorKernel, Data]
"""A kernel of the host, and its data."""


@final
@dataclass(frozen=True, eq=False)
class Step:
    """A launch of an operator: what it is multiplied by, and what it reads and writes.

    Attributes
    ----------
    alpha : float
    launch : Launch
    fields, tests : Arguments
        What it reads and writes, in the operator's vectors.
    begins : bool
        Whether it may overwrite what it writes; else it only adds to it.
    place : (int, int)
        Entries of the operator's vectors at which those of the launch begin.
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
        Those that it has kernels of.
    measures : bool
        Whether the level "auto" is chosen by measurement; else by bytes.
    separates : bool
        Whether it has kernels of elements whose matrices are sums of Kronecker products.
    compiles_sequences : bool
        Whether one compiled call can do several operations, see `femops_kernels.cpu.sequence`.
    updates : VectorUpdates
        Of multigrid cycles.
    """

    levels: tuple[str, ...]
    measures: bool
    separates: bool
    compiles_sequences: bool = False
    updates: VectorUpdates

    @abstractmethod
    def compile_ahead(self, needed: Callable[[], Sequence[Parts]], ranks: int) -> None:
        """Begin to compile kernels of the host where that costs nothing: on an idle core.

        Parameters
        ----------
        needed : callable
            Gives their parts; what is needed last, first.
        ranks : int
            Those that share the cores.
        """

    # --- what it can do --------------------------------------------------------------------------

    @abstractmethod
    def check_level(self, level: str) -> None:
        """Refuse levels that it has no kernels of.

        Raises
        ------
        OperatorError
        """

    @abstractmethod
    def check_lanes(self, lanes: int | None) -> None:
        """Refuse lanes where kernels have none.

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
        """The kernel of a term, bound to dofs and data; `idle` on a rank without elements.

        Parameters
        ----------
        term : Term
        constraints : Constraints
            Its columns count as zero; its rows of the result are ``keep`` times the field's.
        keep : float
        work : callable, optional
            The host's kernel, if it is not that of sum factorisation.
        """

    @abstractmethod
    def fewest_at_once(self, width: int, *, ordered: bool) -> tuple[int, int]:
        """Number of vectors from which on they are applied at once, and of a panel at least.

        Parameters
        ----------
        width : int
            Slots of the lanes; on a reproducible mesh, of the widest lanes of any processor.
        ordered : bool
            Whether ranks share dofs, or sums over elements are formed in an order that was asked
            for.

        Returns
        -------
        int, int
            The first is 0 if it is never so.
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
        """The kernel of a term for many vectors.

        Parameters
        ----------
        term, constraints, keep
            See `launch`.
        work : callable
            The host's kernel, given nothing of the geometry.
        panels : Panels
        """

    @abstractmethod
    def element_products(
        self, source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
    ) -> Launch:
        """Product of each element's dofs with a matrix in each direction, summed.

        Parameters
        ----------
        source, target : Space
            On one mesh, with as many components.
        matrix : (target.p1d, source.p1d) float64
        dtype : dtype
            Of the vectors.
        """

    @abstractmethod
    def rows(self, matrix: csr_array, dtype: np.dtype[Any], *, any_width: bool = False) -> Launch:
        """Product with a matrix of one process, in a type.

        With ``any_width`` results have the same bits for lanes of any width.
        """

    @abstractmethod
    def idle(self) -> Launch:
        """Launch of a term on a rank that has none of its elements."""

    @abstractmethod
    def start(
        self, size: int, rows: Ints, keep: float, dtype: np.dtype[Any], panels: Panels = ONE
    ) -> Launch:
        """Launch that sets a result to zero, but for some rows: ``keep`` times the field's.

        Parameters
        ----------
        size : int
            Entries of a vector.
        rows : (n,) int64
            Flat positions.
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
        """The least of a functional's values, for a sequence on the host; None if Python finds it.

        Parameters
        ----------
        launch : Launch
            Of a residual.
        functional : int
            Its number.
        scalar : int
            The scalar of the sequence that gets it.
        """
        return None

    # --- operators -------------------------------------------------------------------------------

    @abstractmethod
    def operator(
        self, launches: Sequence[tuple[float, Any]], places: Places | None = None
    ) -> CompiledOperator:
        """The sum of launches, ready to be run.

        Parameters
        ----------
        launches : sequence of (float, Launch)
        places : Places, optional
        """

    @abstractmethod
    def diagonal(
        self, summands: Summands, compiled: Callable[[], CompiledOperator]
    ) -> NDArray[Any]:
        """The diagonal of a sum of square terms, (size,), without essential conditions. Collective.

        Constrained rows may have any numbers.

        Parameters
        ----------
        summands : sequence of (float, Term)
        compiled : callable
            Gives the operator of these terms, under any essential conditions.
        """

    @abstractmethod
    def state(self, vectors: Mapping[str, tuple[Space, Any]], setups: dict[Any, Any]) -> State:
        """Copies of vectors, at which a residual is differentiated. Collective.

        Parameters
        ----------
        vectors : dict of (Space, vector)
            By name, see `State`.
        setups : dict
            See `State`.
        """

    @abstractmethod
    def placed(self, vector: Any) -> Any:
        """A vector, or a copy of it near those who will work on it."""

    # --- ranks -----------------------------------------------------------------------------------

    @abstractmethod
    def way(self, space: Space, send: Sizes, receive: Sizes, dtype: np.dtype[Any]) -> Any:
        """Channel that carries so many numbers to other ranks and from them; collective.

        Parameters
        ----------
        space : Space
            Whose ranks, and where its vectors are.
        send, receive : dict of int
            Numbers to each rank and from it.
        dtype : numpy.dtype
        """

    @abstractmethod
    def forward(self, way: Any, positions: Ints) -> Any:
        """The exchange that sends entries of a vector; zeros for negative positions."""

    @abstractmethod
    def reverse(self, way: Any, positions: Ints, starts: Ints | None = None) -> Any:
        """The exchange that adds to entries of a vector; nothing for negative positions.

        Parameters
        ----------
        way
            See `way`.
        positions, starts
            See `femops_kernels.cpu.exchange.Reverse`.
        """

    @abstractmethod
    def distributed(
        self, local: Any, forwards: Exchanges, reverses: Exchanges, routes: Routes, at_once: bool
    ) -> CompiledOperator:
        """An operator with its exchanges; see `DistributedOperator`."""
