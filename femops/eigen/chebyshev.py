"""Lowest eigenvalues by subspace iteration with Chebyshev polynomials."""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.eigen.bounds import spectrum
from femops.eigen.complement import ComplementSearch, Gap, Search
from femops.eigen.eigenpairs import Eigenpairs, SubspaceState, check_numbers
from femops.eigen.filters import (
    CONDITION,
    LEAST_DEGREE,
    MOST_DEGREE,
    Interval,
    filter_degree,
    filter_vectors,
)
from femops.eigen.inverse import Inverse
from femops.eigen.pencil import AnyOperator, Array, Pencil
from femops.eigen.ritz import (
    AT_ROUND_OFF,
    LEAST,
    NEAR,
    ROUND_OFF,
    all_ritz_pairs,
    mass_products,
    product_round_off,
    residuals,
    ritz_vectors,
)
from femops.eigen.start import NEW_SEED, basis_of_all, number_of_vectors, vectors_of_state
from femops.errors import SolverError, VectorError
from femops.fields.multivector import MultiVector
from femops.fields.panels import panel_width
from femops.fields.reproducible import random_columns
from femops.parallel.comm import check_same
from femops.solvers.convergence import warn_unconverged
from femops.solvers.multigrid.precision import SINGLE
from femops.solvers.watch import Progress, Watch
from femops_common.arguments import dtype_of, names_checked

_FEWEST = 2**18  # entries of the vectors: below, compiling kernels in float32 takes longer
_MARGIN = 16.0
_LARGE = 1e20  # eigenvalues up to this are in the range of float32 with a margin
_OUT_OF_RANGE = (
    "filter_dtype is float32, and numbers of A or M do not fit into it, or the mesh is "
    "reproducible: leave filter_dtype out"
)
_MOST_LEFT = 0.05  # part of a residual that a filter in float32 may leave


@final
class FilterPrecision:
    """Choice between float32 and the type of A, for each filter.

    A filter changes an eigenvector by its residual alone, so round-off is relative to the residual.
    It enters in each step at the upper end of the spectrum: what a filter leaves of a residual is
    at least the precision times the largest eigenvalue over the gap.
    """

    def __init__(self, pencil: Pencil, asked: DTypeLike | None) -> None:
        self.pencil, self.dtype = pencil, pencil.A.dtype
        kind = None if asked is None else dtype_of(asked)
        if asked is not None and kind not in (SINGLE, pencil.A.dtype):
            raise SolverError(f"filter_dtype = {asked!r}: give float32, or leave it out")
        self._asked, self._dropped = kind, False
        if kind == SINGLE != pencil.A.dtype and self._short is None:
            raise SolverError(_OUT_OF_RANGE)

    @cached_property
    def _short(self) -> Pencil | None:
        return self.pencil.in_float32()

    def of(
        self, inverse: Inverse, vectors: int, interval: Interval, value: float
    ) -> tuple[Inverse, float]:
        """Choose the type of a filter. Collective."""
        gap = max(interval.cut - value, float(np.finfo(float).tiny))
        left = _MARGIN * float(np.finfo(SINGLE).eps) * (interval.upper - interval.lowest) / gap
        short = self._short if self._wanted(vectors, left) else None
        if short is not None and not 1.0 / _LARGE < interval.radius < _LARGE:
            if self._asked is not None:
                raise SolverError(_OUT_OF_RANGE)
            short = None
        self.dtype = self.pencil.A.dtype if short is None else SINGLE
        return (inverse, 0.0) if short is None else (inverse.of(short), left)

    def drop(self) -> None:
        """Compute in the type of A from now on, unless the user has asked for float32."""
        self._dropped = True

    def _wanted(self, vectors: int, left: float) -> bool:
        if self._asked is not None or self.pencil.A.dtype == SINGLE:
            return bool(self._asked == SINGLE != self.pencil.A.dtype)
        narrower = _row_bytes(vectors, SINGLE) < _row_bytes(vectors, self.pencil.A.dtype)
        large = self.pencil.count * vectors >= _FEWEST
        return not self._dropped and left <= _MOST_LEFT and narrower and large


