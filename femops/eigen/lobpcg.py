"""Lowest eigenvalues by locally optimal block preconditioned conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, eigh

from femops.eigen.bounds import spectrum
from femops.eigen.default_preconditioner import default_preconditioner
from femops.eigen.eigenpairs import Eigenpairs, SubspaceState
from femops.eigen.inverse import Inverse
from femops.eigen.numbers import check_numbers, least_residual
from femops.eigen.pencil import AnyOperator, Array, Pencil
from femops.eigen.ritz import residuals
from femops.eigen.start import NEW_SEED, basis_of_all, number_of_vectors, vectors_of_state
from femops.errors import SolverError, VectorError
from femops.fields.multivector import MultiVector
from femops.fields.panels import rows_of, set_rows
from femops.fields.reproducible import random_columns, rows_times
from femops.parallel.collective_checks import check_same
from femops.solvers.any_preconditioner import AnyPreconditioner, as_preconditioner
from femops.solvers.convergence import warn_unconverged
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.watch import Progress, Watch
from femops_meshes.arguments import names_checked

Floats = NDArray[np.float64]

_LANCZOS_STEPS = 8
# Iterations in which the residual does not fall, where it is at most so many times round-off
_STALLED, _NEAR = 12, 1e4
# Smallest eigenvalue of a scaled Gram matrix whose vector is kept, over the precision
_DEPENDENT = 500.0
# Vectors that search for missed eigenvalues, and the part of a Ritz value that its residual may be
# when they have settled. So near the value is right to the square of the part.
_SEARCHERS, _SETTLED = 2, 0.1
_SIGN = 1e-6  # cosine that round-off may leave of a right angle
_SLOW = "Give more guard vectors, or a better preconditioner"
_AT_ROUND_OFF = (
    "That is the round-off of the largest eigenvalue: give a larger tol, or a larger k if all k "
    "eigenvalues are zero"
)
_NOT_POSITIVE = "give femops.multigrid(A), or that of A + s * M with a number s > 0"


@names_checked
def lobpcg(
    A: AnyOperator,
    M: AnyOperator | Array | None = None,
    k: int = 6,
    *,
    preconditioner: AnyPreconditioner = None,
    tol: float = 1e-6,
    guard: int | None = None,
    maxiter: int = 100,
    state: SubspaceState | None = None,
    seed: int = 0,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> Eigenpairs:
    """Compute the lowest k eigenpairs of A x = lambda M x with a preconditioner. Collective.

    The method is LOBPCG (A. Knyazev, "Toward the optimal preconditioned eigensolver", SIAM J. Sci.
    Comput. 23, 2001). An iteration minimizes Rayleigh quotients in the space of the vectors, of
    their preconditioned residuals and of their last changes. The basis of that space is orthonormal
    (U. Hetmaniuk and R. Lehoucq, "Basis selection in LOBPCG", J. Comput. Phys. 218, 2006). Vectors
    that have converged take part, but get no more residuals. Constrained dofs of A are left out.
    There eigenvectors are zero.

    With multigrid the number of iterations hardly depends on the mesh. `chebyshev_subspace` needs
    no preconditioner, and makes sure that no eigenvalue is missing. Here the vectors start as
    random ones, and the result is searched for missing ones after a start from a state only.

    Parameters
    ----------
    A : Operator
        Symmetric. It may be indefinite with a preconditioner of a definite operator.
    M : Operator, (size,) array or None
        Symmetric and positive definite. An array is a diagonal, as that of a mass with
        ``quadrature=femops.basis.lobatto(V.p1d)``; with that of ``femops.mass(V)`` eigenvalues are
        wrong. None is the identity. Constrained dofs of M must be constrained in A, too.
    k : int
        Number of eigenpairs.
    preconditioner : Preconditioner, LinearOperator or matrix, optional
        Approximate inverse of A, symmetric and positive definite. The default is
        ``femops.multigrid(A)``. Where A takes constants or rigid motions to zero, as for a body
        that nothing holds, it is multigrid of A plus a little mass.
    tol : float
        Done when all k pairs have ``|A x - lambda M x| <= tol s``; see `chebyshev_subspace`.
    guard : int, optional
        Number of guard vectors: vectors besides k, which speed up the convergence of the last
        pairs. The default is a fifth of k, and at least 4. There is at least one. With ``state``
        there are as many as it has.
    maxiter : int
        Maximum number of iterations. Each applies A and the preconditioner once, and M twice, to
        each vector that has not converged.
    state : SubspaceState, optional
        Vectors to start with: ``result.state`` of this pair of operators or of a similar pair. They
        may lack an eigenvector, as those of one of several fields that are not coupled do. So after
        convergence two random vectors iterate beside them, until they settle. If these find a lower
        eigenvalue, the iteration begins anew, with random vectors. Settling takes about ten
        products of A.
    seed : int
        Seed of the random start vectors.
    history, progress, warn
        See `chebyshev_subspace`.

    Returns
    -------
    Eigenpairs

    Warns
    -----
    ConvergenceWarning
        The iteration has not converged. The warning contains ``result.reason``.

    Raises
    ------
    SolverError
        See `chebyshev_subspace`. The preconditioner does not fit A, or is found not to be positive
        definite. `femops.multigrid` refuses A.
    VectorError
        The vectors do not fit into memory.

    Examples
    --------
    >>> import femops
    >>> import numpy as np
    >>> V = femops.H1(femops.box((4, 4)), order=4)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> found = femops.eigen.lobpcg(A, femops.mass(V), k=3)
    >>> np.round(found.values / np.pi**2, 4)
    array([2., 5., 5.])
    """
    pencil = Pencil.checked(A, M)
    numbers: dict[str, Any] = {"k": k, "tol": tol, "guard": guard, "maxiter": maxiter, "seed": seed}
    numbers |= {"state given": state is not None, "warn": warn, "max_products": None}
    numbers |= {"preconditioner given": preconditioner is not None}
    check_same(pencil.A.space.comm, "lobpcg", numbers, error=SolverError)
    check_numbers(numbers, pencil.count)
    given = default_preconditioner(A) if preconditioner is None else preconditioner
    inverse = as_preconditioner(given, A.space, A.dtype, "preconditioner")
    assert inverse is not None
    watch = Watch(history, progress, None, pencil.A.space.comm)
    solve = _Solve(pencil, inverse, int(k), float(tol), watch)
    found = solve.run(solve.start(number_of_vectors(int(k), guard), state, seed), maxiter)
    if state is not None and found.converged:
        found = solve.searched(found, maxiter, seed)
    if warn and not found.converged:
        warn_unconverged(f"lobpcg has not converged: {found.reason}", A.space.comm)
    return found


@final
@dataclass(frozen=True, eq=False)
class _Block:
    """Vectors, and their products with A and M.

    Attributes
    ----------
    x, ax, mx : MultiVector
        The product with M is x itself if M is the identity.
    """

    x: MultiVector
    ax: MultiVector
    mx: MultiVector


@final
class _Solve:
    """One run of the iteration.

    Parameters
    ----------
    pencil : Pencil
    inverse : Preconditioner
    k, tol
        See `lobpcg`.
    watch : Watch
    """

    def __init__(
        self, pencil: Pencil, inverse: Preconditioner, k: int, tol: float, watch: Watch
    ) -> None:
        self.pencil, self.inverse, self.k, self.tol = pencil, inverse, k, tol
        self.watch, self.products = watch, 0
        steps = min(_LANCZOS_STEPS, pencil.count)
        highest = spectrum(pencil.A, Inverse(pencil).of_vector, pencil, steps, 1)[2]
        self.least = least_residual(pencil.A.dtype, highest)

    def start(self, vectors: int, state: SubspaceState | None, seed: int) -> MultiVector:
        """Return the vectors to start with, orthonormal in M."""
        pencil = self.pencil
        if 3 * vectors > pencil.count:  # Ritz values of all are exact, and take less time
            X = basis_of_all(pencil)
        elif state is not None:
            X = vectors_of_state(pencil, state, self.k, pencil.count // 3, seed)
        else:
            X = self._random(vectors, seed)
        return self._made_orthonormal(X, seed)

    def searched(self, found: Eigenpairs, maxiter: int, seed: int) -> Eigenpairs:
        """Return the result of a run from a state, or of a new run if the state lacks eigenvectors.

        Random vectors beside the eigenvectors iterate until they settle or find a lower eigenvalue.
        """
        k, n = self.k, found.state.vectors.nvec
        if n == self.pencil.count:
            return found
        X = MultiVector.zeros(found.vectors.space, k + _SEARCHERS, found.vectors.dtype)
        X[:k] = found.vectors
        X[k:] = self._random(_SEARCHERS, seed + 2 * NEW_SEED)
        Y, values = self._ritz(self._made_orthonormal(X, seed))
        P: _Block | None = None
        for _ in range(maxiter):
            if (values[:k] < found.values - found.tolerance).any():
                return self.run(self.start(n, None, seed), maxiter, found.iterations)
            left = Y.ax.copy()
            norms = self._norms(Y, left, values)
            near = np.maximum(found.tolerance, _SETTLED * (values - values[0]))
            if (norms <= near)[k:].all():
                return replace(found, products=self.products)
            active = np.flatnonzero(norms > found.tolerance)
            Y, P, values = self._improved(Y, P, left, active)
        reason = f"maxiter = {maxiter} ends the search for eigenvalues that the state lacks"
        return replace(found, converged=False, reason=reason, products=self.products)

    def run(self, start: MultiVector, maxiter: int, iterations: int = 0) -> Eigenpairs:
        """Iterate until convergence or a limit, after some iterations that count too."""
        X, values = self._ritz(start)
        P: _Block | None = None
        exact = start.nvec == self.pencil.count
        best, since, fresh = np.inf, 0, True
        while True:
            left = X.ax.copy()
            norms = self._norms(X, left, values)
            tolerance = max(self.tol * float(np.abs(values[: self.k]).max()), self.least)
            largest = float(norms[: self.k].max())
            since = 0 if largest < best else since + 1
            best = min(best, largest)
            stuck = exact or (since >= _STALLED and largest <= _NEAR * self.least)
            limit = self._limit(iterations, maxiter, stuck=stuck)
            if (largest <= tolerance or limit) and not fresh:
                X, values = self._ritz(X.x)
                fresh = True
                continue
            iterations += 1
            self.watch.tell(iterations, largest, partial(getattr, X.x, "panels"))
            if largest <= tolerance or limit:
                limit = limit if largest > tolerance else ""
                return self._conclude(X.x, values, norms, tolerance, iterations, limit)
            active = np.flatnonzero(norms > tolerance)
            X, P, values = self._improved(X, P, left, active)
            fresh = False

    def _limit(self, iterations: int, maxiter: int, *, stuck: bool) -> str:
        """Name of the limit that ends the iteration. Empty if no limit is reached."""
        if stuck:
            return "round-off"
        return f"maxiter = {maxiter}" if iterations + 1 >= maxiter else ""

    def _improved(
        self, X: _Block, P: _Block | None, left: MultiVector, active: NDArray[np.intp]
    ) -> tuple[_Block, _Block | None, Floats]:
        """Return the Ritz vectors of a larger space, their last changes, and the Ritz values.

        Parameters
        ----------
        X, P : _Block
            Ritz vectors and their last changes.
        left : MultiVector
            Residuals of X.
        active : array
            Vectors that get a preconditioned residual and a change.
        """
        part = left if len(active) == left.nvec else left[active.tolist()]
        blocks = [X] if P is None else [X, P]
        W = self._orthonormal(self._preconditioned(part), blocks)
        if W is not None:
            blocks.append(W)
        elif P is None:
            raise SolverError(f"the preconditioner makes zeros of residuals: {_NOT_POSITIVE}")
        values, vectors, gram = self._lowest(blocks, X.x.nvec)
        changes = vectors[:, active].copy()
        changes[: X.x.nvec] = 0.0
        changes -= vectors @ (vectors.T @ (gram @ changes))
        kept = self._orthonormaliser(changes.T @ gram @ changes)
        made = _combined(blocks, vectors)
        return made, _combined(blocks, changes @ kept) if kept.size else None, values

    # --- parts of an iteration --------------------------------------------------------------------

    def _random(self, vectors: int, seed: int) -> MultiVector:
        """Return products of the preconditioner with random vectors."""
        pencil = self.pencil
        X = MultiVector.zeros(pencil.A.space, vectors, pencil.A.dtype)
        random_columns(X, range(vectors), seed, pencil.deviations)
        if pencil.weights is not None:
            X.panels *= pencil.weights[:, np.newaxis]
        return self._preconditioned(X)

    def _made_orthonormal(self, X: MultiVector, seed: int) -> MultiVector:
        """Overwrite vectors by an orthonormal basis, and return them."""
        try:
            X.orthonormalise(self.pencil.norm_mass, seed, self.pencil.deviations)
        except VectorError as error:
            raise SolverError(str(error)) from error
        return X

    def _preconditioned(self, R: MultiVector) -> MultiVector:
        """Return the products of the preconditioner with some vectors, zero at constrained dofs."""
        space, xp = self.pencil.A.space, self.pencil.A.space.memory.xp
        result = R.empty_like()
        for source, target in zip(R, result, strict=True):
            target[:] = self.inverse.apply(xp.ascontiguousarray(source)) * self.pencil.free
        wrong = result.dots(R) < -_SIGN * result.norms() * R.norms()
        if space.comm.max(int(wrong.any())):
            raise SolverError(f"the preconditioner is not positive definite: {_NOT_POSITIVE}")
        return result

    def _block(self, X: MultiVector, massed: MultiVector) -> _Block:
        """Vectors with their products with A, and with M, which are given."""
        self.products += X.nvec
        return _Block(X, self.pencil.A.apply_many(X), massed)

    def _massed(self, X: MultiVector) -> MultiVector:
        """Products of vectors with M; the vectors themselves if M is the identity."""
        if self.pencil.mass is not None:
            return self.pencil.mass.apply_many(X)
        if self.pencil.weights is None:
            return X
        massed = X.copy()
        massed.panels *= self.pencil.weights[:, np.newaxis]
        return massed

    def _orthonormal(self, W: MultiVector, blocks: list[_Block]) -> _Block | None:
        """Orthonormal basis of the part of W that is orthogonal to blocks. None if it is empty."""
        for _ in range(2):  # the second time removes the round-off of the first
            massed = self._massed(W)
            identity = massed is W
            for block in blocks:
                parts = block.x.gram(massed)
                W -= block.x @ parts
                if not identity:
                    massed -= block.mx @ parts
            kept = self._orthonormaliser(W.gram(massed))
            if not kept.size:
                return None
            W = W @ kept
            massed = W if identity else massed @ kept
        return self._block(W, massed)

    def _gram(self, blocks: list[_Block], *, ax: bool) -> Floats:
        """Inner products of all blocks with their products with A, or with M."""
        rows = [
            [one.x.gram(other.ax if ax else other.mx) for other in blocks[i:]]
            for i, one in enumerate(blocks)
        ]
        edges = np.cumsum([0, *(block.x.nvec for block in blocks)])
        full = np.zeros((edges[-1], edges[-1]))
        for i, row in enumerate(rows):
            for j, part in enumerate(row, i):
                full[edges[i] : edges[i + 1], edges[j] : edges[j + 1]] = part
                full[edges[j] : edges[j + 1], edges[i] : edges[i + 1]] = part.T
        return (full + full.T) / 2

    def _lowest(self, blocks: list[_Block], n: int) -> tuple[Floats, Floats, Floats]:
        """Lowest n Ritz pairs in the span of blocks, by coefficients, and the Gram matrix of M.

        The pairs are the same on all ranks.
        """
        small, gram = self._gram(blocks, ax=True), self._gram(blocks, ax=False)
        try:
            found = eigh(small, gram, subset_by_index=(0, n - 1))
        except (LinAlgError, ValueError) as error:
            raise SolverError(
                "products of A or M are not finite, or M is not positive definite"
            ) from error
        values, vectors = self.pencil.A.space.comm.broadcast(found)
        return values, vectors, gram

    def _orthonormaliser(self, gram: Floats) -> Floats:
        """Matrix (n, m) that makes vectors with a Gram matrix orthonormal, without dependent ones.

        It is that of SVQB (A. Stathopoulos and K. Wu, SIAM J. Sci. Comput. 23, 2002), and the same
        on all ranks.
        """
        if not np.isfinite(gram).all():
            raise SolverError("products with M or the preconditioner are not finite")
        sizes = np.sqrt(np.maximum(np.diag(gram), 0.0))
        scales = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
        scaled = gram * scales[:, np.newaxis] * scales
        values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
        least = _DEPENDENT * float(np.finfo(self.pencil.A.dtype).eps)
        kept = values > least * max(values[-1], 0.0)
        found = scales[:, np.newaxis] * vectors[:, kept] / np.sqrt(values[kept])
        return np.asarray(self.pencil.A.space.comm.broadcast(found))

    def _ritz(self, X: MultiVector) -> tuple[_Block, Floats]:
        """Ritz vectors in the span of some vectors, with products, and their Ritz values."""
        block = self._block(X, self._massed(X))
        values, vectors, _ = self._lowest([block], X.nvec)
        return _combined([block], vectors), values

    def _norms(self, X: _Block, left: MultiVector, values: Floats) -> Floats:
        """Overwrite ``left``, the products with A, by residuals. Return their norms."""
        massed = None if self.pencil.mass is None else X.mx
        return residuals(X.x, left, massed, values, self.pencil)

    def _conclude(
        self,
        X: MultiVector,
        values: Floats,
        norms: Floats,
        tolerance: float,
        iterations: int,
        limit: str,
    ) -> Eigenpairs:
        k = self.k
        chosen = X if X.nvec == k else X[list(range(k))]
        reason = ""
        if limit:
            finest = limit == "round-off" or tolerance <= self.least
            reason = (
                f"{limit} ends it, and a residual is {norms[:k].max():.1e}, where the tolerance is "
                f"{tolerance:.1e}. {_AT_ROUND_OFF if finest else _SLOW}"
            )
        report = tolerance, not limit, iterations, self.products, SubspaceState(X, values)
        kind, told = np.dtype(X.dtype), tuple(self.watch.norms)
        return Eigenpairs(values[:k], chosen, norms[:k], *report, told, reason, kind)


def _combined(blocks: list[_Block], small: Floats) -> _Block:
    """Linear combinations of the vectors of all blocks, by a matrix (vectors, n)."""
    x, ax = (_sums([getattr(block, name) for block in blocks], small) for name in ("x", "ax"))
    same = blocks[0].mx is blocks[0].x
    return _Block(x, ax, x if same else _sums([block.mx for block in blocks], small))


def _sums(parts: list[MultiVector], small: Floats) -> MultiVector:
    """Sum of the products of multivectors with the rows of a small matrix that belong to each."""
    space = parts[0].space
    made = MultiVector.zeros(space, small.shape[1], parts[0].dtype)
    cuts = np.cumsum([part.nvec for part in parts[:-1]])
    factors = [space.memory.put(part.astype(made.dtype)) for part in np.split(small, cuts)]
    for rows in made.row_blocks(*parts):
        there = (rows_of(part.panels, part.nvec, rows) for part in parts)
        products = [rows_times(space, x, y) for x, y in zip(there, factors, strict=True)]
        set_rows(made.panels, rows, reduce(add, products))
    return made
