"""Backend of the host: operators compiled for its processors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.errors import OperatorError
from femops.operators.execution.backend import (
    Backend,
    Ints,
    Sizes,
    TermWork,
    Transfer,
    Work,
)
from femops.operators.execution.diagonal import diagonal
from femops.operators.execution.filling import filled_points
from femops.operators.execution.kernels import (
    kernel_of,
    product_kernel,
    product_sweep,
    shared_parts,
    sweep,
    vector_term,
)
from femops.operators.execution.specs import mode_spec, point_spec, product_spec
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.kernel_term import KernelTerm
from femops.operators.integrals.snapshots import Field
from femops.operators.integrals.state import HostState, NoState, State
from femops.operators.integrals.term import Sum
from femops.pointwise.sides import is_side
from femops.spaces.base import Space
from femops_common.arguments import shown
from femops_kernels.channel import Channel
from femops_kernels.codegen.ahead import compile_kernels_ahead
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
from femops_kernels.cpu import machine
from femops_kernels.cpu.exchange import Forward, Reverse
from femops_kernels.cpu.first_touch import placed
from femops_kernels.cpu.identity_rows import IdentityRows
from femops_kernels.cpu.kernels import chunk_parts
from femops_kernels.cpu.machine import lane_width
from femops_kernels.cpu.multigrid.relaxation import HostUpdates, cycle_parts
from femops_kernels.cpu.multivector import VectorSweep
from femops_kernels.cpu.operators import DistributedHostOperator, HostOperator
from femops_kernels.cpu.rows import RowProduct, placed_rows
from femops_kernels.cpu.sequence import least_instruction
from femops_kernels.cpu.sweep import HostLaunch, NoOp, Sweep
from femops_kernels.instruction import Instruction
from femops_kernels.simd.lanes import WIDEST, WIDTHS


@final
class HostBackend(Backend):
    """Backend of the host."""

    measures, separates, updates = True, True, HostUpdates()
    compiles_sequences = True

    def check_lanes(self, lanes: int | None) -> None:
        if lanes is not None and lanes not in WIDTHS:
            raise OperatorError(f"lanes are {shown(lanes)} wide: choose one of {WIDTHS}")

    def compile_shared(self, term: KernelTerm) -> None:
        self._compile(lambda: shared_parts(term), term.spaces[0].comm.size)

    def compile_ahead(self, works: Callable[[], Sequence[TermWork]], ranks: int) -> None:
        self._compile(lambda: [kernel_of(t, work()[0]).parts for t, work in works()], ranks)

    def compile_cycle(
        self,
        transfers: Sequence[Transfer],
        modes: Callable[[], Sequence[tuple[Space, NDArray[np.float64]]]],
        outer: np.dtype[Any],
        dtype: np.dtype[Any],
    ) -> None:
        first, width = transfers[0][0], lane_width(dtype)
        products = [(*each[:2], product_spec(*each, dtype)) for each in transfers]

        def needed() -> list[Parts]:
            relaxed = [(V, V, mode_spec(V, vectors, dtype)) for V, vectors in modes()]
            updates, *others = cycle_parts(outer, dtype)
            chunk = chunk_parts(width, dtype, [first.ncomp], [first.ncomp], signed=False)
            before, after = (
                [product_kernel(*each, width).parts for each in reversed(found)]
                for found in (relaxed, products)
            )
            return [*before, updates, chunk, *after, *others]

        self._compile(needed, first.comm.size)

    def _compile(self, needed: Callable[[], Sequence[Parts]], ranks: int) -> None:
        """Compile where a core is idle. Ranks keep all cores busy."""
        if ranks == 1 and machine.get_threads() > 1:
            compile_kernels_ahead(needed(), machine.cores())

    def launch(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work] | None = None,
    ) -> HostLaunch:
        # ranks may choose the kernel together, so those without elements call `work` too
        spec, data = work() if work else (point_spec(term), term.data)
        if not term.domain.num_elements:
            return NoOp()
        return sweep(term, kernel_of(term, spec), constraints, keep, data)

    def launch_products(self, source: Space, target: Space, work: Work) -> HostLaunch:
        return product_sweep(source, target, work) if source.domain.num_elements else NoOp()

    def slots(self, dtype: np.dtype[Any]) -> int:
        return lane_width(dtype, None)

    def fewest_at_once(self, width: int, *, ordered: bool) -> tuple[int, int]:  # noqa: ARG002
        # measured: padding with zeros pays if at most an eighth of a lane is empty
        return width - width // 8, width

    def launch_panels(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work],
        panels: Panels,
    ) -> HostLaunch:
        given = work()
        if not term.domain.num_elements:
            return NoOp()
        return VectorSweep(vector_term(term, given, constraints, keep), panels)

    def rows(
        self, matrix: csr_array, dtype: np.dtype[Any], *, any_width: bool = False
    ) -> RowProduct:
        start, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
        rows = placed_rows(start, columns, matrix.data.astype(dtype))
        return RowProduct(*rows, WIDEST if any_width else lane_width(dtype, None))

    def idle(self) -> HostLaunch:
        return NoOp()

    def start(
        self, size: int, rows: Ints, keep: float, dtype: np.dtype[Any], panels: Panels = ONE
    ) -> HostLaunch:
        every = np.add.outer(np.arange(panels.count) * size, rows)
        entries = np.add.outer(every * panels.nvec, np.arange(panels.nvec)).reshape(-1)
        size *= panels.count * panels.nvec
        return IdentityRows(size, entries, keep, lane_width(dtype, None), dtype)

    def operator(
        self, launches: Sequence[tuple[float, HostLaunch]], places: Places | None = None
    ) -> CompiledOperator:
        return HostOperator(launches, places)

    def diagonal(
        self,
        summands: Sum,
        compiled: Callable[[], CompiledOperator],  # noqa: ARG002  (by kernels of its own)
    ) -> NDArray[Any]:
        return diagonal(self, summands).astype(summands.first.dtype, copy=False)

    def state(self, vectors: Mapping[str, tuple[Space, Any]], setups: dict[Any, Any]) -> State:
        if not vectors:
            return NoState(filled_points)
        fields = {
            name: Field.of(space, vector, on_sides=is_side(name))
            for name, (space, vector) in vectors.items()
        }
        return HostState(fields, setups, filled_points)

    def least_instruction(self, launch: Launch, functional: int, scalar: int) -> Instruction | None:
        if not isinstance(launch, Sweep):
            return None
        values = launch.functionals_of_batches[:, functional]
        return least_instruction(values, launch.num_elements, scalar)

    def placed(self, vector: Any) -> Any:
        return placed(vector)

    def way(self, space: Space, send: Sizes, receive: Sizes, dtype: np.dtype[Any]) -> Channel:
        return space.comm.channel(send, receive, dtype)

    def forward(self, way: Any, positions: Ints) -> Forward:
        return Forward(way, positions)

    def reverse(self, way: Any, positions: Ints, starts: Ints | None = None) -> Reverse:
        return Reverse(way, positions, starts)

    def distributed(
        self, local: Any, forwards: Exchanges, reverses: Exchanges, routes: Routes, at_once: bool
    ) -> CompiledOperator:
        return DistributedHostOperator(local, forwards, reverses, routes, at_once)


HOST = HostBackend()
