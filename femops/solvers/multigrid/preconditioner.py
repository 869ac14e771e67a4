"""Multigrid as a preconditioner: the cycle, and what is reported of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, get_ident
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.execution.choice import backend_of
from femops.operators.integrals.number_types import float_type
from femops.parallel.collective_checks import check_same
from femops.solvers.inner_products import Sums
from femops.solvers.linear_problem import excess_of
from femops.solvers.multigrid.coarse import gathered
from femops.solvers.multigrid.hierarchy import build
from femops.solvers.multigrid.level import scattered
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.h1_l2 import H1
from femops_meshes.arguments import Degree, checked

Vector = NDArray[Any]

_DEGREE, _HIGH = 4, 6  # measured, with `reduced`; and the order above which one more pays
_CYCLES = 8  # after which the factor of an error is that of the slowest one


@final
@dataclass(frozen=True)
class LevelReport:
    """Facts of a level, known and measured.

    Attributes
    ----------
    order, elements, dofs : int
        Of all ranks.
    seconds : float
        Of one visit in a cycle, transfers to the next level included.
    factor : float
        By which cycles that begin on this level reduce the energy norm of an error, each; zero on
        the coarsest, where the solution is direct.
    """

    order: int
    elements: int
    dofs: int
    seconds: float
    factor: float


@final
class Multigrid(Preconditioner):
    """One V-cycle of multigrid, symmetric and positive definite; made by `multigrid`.

    Parameters
    ----------
    A : Operator
    degree : int
    dtype : dtype, optional
        Of the cycle.

    Attributes
    ----------
    operator : Operator
        What it preconditions.
    degree : int
    levels : list of Level
        The finest first; the coarsest is not among them.
    sizes : list of Size
        Of all levels.
    setup_seconds : float
        What it took to make it.
    """

    _given_as = "femops.multigrid(A)"

    def __init__(self, A: Operator, degree: int, dtype: np.dtype[Any] | None = None) -> None:
        super().__init__(A.dtype, A.shape[0], A.space.memory)
        self.operator, self.degree = A, degree
        begin = perf_counter()
        updates = self._updates = backend_of(A.space).updates
        self._hierarchy = build(A, degree, dtype)
        levels = self.levels = self._hierarchy.levels
        self.sizes = [*(level.size for level in levels), self._hierarchy.coarsest]
        kind = levels[0].right.dtype if levels else A.dtype
        self._last = updates.coarsest(self.sizes[-1].own, kind)
        self._rights = [*(level.right for level in levels), self._last.right]
        sums, self._lock, self._user = Sums(A.space), Lock(), 0
        self._plain = updates.directions(sums.edges, sums, A.dtype, A.dtype)
        constrained, identity = A.constrained_dofs, A.constraints.identity
        self._constrained = updates.put(constrained)
        self._at_constrained = 1.0 / identity if identity else 0.0
        self._cycles = 0
        self._repeated: tuple[Callable[[], None], Callable[[], None]] | None = None
        self.setup_seconds = perf_counter() - begin

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made anew of the operator."""
        return Multigrid, (self.operator, self.degree, self.right.dtype)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold its vectors; other threads wait.

        Raises
        ------
        SolverError
            This thread holds them already.
        """
        if self._user == get_ident():
            raise SolverError(
                "M is used by a callback of the solve that it runs in: make another for that, "
                "as femops.multigrid(A)"
            )
        with self._lock:
            self._user = get_ident()
            try:
                yield
            finally:
                self._user = 0

    def apply(self, r: Vector, out: Vector | None = None) -> Vector:
        """Approximate solution of A x = r by one cycle. Collective, where ranks share dofs.

        Parameters
        ----------
        r : (size,) array
            Of the operator's type.
        out : (size,) array, optional
            Overwritten by the result.
        """
        xp = self._updates.xp
        result: Vector = xp.empty(len(r), self.dtype) if out is None else out
        exponent = excess_of(self.operator, r)
        r = xp.ldexp(r, -exponent) if exponent else r
        scale = max(self._plain.inner(r, r), 0.0) ** 0.5
        if not 0.0 < scale < np.inf:
            result[:] = 0.0 if scale == 0.0 else np.nan
            return result
        with self.alone():
            xp.multiply(r, 1.0 / scale, out=self.right[: len(r)])
            xp.multiply(self.cycle()[: len(r)], scale, out=result)
        return xp.ldexp(result, exponent, out=result) if exponent else result

    @property
    def right(self) -> Vector:
        """Right-hand side of a cycle: a vector with padding, of the cycle's type."""
        right: Vector = self._rights[0]
        return right

    def cycle(self) -> Vector:
        """Approximate solution for `right`, of its type, until the next one; see `alone`."""
        alone = self.operator.space.comm.size == 1  # messages are no launches
        if self._cycles == 1 and self._updates.repeats and alone and self.levels:
            repeatable = self._updates.repeatable  # all kernels have been launched
            self._repeated = repeatable(self._descend), repeatable(self._ascend)
        self._cycles += 1
        descend, ascend = self._repeated or (self._descend, self._ascend)
        descend()
        self._solve_coarsest()
        ascend()
        return self._found()

    def full_cycle(self) -> Vector | None:
        """Approximate solution for `right` by full multigrid, of its type, until the next cycle.

        Each level but the finest has a cycle that begins with the solution of the next coarser
        one; the finest has that solution. None where that would save no iteration of `femops.cg`:
        of order 2, and of loads that coarser levels hardly see. A smooth function's integrals grow
        with the support of the basis functions, so their vector does as it is restricted; that of
        noise shrinks.
        """
        if self.sizes[0].order <= 2:
            return None
        for k, (level, right) in enumerate(zip(self.levels, self._rights[1:], strict=True)):
            level.transfer[1](level.restricted(), right)
            if k == 0 and self.levels[1].dot(right, right) < level.dot(self.right, self.right):
                return None
        self._solve_coarsest()
        for k in reversed(range(len(self.levels))):
            level = self.levels[k]
            level.transfer[0](self._solution(k + 1), level.product)
            level.x = level.interpolated()
            if k:
                self._descend(k, level.x)
                self._solve_coarsest()
                self._ascend(k)
        return self._found()

    def _found(self) -> Vector:
        """The solution on the finest level, with its constrained entries."""
        found = self._solution(0)
        if self._at_constrained:
            found[self._constrained] = self._at_constrained * self.right[self._constrained]
        return found

    def _descend(self, first: int = 0, guess: Vector | None = None) -> None:
        """Relax on each level, the first guess on the first, and restrict the residual."""
        for level, right in zip(self.levels[first:], self._rights[first + 1 :], strict=True):
            level.x, guess = level.relax(guess), None
            _, down = level.transfer
            down(level.residual(level.x), right)

    def _ascend(self, first: int = 0) -> None:
        """Correct each level by the solution on the next, and relax."""
        for k in reversed(range(first, len(self.levels))):
            level, (up, _) = self.levels[k], self.levels[k].transfer
            up(self._solution(k + 1), level.product)
            level.correct(level.x)
            level.x = level.relax(level.x)

    def _solution(self, k: int) -> Vector:
        return self.levels[k].x if k < len(self.levels) else self._last.found

    def _cycle(self, k: int) -> Vector:
        """Approximate solution on a level for its right-hand side; one of the level's vectors."""
        self._descend(k)
        self._solve_coarsest()
        self._ascend(k)
        return self._solution(k)

    def _solve_coarsest(self) -> None:
        """Solve on the coarsest level; every rank computes it, and takes its own part."""
        hierarchy, size = self._hierarchy, self._hierarchy.coarsest
        right = self._last.fetch()
        right[hierarchy.constrained] = 0.0
        whole = hierarchy.solver.solve(gathered(hierarchy.comm, right))
        own = whole[size.first : size.first + size.own]
        own[hierarchy.constrained] = 0.0
        self._last.give(own)

    # --- as SciPy's solvers take it ---------------------------------------------------------------

    def _product(self, x: Vector) -> Vector:
        if x.dtype.kind == "c":
            return self._product(x.real) + 1j * self._product(x.imag)
        return self.apply(self._updates.xp.ascontiguousarray(x, dtype=self.dtype))

    # --- what is told of it -----------------------------------------------------------------------

    @property
    def complexity(self) -> float:
        """Dofs of all levels over those of the finest."""
        return sum(size.dofs for size in self.sizes) / self.sizes[0].dofs

    def report(self) -> tuple[LevelReport, ...]:
        """Measure each level: the time of a visit, and how much a cycle from there reduces.

        Collective, where ranks share dofs. It takes some 50 cycles.
        """
        with self.alone():
            seconds = [self._seconds(k) for k in range(len(self.sizes))]
            factors = [self._factor(k) for k in range(len(self.levels))]
        alone = [a - b for a, b in zip(seconds, [*seconds[1:], 0.0], strict=True)]
        return tuple(
            LevelReport(size.order, size.elements, size.dofs, max(time, 0.0), factor)
            for size, time, factor in zip(self.sizes, alone, [*factors, 0.0], strict=True)
        )

    def _seconds(self, k: int) -> float:
        """Median time of a cycle that begins on a level."""
        size, times = self.sizes[k], list[float]()
        updates = self._updates
        self._rights[k][: size.own] = updates.put(scattered(size.first, size.own))
        for _ in range(5):
            updates.wait()
            begin = perf_counter()
            self._cycle(k)
            updates.wait()
            times.append(perf_counter() - begin)
        return float(np.median(times))

    def _factor(self, k: int) -> float:
        """Factor of the energy norm of an error, after some cycles."""
        level, size, right = self.levels[k], self.sizes[k], self._rights[k]
        n = size.own
        error = self._updates.vector(n, right.dtype)
        error[:n] = self._updates.put(scattered(size.first, n))
        error *= level.weights > 0.0
        before = factor = 0.0
        for _ in range(_CYCLES):
            level.compiled.apply(error, right)
            energy = max(level.dot(error, right), 0.0) ** 0.5
            factor, before = (energy / before if before else 0.0), 1.0
            if not 0.0 < energy < np.inf:
                break
            error /= energy
            right /= energy
            error -= self._cycle(k)
        return factor

    def __repr__(self) -> str:
        head = f"Multigrid({self.shape[0]} x {self.shape[1]}, complexity {self.complexity:.2f}"
        levels = [
            f"  order {size.order}: {size.elements} elements, {size.dofs} dofs"
            for size in self.sizes
        ]
        return "\n".join([head, *levels]) + f", {self._hierarchy.solver.name})"


