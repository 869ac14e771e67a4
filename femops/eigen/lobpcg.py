"""Lowest eigenvalues by locally optimal block preconditioned conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.eigen.bounds import spectrum_of_mass
from femops.eigen.complement import STRICTER, STRICTEST, ComplementSearch, Gap
from femops.eigen.eigenpairs import Eigenpairs, SubspaceState, check_numbers
from femops.eigen.pencil import AnyOperator, Array, Pencil
from femops.eigen.ritz import (
    AT_ROUND_OFF,
    LEAST,
    NEAR,
    ROUND_OFF,
    lowest_pairs,
    product_round_off,
    residuals,
    size_of_wanted,
)
from femops.eigen.start import NEW_SEED, basis_of_all, number_of_vectors, vectors_of_state
from femops.errors import SolverError, VectorError
from femops.fields.multivector import MultiVector
from femops.fields.panels import rows_of, set_rows
from femops.fields.reproducible import random_columns, rows_times
from femops.forms.mass import mass
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.parallel.comm import check, check_same
from femops.solvers.any_preconditioner import AnyOrNamed, as_preconditioner, check_name, named
from femops.solvers.complex_systems import paired_preconditioner
from femops.solvers.convergence import warn_unconverged
from femops.solvers.direct import Direct, direct
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid import multigrid
from femops.solvers.multigrid.level import NotPositiveError
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.singular import is_singular
from femops.solvers.watch import Progress, Watch
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import names_checked

# Factor of the mass that is added to A, over the mass with which a stretched body would have the
# eigenvalue one. Factors from a millionth to ten take about equally many iterations.
_LITTLE = 1e-3


def default_preconditioner(A: Any) -> Preconditioner:
    """Multigrid of A, or of A plus a little mass if A is singular. Collective.

    Multigrid of a singular A would remove constants and rigid motions from all vectors, which are
    the eigenvectors of the eigenvalue zero.
    """
    try:
        # if A is singular, multigrid of A would waste its measurements and factors
        made = None if is_singular(A) else multigrid(A)
        if made is None or made.hierarchy.solver.singular:
            made = multigrid(_with_mass(A))
    except NotPositiveError as error:
        raise SolverError(
            "multigrid found A not to be positive definite: give "
            "preconditioner=femops.multigrid(B) of a positive operator B like A, as A + s * M with "
            "-s below the lowest eigenvalue, or A without its negative terms"
        ) from error
    return made


def _with_mass(A: Operator) -> Operator:
    free, sums = A.unconstrained, Sums(A.space)
    M, x = mass(A.space, dtype=A.dtype, level=A.level), _stretch(A.space, A.dtype)
    energy = sums.dot(x, free @ x) / sums.dot(x, M @ x)
    shifted: Operator = free + _LITTLE * energy * M
    return shifted.constrained(A.constrained_dofs)


def _stretch(space: Space, dtype: np.dtype[Any]) -> Any:
    """Field that stretches along x, and shrinks along y if it has several components."""
    nodes = [part.coordinates for part in space.mesh.parts]
    sums = [np.array([*x.sum(axis=(0, 1)), x.shape[0] * x.shape[1]]) for x in nodes]
    total = space.comm.sum(np.sum(sums, axis=0))
    center = total[:-1] / total[-1]

    def stretched(x: Any) -> Any:
        moved = x - center[:, np.newaxis]
        parts = [moved[0], -moved[1 % len(x)]] + [0.0 * x[0]] * space.ncomp
        return np.stack(parts[: space.ncomp]) if space.ncomp > 1 else moved[0]

    return space.interpolate(stretched).astype(dtype)


Floats = NDArray[np.float64]

# Round-off is measured after `_STALLED` iterations that do not reduce the residual to `_FALLEN`.
_STALLED, _FALLEN = 12, 0.5
# Iterations that make a vector that the search has found a better guard vector
_IMPROVED = 4
# Smallest eigenvalue of a scaled Gram matrix whose vector is kept, over the precision
_DEPENDENT = 500.0
# Part of a vector that is new after it has been projected twice. Round-off alone loses more.
_NEW = 0.25
_SIGN = 1e-6  # cosine that round-off may leave of a right angle
_SLOW = "Give more guard vectors, a better preconditioner, or a larger tol"
_NOT_POSITIVE = "give femops.multigrid(A), or that of A + s * M with a number s > 0"


@names_checked
def lobpcg(
    A: AnyOperator,
    M: AnyOperator | Array | None = None,
    k: int = 6,
    *,
    preconditioner: AnyOrNamed = None,
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
    no preconditioner.

    The vectors may miss low eigenvectors. For example, a state may have vectors of one of two
    fields that are not coupled, or the preconditioner may hardly move one of the fields. So after
    convergence conjugate gradients solve a system of A minus the k-th eigenvalue times M, with the
    preconditioner, on the space orthogonal to the vectors. If a curvature is negative, the
    iteration goes on with that direction, or begins anew with random vectors after a start from a
    state. If the residual becomes small, no eigenvalue below the k-th is missing. The probability
    of an error is 1e-5 for any positive definite preconditioner. The search takes as many products
    as a solve with one right-hand side.

    Parameters
    ----------
    A : Operator or ComplexOperator
        Symmetric, or Hermitian: a `femops.ComplexOperator` has complex eigenvectors. It may be
        indefinite with a preconditioner of a definite operator.
    M : Operator, ComplexOperator, (size,) array or None
        Symmetric and positive definite. That of a complex A may be real or complex. An array is a
        diagonal, as that of a mass with ``quadrature=femops.basis.lobatto(V.p1d)``; with that of
        ``femops.mass(V)`` eigenvalues are wrong. None is the identity. Constrained dofs of
        M must be constrained in A, too.
    k : int
        Number of eigenpairs.
    preconditioner : Preconditioner, LinearOperator, matrix or name, optional
        Approximate inverse of A, symmetric and positive definite, or ``"multigrid"``,
        ``"jacobi"``, ``"direct"`` or ``"auto"``, which is the default: on a product of spaces
        `femops.preconditioner` for each field, else
        ``femops.multigrid(A)``, or that of ``A.real`` for a complex A, which takes the same M as
        `femops.cg` does. Where A takes constants or rigid motions to zero, as for a body
        that nothing holds, it is multigrid of A plus a little mass.
    tol : float
        Done when all k pairs have ``|A x - lambda M x| <= tol s``, and the search finds no missing
        eigenvalue; see `chebyshev_subspace`.
    guard : int, optional
        Number of guard vectors: vectors besides k, which speed up the convergence of the last
        pairs. The default is a fifth of k, and at least 4. There is at least one. With ``state``
        there are as many as it has.
    maxiter : int
        Maximum number of iterations. Each applies A and the preconditioner once, and M twice, to
        each vector that has not converged.
    state : SubspaceState, optional
        Vectors to start with: ``result.state`` of this pair of operators or of a similar pair.
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
    pencil = Pencil.checked(A, M, (Operator, ComplexOperator))
    numbers: dict[str, Any] = {"k": k, "tol": tol, "guard": guard, "maxiter": maxiter, "seed": seed}
    numbers |= {"state given": state is not None, "warn": warn, "max_products": None}
    numbers |= {"preconditioner given": preconditioner is not None}
    check_same(pencil.A.space.comm, "lobpcg", numbers, error=SolverError)
    check_numbers(numbers, pencil.count)
    if pencil.mass is not None:
        spectrum_of_mass(pencil)  # raises if the mass is not positive
    inverse = _inverse(A, preconditioner)
    watch = Watch(history, progress, None, pencil.A.space.comm)
    solve = _Solve(pencil, inverse, int(k), float(tol), watch)
    found = solve.solve(number_of_vectors(int(k), guard), state, maxiter, seed)
    if warn and not found.converged:
        warn_unconverged(f"lobpcg has not converged: {found.reason}", A.space.comm)
    return found


def _inverse(A: AnyOperator, given: Any) -> Preconditioner:
    """Return a user's preconditioner, or the default one, for real vectors or pairs."""
    real = A.real if isinstance(A, ComplexOperator) else A
    with check(A.space.comm):
        if isinstance(given, str):
            check_name(given, "preconditioner")
        elif given is not None and isinstance(A, ComplexOperator):
            given = paired_preconditioner(given, A, "preconditioner")
    given = _named(real, "auto" if given is None else given)
    inverse = as_preconditioner(given, real.space, real.dtype, "preconditioner")
    assert inverse is not None
    if not inverse.symmetric:
        raise SolverError(
            "the preconditioner is not symmetric, as lobpcg needs: of a product of spaces give "
            "femops.block_diagonal(W, ...)"
        )
    return inverse


