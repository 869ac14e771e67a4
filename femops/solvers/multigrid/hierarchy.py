"""Levels of a multigrid method: the order is halved down to 1, then the mesh is coarsened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, diags_array

from femops.errors import SolverError
from femops.geometry.jacobians import LegendreGeometry
from femops.operators import Operator
from femops.operators.coarsening import coarse_operator, cycle_level, in_precision
from femops.operators.execution.backend import Backend
from femops.operators.execution.host import backend_of
from femops.operators.execution.transfer import (
    interpolation_matrix,
    prepare_cycles,
    summed_interpolation,
)
from femops.operators.integrals.constraints import FREE
from femops.operators.integrals.state import Field, Sampled
from femops.parallel.comm import Communicator, Serial, check, gathered
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid.coarse import (
    CoarseSolver,
    coarse_solver,
    gathered_rows,
    rigid_modes,
)
from femops.solvers.multigrid.grids import CoarseGrid, first_coarse, products
from femops.solvers.multigrid.level import Level, NotPositiveError, Size
from femops.solvers.multigrid.level_matrices import LevelMatrices
from femops.solvers.multigrid.precision import (
    BEYOND,
    cycle_type,
    refusal,
    rounds_well,
    trial_product,
)
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops_kernels.cpu.freed_memory import give_back
from femops_kernels.exclusive import Derived
from femops_meshes.coarsening import Coarsening

Array = NDArray[Any]


@final
class BasisChange:
    """Converts right-hand sides to the nodal basis, and solutions back to coefficients.

    A relaxation divides by the diagonal. With Gauss-Lobatto nodes this reduces the upper part of
    the spectrum. With Bernstein coefficients it does not, because element matrices are far from
    diagonal. With Hermite-like functions of low order opposite ends are coupled: cycles would take
    two to three times as many iterations at order 2 to 4. With Gauss nodes the penalties of stiff
    faces are in the entries of all nodes of an element.

    `right` (size + padding,): right-hand side in the basis of the operator. Entries at constrained
    dofs are not read.
    """

    def __init__(self, A: Operator, nodal: Space, dtype: np.dtype[Any]) -> None:
        space = A.space
        updates = self._updates = backend_of(space).updates
        vectors: list[Array] = [updates.vector(space.size, dtype) for _ in range(4)]
        self.right, self._product, self._solution, self._weights = vectors
        shared = space.multiplicity()
        self._weights[: space.size] = updates.put(np.repeat(1.0 / shared, space.ncomp))
        self._weights[updates.put(A.constrained_dofs)] = 0.0
        self.condition = float(np.linalg.cond(interpolation_matrix(nodal, space))) ** space.dim
        up, down = summed_interpolation(nodal, space, dtype)
        self._up, self._down = up.apply, down.apply

    def enter(self, right: Array) -> None:
        """Overwrite ``right`` by the attribute of the same name, converted to the nodal basis."""
        factors = 0.0, 1.0, 0.0, 0.0
        self._updates.step(self._product, None, self.right, self._weights, None, factors)
        self._down(self._product, right)

    def leave(self, x: Array) -> Array:
        """Convert nodal values (size + padding,) to coefficients. The next call overwrites them."""
        self._up(x, self._product)
        factors = 1.0, 0.0, 0.0, 0.0
        self._updates.step(self._solution, self._product, None, self._weights, None, factors)
        return self._solution


Ints = NDArray[np.int64]

_nodal_spaces = Derived[Space, H1]()
_broken_spaces = Derived[Space, L2]()

_STIFF = 50.0
"""Ratio of diagonal entries from which faces are stiff. A constant conductivity has up to 40."""

_FEW = 600  # most dofs of a level that gets no coarser mesh
_LARGE = 500_000  # dofs of this rank from which memory that the setup has freed is given back


@final
@dataclass(frozen=True)
class Hierarchy:
    """The levels of a multigrid method."""

    levels: list[Level]  # from the finest to the second coarsest
    coarsest: Size
    solver: CoarseSolver  # solver of the coarsest level. Its vectors are gathered from all ranks.
    constrained: Ints  # (k,): constrained dofs of this rank on the coarsest level
    comm: Communicator  # the ranks that have pieces of the coarsest level's vectors
    dtype: np.dtype[Any]  # type of the cycle's numbers
    reason: str  # reason for the choice of ``dtype``
    # change between the basis of the operator and the nodal basis, if they differ
    change: BasisChange | None
    matrices: LevelMatrices  # matrices of the levels, which are made when a relaxation needs them
    exact: bool  # whether coarse operators are exact; see `coarse_operator`


@final
@dataclass(frozen=True)
class Coarsest:
    """Where a cycle ends."""

    order: int = 1  # lowest order
    # whether coarser meshes follow the lowest order. Else a direct solver does.
    meshes: bool = True


def build(
    A: Operator,
    degree: int,
    dtype: np.dtype[Any] | None = None,
    last: Coarsest = Coarsest(),
    *,
    exact: bool = False,
) -> Hierarchy:
    """Build the levels of an operator. Collective.

    If a level is found not to be positive, coarse operators are made exact, so that A is to blame
    if one is not positive again.
    """
    try:
        return _built(A, degree, dtype, last, exact=exact)
    except NotPositiveError:
        if exact or A.space.order == last.order:
            raise
    return _built(A, degree, dtype, last, exact=True)


def _built(
    A: Operator, degree: int, dtype: np.dtype[Any] | None, last: Coarsest, *, exact: bool
) -> Hierarchy:
    spaces = _spaces(A, last.order)
    coarsening = _coarser(spaces[-1]) if last.meshes else None
    expected = dtype or np.dtype(np.float32)
    prepare_cycles(spaces, A.dtype, expected)
    direct = len(spaces) == 1 and coarsening is None
    product = None if direct else trial_product(A)
    kind, reason = cycle_type(A, dtype, product)
    if product is None:
        exact = A.dtype == np.float64  # the direct solver looks for a null space in float64
        dtype, operators = kind, [A if exact else in_precision(A, np.dtype(np.float64), "partial")]
    else:
        finest, dtype, reason = _in_type(A, kind, reason, dtype, product)
        del product  # levels take its memory
        coarse = partial(coarse_operator, A, exact=exact)
        operators = _operators(A, finest, spaces, dtype, coarse, swept=coarsening is not None)
    levels, matrices = list[Level](), LevelMatrices(A, spaces[-1], exact=exact)
    for fine, (space, below) in zip(operators, pairwise(spaces), strict=False):
        levels.append(_of_operator(fine, space, dtype, degree))
        up, down = summed_interpolation(below, space, dtype)
        levels[-1].transfer = up.apply, down.apply
        matrices.add_space(space)
    made = _with_matrices(levels, matrices, operators[-1], spaces[-1], last, dtype, degree)
    change = None if spaces[0] is A.space else BasisChange(A, spaces[0], dtype)
    if A.space.size >= _LARGE:
        give_back()
    return Hierarchy(levels, *made, dtype, reason, change, matrices, exact)


def _spaces(A: Operator, lowest: int = 1) -> list[Space]:
    """Spaces of the cycle: the operator's order first, then lower orders down to ``lowest``.

    Discontinuous functions are followed by continuous functions of the same order. Collective.
    """
    finest = A.space
    broken = [] if isinstance(finest, H1) else [_broken(A)]
    spaces = [finest if finest.order == 1 and not broken else _nodal(finest)]
    while spaces[-1].order > lowest:
        spaces.append(_half(spaces[-1]))
    return broken + spaces


def _in_type(
    A: Operator,
    dtype: np.dtype[Any],
    reason: str,
    asked: np.dtype[Any] | None,
    product: Array,
) -> tuple[Operator, np.dtype[Any], str]:
    """Round an operator to ``dtype``, the type wanted for the cycle. Collective.

    If rounding changes ``product``, see `trial_product`, the operator keeps its own type.

    Shapes: returned (operator, its type, reason for the type).
    """
    level = cycle_level(A, A.space)
    with np.errstate(over="ignore", invalid="ignore"):  # the trial product shows losses
        rounded = in_precision(A, dtype, level)
        well = dtype.itemsize >= A.dtype.itemsize or rounds_well(product, rounded)
    if well:
        return rounded, dtype, reason
    if asked is not None:
        raise SolverError(refusal(A, "products with A change where its numbers are rounded"))
    return in_precision(A, A.dtype, level), A.dtype, BEYOND


def _operators(
    A: Operator,
    finest: Operator,
    spaces: list[Space],
    dtype: np.dtype[Any],
    coarse: Callable[[Space, DTypeLike, str], Operator],
    *,
    swept: bool,
) -> list[Operator]:
    """Return the operator on each of the spaces, in the cycle's type.

    If no coarser mesh follows, the last operator is in float64, because it is assembled.
    """
    last = spaces[-1]
    operators = [finest]
    if spaces[0] is not A.space:
        operators = [coarse(spaces[0], dtype, cycle_level(A, spaces[0]))]
    operators += [coarse(space, dtype, cycle_level(A, space)) for space in spaces[1:-1]]
    if len(spaces) > 1:
        light = swept and not backend_of(last).measures
        level = cycle_level(A, last) if light else "partial"
        operators.append(coarse(last, dtype if swept else np.float64, level))
    begin = 1 if backend_of(last).measures else 0  # a device compiles several kernels at a time
    for one in operators[begin : len(operators) if swept else -1]:
        one.compile_ahead()
    return operators


def _coarser(space: Space) -> Coarsening | None:
    """Coarsening of a space's mesh. None if the mesh has none, or the space is too small."""
    return space.mesh.whole_coarser if space.global_size > _FEW else None


