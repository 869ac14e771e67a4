"""Backend of the host: operators, diagonals and data of points by compiled sweeps.

`backend_of` chooses between the host and a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.basis import grid_rule
from femops.errors import OperatorError
from femops.operators.assembly.diagonal import assemble_diagonal, terms_on_diagonal
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.execution.backend import Backend, Ints, Sizes, Step, TermWork, Transfer, Work
from femops.operators.execution.ranks import compiled_steps
from femops.operators.execution.specs import mode_spec, point_spec, transfer_spec
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import plans, vector_plans
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.fusion import scaled_data
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.state import Field, HostState, NoState, State
from femops.operators.integrals.term import DATA_LEVELS, GivenTerm, KernelTerm, Sum, Term, setup_of
from femops.pointwise.expressions.graph import ancestors
from femops.pointwise.qdata_split import QDataSplit
from femops.pointwise.sides import is_side
from femops.pointwise.trace import INVERSE, WEIGHT
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.face_space import FaceSpace
from femops.spaces.memory import HasMemory
from femops_common.arguments import shown
from femops_kernels.codegen.ahead import compile_kernels_ahead
from femops_kernels.codegen.specialize import Parts
from femops_kernels.compiled import (
    ONE,
    Channel,
    CompiledOperator,
    Exchanges,
    Instruction,
    Launch,
    Panels,
    Places,
    Routes,
)
from femops_kernels.cpu import machine
from femops_kernels.cpu.cg import solve_parts
from femops_kernels.cpu.exchange import Forward, Reverse
from femops_kernels.cpu.first_touch import placed, placed_array
from femops_kernels.cpu.identity_rows import IdentityRows
from femops_kernels.cpu.kernels import (
    DiagonalKernel,
    ElementKernel,
    FillKernel,
    Kernel,
    OperatorKernel,
    PlannedSide,
    SeparableKernel,
    SweepKernel,
    TableKernel,
    chunk_parts,
)
from femops_kernels.cpu.machine import lane_width
from femops_kernels.cpu.multigrid.relaxation import HostUpdates, cycle_parts
from femops_kernels.cpu.multivector import VectorSweep, VectorTerm
from femops_kernels.cpu.operators import DistributedHostOperator, HostOperator
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.rows import RowProduct, placed_rows
from femops_kernels.cpu.sequence import least_instruction
from femops_kernels.cpu.sweep import DRIVER_PARTS, HostLaunch, NoOp, Sweep, SweepDofs
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.lanes import WIDEST, WIDTHS
from femops_kernels.spec import KernelSpec, MatrixSpec, PointSpec, SeparableSpec


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
        products = [(*each[:2], transfer_spec(*each, dtype)) for each in transfers]

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


_FLOPS_PER_NUMBER = 10  # operations in the time of reading one number from memory

Sides = tuple[tuple[PlannedSide, ...], tuple[PlannedSide, ...]]


def plans_of(term: KernelTerm, *, layered: bool = True) -> list[tuple[Plan, Plan]]:
    """Plans of a term's sweep: for each field a plan to read and a plan to write; see `plans`."""
    return plans(term.fields, term.tests, term.dtype, term.width, layered=layered)


def _distinct(pairs: Sequence[tuple[Plan, Plan]]) -> list[Plan]:
    return list({id(plan): plan for pair in pairs for plan in pair}.values())


def vector_term(
    term: KernelTerm,
    work: Work,
    constraints: Constraints,
    keep: float,
) -> VectorTerm:
    """Bind a kernel to the plans of a term's spaces and to data, for any number of vectors."""
    spec, data = work
    plans = vector_plans(term.fields, term.tests, term.dtype, layered=spec.layered)
    return VectorTerm(kernel_of(term, spec), _sweep_dofs(term, plans, constraints, keep), data)


def index_bytes(term: KernelTerm, *, layered: bool = True) -> int:
    """Bytes of the local dof numbers that a sweep reads."""
    return sum(plan.starts.nbytes for plan in _distinct(plans_of(term, layered=layered)))


def plan_bytes(term: KernelTerm, *, layered: bool = True) -> int:
    """Bytes of the plans and of a sweep's buffer."""
    pairs = dict(zip(term.fields.spaces, plans_of(term, layered=layered), strict=True))
    numbers = (
        len(pairs[name][1].nonowned_dofs) * space.ncomp for name, space in term.tests.spaces.items()
    )
    return sum(numbers) * term.dtype.itemsize + sum(p.nbytes for p in _distinct([*pairs.values()]))


