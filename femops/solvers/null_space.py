"""Null vectors of matrices: constants and rigid motions of each body, and other vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orth
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from femops.errors import SolverError

Vector = NDArray[Any]
_EPS = float(np.finfo(np.float64).eps)
_ZERO = 64.0  # times the precision: |A v| over ||A| |v|| of round-off
_LOOSE = 16.0  # as many times more where v itself has round-off
_MOST = 2000  # vectors that borders take
_BODIES = 100  # bodies in which combinations of motions are looked for


@final
@dataclass(frozen=True)
class NullSpace:
    """Orthonormal vectors (n, k) that a matrix takes to zero, and what they are."""

    names: tuple[str, ...]
    vectors: Vector

    def leaves(self, A: csr_array, factors: Any) -> bool:
        """True if a matrix with these borders takes yet another vector to zero."""
        if factors is None:
            return True
        n = A.shape[0]
        v = np.zeros(factors.shape[0])
        v[:n] = np.random.default_rng(2).standard_normal(n)
        for _ in range(2):
            v = factors.solve(v)
            size = float(np.linalg.norm(v))
            if not np.isfinite(size) or not size:
                return True
            v /= size
            v[n:] = 0.0
        return _zero(A, v[:n], _ZERO * _EPS)

    @staticmethod
    def within(A: csr_array, solved: Vector) -> Vector:
        """Orthonormal vectors (n, k) that A takes to zero, from solutions (n + m, m).

        The right-hand sides were the unit vectors of m borders. What is left of them at the end is
        zero for vectors that A takes to zero.
        """
        n = A.shape[0]
        if not np.isfinite(solved).all():
            return np.zeros((n, 0))
        weights = np.linalg.svd(solved[n:])[2]
        found = [v for w in weights if _zero(A, v := solved[:n] @ w, _LOOSE * _ZERO * _EPS)]
        return orth(np.stack(found, axis=1)) if found else np.zeros((n, 0))

    def with_others(self, vectors: Vector, fields: Mapping[str, slice]) -> NullSpace:
        """Null space spanned by ``vectors`` (n, k). They span the vectors of this one too."""
        rest = vectors - self.vectors @ (self.vectors.T @ vectors)
        more = vectors.shape[1] - self.vectors.shape[1]
        if not more:
            return NullSpace(self.names, vectors)
        parts = {name: float(np.linalg.norm(rest[at])) for name, at in fields.items()}
        most = f", mostly of {max(parts, key=parts.__getitem__)}" if parts else ""
        other = "another vector" if more == 1 else f"{more} other vectors"
        return NullSpace((*self.names, f"{other}{most}"), vectors)


def null_space_of(A: csr_array, motions: list[tuple[str, Vector]], eps: float) -> NullSpace:
    """Constants and rigid motions (n,) that a matrix takes to zero, on each body by itself.

    A body is a part of the unknowns that no entry of the matrix couples to others. ``eps`` is the
    precision of the entries.
    """
    n = A.shape[0]
    count, body = connected_components(A, directed=False)
    inside = np.bincount(body, minlength=count) > 1
    size, columns, names = abs(A), list[Vector](), list[str]()
    left: list[tuple[str, Vector, Vector]] = []
    for name, v in motions:
        error, scale = (np.sqrt(np.bincount(body, y * y, count)) for y in (A @ v, size @ abs(v)))
        there = inside & (scale > 0.0)
        zero = there & (error <= _ZERO * eps * scale)
        some = int(zero.sum())
        if some:
            _check_number(len(columns) + some, name, some, int(there.sum()))
            names.append(_in_bodies(name, some, int(there.sum())))
            columns += [np.where(body == k, v, 0.0) for k in np.flatnonzero(zero)]
        if not zero.all():
            left.append((name, v, there & ~zero))
    for k in np.flatnonzero(sum((there for *_, there in left), np.zeros(count, int)) > 1)[:_BODIES]:
        here = [(name, np.where(body == k, v, 0.0)) for name, v, there in left if there[k]]
        for name, v in _combined(A, size, here, eps):
            names.append(_in_bodies(name, 1, int(inside.sum())) if inside.sum() > 1 else name)
            columns.append(v)
    if not columns:
        return NullSpace((), np.zeros((n, 0)))
    vectors = np.stack(columns, axis=1)
    return NullSpace(tuple(dict.fromkeys(names)), np.linalg.qr(vectors)[0])


def _combined(
    A: csr_array, size: csr_array, motions: list[tuple[str, Vector]], eps: float
) -> Iterator[tuple[str, Vector]]:
    """Yield combinations of motions that a matrix takes to zero, as turns about a held point."""
    Z = np.stack([v / np.linalg.norm(v) for _, v in motions], axis=1)
    scale = float(np.linalg.norm(size @ abs(Z)))
    _, values, weights = np.linalg.svd(A @ Z, full_matrices=False)
    for value, w in zip(values, weights, strict=True):
        if value <= _LOOSE * _ZERO * eps * scale and _zero(A, v := Z @ w, _LOOSE * _ZERO * eps):
            used = [n for (n, _), part in zip(motions, w, strict=True) if abs(part) > _LOOSE * eps]
            rigid = any("rotation" in name for name in used)
            yield "a rigid motion" if rigid else " with ".join(used), v / np.linalg.norm(v)


def _zero(A: csr_array, v: Vector, bound: float) -> bool:
    """True if A v is round-off beside the sum of the sizes of its terms."""
    scale = float(np.linalg.norm(abs(A) @ abs(v)))
    return scale > 0.0 and float(np.linalg.norm(A @ v)) <= bound * scale


def _in_bodies(name: str, some: int, bodies: int) -> str:
    """Name of motions of some bodies of several."""
    if bodies == 1:
        return name
    return f"{name} in {'each' if some == bodies else some} of {bodies} bodies"


def _check_number(count: int, name: str, some: int, bodies: int) -> None:
    if count > _MOST:
        raise SolverError(
            f"A takes {_in_bodies(name, some, bodies)} to zero, which is too many for factors: do "
            "integrals over faces couple the elements?"
        )
