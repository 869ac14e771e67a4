"""Conjugate gradients for many right-hand sides, which share their search directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.solvers.cg_bodies import M_NOT_POSITIVE, not_positive
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import LinearProblem
from femops.solvers.watch import Watch

Array = NDArray[Any]
Small = NDArray[Any]  # small matrices of float64

_ROWS = 1024  # rows that stay in the caches while they are worked on
_DEPENDENT = 1e-12  # eigenvalue, beside the largest, of a direction that others contain
_NEGATIVE = 1e-5  # the same, below zero, that is more than the round-off of float32
_DIVERGED = 1e8


@final
class Block:
    """Block conjugate gradients (O'Leary, 1980) for many problems, whose vectors are columns.

    The residual is a basis Q, orthonormal in the inner product of M, times a small matrix C (BCGrQ;
    Dubrulle, 2001). So right-hand sides may be linearly dependent, or converge at different times.

    `goals`, `reach` (nvec,): tolerances, and norms at which the recursion ends: not far below
    round-off. `X` (size, nvec): solutions.
    """

    def __init__(self, problems: Sequence[LinearProblem]) -> None:
        self.first, self.goals = problems[0], np.array([p.tolerance for p in problems])
        self.reach = np.maximum(self.goals, 1e-3 * float(np.finfo(self.first.right.dtype).eps))
        self._xp, self._memory = self.first.A.space.memory.xp, self.first.A.space.memory
        self._B = self._xp.stack(tuple(p.right for p in problems), axis=1)
        self.X = self._xp.stack(tuple(p.guess for p in problems), axis=1)
        M = self.first.M
        self._inverse = M.inverse[:, np.newaxis] if isinstance(M, Jacobi) else None
        self._Q = self._P = self._B
        self._C, self._ratio = np.zeros((0, 0)), np.zeros(len(problems))

    def begin(self) -> Small:
        """Set the basis to the residuals of the solutions, and return their norms. Collective."""
        self._Q, self._C = self._B - self.first.A @ self.X, np.eye(self.X.shape[1])
        self._ratio = np.zeros(len(self.goals))
        return self._norms()

    def run(self, count: int, watch: Watch) -> tuple[int, bool]:
        """Iterate, after `begin`. Return the iterations so far, and whether the recursion ended.

        Collective.
        """
        self.orthonormalize(count)
        first = self.norms().max()
        while True:
            norms = self.norms()
            if not norms.max() <= _DIVERGED * first:
                raise not_positive(self.first, count)
            watch.tell(count, float(norms.max()), lambda: self.X)
            ended = bool((norms <= self.reach).all())
            if ended or count >= self.first.limit:
                return count, ended
            self.advance(count)
            count += 1

    def of_fields(self, j: int) -> dict[str, tuple[float, float]]:
        """Norms of a column's residuals and right-hand sides, after `begin`. Collective."""
        return self.first.sums.of_fields(self._Q[:, j], self._B[:, j])

    def norms(self) -> Small:
        """Norms of the residuals of the recursion, estimated while they are not small. Collective.

        The recursion gives the norms in the inner product of M. Euclidean norms are computed only
        where they may be below `reach`. The ratio of the two norms is kept for later estimates.
        """
        known = np.sqrt((self._C**2).sum(axis=0))
        estimate = self._ratio * known
        if (estimate <= 2.0 * self.reach).all():
            estimate = self._norms()
            self._ratio = estimate / np.where(known > 0.0, known, 1.0)
        return np.asarray(estimate)

    def _norms(self) -> Small:
        """Euclidean norms of the residuals of the recursion. Collective."""
        squares = self._inner(self._Q, lambda rows: self._Q[rows])
        squares = np.einsum("ij,ik,kj->j", self._C, squares, self._C)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def advance(self, count: int) -> None:
        """Do one iteration. Collective."""
        P, Q, X = self._P, self._Q, self.X
        W = self.first.A @ P
        curvature = self._inner(P, lambda rows: W[rows])
        if not np.linalg.eigvalsh(_scaled(curvature)[0]).min(initial=1.0) > 0.0:
            raise not_positive(self.first, count)
        step = np.linalg.inv(0.5 * (curvature + curvature.T))
        change, step = self._put(step @ self._C), self._put(step)
        for rows in self._rows():
            X[rows] += P[rows] @ change
            Q[rows] -= W[rows] @ step
        self.orthonormalize(count, P)

    def orthonormalize(self, count: int, P: Array | None = None) -> None:
        """Make the basis orthonormal, and update the directions by the new basis. Collective."""
        Q, M, inverse = self._Q, self.first.M, self._inverse
        MQ = Q if M is None or inverse is not None else M @ Q

        def preconditioned(Q: Array, MQ: Array, rows: slice) -> Array:
            return MQ if inverse is None else inverse[rows] * Q

        gram = self._inner(Q, lambda rows: preconditioned(Q[rows], MQ[rows], rows))
        turn, back = _factors(gram, count)
        self._C = back @ self._C
        there, kept = self._put(turn), self._put(back.T)
        fewer = len(back) < Q.shape[1]
        made = [
            self._xp.empty((len(Q), len(back)), Q.dtype) for _ in range(2) if fewer or P is None
        ]
        self._Q, self._P = made if made else (Q, P)
        for rows in self._rows():
            own = Q[rows] @ there
            turned = preconditioned(own, own if MQ is Q else MQ[rows] @ there, rows)
            self._P[rows] = turned if P is None else turned + P[rows] @ kept
            self._Q[rows] = own

    def _rows(self) -> Iterator[slice]:
        """Yield blocks of rows. On a device one block has all rows."""
        n = len(self.X)
        each = _ROWS if self._memory.device is None else max(n, 1)
        return (slice(begin, min(begin + each, n)) for begin in range(0, n, each))

    def _put(self, small: Small) -> Array:
        """Copy a small matrix into the memory and type of the vectors."""
        found: Array = self._memory.put(np.ascontiguousarray(small, dtype=self._B.dtype))
        return found

    def _inner(self, left: Array, right: Any) -> Small:
        """Inner products of the columns of two arrays, read by blocks of rows. Collective.

        They are formed in float64: eigenvalues near `_DEPENDENT` are round-off in float32.
        """
        k = left.shape[1]
        total = self._xp.zeros((k, k))  # in float64
        for rows in self._rows():
            total += left[rows].astype(float, copy=False).T @ right(rows)
        return np.asarray(self.first.A.space.comm.sum(self._memory.get(total).reshape(-1))).reshape(
            k, k
        )


def _scaled(gram: Small) -> tuple[Small, Small]:
    """Divide a Gram matrix by the norms of its columns. Return it, and the norms (1 for zero)."""
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    norms[norms == 0.0] = 1.0
    return 0.5 * (gram + gram.T) / np.outer(norms, norms), norms


def _factors(gram: Small, count: int) -> tuple[Small, Small]:
    """Matrices T, Z with Q = (Q T) Z and Q T orthonormal, from inner products of columns of Q.

    Linearly dependent directions are left out.
    """
    if not np.isfinite(gram).all():
        raise SolverError(M_NOT_POSITIVE.format(count))
    unit, norms = _scaled(gram)
    values, vectors = np.linalg.eigh(unit)
    if values[0] < -_NEGATIVE * values[-1] or np.diag(gram).min() < 0.0:
        raise SolverError(M_NOT_POSITIVE.format(count))
    kept = values > _DEPENDENT * values[-1]
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    sizes = norms * (np.diag(gram) > 0.0)  # columns of zeros stay so
    return vectors / roots / norms[:, np.newaxis], roots[:, np.newaxis] * vectors.T * sizes