def shared_parts(term: KernelTerm) -> list[Parts]:
    """Parts of kernels that the operators of all forms, and their solvers, share."""
    width, dtype = term.width, term.dtype
    sides = (term.fields, term.tests)
    components = ([*side.components.values()] for side in sides)
    signed = any(space.volume.signed for side in sides for space in side.spaces.values())
    chunk = chunk_parts(width, dtype, *components, signed=signed)
    return [DRIVER_PARTS, chunk, *solve_parts(width, dtype)]


_KINDS: dict[type[KernelSpec], type[OperatorKernel]] = {
    PointSpec: Kernel,
    SeparableSpec: SeparableKernel,
    MatrixSpec: ElementKernel,
}


def host_kernel(spec: KernelSpec, pairs: Sequence[tuple[Plan, Plan]], width: int) -> OperatorKernel:
    """Kernel of the host that reads dofs by plans, with a pair for each field; see `plans`."""
    tabulated = isinstance(spec, PointSpec) and spec.tabulated
    kind = TableKernel if tabulated else _KINDS[type(spec)]
    sources, targets = planned(spec, pairs)
    key = width, *((side.index_bytes, side.runs) for side in (*sources, *targets))
    if key not in spec.rendered:
        spec.rendered[key] = kind(spec, sources, targets, width)
    found: OperatorKernel = spec.rendered[key]
    return found


def planned(spec: KernelSpec, pairs: Sequence[tuple[Plan, Plan]]) -> Sides:
    """Sides of a specification with their plans. Equal ones with one plan are one object."""
    given = [*zip(spec.sources, (source for source, _ in pairs), strict=True)]
    given += [*zip(spec.targets, (pairs[k][1] for k in spec.blocks), strict=True)]
    made = {(s, id(p)): PlannedSide(s, p.number_bytes, p.runs) for s, p in given}
    sides = [made[side, id(plan)] for side, plan in given]
    return tuple(sides[: len(pairs)]), tuple(sides[len(pairs) :])


def kernel_of(term: KernelTerm, spec: KernelSpec) -> OperatorKernel:
    """Kernel of the host for a term."""
    return host_kernel(spec, plans_of(term, layered=spec.layered), term.width)


def sweep(
    term: KernelTerm,
    kernel: SweepKernel,
    constraints: Constraints,
    keep: float,
    data: Data,
) -> Sweep:
    """Bind a kernel to the plans of a term's spaces and to data."""
    pairs = plans_of(term, layered=kernel.spec.layered)
    dofs = [
        replace(
            each,
            turns_in=_turns(term.fields.spaces[name]),
            turns_out=_turns(term.tests.spaces[name]) if name in term.tests.spaces else None,
        )
        for name, each in zip(
            term.fields.spaces, _sweep_dofs(term, pairs, constraints, keep), strict=True
        )
    ]
    effort = 0
    if term.several:
        slots = int(pairs[0][0].first_batch[-1]) * term.width
        points = slots * term.trial.num_points(term.quadrature)
        effort = points * term.qfunction.flops // _FLOPS_PER_NUMBER
        data = _repeated(data, term.domain.num_elements)
    return Sweep(kernel, dofs, data, None, effort, term.domain.num_elements)


def _sweep_dofs(
    term: KernelTerm, pairs: Sequence[tuple[Plan, Plan]], constraints: Constraints, keep: float
) -> list[SweepDofs]:
    """For each field of a term its plans, its constrained dofs, and its place in the vectors."""
    return [
        SweepDofs(
            source,
            target,
            term.fields.within(name, constraints.columns),
            term.tests.within(name, constraints.rows),
            keep,
            term.fields.origin(name),
            term.tests.origin(name),
        )
        for name, (source, target) in zip(term.fields.spaces, pairs, strict=True)
    ]


def _turns(space: DomainSpace) -> NDArray[np.int64] | None:
    """See `SweepDofs`: how the elements behind faces lie; None for other elements."""
    return space.turns() if isinstance(space, FaceSpace) and space.has_end else None


def _repeated(data: Data, ne: int) -> Data:
    """Copy the last element's data to the padding slots. This avoids divisions by zero there."""
    for array in (data.points, data.elements):
        if array.size:
            filled = ne - (len(array) - 1) * array.shape[-1]
            array[-1, ..., filled:] = array[-1, ..., filled - 1 : filled]
    return data