def _half(space: Space) -> H1:
    """Space of half the order, rounded up. It is made once."""
    return _like(space, -(-space.order // 2))


def _nodal(space: Space) -> H1:
    """Return the space if it is H1 with Gauss-Lobatto nodes, else make that space of its order."""
    nodal = isinstance(space, H1) and space.at_gll_nodes
    return space if nodal else _like(space, space.order)  # type: ignore[return-value]


def _broken(A: Operator) -> Space:
    """Discontinuous space of the cycle: that of A, or one of its order with Gauss-Lobatto nodes.

    The other space is taken if the basis of A is not nodal, or if faces are stiff. Collective.
    """
    space: Space = A.space
    nodal = all(part.element.is_nodal for part in space.parts)
    if space.at_gll_nodes or (nodal and not _stiff_faces(A)):
        return space

    def made() -> L2:
        mesh = space.distributed or space.mesh
        return L2(mesh, space.order, space.ncomp, "gll", device=space.device)

    return _broken_spaces.get(space, made)


def _stiff_faces(A: Operator) -> bool:
    """True if integrals over faces make some diagonal entries far larger than elements do.

    So it is where a conductivity jumps. The penalty of a face is in the entries of all Gauss nodes
    of both elements. A relaxation hardly moves those of the softer element. Of Gauss-Lobatto nodes
    only those on the face have the penalty. Collective.
    """
    comm = A.space.comm
    varies = any(
        _varies(given.value)
        for _, term in A.summands
        if term.fields.two_sided
        for given in term.source.coefficients.values()
    )
    if not comm.max(int(varies)) or comm.max(len(A.constrained_dofs)):
        return False
    inside = Operator([part for part in A.summands if part[1].domain.on_elements], FREE, A.level)
    stiff: Any = A.diagonal() > _STIFF * inside.diagonal()
    return bool(comm.max(int(stiff.any())))


def _varies(coefficient: Any) -> bool:
    """True if the copy of a coefficient has values that differ by a factor of 10 or more."""
    fields = [coefficient.l_vec] if isinstance(coefficient, Field) else []
    values = coefficient.parts if isinstance(coefficient, Sampled) else fields
    return any(np.abs(v).max() >= 10.0 * np.abs(v).min() for v in values if v.ndim and v.size)


def _like(space: Space, order: int) -> H1:
    """H1 space of any order with Gauss-Lobatto nodes on the same mesh. It is made once."""
    mesh, options = space.distributed or space.mesh, {"reproducible": space.reproducible}

    def made() -> H1:
        return H1(mesh, order, space.ncomp, "gll", device=space.device, **options)

    return _nodal_spaces.get(space, made, order)


def _free(size: int, constrained: Ints) -> NDArray[np.bool_]:
    free = np.ones(size, dtype=bool)
    free[constrained] = False
    return free


def _of_operator(
    A: Operator, space: Space, dtype: np.dtype[Any], degree: int, *, sums: bool = True
) -> Level:
    """Make the level of an operator. If ``sums``, its transfers sum over elements."""
    each: Array | None = None
    if sums:
        if space.halo is None and not space.mixed:
            share = space.restriction.shares(dtype)
        else:
            share = 1.0 / space.multiplicity()
        each = share if space.ncomp == 1 else np.repeat(share, space.ncomp)
    elements = int(space.comm.sum(space.mesh.num_elements))
    size = _size_of(space, elements)
    constrained, diagonal = A.constrained_dofs, _positive(A, space)
    updates = backend_of(space).updates
    return Level(size, A.compiled, diagonal, constrained, each, dtype, degree, updates, Sums(space))


def _size_of(space: Space, elements: int) -> Size:
    first = space.first_dof * space.ncomp
    affine = all(LegendreGeometry(part.mesh).affine for part in space.parts)
    return Size(space.order, elements, space.size, space.global_size, affine, first)


def _positive(A: Operator, space: Space) -> Array:
    """Diagonal (size,) of an operator, with ones at constrained dofs."""
    diagonal = A.diagonal()
    diagonal[space.memory.put(A.constrained_dofs)] = 1.0
    if space.comm.max(int(not (diagonal > 0.0).all())):
        raise NotPositiveError
    return diagonal


# --- levels of order 1, by their matrices ---------------------------------------------------------


def _with_matrices(
    levels: list[Level],
    matrices: LevelMatrices,
    A: Operator,
    space: Space,
    last: Coarsest,
    dtype: np.dtype[Any],
    degree: int,
) -> tuple[Size, CoarseSolver, Ints, Communicator]:
    """Add levels of order 1 on the meshes from which the mesh was refined. Collective."""
    comm, constrained = space.comm, A.constrained_dofs
    size = _size_of(space, int(comm.sum(space.mesh.num_elements)))
    free = _free(space.size, constrained)
    coarsening = _coarser(space) if last.meshes else None
    if coarsening is None:
        matrix = gathered_rows(comm, A.assemble().tocsr())
        x, free = gathered(comm, space.dof_coordinates()), gathered(comm, free)
        if not A.constraints.identity:  # eliminated rows and columns get a diagonal
            matrix = csr_array(matrix + diags_array((~free).astype(float)))
        with check(comm):  # a rank may be short of memory
            modes = rigid_modes(x, space.ncomp, free)
            solver = coarse_solver(matrix, modes, space.dim, direct=not last.meshes)
        return size, solver, constrained, comm
    levels.append(_of_operator(A, space, dtype, degree, sums=False))
    matrices.add_space(space)
    below, levels[-1].transfer = first_coarse(A, free, coarsening, dtype, matrices.look)
    backend = backend_of(space)
    while below.coarsening is not None and len(below.free) > _FEW:
        levels.append(_of_matrix(below, size, dtype, degree, backend))
        matrices.add_grid(below, space.dim)
        below, levels[-1].transfer = below.coarser(dtype, backend)
    with check(comm):
        modes = rigid_modes(below.x, space.ncomp, below.free)
        solver = coarse_solver(below.matrix, modes, space.dim)
    return below.size(size), solver, np.flatnonzero(~below.free), Serial()


def _of_matrix(
    grid: CoarseGrid, finer: Size, dtype: np.dtype[Any], degree: int, backend: Backend
) -> Level:
    diagonal = grid.matrix.diagonal()
    if not (diagonal > 0.0).all():
        raise NotPositiveError
    constrained, updates = np.flatnonzero(~grid.free), backend.updates
    there = updates.put(diagonal)
    product = products(backend, grid.matrix, dtype, grid.any_width)
    return Level(grid.size(finer), product, there, constrained, None, dtype, degree, updates)