def _named(A: Operator, M: Any) -> Any:
    """Return the positive preconditioner that a name stands for; any other M unchanged.

    That of a singular A is made of A plus a little mass, as its null vectors are eigenvectors.
    """
    if not isinstance(M, str):
        return M
    if isinstance(A.space, Product):
        return named(M, A)
    if M in {"auto", "multigrid"}:
        return default_preconditioner(A)
    made = named(M, A)
    return direct(_with_mass(A)) if isinstance(made, Direct) and made.null else made


@final
@dataclass(frozen=True, eq=False)
class _Block:
    """Vectors, and their products with A and M."""

    # x, ax and mx: the product with M is x itself if M is the identity
    x: MultiVector
    ax: MultiVector
    mx: MultiVector


@final
@dataclass(frozen=True, eq=False)
class _Ritz:
    """Ritz values and norms of residuals (nvec,), and the bound of the residuals."""

    values: Floats
    norms: Floats
    tolerance: float


@final
class _Solve:
    """One run of the iteration."""

    def __init__(
        self, pencil: Pencil, inverse: Preconditioner, k: int, tol: float, watch: Watch
    ) -> None:
        self.pencil, self.inverse, self.k, self.tol = pencil, inverse, k, tol
        self.watch, self.products, self.iterations = watch, 0, 0

    def start(self, vectors: int, state: SubspaceState | None, seed: int) -> MultiVector:
        """Return the vectors to start with, orthonormal in M."""
        pencil = self.pencil
        if 3 * vectors > pencil.count:  # Ritz values of all vectors take less time
            return basis_of_all(pencil)
        if state is not None:
            X = vectors_of_state(pencil, state, self.k, pencil.count // 3, seed)
        else:
            X = self._random(vectors, seed)
        return self._made_orthonormal(X, seed)

    def solve(
        self, vectors: int, state: SubspaceState | None, maxiter: int, seed: int
    ) -> Eigenpairs:
        """Iterate, and search for missed eigenvalues, until the search finds none or a limit."""
        X, left = self.start(vectors, state, seed), maxiter * vectors
        if state is not None and X.nvec < self.pencil.count:
            vectors = X.nvec
        vectors = min(vectors, self.pencil.count)
        least, strict = 0, 1.0
        while True:
            block, ritz, limit = self._converged(X, vectors, maxiter, least, strict)
            if vectors == self.pencil.count:
                return self._conclude(block.x, ritz, limit or self._doubt(ritz))
            if limit not in {"", ROUND_OFF}:
                return self._conclude(block.x, ritz, limit)
            slack = max(ritz.tolerance, float(ritz.norms[: self.k].max()))
            plan = Gap.below(ritz.values, ritz.norms, self.k, slack)
            if plan.in_vain(ritz.values, self.k) and not limit and strict > STRICTEST:
                X, least, strict = block.x, 0, STRICTER * strict
                continue
            kept = [(block.x, block.mx)]
            if plan.kept < vectors:
                kept = [tuple(part[list(range(plan.kept))] for part in kept[0])]
            search = ComplementSearch(self.pencil, self._preconditioned, *kept[0], plan.cut)
            missed = search.run(left, seed + 2 * NEW_SEED + self.iterations)
            self.products, left = self.products + search.products, left - search.products
            if missed is None:
                unsettled = "" if search.settled else f"maxiter = {maxiter}"
                return self._conclude(block.x, ritz, limit or unsettled)
            if self.iterations >= maxiter:
                return self._conclude(block.x, ritz, f"maxiter = {maxiter}")
            X = block.x
            if state is not None:
                X, state = self.start(vectors, None, seed), None
            X[X.nvec - 1] = missed
            X, least = self._made_orthonormal(X, seed), _IMPROVED

    def _converged(
        self, start: MultiVector, vectors: int, maxiter: int, least: int, strict: float
    ) -> tuple[_Block, _Ritz, str]:
        """Iterate until residuals are within the tolerance, or a limit, which is named.

        There are ``least`` iterations at least. Residuals fall to the part ``strict`` of the
        tolerance if round-off allows that.
        """
        X, values = self._ritz(start, vectors)
        P: _Block | None = None
        best, since, fresh, first, limit = np.inf, 0, True, self.iterations, ""
        while True:
            left = X.ax.copy()
            ritz = _Ritz(values, self._norms(X, left, values), self._tolerance(values))
            largest = float(ritz.norms[: self.k].max())
            best, since = (largest, 0) if largest < _FALLEN * best else (best, since + 1)
            active = np.flatnonzero(ritz.norms > strict * ritz.tolerance)
            enough = self.iterations >= first + least or not active.size
            done = largest <= strict * ritz.tolerance and enough
            if not done:
                limit = limit or self._limit(X, largest, since, maxiter)
                done = strict < 1.0 and limit == ROUND_OFF and largest <= ritz.tolerance
            if (done or limit) and not fresh:  # linear combinations have round-off of their own
                X, values = self._ritz(X.x, vectors)
                fresh = True
                continue
            self.iterations += 1
            self.watch.tell(self.iterations, largest, partial(getattr, X.x, "panels"))
            if done or limit:
                return X, ritz, "" if done else limit
            scale = size_of_wanted(values, self.k, X.x.dtype)
            X, P, values = self._improved(X, P, left, active, scale)
            fresh = False

    def _tolerance(self, values: Floats) -> float:
        """Bound of the residuals."""
        return max(self.tol * float(np.abs(values[: self.k]).max()), LEAST)

    def _limit(self, X: _Block, largest: float, since: int, maxiter: int) -> str:
        """Name of the limit that ends the iteration. Empty if no limit is reached."""
        if X.x.nvec == self.pencil.count:
            return ROUND_OFF
        last = self.iterations + 1 >= maxiter
        if (last or (since + 1) % _STALLED == 0) and self._at_round_off(X, largest):
            return ROUND_OFF
        return f"maxiter = {maxiter}" if last else ""

    def _at_round_off(self, X: _Block, largest: float) -> bool:
        """True if a residual is about the round-off of the products with A."""
        self.products += 2 * X.x.nvec
        return largest <= NEAR * float(product_round_off(X.x, self.pencil)[: self.k].max())

    def _doubt(self, ritz: _Ritz) -> str:
        """Round-off, if it may hide an eigenvalue below the k-th among all Ritz values."""
        above = ritz.values[self.k :] - ritz.values[self.k - 1] + ritz.tolerance
        sure = (ritz.norms[self.k :] / above < 1.0).all()
        return "" if sure and ((ritz.norms[self.k :] / above) ** 2).sum() < 1.0 else ROUND_OFF

    def _improved(
        self,
        X: _Block,
        P: _Block | None,
        left: MultiVector,
        active: NDArray[np.intp],
        scale: float,
    ) -> tuple[_Block, _Block | None, Floats]:
        """Return the Ritz vectors of a larger space, their last changes, and the Ritz values.

        ``left`` are the residuals of X, P the last changes. The active vectors get a preconditioned
        residual and a change. ``scale`` is the size of the eigenvalues wanted.
        """
        part = left if len(active) == left.nvec else left[active.tolist()]
        blocks = [X] if P is None else [X, P]
        W = self._orthonormal(self._preconditioned(part), blocks)
        if W is not None:
            blocks.append(W)
        elif P is None:
            raise SolverError(f"the preconditioner makes zeros of residuals: {_NOT_POSITIVE}")
        values, vectors, gram = self._lowest(blocks, X.x.nvec, scale)
        changes = vectors[:, active].copy()
        changes[: X.x.nvec] = 0.0
        changes -= vectors @ (vectors.conj().T @ (gram @ changes))
        kept = self._orthonormaliser(changes.conj().T @ gram @ changes)
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
            given = xp.ascontiguousarray(source).view(np.finfo(R.dtype).dtype)  # real numbers
            target[:] = self.inverse.apply(given).view(R.dtype) * self.pencil.free
        wrong = result.dots(R).real < -_SIGN * result.norms() * R.norms()
        if space.comm.max(int(wrong.any())):
            raise SolverError(f"the preconditioner is not positive definite: {_NOT_POSITIVE}")
        return result

    def _block(self, X: MultiVector, massed: MultiVector) -> _Block:
        """Vectors with their products with A, and with M, which are given."""
        self.products += X.nvec
        return _Block(X, self.pencil.A.apply_many(X), massed)

    def _orthonormal(self, W: MultiVector, blocks: list[_Block]) -> _Block | None:
        """Orthonormal basis of the part of W that is orthogonal to blocks. None if it is empty."""
        for again in (False, True):  # the second time removes the round-off of the first
            massed = self.pencil.massed(W)
            identity = massed is W
            for block in blocks:
                parts = block.x.gram(massed)
                W -= block.x @ parts
                if not identity:
                    massed -= block.mx @ parts
            kept = self._orthonormaliser(W.gram(massed), _NEW if again else 0.0)
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
        full = np.zeros((edges[-1], edges[-1]), rows[0][0].dtype)
        for i, row in enumerate(rows):
            for j, part in enumerate(row, i):
                full[edges[i] : edges[i + 1], edges[j] : edges[j + 1]] = part
                full[edges[j] : edges[j + 1], edges[i] : edges[i + 1]] = part.conj().T
        return (full + full.conj().T) / 2

    def _lowest(
        self, blocks: list[_Block], n: int, scale: float = 0.0
    ) -> tuple[Floats, Floats, Floats]:
        """Lowest n Ritz pairs in the span of blocks, by coefficients, and the Gram matrix of M.

        The pairs are the same on all ranks.
        """
        small, gram = self._gram(blocks, ax=True), self._gram(blocks, ax=False)
        found = lowest_pairs(small, gram, n, scale)
        values, vectors = self.pencil.A.space.comm.broadcast(found)
        return values, vectors, gram

    def _orthonormaliser(self, gram: Floats, least: float = 0.0) -> Floats:
        """Matrix (n, m) that makes vectors with a Gram matrix orthonormal, without dependent ones.

        It is that of SVQB (A. Stathopoulos and K. Wu, SIAM J. Sci. Comput. 23, 2002), and the same
        on all ranks. Combinations whose square is below ``least`` are left out.
        """
        if not np.isfinite(gram).all():
            raise SolverError("products with M or the preconditioner are not finite")
        sizes = np.sqrt(np.maximum(np.diag(gram).real, 0.0))
        scales = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
        if least:
            scales = np.ones_like(sizes)
        scaled = gram * scales[:, np.newaxis] * scales
        values, vectors = np.linalg.eigh((scaled + scaled.conj().T) / 2)
        dependent = _DEPENDENT * float(np.finfo(self.pencil.A.dtype).eps)
        kept = values > max(dependent * max(values[-1], 0.0), least)
        found = scales[:, np.newaxis] * vectors[:, kept] / np.sqrt(values[kept])
        return np.asarray(self.pencil.A.space.comm.broadcast(found))

    def _ritz(self, X: MultiVector, n: int) -> tuple[_Block, Floats]:
        """Lowest n Ritz vectors in the span of some vectors, with products, and Ritz values."""
        block = self._block(X, self.pencil.massed(X))
        values, _, _ = self._lowest([block], n)
        scale = size_of_wanted(values, self.k, X.dtype)
        values, vectors, _ = self._lowest([block], n, scale)
        return _combined([block], vectors), values

    def _norms(self, X: _Block, left: MultiVector, values: Floats) -> Floats:
        """Overwrite ``left``, the products with A, by residuals. Return their norms."""
        massed = None if self.pencil.mass is None else X.mx
        return residuals(X.x, left, massed, values, self.pencil)

    def _conclude(self, X: MultiVector, ritz: _Ritz, limit: str) -> Eigenpairs:
        k, largest = self.k, float(ritz.norms[: self.k].max())
        chosen = X if X.nvec == k else X[list(range(k))]
        advice = AT_ROUND_OFF if limit == ROUND_OFF else _SLOW
        reason = (
            f"{limit} ends it, and a residual is {largest:.1e}, where the tolerance is "
            f"{ritz.tolerance:.1e}. {advice}"
        )
        if largest <= ritz.tolerance:
            reason = f"{limit} ends the search for eigenvalues that the vectors lack. {advice}"
        state = SubspaceState(X, ritz.values)
        report = ritz.tolerance, not limit, self.iterations, self.products, state
        kind, told = np.dtype(X.dtype), tuple(self.watch.norms)
        return Eigenpairs(
            ritz.values[:k], chosen, ritz.norms[:k], *report, told, reason if limit else "", kind
        )


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