def _row_bytes(vectors: int, kind: np.dtype[Any]) -> int:
    """Bytes of the entries of a dof in panels of vectors."""
    width = panel_width(vectors, kind)
    return -(-vectors // width) * width * kind.itemsize


Floats = NDArray[np.float64]

_LANCZOS_STEPS = 16
# If a filter reduces the logarithm of the residual by less than this part of the expected
# reduction, the inverse of the mass is too rough and gets a higher degree, up to the second number.
_SLOW, _MOST_INVERSE = 0.35, 32
_STALLED = 0.8  # a filter in float32 that leaves more of the residual is the last
_MOST_PRODUCTS = 10_000  # most products of a search for each vector
# Dense algebra computes all eigenpairs if a problem has at most `_MOST_DENSE` free dofs and filters
# would take more than `_DENSE_PRODUCTS` products for each dof.
_MOST_DENSE, _DENSE_PRODUCTS = 1_000, 20
# Where the damped interval of a search begins: this part of the way from the last eigenvalue wanted
# to that of a guard vector. All eigenvectors below should be among the vectors.
_SEARCHED = 0.85
# Round-off is measured after this number of iterations in which the residual does not halve.
_NOT_FALLING = 4
_SLOW_ITERATIONS = 4  # iterations of too slow a decrease after which a state is given up


@names_checked
def chebyshev_subspace(
    A: AnyOperator,
    M: AnyOperator | Array | None = None,
    k: int = 6,
    *,
    tol: float = 1e-6,
    guard: int | None = None,
    maxiter: int = 100,
    max_products: int | None = None,
    state: SubspaceState | None = None,
    filter_dtype: DTypeLike | None = None,
    seed: int = 0,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> Eigenpairs:
    """Compute the lowest k eigenpairs of A x = lambda M x for all vectors at once. Collective.

    The method is subspace iteration with Chebyshev polynomials of A as filters, and Ritz values.
    Constrained dofs of A are left out. There eigenvectors are zero.

    The vectors may miss low eigenvectors. For example, a state may have vectors of one field only,
    while the lowest eigenvalues belong to another field that is not coupled to it. So after
    convergence a search filters a random vector that is orthogonal to the vectors. If the search
    finds an eigenvalue below the k-th, the iteration continues, without the vectors of the state.
    Otherwise the k values are the lowest. The probability of an error is 1e-5. The search takes
    about as many products as one vector does.

    Parameters
    ----------
    A : Operator
        Symmetric. It may be indefinite.
    M : Operator, (size,) array or None
        Symmetric and positive definite. An array is a diagonal, for example of a mass lumped at
        Gauss-Lobatto points. None is the identity. Constrained dofs of M must be constrained in A,
        too. A mass that is not diagonal is inverted approximately. This costs no accuracy, but more
        iterations if the mass is far from its lumped form.
    k : int
        Number of eigenpairs.
    tol : float
        Done when all k pairs have ``|A x - lambda M x| <= tol s``. Here s is the largest absolute
        value of the k eigenvalues, x has ``x.M x = 1``, and the norm is that of the inverse of M
        (of its row sums, if M is not diagonal). The error of an eigenvalue is less than the
        residual, and about its square over d if the next eigenvalues are a distance d away. With
        row sums the error is less than a few times the residual, about (2 + 1/p)**(dim / 2). If
        residuals stall above the bound, near the round-off of products with A, the result has not
        converged. That is always so if all k eigenvalues are zero, up to round-off.
    guard : int, optional
        Number of guard vectors: vectors besides k, which speed up convergence. The default is about
        a fifth of k. The filter damps eigenvalues above those of the guard vectors. So there is at
        least one guard vector, unless k is the number of free dofs.
    maxiter : int
        Maximum number of iterations. Each applies a filter and computes Ritz values.
    max_products : int, optional
        Maximum number of products of A with a vector, without the products for the last Ritz
        values. The default is 10,000 for each vector. After d products for each vector, residuals
        have fallen by about ``exp(-2 d sqrt(gap / highest))``. The gap is the distance from the k
        lowest eigenvalues to the first eigenvalue without a vector. ``highest`` is the largest
        eigenvalue. If coefficients jump by many orders of magnitude, gap / highest is small. If at
        most 1,000 dofs are free, dense algebra takes over after 20 products for each dof.
    state : SubspaceState, optional
        Vectors to start with: ``result.state`` of this pair of operators or of a similar pair.
    filter_dtype : dtype, optional
        Type of the numbers in filters. By default that is float32 where it suffices: for large
        problems, unless the largest eigenvalue is more than some 20,000 times the gap. Ritz values
        and residuals are in the type of A, so results are as accurate.
    seed : int
        Seed of the random start vectors.
    history : bool
        Whether ``result.history`` has the largest residual after each iteration.
    progress : callable, optional
        Called as ``progress(iterations, residual)`` after each iteration, with the largest
        residual. Every rank calls it.
    warn : bool
        Whether to warn if the iteration has not converged.

    Returns
    -------
    Eigenpairs

    Warns
    -----
    ConvergenceWarning
        The iteration has not converged. The warning contains ``result.reason``, which names the
        limit that ended the iteration.

    Raises
    ------
    SolverError
        The operators are not made by femops, are on different spaces, or are not symmetric. The
        mass is not positive. k is below 1 or above the number of free dofs. The tolerance is no
        number > 0. The state has another space, or fewer than k vectors. Filters are asked for in
        float32, and numbers do not fit into it.
    VectorError
        The vectors do not fit into memory.

    Examples
    --------
    >>> import femops
    >>> import numpy as np
    >>> from femops.eigen import chebyshev_subspace
    >>> V = femops.H1(femops.box((4, 4)), order=4)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> found = chebyshev_subspace(A, femops.mass(V), k=3)
    >>> np.round(found.values / np.pi**2, 4)
    array([2., 5., 5.])
    >>> found.vectors.shape
    (289, 3)
    """
    pencil = Pencil.checked(A, M)
    numbers: dict[str, Any] = {"k": k, "tol": tol, "guard": guard, "maxiter": maxiter, "seed": seed}
    numbers |= {"max_products": max_products, "state given": state is not None, "warn": warn}
    numbers |= {"filter_dtype": None if filter_dtype is None else str(filter_dtype)}
    check_same(pencil.A.space.comm, "chebyshev_subspace", numbers, error=SolverError)
    check_numbers(numbers, pencil.count)
    watch = Watch(history, progress, None, pencil.A.space.comm)
    solve = _Solve(pencil, int(k), float(tol), guard, filter_dtype, seed, watch)
    if state is None:
        solve.begin()
    else:
        solve.take(state)
    found = solve.run(maxiter, max_products)
    if warn and not found.converged:
        comm = pencil.A.space.comm
        warn_unconverged(f"chebyshev_subspace has not converged: {found.reason}", comm)
    return found


@final
class _Solve:
    """One run of the iteration."""

    def __init__(
        self,
        pencil: Pencil,
        k: int,
        tol: float,
        guard: int | None,
        filter_dtype: DTypeLike | None,
        seed: int,
        watch: Watch,
    ) -> None:
        self.pencil, self.k, self.tol, self.guard = pencil, k, tol, guard
        self.seed, self.watch = seed, watch
        self.inverse, self.products, self.iterations = Inverse(pencil), 0, 0
        self.precision = FilterPrecision(pencil, filter_dtype)
        self.random = True  # the vectors began as random ones
        self.complete = False  # the vectors are a basis of all vectors: no eigenvector is missing
        self._highest = -np.inf  # above an eigenvalue that was above the bound of the spectrum
        self._expected, self._searched, self._slow, self._ended = 0.0, 1, 0, False
        self.lowest, self.upper = self._ends(self.inverse)

    def _ends(self, inverse: Inverse) -> tuple[float, float]:
        """Return the lowest Ritz value, and an upper bound of the spectrum."""
        steps = min(_LANCZOS_STEPS, self.pencil.count)
        ends = spectrum(self.pencil.A, inverse.of_vector, self.pencil, steps, self.seed)
        self.products += steps
        return ends[0], ends[2]

    # --- the beginning ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with random vectors."""
        pencil, space, guard = self.pencil, self.pencil.A.space, self.guard
        wanted = number_of_vectors(self.k, guard)
        self.random = True
        if 2 * wanted > pencil.count:  # Ritz values of all are exact, and take less time
            self.X, self.complete = basis_of_all(pencil), True
            return
        self.X = MultiVector.zeros(space, wanted, pencil.A.dtype)
        if guard is None:  # the spare columns of the panels cost nothing
            room = min(self.X.npanels * self.X.width, pencil.count)
            self.X = MultiVector(space, self.X.panels, room)
        random_columns(self.X, range(self.X.nvec), self.seed, pencil.deviations)
        if self.X.nvec == pencil.count:
            self.X, self.complete = basis_of_all(pencil), True
        if self.complete or self.lowest == self.upper:
            return
        part = (self.X.nvec / pencil.count) ** (2.0 / space.dim)  # by Weyl's law
        cut = self.lowest + min(part, 0.5) * (self.upper - self.lowest)
        interval = Interval(self.lowest, cut, self.upper)
        degree = np.ceil(np.log(CONDITION) / interval.growth(self.lowest))
        degree = int(np.clip(degree, LEAST_DEGREE, MOST_DEGREE))
        inverse, _ = self.precision.of(self.inverse, self.X.nvec, interval, self.lowest)
        self._filter(self.X, None, None, inverse, interval, degree)

    def take(self, state: SubspaceState) -> None:
        """Start with the vectors of a state."""
        most = self.pencil.count
        self.X = vectors_of_state(self.pencil, state, self.k, most, self.seed)
        self.random, self.complete = False, self.X.nvec == most
        if self.complete:
            self.X = basis_of_all(self.pencil)

    # --- the iteration ---------------------------------------------------------------------------

    def run(self, maxiter: int, max_products: int | None) -> Eigenpairs:
        """Iterate until convergence or a limit."""
        before, best, since = np.inf, np.inf, 0
        self.most = _MOST_PRODUCTS * self.X.nvec if max_products is None else max_products
        while True:
            exact = self.complete
            values, left, norms = self._ritz()
            self.iterations += 1
            wanted = np.abs(values[: self.k]).max()
            tolerance = max(self.tol * float(wanted), LEAST)
            largest = float(norms[: self.k].max())
            best, since = (largest, 0) if largest < 0.5 * best else (best, since + 1)
            self.watch.tell(self.iterations, largest, lambda: self.X.panels)
            converged = largest <= tolerance
            stalled = not converged and since >= _NOT_FALLING and self._at_round_off(largest)
            if converged or exact or stalled:
                slack = max(tolerance, largest)
                if exact or self._searched_all(values, norms, slack):
                    return self._conclude(values, norms, tolerance, "" if converged else ROUND_OFF)
            limit = self._limit(maxiter)
            if limit:
                return self._conclude(values, norms, tolerance, limit)
            replaced = converged or stalled or self._given_up(before, largest, tolerance)
            if replaced:  # some vectors are new
                before, best, since = np.inf, np.inf, 0
                continue
            before = largest
            self._improve(values, left, norms, tolerance)

    def _at_round_off(self, largest: float) -> bool:
        """True if a residual is about the round-off of the products with A."""
        self.products += 2 * self.X.nvec
        return largest <= NEAR * float(product_round_off(self.X, self.pencil)[: self.k].max())

    def _limit(self, maxiter: int) -> str:
        """Name of the limit that ends the iteration. Empty if no limit is reached."""
        if self.iterations >= maxiter:
            return f"maxiter = {maxiter}"
        if self._ended or self.products >= self.most:
            return f"max_products = {self.most}"
        return ""

    def _given_up(self, before: float, now: float, tolerance: float) -> bool:
        """Act on slow convergence. True if random vectors have replaced those of a state.

        Vectors of a state that are eigenvectors of high eigenvalues slow down the convergence. Each
        time that residuals fall too slowly, the inverse of the mass gets a higher degree. After
        several such iterations random vectors replace the state. If residuals hardly fall, filters
        are no longer in float32.
        """
        if not now < _STALLED * before:
            self.precision.drop()
        expected = min(self._expected, np.log(before / tolerance))
        if not np.log(before / now) < _SLOW * expected:
            return False
        self._slow += 1
        if not self.random and self._slow >= _SLOW_ITERATIONS:
            self._begin_again()
            return True
        if self.pencil.mass is not None and self.inverse.degree < _MOST_INVERSE:
            self.inverse = Inverse(self.pencil, max(2, 2 * self.inverse.degree))
            self.lowest, self.upper = self._ends(self.inverse)
        return False

    def _begin_again(self) -> None:
        """Drop the vectors of a state, and start with random vectors."""
        self.inverse = Inverse(self.pencil)
        self.lowest, self.upper = self._ends(self.inverse)
        self.begin()

    def _few_dofs(self, products: int) -> bool:
        """Switch to dense algebra if that is cheaper than ``products``. True if it is."""
        count = self.pencil.count
        if count > _MOST_DENSE or self.products + products <= _DENSE_PRODUCTS * count:
            return False
        self.X, self.complete = basis_of_all(self.pencil), True
        return True

    def _searched_all(self, values: Floats, norms: Floats, tolerance: float) -> bool:
        """True if a search by random vectors finds no eigenvalue below the k-th.

        If the search finds an eigenvalue that is or may be lower, its vectors replace the last
        guard vectors. If the iteration started from a state, random vectors replace all vectors.
        """
        k, m, last = self.k, self.X.nvec, float(values[self.k - 1])
        kept, cut = self._cut(values, norms, tolerance)
        if cut - last <= tolerance:  # no gap between the eigenvalues wanted and the next ones
            return self._searched_complement(values, norms, tolerance)
        inverse, lowest, upper = self._accurate(0.03 * (cut - last) / max(abs(last), abs(cut)))
        interval = Interval(min(lowest, float(values[0])), cut, upper)
        search = Search.planned(interval, values[:kept], norms[:kept], k, self.pencil)
        count = min(self._searched, m - k, self.pencil.count - m)
        if self._few_dofs(count * search.degree):
            return False
        if self.products + count * search.degree > self.most:
            self._ended = True
            return False
        seed, part = self.seed + NEW_SEED + self.iterations, self.X
        if kept < m:
            part = self.X[list(range(kept))]
        Y, found, products = search.run(part, count, inverse, tolerance, seed)
        self.products += products
        if found[-1] > upper:  # Lanczos' method has missed the upper end
            self._highest = float(found[-1]) + 0.1 * abs(float(found[-1]) - lowest)
            return False
        if found[0] >= cut:
            return True
        if found[0] < last and not self.random:
            self._begin_again()
            return False
        for i in range(count):
            self.X[m - count + i][:] = Y[i]
        self._searched *= 2
        return False

    def _searched_complement(self, values: Floats, norms: Floats, tolerance: float) -> bool:
        """True if conjugate gradients find no eigenvalue below the k-th; see `_searched_all`."""
        gap, m = Gap.below(values, norms, self.k, tolerance), self.X.nvec
        part = self.X if gap.kept == m else self.X[list(range(gap.kept))]
        search = ComplementSearch(
            self.pencil, self._lumped, part, self.pencil.massed(part), gap.cut
        )
        seed = self.seed + NEW_SEED + self.iterations
        missed = search.run(max(self.most - self.products, 0), seed)
        self.products += search.products
        self._ended = missed is None and not search.settled
        if missed is not None and not self.random:
            self._begin_again()
        elif missed is not None:
            self.X[m - 1] = missed
        return search.settled

    def _lumped(self, R: MultiVector) -> MultiVector:
        """Return the products of the inverse of the mass's diagonal with vectors."""
        result = R.copy()
        if self.pencil.scales is not None:
            result.panels *= self.pencil.scales[:, np.newaxis]
        return result

    def _accurate(self, error: float) -> tuple[Inverse, float, float]:
        """Return an inverse of the mass within ``error``, and the ends of the spectrum with it."""
        inverse, lowest, upper = self.inverse, self.lowest, self.upper
        if self.pencil.mass is not None:
            inverse = Inverse.within(self.pencil, error)
            lowest, upper = self._ends(inverse)
        return inverse, lowest, max(upper, self._highest)

    def _cut(self, values: Floats, norms: Floats, tolerance: float) -> tuple[int, float]:
        """Return the number of vectors that a search is orthogonal to, and the cut of its interval.

        These vectors must not hide an eigenvector with an eigenvalue below the k-th. Let theta_j be
        the Ritz values of guard vectors and r_j their residuals. Let A have no eigenvalue below the
        cut on the space orthogonal to the vectors. Then all eigenvalues except the k lowest are
        above t if the Schur complement is positive. That is so if the sum of r_j^2 / ((theta_j - t)
        (cut - t)) is less than one.
        """
        k, last = self.k, float(values[self.k - 1])
        t = last - tolerance
        for kept in range(self.X.nvec - 1, k - 1, -1):
            cut = min(last + _SEARCHED * (float(values[kept]) - last), self._middle(values))
            weights = np.maximum((values[k:kept] - t) * (cut - t), np.finfo(float).tiny)
            with np.errstate(over="ignore"):
                if (norms[k:kept] ** 2 / weights).sum() < 1.0:
                    break
        return kept, cut

    def _middle(self, values: Floats) -> float:
        """Largest number at which the damped interval may begin: halfway to its upper end."""
        return float(values[0]) + 0.5 * (self.upper - float(values[0]))

    def _ritz(self) -> tuple[Floats, MultiVector, Floats]:
        """Make X the Ritz vectors. Return Ritz values, residuals, and norms of residuals."""
        pencil, X = self.pencil, self.X
        self.products += 2 * X.nvec
        if self.complete:
            n = min(number_of_vectors(self.k, self.guard), pencil.count)
            values, self.X = all_ritz_pairs(X, self.k, n, pencil)
            X, AX = self.X, pencil.A.apply_many(self.X)
        else:
            self._make_orthonormal()
            AX = pencil.A.apply_many(X)
            values = ritz_vectors(X, AX, pencil)
            pencil.A.apply_many(X, AX)
        norms = residuals(X, AX, mass_products(X, pencil), values, pencil)
        return values, AX, norms

    def _make_orthonormal(self) -> None:
        pencil, seed = self.pencil, self.seed + self.iterations + 1
        try:
            self.X.orthonormalise(pencil.norm_mass, seed, pencil.deviations)
        except VectorError as error:
            raise SolverError(str(error)) from error

    def _improve(self, values: Floats, left: MultiVector, norms: Floats, tolerance: float) -> None:
        """Filter the vectors that have not converged. Converged vectors do not change."""
        active = np.flatnonzero(norms > tolerance)
        cut = min(float(values[-1]), self._middle(values))
        interval = Interval(min(self.lowest, float(values[0])), cut, self.upper)
        wanted = int(np.count_nonzero(active < self.k))
        last = float(values[self.k - 1])
        inverse, rest = self.precision.of(self.inverse, len(active), interval, last)
        degree, self._expected = filter_degree(
            interval, values[active], norms[active], tolerance, wanted, rest
        )
        if self._few_dofs(degree * len(active)):
            return
        degree = min(degree, max((self.most - self.products) // len(active), 1))
        every = len(active) == self.X.nvec
        part = self.X if every else self.X[active]
        theirs = left if every else left[active]
        self._filter(part, theirs, values[active], inverse, interval, degree)
        if not every:
            self.X[active] = part

    def _filter(
        self,
        X: MultiVector,
        left: MultiVector | None,
        values: Floats | None,
        inverse: Inverse,
        interval: Interval,
        degree: int,
    ) -> None:
        filter_vectors(X, left, values, inverse, interval, degree)
        self.products += degree * X.nvec

    def _conclude(self, values: Floats, norms: Floats, tolerance: float, limit: str) -> Eigenpairs:
        k = self.k
        chosen = self.X[:k] if self.X.nvec == k else self.X[list(range(k))]
        state = SubspaceState(self.X, values)
        reason = self._reason(limit, values, norms, tolerance) if limit else ""
        report = tolerance, not limit, self.iterations, self.products, state
        told, kind = tuple(self.watch.norms), self.precision.dtype
        return Eigenpairs(values[:k], chosen, norms[:k], *report, told, reason, kind)

    def _reason(self, limit: str, values: Floats, norms: Floats, tolerance: float) -> str:
        """Sentences about the limit and the cause of slow convergence."""
        gap, largest = float(values[-1] - values[self.k - 1]), float(norms[: self.k].max())
        missing = largest <= tolerance
        why = "eigenvectors may be missing" if missing else f"a residual is {largest:.1e}"
        text = f"{limit} ends it, and {why}, where the tolerance is {tolerance:.1e}. "
        if limit == ROUND_OFF:
            return f"{text}{AT_ROUND_OFF}"
        return (
            f"{text}Eigenvalues go "
            f"up to {self.upper:.1e}, and those wanted are {gap:.1e} from the first that has no "
            "vector: products go with the root of the ratio. Give more guard vectors or a larger "
            "limit, or take femops.eigen.lobpcg, which has multigrid as preconditioner"
        )
