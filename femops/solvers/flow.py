"""Preconditioners for fields that a velocity carries, and for the pressures beside them."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError, SpaceError
from femops.forms import diffusion, interior_penalty, mass
from femops.geometry.boundary import boundary_attributes, outer_attributes
from femops.operators import Operator
from femops.operators.coarsening import coarse_operator
from femops.operators.execution.host import backend_of
from femops.operators.execution.transfer import summed_interpolation
from femops.solvers.direct import Direct, direct
from femops.solvers.gmres import gmres
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid import multigrid
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1
from femops.spaces.product import Product

Vector = NDArray[Any]
_INNER, _STEPS = 0.1, 20  # residual and iterations of the solves within a preconditioner
# Part of the inverse of the diagonal at an open boundary: 0.1 to 1 take up to 1.3 times as many
# iterations (orders 2 to 6 in 2-D, 2 and 4 in 3-D).
_OPEN = 0.25
_POWERS = 10  # steps of a power iteration
# Unknowns of order 1 up to which factors are made, by dimension
_FEW = {1: 10**7, 2: 300_000, 3: 40_000}


@final
class Inner(Preconditioner):
    """A few steps of GMRES, which reduce the residual to a tenth. Only `gmres` takes such an M."""

    _given_as = "femops.preconditioner(A)"
    symmetric = False

    def __init__(self, A: Operator, M: Preconditioner) -> None:
        self._A, self._M = A, M
        super().__init__(A.dtype, A.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        result[:] = gmres(self._A, x, M=self._M, rtol=_INNER, maxiter=_STEPS, warn=False)[0]

    def _adjoint(self) -> Preconditioner:
        return Inner(self._A.T, self._M.T)


@final
class CoarseCorrected(Preconditioner):
    """A preconditioner M, then a solve with A at order 1 for what M leaves.

    M sees no convection. At order 1 A has it, so what the flow carries far is corrected there.
    """

    _given_as = "femops.preconditioner(A)"
    symmetric = False

    def __init__(self, A: Operator, M: Preconditioner, coarse: Operator, factors: Direct) -> None:
        self._A, self._M, self._coarse, self._factors = A, M, coarse, factors
        self._up, self._down = summed_interpolation(coarse.space, A.space, A.dtype)
        self._held = A.space.memory.put(A.constrained_dofs)
        self._coarse_held = coarse.space.memory.put(coarse.constrained_dofs)
        ones = self._vector(coarse.space)
        ones[: coarse.space.size] = 1.0
        count = self._vector(A.space)
        self._up.apply(ones, count)
        self._share = 1.0 / count[: A.space.size]
        super().__init__(A.dtype, A.space)

    def __reduce__(self) -> tuple[Any, ...]:
        return CoarseCorrected, (self._A, self._M, self._coarse, self._factors)

    def _vector(self, space: Space) -> Vector:
        made: Vector = backend_of(space).updates.vector(space.size, self._A.dtype)
        made[:] = 0.0
        return made

    def _apply(self, x: Vector, result: Vector) -> None:
        fine, coarse = self._A.space, self._coarse.space
        result[:] = self._M @ x
        left, right = self._vector(fine), self._vector(coarse)
        left[: fine.size] = self._share * (x - self._A @ result)
        left[self._held] = 0.0
        self._down.apply(left, right)
        right[self._coarse_held] = 0.0
        right[: coarse.size] = self._factors @ right[: coarse.size]
        self._up.apply(right, left)
        left[self._held] = 0.0
        result += self._share * left[: fine.size]

    def _adjoint(self) -> Preconditioner:
        return CoarseCorrected(self._A.T, self._M.T, self._coarse.T, self._factors.T)


def coarse_corrected(A: Operator, M: Preconditioner) -> CoarseCorrected | None:
    """Return it, or None where A at order 1 has too many unknowns or no solution. Collective."""
    V = A.space
    if not isinstance(V, H1) or V.order == 1:
        return None
    coarse = H1(V.distributed or V.mesh, 1, V.ncomp)
    if coarse.global_size > _FEW[V.dim]:
        return None
    B = coarse_operator(A, coarse, A.dtype, "partial", exact=True)
    with suppress(SolverError):  # singular
        return CoarseCorrected(A, M, B, direct(B))
    return None


@final
class WithDiagonal(Preconditioner):
    """Preconditioner of an operator with constrained dofs, and numbers for these dofs."""

    _given_as = "femops.preconditioner(A)"

    def __init__(self, M: Preconditioner, numbers: Vector) -> None:
        self._M, self._numbers = M, numbers
        super().__init__(M.dtype, M.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        self._M.apply(x, result)
        result *= self._numbers


@final
class Commutator(Preconditioner):
    """Inverse of S = C - B F^-1 G for a field p, by a least-squares commutator.

    F, G, B and C are the blocks of u with u, of u with p, of p with u, and of p with p; D is the
    inverse of the diagonal of the mass of u. S^-1 is about -L^-1 (B D F D G - c^2 C) L^-1, with
    L = B D G - c C and a number c; it is S^-1 if F = c / D. Solves with L are some steps of
    conjugate gradients with ``M``. Only `gmres` takes such a preconditioner.

    Elman, Howle, Shadid, Shuttleworth and Tuminaro, 2006; with C and c, a third of the spectral
    radius of D F, Elman, Howle, Shadid, Silvester and Tuminaro, 2007.
    """

    _given_as = "femops.preconditioner(A)"
    symmetric = False

    def __init__(
        self,
        blocks: tuple[Operator, Operator, Operator, Operator | None],
        D: Vector,
        M: Preconditioner,
    ) -> None:
        self._blocks, self._D, self._M = blocks, D, M
        self._sums = Sums(M.space)
        super().__init__(M.dtype, M.space)
        self._c = 0.0 if blocks[3] is None else self._radius() / 3.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Commutator, (self._blocks, self._D, self._M)

    def _radius(self) -> float:
        """Spectral radius of D F, about."""
        F, sums = self._blocks[0], Sums(self._blocks[0].space)
        x = F.space.memory.put(np.cos(np.arange(F.space.size) ** 2.0).astype(F.dtype))
        norm = 1.0
        for _ in range(_POWERS):
            x = self._D * (F @ (x / norm))
            norm = math.sqrt(sums.dot(x, x))
        return norm

    def _apply(self, x: Vector, result: Vector) -> None:
        F, G, B, C = self._blocks
        y = self._solved(x)
        right = B @ (self._D * (F @ (self._D * (G @ y))))
        if C is not None:
            right -= self._c**2 * (C @ y)
        result[:] = -self._solved(right)

    def _solved(self, r: Vector) -> Vector:
        """Solve L y = r. L is positive or negative definite."""
        _, G, B, C = self._blocks
        dot, y, r = self._sums.dot, 0.0 * r, r.copy()
        d = z = self._M @ r
        slope = dot(r, z)
        least = _INNER**2 * abs(slope)
        for _ in range(_STEPS):
            if abs(slope) <= least:
                break
            Ld = B @ (self._D * (G @ d))
            if C is not None:
                Ld -= self._c * (C @ d)
            step = r.dtype.type(slope / dot(d, Ld))
            y, r = y + step * d, r - step * Ld
            z = self._M @ r
            before, slope = slope, dot(r, z)
            d = z + r.dtype.type(slope / before) * d
        return y

    def _adjoint(self) -> Preconditioner:
        F, G, B, C = self._blocks
        return Commutator((F.T, B.T, G.T, None if C is None else C.T), self._D, self._M.T)


def _open_faces(A: Operator, u: str) -> list[int]:
    """Outer boundary attributes with a node where no component of u is given. Collective."""
    assert isinstance(A.space, Product)
    U, found = A.space.spaces[u], list[int]()
    mesh, given = U.distributed or U.mesh, np.zeros(U.size, dtype=bool)
    given[A.space.within(u, A.constrained_dofs)] = True
    for attribute in boundary_attributes(mesh, None).tolist():
        nodes = np.unique(U.boundary_dofs(attribute) // U.ncomp)
        if U.comm.max(int(not given.reshape(-1, U.ncomp)[nodes].any(axis=1).all())):
            with suppress(SpaceError):  # faces between elements
                found += outer_attributes(mesh, attribute)
    return found


def opened(B: Operator, held: NDArray[np.int64], free: NDArray[np.int64]) -> Preconditioner:
    """Multigrid of a diffusion of p that is zero at held dofs and where the boundary is open.

    The equation of p gives its values at an open boundary weak conditions. So p is not zero there,
    but has the diagonal of its own.
    """
    memory = B.space.memory
    numbers = np.ones(B.space.size, B.dtype)
    numbers[free] = _OPEN / memory.get(B.diagonal())[free]
    numbers[held] = 0.0
    return WithDiagonal(multigrid(B.constrained(np.union1d(held, free))), memory.put(numbers))


def commutator(A: Operator, p: str, u: str, free: NDArray[np.int64]) -> Commutator:
    """Return the inverse of the Schur complement by a least-squares commutator. Collective.

    ``free`` has the dofs of a continuous p at an outflow that are not given.
    """
    assert isinstance(A.space, Product)
    U, Q = A.space.spaces[u], A.space.spaces[p]
    if isinstance(Q, H1):
        L = diffusion(Q, dtype=A.dtype)
        M = opened(L, A.space.within(p, A.constrained_dofs), free)
    else:
        M = multigrid(interior_penalty(Q, boundary=_open_faces(A, u) or None, dtype=A.dtype))
    D = 1.0 / mass(U, dtype=A.dtype).diagonal()
    D[U.memory.put(A.space.within(u, A.constrained_dofs))] = 0.0
    F, G, B = A[u, u], A[u, p], A[p, u]
    assert F is not None
    assert G is not None
    assert B is not None
    return Commutator((F, G, B, A[p, p]), D, M)
