"""Estimates of errors from residuals, by local problems for functions of a higher order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adapt.enriched import (
    broken,
    checked_vector,
    embedded,
    enriched,
    equation_of,
    essential,
    mesh_of,
    on_space,
    parts_of,
    with_ghosts,
)
from femops.errors import OperatorError
from femops.operators import Operator
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.parallel.comm import check
from femops.spaces.base import Space
from femops_common.arguments import checked
from femops_meshes.coordinates.hanging import HangingNodes
from femops_meshes.coordinates.mapping import gauss_lobatto, lagrange_matrix, tensor_apply

Floats = NDArray[np.float64]
Vector = NDArray[np.float64]

_BLOCK = 4_000_000
"""Numbers in the matrices of elements whose local problems are solved at once."""


@checked(OperatorError)
def residual(F: Any, u: Vector, *, norm: Operator | None = None) -> Floats:
    r"""Estimate the error in each element from the residual, for any form that femops can trace.

    The residual is tested with the functions of order p + 1 that vanish at the nodes of order p.
    What neighbours share of it is divided between them, and each element solves a problem of its
    own for these functions, with natural conditions (Bank and Weiser, *Some a posteriori error
    estimators for elliptic partial differential equations*, 1985). So jumps of the flux across
    faces count, and coefficients, sources and conditions on the boundary are those of the form.
    The sum is a bound from above for the part of the error that lies in these functions.

    Parameters
    ----------
    F : Residual or (Operator, callable)
        The equation with its constrained dofs: a residual F(u) = 0 that contains its load, or a
        linear operator and the function ``load(V)`` that returns its load vector in a space V,
        such as ``lambda V: femops.load(V, f)``. (F, values) and (A, load, values), see `goal`, are
        accepted too.
    u : (size,) array
        The solution, with its values at constrained dofs.
    norm : Operator, optional
        Operator on the same space whose energy measures the error. The default is the symmetric
        part of the equation's derivative at u. It must be positive in each element: give a norm
        for convection, and for several fields with multipliers, such as Stokes' pressure.

    Returns
    -------
    (ne,) float64
        The root of the sum of squares estimates the energy norm of the error.

    Raises
    ------
    OperatorError
        If the equation has no load, a rule has too few points, or the norm is not positive.

    Examples
    --------
    >>> import numpy as np, femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> u, info = femops.cg(A, A.rhs(femops.load(V, 1.0)), rtol=1e-12)
    >>> eta = femops.adapt.residual((A, lambda V: femops.load(V, 1.0)), u)
    >>> eta.shape, bool(0.001 < np.linalg.norm(eta) < 0.1)
    ((16,), True)
    """
    equation = equation_of(F)
    u = checked_vector(equation.space, u)
    if norm is not None and (not isinstance(norm, Operator) or norm.space is not equation.space):
        raise OperatorError(
            "norm is an operator on the equation's space: femops.diffusion(V) + femops.mass(V)"
        )
    W = enriched(equation.space)
    rich = embedded(equation.space, u, W)
    r = equation.residual(W, rich)
    held = np.zeros(W.size, dtype=np.bool_)
    held[essential(equation.form, W)] = True
    r[held] = 0.0
    apart = broken(W)
    if norm is None:
        energy = equation.jacobian(apart, embedded(equation.space, u, apart))
    else:
        energy = on_space(norm, apart)
    squares, start = np.zeros(mesh_of(W).num_elements), 0
    for name, V in parts_of(equation.space).items():
        part = energy[name, name] if name else energy
        if part is None:
            raise OperatorError(
                f"the equation has no energy of the field {name}: give norm=, an operator on "
                f"{equation.space!r} with a positive block for each field"
            )
        own = parts_of(W)[name]
        some = slice(start, start + own.size)
        local = LocalProblems(V, own, part)
        squares += local.energies(r[some], held[some])
        start += own.size
    return np.sqrt(squares)


@final
@dataclass(frozen=True, eq=False)
class LocalProblems:
    """Problems of the elements for those functions of W that vanish at the nodes of V."""

    V: Space
    W: Space  # like V, with an order more
    energy: Operator  # on the functions of W that may jump

    @cached_property
    def _line(self) -> Floats:
        """Values at the nodes of W of V's functions on a line, and, before the last, of a bubble.

        The bubble has the degree of W, and is zero at the nodes of V.
        """
        coarse, fine = (gauss_lobatto(n + 1)[0] for n in (self.V.order, self.W.order))
        bubble = np.prod(fine[:, np.newaxis] - coarse, axis=1)
        basis = lagrange_matrix(coarse, fine)
        return np.insert(basis, self.V.order, bubble / np.abs(bubble).max(), axis=1)

    @cached_property
    def _chosen(self) -> NDArray[np.int64]:
        """Products of functions on lines of which one, at least, is the bubble."""
        n, dim = self.W.order + 1, self.W.dim
        places = np.indices((n,) * dim).reshape(dim, -1)
        return np.flatnonzero((places == self.V.order).any(axis=0))

    @cached_property
    def _hanging(self) -> HangingNodes | None:
        """Interpolation of hanging entities, in the basis with bubbles."""
        hanging = self.W.restriction.hanging
        if hanging is None:
            return None
        halves = np.asarray(np.linalg.solve(self._line, hanging.halves @ self._line), np.float64)
        return replace(hanging, halves=halves)

    def energies(self, r: Vector, held: NDArray[np.bool_]) -> Floats:
        """Energy (ne,) of the local solutions, for a residual r (size,) without held dofs."""
        W = self.W
        table, fixed = (with_ghosts(W, x.reshape(W.ndofs, W.ncomp)) for x in (r, held))
        weights = self._weights()
        result = np.zeros(W.mesh.num_elements)
        terms = self._terms()
        size = (W.ncomp * W.element.size) ** 2
        step = max(1, min(_BLOCK // size, len(result)))
        with check(W.comm):
            for start in range(0, len(result), step):
                some = slice(start, min(start + step, len(result)))
                local = W.restriction.entries(table, some) * weights[some]
                rows = self._functional(local, some)
                flags = W.restriction.entries(fixed, some)
                matrices = self._matrices(terms, some)
                result[some] = self._solved(matrices, rows, flags, some)
        return result

    def _terms(self) -> list[tuple[float, ElementAssembly]]:
        found = [
            (factor, ElementAssembly(term))
            for factor, term in self.energy.summands
            if term.domain.on_elements
        ]
        if not found:
            raise OperatorError("the energy has no integral over elements: give norm=")
        return found

    def _weights(self) -> Floats:
        """Each element's share (ne, n, ncomp) of the residual at a dof, by the diagonals.

        An element has no share of the dofs that it only interpolates: its functions are too fine
        for them.
        """
        W = self.W
        cells = [pair for pair in self.energy.summands if pair[1].domain.on_elements]
        diagonal = np.abs(Operator(cells).diagonal())
        diagonal = diagonal.reshape(W.mesh.num_elements, W.element.size, W.ncomp)
        diagonal += np.finfo(float).tiny
        free = W.restriction.free
        if free is not None:
            diagonal *= free[:, :, np.newaxis]
        total = W.sum_elements(diagonal, signs=False).reshape(W.ndofs, W.ncomp)
        total = W.restriction.entries(with_ghosts(W, total))
        return np.asarray(diagonal / total)

    def _functional(self, local: Floats, some: slice) -> Floats:
        """Values (n, size, ncomp) of functionals of dofs, given so, for the basis with bubbles."""
        turn = [self._line.T] * self.W.dim
        free = self.W.restriction.free
        if free is None:
            return tensor_apply(turn, local)
        assert self._hanging is not None
        here = free[some][:, :, np.newaxis]
        inside = tensor_apply(turn, np.where(here, local, 0.0))
        outside = tensor_apply(turn, np.where(here, 0.0, local))
        return self._hanging.transposed(inside, some) + outside

    def _matrices(self, terms: list[tuple[float, ElementAssembly]], some: slice) -> Floats:
        """Matrices (n, size, ncomp, size, ncomp) of elements in the basis with bubbles."""
        W = self.W
        size, ncomp, count = W.element.size, W.ncomp, some.stop - some.start
        total = np.zeros((count, ncomp * size, ncomp * size))
        for factor, assembly in terms:
            total += factor * assembly.matrices(some.start, some.stop)
        total = (total + total.swapaxes(1, 2)) / 2.0
        found = total.reshape(count, ncomp, size, ncomp, size).transpose(0, 2, 1, 4, 3)
        for _ in range(2):
            flat = found.reshape(count, size, -1)
            flat = tensor_apply([self._line.T] * W.dim, flat)
            if self._hanging is not None:
                flat = self._hanging.transposed(flat, some)
            found = flat.reshape(found.shape).transpose(0, 3, 4, 1, 2)
        return found

    def _solved(
        self, matrices: Floats, rows: Floats, flags: NDArray[np.bool_], some: slice
    ) -> Floats:
        """Energies (n,) of the solutions."""
        chosen, count = self._chosen, len(rows)
        A = matrices[:, chosen][:, :, :, chosen]
        k = len(chosen) * self.W.ncomp
        A, right = A.reshape(count, k, k), rows[:, chosen].reshape(count, k)
        fixed = flags[:, chosen].reshape(count, k)
        right = np.where(fixed, 0.0, right)
        A = np.where(fixed[:, :, np.newaxis] | fixed[:, np.newaxis], 0.0, A)
        scale = np.einsum("eii->ei", A)
        bad = ~(scale > 0.0) & ~fixed
        if not bad.any():
            root = np.sqrt(np.where(fixed, 1.0, scale))
            A = A / (root[:, :, np.newaxis] * root[:, np.newaxis])
            A[:, np.arange(k), np.arange(k)] = 1.0
            right = right / root
            try:
                lower = np.linalg.cholesky(A)
            except np.linalg.LinAlgError:
                bad[:] = True
            else:
                found = np.linalg.solve(lower, right[:, :, np.newaxis])[:, :, 0]
                return np.asarray((found**2).sum(axis=1))
        raise OperatorError(
            f"the energy is not positive in an element from {some.start} on: give norm=, a "
            "symmetric positive operator on the space, as femops.diffusion(V)"
        )
