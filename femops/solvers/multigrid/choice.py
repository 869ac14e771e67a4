"""Choice of the relaxation of a multigrid cycle, by measured reduction factors."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError, RankError, SolverError
from femops.operators import Operator
from femops.operators.execution.host import backend_of
from femops.operators.execution.modes import ElementModes, matrices_of, modes_of
from femops.operators.execution.transfer import compiled_modes
from femops.solvers.multigrid.blocks import BLOCKS, Gathered, check_lines, check_patches
from femops.solvers.multigrid.coarse import QUICK
from femops.solvers.multigrid.hierarchy import Coarsest, Hierarchy, build
from femops.solvers.multigrid.level import Blocks
from femops.solvers.multigrid.measure import Cycle, factor, iterations
from femops.spaces.h1_l2 import H1, Space

Array = NDArray[Any]
Floats = NDArray[np.float64]


@final
class Elements(Blocks):
    """Inverses of the parts of a matrix that belong to the nodes of one element.

    The model of a part is a sum of Kronecker products, with the factors of the element in place of
    those of its neighbours. Elements share the residual at a node in proportion to their factors.
    Where the model's diagonal differs from that of the matrix, as coefficients vary or jump, the
    scales correct it.

    Shapes: `energies` (ne, dim + 1), `inverse` (size,).
    """

    def __init__(self, space: H1, energies: Floats, inverse: Array) -> None:
        ends = np.maximum(energies[:, :-1] - energies[:, -1:] / 3.0, 0.0) / 4.0
        factors = np.column_stack([ends, np.maximum(energies[:, -1], 0.0)])
        sums = factors.sum(axis=1)
        if space.comm.max(int(not (sums > 0.0).all())):
            raise SolverError("the matrix of an element is not positive")
        values, vectors = modes_of(space.basis)
        modes, dtype = ElementModes(vectors, values, factors, sums), inverse.dtype
        self._compiled = compiled_modes(space, modes, dtype)
        diagonals = _diagonals(factors, *map(np.diagonal, matrices_of(space.basis)))
        shares = np.broadcast_to(sums[:, np.newaxis], diagonals.shape)
        correction = space.sum_elements(diagonals) / space.sum_elements(shares)
        each = np.repeat(correction, space.ncomp) if space.ncomp > 1 else correction
        updates = backend_of(space).updates
        self.scales = updates.vector(space.size, dtype)
        scales = np.sqrt(each * space.memory.get(inverse))
        self.scales[: space.size] = updates.put(scales.astype(dtype))

    def apply(self, r: Array, z: Array) -> None:
        self._compiled.apply(r, z)


def _diagonals(factors: Floats, stiffness: Floats, mass: Floats) -> Floats:
    """Diagonals (ne, nodes) of sums of Kronecker products, by the diagonals of 1-D matrices."""
    dim = factors.shape[1] - 1
    products = []
    for along in range(dim + 1):
        product = np.ones(1)
        for d in range(dim):  # x is the fastest direction
            product = np.multiply.outer(stiffness if d == along else mass, product).reshape(-1)
        products.append(product)
    # not as a product of matrices, whose bits may depend on the number of elements
    return np.asarray(np.einsum("ek,kn->en", factors, np.array(products)))


Relaxation = Literal["points", "elements", "lines", "patches", "direct"]

# Number of measured cycles of a coarse level, and of another relaxation. A coarse level with a
# factor up to `_CLEAR` stands for the finest level.
_TRIAL, _CLEAR = 4, 0.4
# Time of a cycle of blocks or factors over the time of a cycle by points or elements, by dimension
# (measured: 1.8 to 5, and 6 to 11). Their solves take at least `_FEWEST` iterations. No relaxation
# is tried after one with a factor below `_GOOD`.
_LONGER, _FEWEST, _GOOD = {1: 2, 2: 3, 3: 10}, 5, 0.5
# Time of a cycle by elements over one by points, for fields of several components and for interior
# penalty (measured: 1.0 to 1.2). Elements are tried if a solve takes more than `_TRY_ELEMENTS`
# iterations.
_ELEMENTS_LONGER, _TRY_ELEMENTS = 1.15, 20
# Time of a cycle by blocks over one by points, for fields of several components with more than
# `_IN_CACHE` dofs (measured: 8 to 11; 4.4 for 4,300 dofs).
_BLOCKS_LONGER, _IN_CACHE = 10, 10_000
_CYCLES = 20  # measure another relaxation which is slow
_SMALL = 25  # expected iterations from which factors of a small problem are tried
# Ratio of an element's couplings from which on levels relax by elements. Measured: for cubes with
# one edge of half the length this takes 0.95 of the time.
_STRETCHED = 4.0
# Ratio from which on the finest level may be slow where a coarse one is not.
_FLAT = 100.0
_MANY = 0.9  # factor from which a solve takes many iterations
# Most dofs of the last order above 1 in a cycle of patches, by dimension. Most dofs of a problem
# with blocks on several ranks, because each rank has all blocks.
_LAST, _ON_RANKS = {1: 10**6, 2: 200_000, 3: 15_000}, 200_000
# Factors are tried if they are expected to take at most the time of `_SOLVES` solves, because a
# preconditioner serves several, and at most `_MOST_BYTES` bytes.
_SOLVES, _MOST_BYTES = 6.0, 2**32
# Seconds, measured on one core: of an entry of an element's matrix and of a multiplication of
# factors; of a dof in an iteration, of one component in float32, and of an iteration without dofs.
_ENTRY, _OPERATION, _DOF, _CALLS = 1.5e-7, 5e-10, 1.5e-7, 5e-4
# Blocks are singular or too large, or memory does not suffice, here or on another rank.
_FAILURES = SolverError, OperatorError, MemoryError, RankError


@final
@dataclass(frozen=True)
class Choice:
    """Relaxation of a cycle."""

    relaxation: Relaxation
    reason: str
    warning: str = ""  # text of a warning, or empty


class Changeable(Cycle, Protocol):
    """Parts of `Multigrid` that the choice needs."""

    operator: Operator
    degree: int
    asked: np.dtype[Any] | None
    precision: np.dtype[Any]
    hierarchy: Hierarchy

    @property
    def higher(self) -> str:
        """See `Multigrid.higher`."""

    def take(self, hierarchy: Hierarchy) -> None:
        """See `Multigrid.take`."""


def choose(M: Changeable, asked: Relaxation | None) -> Choice:
    """Choose the relaxation of a new preconditioner, and give it to the levels. Collective."""
    if not M.levels:
        aloud = f"relaxation={asked!r} has no effect: the problem is small, so factors solve it"
        return Choice("direct", "the problem is small", "" if asked in (None, "direct") else aloud)
    if asked == "points":
        return Choice("points", "as asked")
    obstacle = _obstacle(M)
    if asked is not None:
        simplex = _by_tables(M.operator.space)
        if obstacle and (asked != "direct" if simplex else asked != "elements"):
            raise SolverError(f"relaxation={asked!r} {obstacle}: leave it out")
        return _forced(M, asked)
    return _measured_choice(M, obstacle)


def _measured_choice(M: Changeable, obstacle: str) -> Choice:
    """Measure points or elements and take the quicker. Try others where that one is slow."""
    if _by_tables(M.operator.space):
        return _on_simplices(M)
    first: Relaxation = "points"
    enough, ratio, space = "they suffice", _stretching(M), M.operator.space
    stretched, scalar = ratio >= _STRETCHED, space.ncomp == 1 and isinstance(space, H1)
    if stretched and scalar:
        first, enough = "elements", f"couplings in an element differ by a factor of {ratio:.2g}"
        M.take(_hierarchy(M, first))
    factors = {first: _measured(M, ratio)}
    failed = list[str]()
    if stretched and not scalar and iterations(factors[first]) > _TRY_ELEMENTS:
        failed += _try(M, factors, ("elements",))
    best, few = _best(M, factors), _LONGER[space.dim] * _FEWEST
    many = iterations(factors[best])
    seconds = np.inf if obstacle or many <= _SMALL else _factor_seconds(M)
    each = _iteration_seconds(M)
    direct = seconds <= _SOLVES * many * each
    if many <= (min(few, _SMALL) if direct else few):
        return Choice(best, enough if best == first else _compared(factors))
    others: tuple[Relaxation, ...] = ("lines", "patches")
    if direct:  # factors come first where they take less time than to measure lines
        quick = _is_large(M) and seconds < _CYCLES * _BLOCKS_LONGER * each
        others = ("direct", *others) if quick else ("lines", "direct", "patches")
    failed += [f"another relaxation {obstacle}"] if obstacle else _try(M, factors, others)
    best = _best(M, factors)
    untried = not obstacle and not direct
    return _settled(M, best, factors[best], _compared(factors), "; ".join(failed), untried=untried)


def _on_simplices(M: Changeable) -> Choice:
    """Relax by points, or factor the matrix of a small problem where that takes many iterations."""
    space = M.operator.space
    factors: dict[Relaxation, float] = {"points": _factor(M, 0, _TRIAL)}
    if factors["points"] > _CLEAR:
        factors["points"] = _factor(M, 0)
    failed = list[str]()
    small = space.global_size <= _FACTORED[space.dim] and space.comm.size == 1
    if iterations(factors["points"]) > _SMALL and small:
        failed += _try(M, factors, ("direct",))
    best = _best(M, factors)
    reached, why = factors[best], _compared(factors)
    if best == "points" and reached < _MANY and not failed:
        return Choice(best, "they suffice")
    return _settled(M, best, reached, why, "; ".join(failed), untried=not small)


_FACTORED = {2: 200_000, 3: 20_000}  # most dofs on simplices of which factors are tried


def _stretching(M: Changeable) -> float:
    """Largest ratio of an element's couplings. 1 if elements would not serve. Collective."""
    space = M.operator.space
    if space.order == 1:
        return 1.0
    sizes = M.hierarchy.matrices.energies[:, :-1]
    least, most = sizes.min(axis=1), sizes.max(axis=1)
    known = bool((least > 0.0).all())
    ratio: float = space.comm.max(float((most / least).max(initial=1.0)) if known else np.inf)
    return ratio if ratio < np.inf else 1.0