def product_sweep(source: Space, target: Space, work: Work) -> Sweep:
    """See `Backend.launch_products`, on a rank that has elements."""
    spec, data = work
    width = lane_width(spec.dtype, None)
    if data.points.size or data.elements.size:
        width = data.points.shape[-1]
    else:  # products without factors; a separable kernel reads ones
        nbatch = -(-source.domain.num_elements // width)
        factors = source.ncomp if isinstance(spec, SeparableSpec) else 1
        ones = placed_array((nbatch, factors, width), spec.dtype)
        ones[:] = 1.0
        data = Data(np.zeros((nbatch, spec.target.num_nodes, 0, width), spec.dtype), ones)
    none: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    kernel = product_kernel(source, target, spec, width)
    pair = _product_plans(source, target, spec.dtype, width)
    return Sweep(kernel, [SweepDofs(*pair, none, none, 0.0)], data)


def product_kernel(source: Space, target: Space, spec: KernelSpec, width: int) -> OperatorKernel:
    """Kernel of the host for products of element dofs."""
    return host_kernel(spec, [_product_plans(source, target, spec.dtype, width)], width)


def _product_plans(
    source: Space, target: Space, dtype: np.dtype[Any], width: int
) -> tuple[Plan, Plan]:
    return plans(Arguments.of(source), Arguments.of(target), dtype, width)[0]


# Fewest quadrature points of all ranks for which a kernel is compiled: NumPy takes about 50 ns for
# each point.
_COMPILED_FROM = 2**17


def diagonal(backend: Backend, summands: Sum) -> NDArray[Any]:
    """Diagonal (size,) of a sum of square terms, without essential conditions. Collective.

    The result is of float64, or of the terms' type if it is rounded to this type anyway.
    """
    space, total = summands.first.spaces[0], None
    for factor, term in summands:
        points = term.domain.num_elements * term.trial.num_points(term.quadrature)
        many = _sweepable(term) and space.comm.sum(points) >= _COMPILED_FROM
        one = _swept(backend, term) if many else assemble_diagonal(Sum([(1.0, term)]))
        if len(summands) > 1 or factor != 1.0:
            one = one.astype(np.float64, copy=False)
            one *= factor
        total = one if total is None else np.add(total, one, out=total)
    assert total is not None
    return total


def _sweepable(term: Term) -> bool:
    """True if a sweep gives the diagonal of a term.

    It does not give entries between the two sides of faces, which share dofs in an H1 space.
    """
    broken = term.trial.volume.element.broken
    apart = broken if term.fields.two_sided else term.test is term.trial
    plain = not (term.tabulated or term.trial.volume.signed)
    return term.level in DATA_LEVELS and apart and plain


def _diagonal_kernel(term: Term) -> DiagonalKernel:
    points, spec = grid_rule(term.quadrature, "a diagonal").points, point_spec(term)
    if spec.hanging:  # the entries of hanging nodes are added by `_swept`
        made = {side: replace(side, masked=True) for side in (*spec.sources, *spec.targets)}
        sources, targets = (
            tuple(made[side] for side in each) for each in (spec.sources, spec.targets)
        )
        spec = replace(spec, sources=sources, targets=targets)
    slopes = (basis.gradient(points) for basis in term.trial.tensor.bases)
    return DiagonalKernel(spec, *planned(spec, plans_of(term)), term.width, tuple(slopes))


def _swept(backend: Backend, term: Term) -> NDArray[Any]:
    """Diagonal (size,) of one term by a compiled sweep in the term's type. Collective.

    The result is of float64 if the term is scaled, else of the term's type.
    """
    space = term.spaces[0]
    launch: HostLaunch = NoOp()  # where the rank has no elements
    if term.domain.num_elements:
        launch = sweep(term, _diagonal_kernel(term), FREE, 0.0, scaled_data(term, term.scale))
    sides = term.fields.parts, term.tests.parts
    step = Step(1.0, launch, term.fields, term.tests, term.domain.covers)
    compiled = compiled_steps(backend, [step], sides, FREE, term.dtype)
    unread, result = space.zeros(term.dtype), space.zeros(term.dtype)
    compiled.apply(unread, result)
    for _, part in terms_on_diagonal(Sum([(1.0, term)])):
        free = part.trial.restriction.free
        if free is not None:
            e_vec = np.zeros((*free.shape, space.ncomp))
            ElementAssembly(part).replace_hanging(e_vec)
            scaled = part.trial.sum_elements(e_vec, signs=False) * term.scale
            result += scaled.astype(result.dtype)
    if term.scale != 1.0:
        result = result.astype(np.float64, copy=False) / term.scale
    return np.asarray(result)


# Derivatives at other states use a kernel again. For a linear form it must pay at once, so it needs
# `_ONCE` times the points.
_ONCE = 4
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_WIDE = np.dtype(np.float64)


def filled_points(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> NDArray[Any] | None:
    """Compute the numbers (nbatch, points, numbers, width) that a form stores at points.

    The numbers depend on the form's state, which is on the host, or on the geometry. Return None if
    NumPy should compute them: for few points, and for a state in float32, because a float32 sweep
    would lose digits.
    """
    spaces, ne = _spaces(form, qdata_split, dtype), form.domain.num_elements
    if not spaces or not _many(form, _finest(spaces)) or not ne:
        return None
    kernel, term = _fill_kernel(form, qdata_split, dtype, width)
    if not form.state.spaces:
        form.setups.clear()  # not needed again
    shape = -(-ne // width), form.geometry.num_points, kernel.numbers, width
    points = placed_array(shape, dtype, term.chunk_batches)
    states = [_l_vec(form, name) for name in spaces]
    starts = [0, *accumulate(len(state) for state in states)]
    dofs = [
        SweepDofs(*plans, _NONE, _NONE, 0.0, start)
        for plans, start in zip(plans_of(term), starts, strict=False)
    ]
    sweep = Sweep(kernel, dofs, term.data, points)
    _run(sweep, np.concatenate(states, dtype=np.float64), [*spaces.values()], starts)
    rest = ne - (len(points) - 1) * width
    points[-1, ..., rest:] = 0.0  # slots of no element
    return points


def compile_point_kernels(summands: Sum) -> None:
    """Compile the kernels for diagonals and data of large operators in advance."""
    for _, term in summands:
        if _sweepable(term) and term.domain.num_elements:
            _diagonal_kernel(term).module  # noqa: B018  (made when asked for)
        form, split = term.source, term.qdata_split
        if form is not None and split.point and _spaces(form, split, term.dtype):
            kernel, _ = _fill_kernel(form, split, term.dtype, term.width)
            kernel.module  # noqa: B018  (made when asked for)


def _fill_kernel(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> tuple[FillKernel, GivenTerm]:
    """Kernel that computes the numbers at points, and its term; see `filled_points`."""
    found, given = setup_of(form, qdata_split, _WIDE, width)
    spaces = _spaces(form, qdata_split, dtype)
    fields, rule = Arguments(spaces, next(iter(spaces.values()))), form.quadrature
    target = fields.only([next(iter(spaces))])  # nothing is added to it
    kinds = found.qfunction, _WIDE, width, None
    term = GivenTerm(form.name, fields, target, rule, *kinds, 0, 0, given)
    spec = point_spec(term)
    sides = planned(spec, plans_of(term))
    return FillKernel(spec, *sides, width, len(qdata_split.point), dtype), term


def _spaces(form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """Spaces of the fields of a kernel, by name. Empty if NumPy should compute the numbers."""
    spaces = form.state.spaces or _any_space(form, qdata_split)
    plain = form.has_maps and bool(spaces) and _finest(spaces).order > 0
    return spaces if plain and (dtype == _WIDE or not form.state.spaces) else {}


def _finest(spaces: Mapping[str, Any]) -> Space:
    found: Space = max(spaces.values(), key=lambda space: space.order)
    return found


def _any_space(form: Integral, qdata_split: QDataSplit) -> Mapping[str, Any]:
    """Space of a linear form, whose field the numbers do not use. Empty if they are coefficients.

    Numbers in ``form.rounded`` are rounded by NumPy.
    """
    shape = {node.number for name in (INVERSE, WEIGHT) for node in form.static[name].flat}
    used = {node.number for node in ancestors(qdata_split.point)}
    if form.rounded or not shape & used:
        return {}
    name, space = next(iter(form.fields.spaces.items()))
    return {name: space}


def _l_vec(form: Integral, name: str) -> NDArray[Any]:
    """Values of a field of the state. Zeros for a form without a state, which are not read."""
    if form.state.spaces:
        return np.ravel(form.state.field(name).l_vec)
    space = form.fields.spaces[name]
    return np.zeros(space.ndofs * space.ncomp)


def _many(form: Integral, space: Space) -> bool:
    """True if a space has many quadrature points on all ranks together.

    All ranks get the same answer without communication.
    """
    each: float = form.quadrature.count(space.dim) / max(space.order, 1) ** space.dim
    least = _COMPILED_FROM * (1 if form.state.spaces else _ONCE)
    return space.global_size / space.ncomp * each >= least


def _run(
    sweep: Sweep, state: NDArray[np.float64], spaces: Sequence[Space], starts: Sequence[int]
) -> None:
    """Run a sweep on a state: the concatenated l_vecs of its fields, which start at ``starts``."""
    for space, start, entry in zip(spaces, starts, sweep.ghosts_at, strict=False):
        sweep.table[entry] = state.ctypes.data + (start + space.size) * state.itemsize
    HostOperator([(1.0, sweep)]).apply(state, np.empty(spaces[0].size))


def backend_of(space: HasMemory) -> Backend:
    """Return the backend of the machine on which the vectors of a space are stored."""
    device = space.memory.device
    if device is None:
        return HOST
    from femops.operators.execution.device import DeviceBackend  # a host program loads no kernels

    return DeviceBackend(device)
