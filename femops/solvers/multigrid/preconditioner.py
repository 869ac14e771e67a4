"""Multigrid as a preconditioner: the cycle, and its report."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from threading import Lock, get_ident
from time import perf_counter
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.operators.execution.host import backend_of
from femops.operators.integrals.coefficients import float_type
from femops.parallel.comm import check_same, gathered
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid.choice import Relaxation, choose
from femops.solvers.multigrid.hierarchy import Hierarchy, build
from femops.solvers.multigrid.level import scattered
from femops.solvers.multigrid.measure import LevelReport, report
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.warned import warn_on_first_rank
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.product import Product
from femops_common import html
from femops_common.arguments import Degree, checked
from femops_kernels.exclusive import Exclusive


def as_table(M: Any, coarsest: str) -> str:
    """HTML table that describes a `Multigrid`, whose coarsest solver has the name ``coarsest``."""
    levels = [
        (f"order {size.order}", f"{size.elements:,} elements, {size.dofs:,} dofs")
        for size in M.sizes
    ]
    rows = [
        ("shape", " x ".join(f"{n:,}" for n in M.shape)),
        *levels,
        ("coarsest level", coarsest),
        ("dofs of all levels over the finest's", f"{M.complexity:.2f}"),
        ("computes in", f"{M.precision}: {M.reason}"),
        ("relaxation", f"{M.relaxation}: {M.relaxation_reason}"),
    ]
    return html.table("Multigrid", rows)


Vector = NDArray[Any]
Result = TypeVar("Result")
_log = logging.getLogger("femops")

_DEGREE, _HIGH = 4, 6  # measured, with `reduced`; and the order above which one more pays
_MOST_DEGREE = 64  # the end of `Degree`
_SQUARES = {"float64": 1e-280, "float32": 1e-25}  # smallest sums with all digits; inverses: largest
# Condition number that float32 resolves: where it is larger, rounding a solution changes its
# product with A by more than the right-hand side.
_RESOLVED = 1.0 / float(np.finfo(np.float32).eps)
_POWERS = 2  # steps of the power method
_CLEAR = 1e-3  # times `_RESOLVED`, below which one step suffices
_LEAST_EXPONENT = 1000  # the inverse of that power of two is a float64, too


@final
class Multigrid(Preconditioner):
    """Symmetric positive definite V-cycle of multigrid. `multigrid` makes it.

    Parameters
    ----------
    A : Operator
    degree : int
    dtype : dtype, optional
        Type of the cycle's numbers.
    relaxation : {"points", "elements", "lines", "patches", "direct"}, optional
        See `multigrid`.

    Attributes
    ----------
    operator : Operator
        The operator to precondition.
    degree : int
    asked : dtype or None
        Type that the user wants for the cycle's numbers.
    levels : list of Level
        From the finest to the second coarsest.
    sizes : list of Size
        Sizes of all levels.
    precision : dtype
        Type of the cycle's numbers; see `multigrid`.
    reason : str
        Reason for the choice of ``precision``.
    relaxation : {"points", "elements", "lines", "patches", "direct"}
        Relaxation of the levels; see `multigrid`.
    relaxation_reason : str
        Reason for the choice of ``relaxation``, with measured factors.
    hierarchy : Hierarchy
    rights : list of array
        Right-hand sides of all levels.
    updates : VectorUpdates
    setup_seconds : float
        Time of the setup.
    """

    _given_as = "femops.multigrid(A)"

    def __init__(
        self,
        A: Operator,
        degree: int,
        dtype: np.dtype[Any] | None = None,
        relaxation: Relaxation | None = None,
    ) -> None:
        super().__init__(A.dtype, A.space)
        self.operator, self.degree, self.asked = A, degree, dtype
        begin = perf_counter()
        updates = self.updates = backend_of(A.space).updates
        self._build(dtype)
        rounded = self.precision
        choice = choose(self, relaxation)
        if self.precision != rounded:  # factors of the matrix
            self.reason = self.hierarchy.reason
        self.relaxation, self.relaxation_reason = choice.relaxation, choice.reason
        sums, self._exclusive = Sums(A.space), Exclusive()
        self._user: tuple[Lock | None, int] = None, 0
        self._plain = updates.directions(sums.edges, sums, A.dtype, A.dtype)
        constrained, identity = A.constrained_dofs, A.constraints.identity
        self._constrained = updates.put(constrained)
        self._at_constrained = 1.0 / identity if identity else 0.0
        self._cycles = 0
        self._repeated: tuple[Callable[[], None], Callable[[], None]] | None = None
        self.setup_seconds = perf_counter() - begin
        if choice.warning:
            warn_on_first_rank(choice.warning, A.space.comm)

    def _build(self, dtype: np.dtype[Any] | None) -> None:
        """Build levels that relax by points, in float64 if float32 does not resolve A."""
        A, degree = self.operator, self.degree
        self.take(build(A, degree, dtype))
        condition = self._condition() if self.precision == np.float32 else 1.0
        self.reason = self.hierarchy.reason
        if condition > _RESOLVED:
            lost = f"float32 does not resolve a condition number of {condition:.0e}"
            if dtype is None and A.dtype == np.float64:
                _log.info("multigrid works in float64: %s", lost)
                self.take(build(A, degree, A.dtype))
                self.reason = lost
            else:
                self.reason = f"{self.reason if dtype else 'as A'}, but {lost}"

    def take(self, hierarchy: Hierarchy) -> None:
        """Set the attributes that depend on the levels."""
        levels = self.levels = hierarchy.levels
        self.hierarchy = hierarchy
        self.sizes = [*(level.size for level in levels), hierarchy.coarsest]
        self.precision = hierarchy.dtype
        self._last = self.updates.coarsest(self.sizes[-1].own, self.precision)
        self.rights = [*(level.right for level in levels), self._last.right]
        self._change = hierarchy.change

    def _condition(self) -> float:
        """Estimate the condition number of the operator divided by its diagonal. Collective.

        The estimate is the upper bound of the spectrum times the largest eigenvalue of the coarsest
        level's inverse. The power method computes that eigenvalue. A change of basis multiplies it
        by its own condition number.
        """
        if not self.levels:
            return 1.0
        level, size = self.levels[0], self.sizes[-1]
        self._last.give(scattered(size.first, size.own).astype(np.float64))
        largest = 0.0
        scale = level.largest * (1.0 if self._change is None else self._change.condition)
        for k in range(_POWERS + 1):
            x = self._interpolated()
            energy = level.dot(x, level.right) if k else 0.0  # x is not yet scaled
            level.dual(x)
            square = level.dot(x, level.right)
            if not 0.0 < square < np.inf:
                break
            if k:
                largest = max(largest, square / energy)
            if k == _POWERS or 0.0 < scale * largest < _CLEAR * _RESOLVED:
                break
            level.right *= 1.0 / math.sqrt(square)
            self._restrict()
            self._solve_coarsest()
        return scale * largest

    def _interpolated(self) -> Vector:
        """The solution of the coarsest level, interpolated to the finest."""
        for k in reversed(range(len(self.levels))):
            level = self.levels[k]
            level.transfer[0](self._solution(k + 1), level.product)
            level.x = level.interpolated()
        return self._solution(0)

    def _restrict(self) -> None:
        """Restrict the finest right-hand side to all coarser levels."""
        for level, right in zip(self.levels, self.rights[1:], strict=True):
            level.transfer[1](level.restricted(), right)

    def __reduce__(self) -> tuple[Any, ...]:
        """Set copies and pickles up again from the operator."""
        given = self.operator, self.degree, self.precision, self.relaxation
        return _again, (*given, self.reason, self.relaxation_reason)

    def alone(self, work: Callable[[], Result]) -> Result:
        """Call ``work`` while this thread has the vectors that `cycle` needs. Others wait.

        An interrupt at any point releases them, which a generator's context would not.

        Raises
        ------
        SolverError
            This thread has them already.
        """
        lock = self._exclusive.lock
        if self._user == (lock, get_ident()):
            raise SolverError(
                "M is used by a callback of the solve that it runs in: make another for that, "
                "as femops.multigrid(A)"
            )
        with lock:
            try:
                self._user = lock, get_ident()
                return work()
            finally:
                self._user = None, 0

    def _apply(self, x: Vector, result: Vector) -> None:
        """Scale x by a power of two to a norm near 1, run a cycle, and scale the result back."""
        multiply, held = self.updates.xp.multiply, self._constrained
        result[:] = x
        result[held] = 0.0
        size = self._size_of(result)
        if 0.0 < size < np.inf:
            # in double precision, because the numbers may be out of range of the types
            exponent = max(math.frexp(size)[1], -_LEAST_EXPONENT)
            double = {"dtype": np.float64, "casting": "same_kind"}

            def scaled_cycle() -> None:
                right = self.right[: len(x)]
                multiply(result, 2.0**-exponent, out=right, **double)
                multiply(self.cycle()[: len(x)], math.ldexp(1.0, exponent), out=result, **double)

            self.alone(scaled_cycle)
        elif size:
            result[:] = np.nan
        result[held] = self._at_constrained * x[held]

    def _size_of(self, r: Vector) -> float:
        """Estimate the norm of a vector, even if squares are out of range. Collective.

        The estimate is zero for a vector of zeros, and infinite if an entry is not finite.
        """
        square = self._plain.inner(r, r)
        if _SQUARES[self.dtype.name] < square < 1.0 / _SQUARES[self.dtype.name]:
            return math.sqrt(square)
        own = float(abs(r).max()) if len(r) else 0.0
        return float(self.operator.space.comm.max(own if math.isfinite(own) else math.inf))

    @property
    def right(self) -> Vector:
        """Right-hand side (size + padding,) of a cycle, in the cycle's type."""
        right: Vector = self.rights[0] if self._change is None else self._change.right
        return right

    def cycle(self) -> Vector:
        """Solution (size + padding,) of a V-cycle for `right`, which the next cycle overwrites."""
        alone = self.operator.space.comm.size == 1  # messages are no launches
        if self._cycles == 1 and self.updates.repeats and alone and self.levels:
            self._repeated = self._recorded()  # all kernels have been launched
        self._cycles += 1
        descend, ascend = self._repeated or (self._descend, self._ascend)
        self._enter()
        descend()
        self._solve_coarsest()
        ascend()
        return self._found()

    def _recorded(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return both halves of a cycle as recorded launches."""
        descend, launches = (self.updates.repeatable(f) for f in (self._descend, self._ascend))
        ends = [level.x for level in self.levels]

        def ascend() -> None:
            launches()
            for level, x in zip(self.levels, ends, strict=True):
                level.x = x  # `full_cycle` ends with the solution in another vector

        return descend, ascend

    def full_cycle(self) -> Vector | None:
        """Run full multigrid for `right`. Return the solution (size + padding,) or None.

        The next cycle overwrites the solution.

        Each level except the finest runs a cycle that begins with the solution of the next coarser
        level. The finest only interpolates that solution. The result is None if it would save no
        iteration of `femops.cg`: for orders 1 and 2, for cycles of two levels, and for loads that
        coarser levels hardly represent. Restriction enlarges the load vector of a smooth function,
        because the supports of the basis functions grow. It shrinks the load vector of noise.
        """
        if self.sizes[0].order <= 2 or len(self.levels) == 1:
            return None
        self._enter()
        for k, (level, right) in enumerate(zip(self.levels, self.rights[1:], strict=True)):
            level.transfer[1](level.restricted(), right)
            if k == 0 and self.levels[1].dot(right, right) < level.dot(level.right, level.right):
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

    def _enter(self) -> None:
        """Convert the right-hand side to the nodal basis, if the operator has another basis."""
        if self._change is not None:
            self._change.enter(self.rights[0])

    def _found(self) -> Vector:
        """Return the solution for `right` in the operator's basis, with the constrained entries."""
        found = self._solution(0)
        if self._change is not None:
            found = self._change.leave(found)
        if self._at_constrained:
            found[self._constrained] = self._at_constrained * self.right[self._constrained]
        return found

    def _descend(self, first: int = 0, guess: Vector | None = None) -> None:
        """Relax on the levels from ``first`` down, and restrict residuals. Start at ``guess``."""
        for level, right in zip(self.levels[first:], self.rights[first + 1 :], strict=True):
            level.x, guess = level.relax(guess), None
            _, down = level.transfer
            down(level.residual(level.x), right)

    def _ascend(self, first: int = 0) -> None:
        """Correct each level up to ``first`` by the next coarser solution, and relax."""
        for k in reversed(range(first, len(self.levels))):
            level, (up, _) = self.levels[k], self.levels[k].transfer
            up(self._solution(k + 1), level.product)
            level.correct(level.x)
            level.x = level.relax(level.x)

    def _solution(self, k: int) -> Vector:
        return self.levels[k].x if k < len(self.levels) else self._last.found

    def cycle_from(self, k: int) -> Vector:
        """Run a cycle for the right-hand side of level k. Return a vector of the level."""
        self._descend(k)
        self._solve_coarsest()
        self._ascend(k)
        return self._solution(k)

    def _solve_coarsest(self) -> None:
        """Solve on the coarsest level. Each rank computes the full solution."""
        hierarchy, size = self.hierarchy, self.hierarchy.coarsest
        right = self._last.fetch()
        right[hierarchy.constrained] = 0.0
        whole = hierarchy.solver.solve(gathered(hierarchy.comm, right))
        own = whole[size.first : size.first + size.own]
        own[hierarchy.constrained] = 0.0
        self._last.give(own)

    # --- the report -------------------------------------------------------------------------------

    @property
    def higher(self) -> str:
        """Call that makes a preconditioner of a higher degree. Empty if that changes nothing."""
        degree = min(2 * self.degree, _MOST_DEGREE)
        more = degree > self.degree and bool(self.levels)
        return f"femops.multigrid(A, degree={degree})" if more else ""

    @property
    def complexity(self) -> float:
        """Number of dofs on all levels divided by the number on the finest level."""
        return sum(size.dofs for size in self.sizes) / self.sizes[0].dofs

    def report(self) -> tuple[LevelReport, ...]:
        """Measure each level: the time per cycle, and the error reduction of a cycle from there.

        Takes 40 cycles or more. Collective if ranks share dofs.
        """
        return self.alone(lambda: report(self))

    def __repr__(self) -> str:
        rows, columns = self.shape
        head = f"Multigrid({rows} x {columns}, complexity {self.complexity:.2f}"
        head += f", {self.precision}: {self.reason}"
        head += f", relaxation by {self.relaxation}: {self.relaxation_reason}"
        levels = [
            f"  order {size.order}: {size.elements} elements, {size.dofs} dofs"
            for size in self.sizes
        ]
        return "\n".join([head, *levels]) + f", {self.hierarchy.solver.name})"

    def _repr_html_(self) -> str:
        return as_table(self, self.hierarchy.solver.name)


def _again(
    A: Operator,
    degree: int,
    dtype: np.dtype[Any],
    relaxation: Relaxation,
    reason: str,
    relaxation_reason: str,
) -> Multigrid:
    """Set up a copied or unpickled preconditioner, with the reasons of the first one."""
    M = Multigrid(A, degree, dtype, relaxation)
    M.reason, M.relaxation_reason = reason, relaxation_reason
    return M


@checked(SolverError)
def multigrid(
    A: Operator | ComplexOperator,
    *,
    degree: Degree | None = None,
    dtype: DTypeLike | None = None,
    relaxation: Relaxation | None = None,
) -> Multigrid:
    """Multigrid preconditioner of a symmetric positive definite operator. Collective.

    The V-cycle visits the orders p, p/2, ... (rounded up), 1 on the mesh of the operator. Then it
    visits, at order 1, the meshes from which that mesh was refined (`Mesh.coarser`), unless it was
    refined locally. A direct solver, or PyAMG, treats the coarsest level. The arithmetic is
    float32, or float64 if float32 does not resolve a nearly singular operator. Chebyshev's
    polynomials of the operator divided by its diagonal relax the errors of each level. Levels of
    lower order apply the same forms on spaces of lower order. Levels on coarser meshes have
    matrices. With multigrid the iterations of `femops.cg` hardly depend on order and mesh.

    Parameters
    ----------
    A : Operator
        On an H1 space, or `femops.interior_penalty`, of the host or of GPUs: diffusion, elasticity,
        their sums with mass and
        boundary mass, your own symmetric positive forms, Jacobians. The constrained operator must
        be positive definite, or singular with constants or rigid motions in its null space. M has
        zeros in eliminated rows and columns.
    degree : int, optional
        Number of products with A before and after each coarse-level correction, 1 to 64. The
        default is 4, or 5 for orders above 6. Where levels relax by elements, one less.
    dtype : {float32, float64}, optional
        Arithmetic of the cycle. The default is float32, or float64 if A's numbers are out of the
        range of float32 or A's condition number is above 8e6. ``M.reason`` tells which case it is.
        With float32 the numbers of A must lie between 1e-25 and 1e30. `femops.cg` corrects the
        round-off of float32. For other solvers and tight tolerances take float64.
    relaxation : {"points", "elements", "lines", "patches", "direct"}, optional
        How the levels reduce errors. ``points`` divides residuals by the diagonal of A.
        ``elements`` solves for the nodes of each element, by fast diagonalisation (stretched
        cells, anisotropic coefficients; order 2 or more). ``lines`` solves along the
        directions of elements that are coupled far more strongly than others, exactly. ``patches``
        solves for the elements around each vertex (nearly incompressible materials, slender bodies,
        coefficients that are anisotropic across the directions of elements). ``direct`` solves with
        factors of A's matrix, for small problems. By default scalar problems with stretched cells
        take elements, and others points. Some cycles are measured. Where they are slow, the other
        relaxations are tried; elements first, for fields of several components and interior penalty
        on stretched cells. ``M.relaxation`` and ``M.relaxation_reason`` tell the result. Lines,
        patches and factors need an H1 space on the host, and each rank has all of them.

    Returns
    -------
    Multigrid
        A SciPy ``LinearOperator``, for `femops.cg`, `femops.minres` and SciPy's solvers.

    Raises
    ------
    SolverError
        The operator is not symmetric, not square or not positive, or has forms on spaces that are
        not H1. Or ``dtype`` or A is float32, and A's numbers do not fit into float32. Or
        ``relaxation`` is not possible on a device, a reproducible mesh or the space. The message
        names an alternative.
    MissingExtraError
        The mesh is large and was not refined from a coarser one, and PyAMG (extra ``amg``) is
        missing.

    Warns
    -----
    ConvergenceWarning
        A solve is expected to take many iterations. Or the relaxation that ``relaxation`` asks for
        cannot be made: its blocks are singular or too large. Then the levels relax by points.

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
    if isinstance(A, ComplexOperator):
        raise SolverError(
            "multigrid takes operators of real numbers: give A.real of a Hermitian A, else a "
            "similar real operator on the same space, as femops.diffusion(V) + femops.mass(V)"
        )
    space = A.space
    if A.test_space is not space:
        raise SolverError(f"{A!r} is not square, and multigrid needs that: give another operator")
    if isinstance(space, Product):
        blocks = ", ".join(f"{name}=..." for name in space.names)
        name = next((n for n in space.names if A[n, n] is not None), space.names[0])
        raise SolverError(
            f"multigrid takes operators on one field, got one on {space!r}: make it of a block, as "
            f"A[{name!r}, {name!r}], for femops.block_diagonal(W, {blocks}), or take "
            "femops.preconditioner(A), which is M='auto'"
        )
    if not isinstance(space, H1 | L2):
        raise SolverError(
            f"multigrid takes operators on H1 and L2, got one on {space!r}: take femops.jacobi(A)"
        )
    if not A.symmetric:
        raise SolverError(
            f"{A!r} is not symmetric, and multigrid needs that: use femops.gmres with "
            "femops.jacobi, or with multigrid of a symmetric operator that is like this one"
        )
    joined = [term.fields.two_sided for _, term in A.summands]
    if all(joined):
        raise SolverError(
            f"{A!r} has only integrals over faces between elements, and multigrid needs one over "
            "the elements: add it, as femops.mass(V)"
        )
    if not isinstance(space, H1):
        if not any(joined):
            raise SolverError(
                f"{A!r} on {space!r} has no integrals over faces between elements, so each element "
                "is a system of its own, and multigrid is for others: use femops.block_jacobi(A), "
                "the inverse of a mass, or femops.interior_penalty(V) for diffusion on a mesh of "
                "several elements"
            )
        if not space.order:
            raise SolverError(
                f"multigrid takes L2 spaces of order 1 or more, got {space!r}: use femops.jacobi"
            )
    kind = None if dtype is None else float_type(dtype)
    given = {"degree": degree, "dtype": kind, "relaxation": relaxation}
    check_same(space.comm, "multigrid", given, error=SolverError)
    chosen = _DEGREE + (space.order > _HIGH) if degree is None else int(degree)
    return Multigrid(A, chosen, kind, relaxation)