def _by_tables(space: Space) -> bool:
    """True unless all elements are segments, quadrilaterals or hexahedra."""
    return space.mixed or not space.mesh.cell.cube


def _plural(space: Space) -> str:
    return " and ".join(part.mesh.cell.plural for part in space.parts)


def _obstacle(M: Changeable) -> str:
    """Why points are the only relaxation; empty if they are not."""
    space = M.operator.space
    if space.any_width:
        return "does not give the same bits on any number of ranks"
    if space.device is not None:
        return "is not possible on a device"
    if not isinstance(space, H1):
        return "needs an H1 space"
    if _by_tables(space):
        return f"is not done for {_plural(space)} yet"
    if space.comm.size > 1 and space.global_size > _ON_RANKS:
        return f"is possible up to {_ON_RANKS:,} dofs on several ranks"
    return ""


def _measured(M: Changeable, ratio: float) -> float:
    """Factor of a cycle. A coarse level tells it where it is small.

    Order 1 follows bending of flat elements far worse than order 2, so that level is order 2 where
    elements are stretched.
    """
    coarse = max((k for k, s in enumerate(M.sizes[:-1]) if s.order > 1), default=0)
    coarse = min(max(coarse, int(ratio < _STRETCHED)), len(M.levels) - 1)
    if ratio < _FLAT:
        found = _factor(M, coarse, _TRIAL)
        if found <= _CLEAR:
            return found
    return _factor(M, 0)