@checked(SolverError)
def multigrid(
    A: Operator, *, degree: Degree | None = None, dtype: DTypeLike | None = None
) -> Multigrid:
    """Multigrid preconditioner of a symmetric positive definite operator. Collective.

    A V-cycle in float32: the orders p, p/2, ... (rounded up), 1 on the mesh of the operator, then
    the meshes that it was refined from (`Mesh.coarser`) at order 1, and a direct solver. On each
    level errors are relaxed by Chebyshev's polynomials of the operator divided by its diagonal.
    The coarser operators are the same forms on spaces of lower order; of order 1, matrices. With
    it the iterations of `femops.cg` hardly depend on order and mesh.

    Parameters
    ----------
    A : Operator
        On an H1 space, of the host or of GPUs: diffusion, elasticity, their sums with mass and
        boundary mass, your own symmetric positive forms, Jacobians; with constraints that leave it
        positive, or singular with constants or rigid motions in its null space.
    degree : int, optional
        Products with A before and after each correction from the coarser level, 1 to 64; 4 if
        omitted, of orders above 6 one more.
    dtype : {float32, float64}, optional
        Arithmetic of the cycle: float32 if omitted and A's numbers allow it. `femops.cg` makes up
        for its round-off; for other solvers and tight tolerances take float64.

    Returns
    -------
    Multigrid
        A SciPy ``LinearOperator``, for `femops.cg`, `femops.minres` and SciPy's solvers.

    Raises
    ------
    SolverError
        An operator that is not symmetric, not square, of forms on other spaces than H1 ones, or
        found not to be positive: the message says what to use instead.
    MissingExtraError
        A large mesh that knows no coarser one, without PyAMG (extra ``amg``).

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((8, 8)), order=4)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> M = femops.multigrid(A)
    >>> u, info = femops.cg(A, femops.load(V, 1.0), M=M, rtol=1e-9)
    >>> info.converged, info.iterations < 10
    (True, True)
    """
    space = A.space
    if A.test_space is not space or not A.symmetric:
        raise SolverError(
            f"{A!r} is not symmetric, and multigrid needs that: use femops.gmres with femops.jacobi"
        )
    if not isinstance(space, H1):
        raise SolverError(
            f"multigrid takes operators on H1 spaces, got one on {space!r}: use femops.jacobi"
        )
    kind = None if dtype is None else float_type(dtype)
    check_same(space.comm, "multigrid", {"degree": degree, "dtype": kind}, error=SolverError)
    chosen = _DEGREE + (space.order > _HIGH) if degree is None else int(degree)
    return Multigrid(A, chosen, kind)
