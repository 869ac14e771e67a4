"""Eigenvalue problem A x = lambda M x, checked and prepared for the solver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.fields.multivector import MultiVector
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.operators.matrix_free import ONE_SPACE
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid.precision import SINGLE, fits, in_single, trial_product
from femops_common.arguments import refusal, type_name

Array = NDArray[Any]
AnyOperator = Operator | ComplexOperator


@final
@dataclass(frozen=True, eq=False)
class Pencil:
    """Eigenvalue problem A x = lambda M x on the free dofs."""

    A: AnyOperator
    mass: AnyOperator | None  # M with the constrained dofs of A; None if M is diagonal
    # (size,): diagonal of M, or a diagonal that approximates M. None for the identity.
    weights: Array | None
    scales: Array | None  # (size,): inverse of ``weights``, zero at constrained dofs
    free: Array  # (size,) bool: dofs that are not constrained
    count: int  # number of free dofs on all ranks
    sums: Sums

    @classmethod
    def checked(cls, A: Any, M: Any, kinds: tuple[type, ...] = (Operator,)) -> Pencil:
        """Check that a user's operators are of ``kinds``, and make their pencil. Collective."""
        _check_operator(A, "A", kinds)
        sums, xp = Sums(A.space), A.space.memory.xp
        free = xp.ones(A.space.size, dtype=bool)
        free[A.space.memory.put(A.constrained_dofs)] = False
        count = int(A.space.comm.sum(int(A.space.memory.get(free).sum())))
        mass = None
        if M is None:
            weights = None
        elif isinstance(M, AnyOperator):
            _check_operator(M, "M", kinds)
            if M.space is not A.space or M.dtype not in {A.dtype, np.finfo(A.dtype).dtype}:
                raise SolverError(
                    f"A and M are on different spaces or types: {A!r} and {M!r}; {ONE_SPACE}"
                )
            _check_conditions(A, M)
            mass = M.unconstrained.constrained(A.constrained_dofs)
            weights = _lumped(M.unconstrained, mass, free)
        else:
            weights = _diagonal(A, M, free)
        scales = None
        if weights is not None:
            real = np.finfo(A.dtype).dtype
            weights = xp.where(free, weights, 1.0).astype(real)
            scales = xp.where(free, 1.0 / weights, 0.0).astype(real)
        return cls(A, mass, weights, scales, free, count, sums)

    def in_float32(self) -> Pencil | None:
        """Copy of the pencil in float32. None if float32 does not suit it. Collective.

        It does not if numbers are out of range, or on a reproducible mesh: there the bits of
        products in float32 depend on the number of ranks.
        """
        if self.A.dtype != np.float64 or self.A.space.any_width:
            return None
        given = [each for each in (self.A, self.mass) if each is not None]
        if not all(fits(each, trial_product(each)) for each in given):
            return None
        short = [one for each in given if (one := in_single(each)) is not None]
        with np.errstate(over="ignore"):  # an infinite factor is refused below
            factors = [None if w is None else w.astype(SINGLE) for w in (self.weights, self.scales)]
        good = all(w is None or _positive(self.A, w, self.free) for w in factors)
        if len(short) < len(given) or not good:
            return None
        mass = None if self.mass is None else short[1]
        return replace(self, A=short[0], mass=mass, weights=factors[0], scales=factors[1])

    def massed(self, X: MultiVector) -> MultiVector:
        """Products of vectors with M. The vectors themselves if M is the identity. Collective."""
        if self.mass is not None:
            return self.mass.apply_many(X)
        if self.weights is None:
            return X
        product = X.copy()
        product.panels *= self.weights[:, np.newaxis]
        return product

    @property
    def norm_mass(self) -> Any:
        """Mass for `MultiVector.mass_gram`: an operator, a diagonal (size,), or None."""
        return self.weights if self.mass is None else self.mass

    @property
    def deviations(self) -> Array:
        """Standard deviations (size,) of the entries of a random vector. Zero at constrained dofs.

        A random vector with these deviations has about the same part of each eigenvector, even if
        the masses of dofs differ much. With equal deviations a field of small mass would be lost in
        round-off.
        """
        if self.scales is None:
            return self.free
        roots: Array = self.A.space.memory.xp.sqrt(self.scales)
        return roots


def _check_operator(A: Any, name: str, kinds: tuple[type, ...]) -> None:
    if not isinstance(A, AnyOperator):
        raise SolverError(
            f"{name} is {type_name(type(A))}: this solver takes femops operators, "
            "use scipy.sparse.linalg.lobpcg for others"
        )
    if not isinstance(A, kinds):
        raise SolverError(
            f"{name} is complex: {A!r}; femops.eigen.lobpcg takes Hermitian operators"
        )
    kind = "Hermitian" if isinstance(A, ComplexOperator) else "symmetric"
    if not (A.hermitian if isinstance(A, ComplexOperator) else A.symmetric):
        raise SolverError(
            f"{name} is not {kind}: {A!r}; its eigenvalues may be complex, "
            "scipy.sparse.linalg.eigs finds some"
        )


def _check_conditions(A: AnyOperator, M: AnyOperator) -> None:
    """Raise if a mass has essential conditions at dofs where A has none. Collective."""
    more = len(np.setdiff1d(M.constrained_dofs, A.constrained_dofs))
    if A.space.comm.max(more):
        raise SolverError(
            f"M has essential conditions at {more} dofs where A has none: write "
            "A.constrained(dofs), or M.unconstrained if there are to be none"
        )


def _positive(A: AnyOperator, values: Array, free: Array) -> bool:
    """True if numbers are finite and > 0 at the free dofs of all ranks. Collective."""
    xp = A.space.memory.xp
    wrong = free & ~(xp.isfinite(values) & (values > 0.0))
    return not A.space.comm.max(int(bool(wrong.any())))


def _diagonal(A: AnyOperator, M: Any, free: Array) -> Array:
    """Check the diagonal (size,) of a mass, given as an array, and return it."""
    given = A.space.memory.adopt(M, "M")
    if getattr(given, "shape", None) != (A.space.size,):
        cure = f"an operator, or the diagonal ({A.space.size},) of a lumped mass"
        raise SolverError(refusal("M", M, cure))
    weights: Array = given
    if weights.dtype.kind != "f" or not _positive(A, weights, free):
        raise SolverError("M is not positive: give a diagonal of numbers > 0")
    return weights


def _lumped(M: AnyOperator, mass: AnyOperator, free: Array) -> Array:
    """Diagonal (size,) that approximates a mass: its row sums if > 0, else its diagonal."""
    xp = M.space.memory.xp
    sums: Array = M.apply(xp.ones(M.space.size, dtype=M.dtype)).real
    if _positive(M, sums, free):
        return sums
    diagonal: Array = mass.diagonal().real
    if not _positive(M, diagonal, free):
        raise SolverError(f"M is not positive: {M!r} has numbers <= 0 on its diagonal")
    return diagonal