def _factor(M: Changeable, k: int, cycles: int | None = None) -> float:
    """Factor of a cycle from level k, the same on all ranks. Each has coarse levels of its own."""
    most: float = M.operator.space.comm.max(factor(M, k, cycles))
    return most


def _factor_seconds(M: Changeable) -> float:
    """Expected time of factors of A's matrix; infinite if they take too much memory. Collective.

    The null space of a singular matrix borders it with dense rows, which fill the factors.
    """
    space, elements = M.operator.space, M.sizes[0].elements
    if M.hierarchy.solver.singular and space.global_size > QUICK[space.dim]:
        return np.inf
    operations, entries = M.hierarchy.matrices.factor_work
    seconds: float = _OPERATION * operations
    seconds += _ENTRY * elements * (space.ncomp * (space.order + 1) ** space.dim) ** 2
    return seconds if 24.0 * entries <= _MOST_BYTES else np.inf


def _iteration_seconds(M: Changeable) -> float:
    """Expected time of an iteration of a solve with cycles by points."""
    space = M.operator.space
    each = _DOF * (1 + (space.ncomp > 1)) * M.precision.itemsize / 4.0  # by bytes of a number
    return float(each * space.global_size + _CALLS)


def _forced(M: Changeable, asked: Relaxation) -> Choice:
    points = M.hierarchy
    try:
        M.take(_hierarchy(M, asked))
    except _FAILURES as error:
        M.take(points)
        why = f"relaxation={asked!r} is not possible: {_cause(error)}"
        return Choice("points", why, f"multigrid relaxes by points: {why}")
    return Choice(asked, "as asked")


def _try(
    M: Changeable, factors: dict[Relaxation, float], names: tuple[Relaxation, ...]
) -> list[str]:
    """Measure the factors of other relaxations, and give the levels the best one. Collective."""
    kept, failed = M.hierarchy, list[str]()
    for name in names:
        try:
            M.take(_hierarchy(M, name))
        except _FAILURES as error:
            failed.append(f"{name} not: {_cause(error)}")
            continue
        factors[name] = _of_other(M)
        if _best(M, factors) == name:
            kept = M.hierarchy
        if factors[name] < _GOOD:
            break
    M.take(kept)
    return failed


def _is_large(M: Changeable) -> bool:
    """True if cycles of blocks take `_BLOCKS_LONGER` times as long as those by points."""
    return bool(M.operator.space.ncomp > 1 and M.operator.space.global_size > _IN_CACHE)


def _best(M: Changeable, factors: dict[Relaxation, float]) -> Relaxation:
    """Relaxation that is expected to solve in the least time."""
    first = next(iter(factors))
    blocks = float(_BLOCKS_LONGER if _is_large(M) else _LONGER[M.operator.space.dim])

    def effort(name: Relaxation) -> float:
        longer = 1.0 if name == first else _ELEMENTS_LONGER if name == "elements" else blocks
        return longer * iterations(factors[name])

    return min(factors, key=effort)


def _compared(factors: dict[Relaxation, float]) -> str:
    (first, measured), *others = factors.items()
    return f"by {first} a cycle has the factor {measured:.4f}" + "".join(
        f", by {name} {found:.4f}" for name, found in others
    )


def _of_other(M: Changeable) -> float:
    """Factor of a cycle with another relaxation, which a few cycles tell where it is small."""
    if not M.levels:
        return 0.0
    found = _factor(M, 0, _TRIAL)
    return found if found < _GOOD else _factor(M, 0)


def _cause(error: Exception) -> str:
    return str(error) or "memory does not suffice"  # SciPy's factorizations tell nothing more


def _settled(
    M: Changeable,
    relaxation: Relaxation,
    reached: float,
    reason: str,
    failed: str,
    *,
    untried: bool,
) -> Choice:
    """Return the choice, with a warning if many iterations are expected."""
    reason = f"{reason}; {failed}" if failed else reason
    if reached < _MANY:
        return Choice(relaxation, reason)
    many = f"a solve to 1e-9 is expected to take {iterations(reached)} iterations or more"
    text = f"multigrid is slow: {many}" if reached < 1.0 else "cycles of multigrid diverge"
    nodal = M.operator.space.at_gll_nodes  # as factors and `femops.low_order` need
    cure = f"try {M.higher}" if M.higher else "solve with another preconditioner"
    if untried and nodal:
        cure = "relaxation='direct' factors the matrix, which takes time and memory"
    if 1 < M.operator.space.ncomp == M.operator.space.dim:
        cure += "; for nearly incompressible materials solve for a pressure too (docs/solids.md)"
    if _by_tables(M.operator.space):
        cure += "; flat elements slow it down too: mesh anew, with another size"
    return Choice(relaxation, reason, f"{text} ({reason}). M.report() tells on which level; {cure}")


def _hierarchy(M: Changeable, name: Relaxation) -> Hierarchy:
    """Make levels that relax by elements or blocks, or factors of the matrix."""
    if name == "direct":
        return _factors(M)
    if name == "elements":
        return _by_elements(M)
    if name == "patches":
        check_patches(M.operator.space)
        exact = M.hierarchy.exact
        made = build(M.operator, M.degree, M.precision, _coarsest(M), exact=exact)
    else:
        check_lines(M.hierarchy.matrices)
        levels = [copy(level) for level in M.levels]  # their vectors are the same
        made = replace(M.hierarchy, levels=levels)
    for level, maker in zip(made.levels, made.matrices.makers, strict=True):
        matrix = maker()
        blocks: Blocks = BLOCKS[name](matrix, level.right.dtype)
        if matrix.comm.size > 1:
            blocks = Gathered(blocks, matrix.comm, level.size)
        level.use(blocks)
    return made


def _by_elements(M: Changeable) -> Hierarchy:
    """Make levels of continuous functions of order above 1 relax by elements.

    The others relax by points. That of discontinuous functions is among them: the inverses of its
    blocks save few iterations (measured: 15 for 16 on cells of 10 : 1).
    """
    if M.operator.space.order == 1:
        raise SolverError("it needs a space of order 2 or more")
    levels, matrices = [copy(level) for level in M.levels], M.hierarchy.matrices
    degree = max(M.degree - 1, 1)  # a step is a product and a sweep
    width = max(0.9 * degree**2, 2.5)  # measured, with `reduced`
    for level, space in zip(levels, matrices.spaces, strict=True):
        if isinstance(space, H1) and space.order > 1:
            own = level.inverse[: level.size.own]
            level.use(Elements(space, matrices.energies, own), degree, width)
    return replace(M.hierarchy, levels=levels)


def _factors(M: Changeable) -> Hierarchy:
    """Make a cycle that is a direct solver with A's matrix."""
    space = M.operator.space
    if not space.at_gll_nodes:
        raise SolverError("factors need a nodal basis")
    return build(M.operator, M.degree, M.asked, Coarsest(space.order, meshes=False))


def _coarsest(M: Changeable) -> Coarsest:
    """Where a cycle with patches ends. Where the order is 1, patches are single nodes."""
    space, sizes = M.operator.space, M.sizes
    for order in (2, 1):
        size = next((s.dofs for s in sizes if s.order == order < space.order), None)
        if size is not None and size <= _LAST[space.dim]:
            return Coarsest(order, meshes=False)
    return Coarsest()
