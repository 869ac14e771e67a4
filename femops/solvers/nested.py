"""Solves that are as accurate as the mesh, by nested iteration; and `solve`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import grid_rule
from femops.errors import SolverError
from femops.geometry.boundary import BoundaryFaces, face_digits
from femops.operators import Operator
from femops.operators.coarsening import coarse_constraints
from femops.operators.execution.host import backend_of
from femops.operators.execution.transfer import elementwise
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.state import Field, Sampled
from femops.operators.integrals.term import Term
from femops.solvers.any_preconditioner import AnyOrNamed, as_preconditioner, named
from femops.solvers.cg import cg
from femops.solvers.convergence import warn_unconverged
from femops.solvers.gmres import gmres
from femops.solvers.linear_problem import Info
from femops.solvers.multigrid import multigrid
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.base import Space
from femops.spaces.boundary_space import boundary_spaces
from femops.spaces.h1_l2 import H1
from femops_common.arguments import Fraction, checked
from femops_meshes.coarsening import coarse_mesh, on_blocks, on_halves
from femops_meshes.coordinates.mapping import lagrange_matrix, tensor_apply

Vector = NDArray[Any]
Ints = NDArray[np.int64]
_DOUBLE = np.dtype(np.float64)
_FEW = 300  # unknowns that need no coarser mesh
_PART = 0.1  # what the solver leaves, over the discretisation error
_EXACT = 1e-10  # residual on the coarsest mesh
_MOST = 30  # iterations on a mesh
_ROUGH = 0.1  # largest change within halves of a coarse element that its points do not see
_GUESS = 0.1  # reduction of the error's square by an iteration, before one was measured
_SLOWER = 4.0  # on the next mesh


@final
@dataclass(frozen=True)
class Accuracy:
    """Report of a solve with ``accuracy="discretisation"``.

    All errors are in the energy norm, sqrt(e . A e).

    Attributes
    ----------
    converged : bool
        Whether the error of the solver is at most a tenth of that of the discretisation.
    iterations : int
        Iterations on the mesh itself.
    error : float
        Estimated error of the exact discrete solution.
    remaining : float
        Estimated error of the solver.
    dofs : tuple of int
        Unknowns on each mesh, the finest first.
    rate : float
        Factor by which an iteration reduced the error, as measured last.
    """

    converged: bool
    iterations: int
    error: float
    remaining: float
    dofs: tuple[int, ...]
    rate: float


@checked(SolverError)
def solve(
    A: Operator,
    b: Vector,
    /,
    *,
    rtol: Fraction = 1e-8,
    M: AnyOrNamed = "auto",
    accuracy: Literal["discretisation"] | None = None,
) -> tuple[Vector, Info | Accuracy]:
    """Solve A x = b by the method that fits A. Collective.

    Parameters
    ----------
    A : Operator
    b : (size,) or (size, k)
        As for `cg`.
    rtol : float
        Relative residual at which to end.
    M : name or preconditioner
        As for `cg` and `gmres`. By default the one that follows from the form.
    accuracy : "discretisation", optional
        Solve only to a tenth of the estimated error of the discretisation, in the energy norm, so
        that the error in all is at most 1.01 times that of the exact discrete solution. ``rtol`` is
        not used. It needs a symmetric positive definite A on H1 of quadrilaterals or hexahedra, in
        one process on the host, with integrals over all elements or a boundary, and a mesh of
        `Mesh.refine` or a generator of even counts.

    Returns
    -------
    x : (size,) or (size, k)
    info : Info or Accuracy

    Raises
    ------
    SolverError
        As `cg` and `gmres`; or the error of the discretisation cannot be estimated: there is no
        coarser mesh, or coefficients jump within its elements.

    Notes
    -----
    `cg` is taken where A is symmetric and one field, or M symmetric, else `gmres`.

    With ``accuracy`` the form is discretised on the mesh's coarser meshes with the same order. Each
    solution, interpolated, is the first guess on the next mesh (nested iteration; Brandt, 1977).
    The error e of the exact solution on a mesh is estimated from its difference d to that of the
    coarser one: e = d / sqrt(4^p - 1) at order p, and more where the solution is singular, so that
    the estimate is below the error. It is too large if loads, or functions of x within the form,
    jump within the elements of the coarser mesh.
    """
    if accuracy is None:
        positive = A.symmetric and isinstance(A.space, Space)
        found: tuple[Vector, Info] = (cg if positive else gmres)(A, b, M=M, rtol=rtol)
        return found
    b = np.asarray(A.space.check_vector(b, "b"), dtype=np.float64)
    return nested(levels_of(A, None if isinstance(M, str) and M == "auto" else M), b)


# --- Coarser meshes ------------------------------------------------------------------------------


@final
class _Between:
    """Maps between a space and the space of its order on the coarser mesh.

    Vectors pass through the space of twice the order on the coarser mesh, `halves`: its dofs are
    those of the fine space in another order.
    """

    def __init__(self, V: Space, coarse: Space, children: Ints) -> None:
        n, ncomp = V.order + 1, V.ncomp
        halves = H1(coarse.mesh, 2 * V.order, ncomp)
        own = on_halves(V.restriction.entries(np.arange(V.ndofs))[children])
        self.halves, self._coarse, self._order = halves, coarse, np.empty(V.ndofs, np.int64)
        self._order[own] = halves.restriction.entries(np.arange(halves.ndofs))
        ends = np.asarray(V.basis.nodes)
        places = np.concatenate([ends / 2.0, 0.5 + ends[1:] / 2.0])
        at = coarse.basis.interpolation(places)
        up = np.empty((2 * n - 1, n))
        for half in (0, n - 1):
            up[half : half + n] = V.basis.from_nodal @ at[half : half + n]
        nodes, back = np.asarray(coarse.basis.nodes), np.zeros((n, 2 * n - 1))
        for k, x in enumerate(nodes):
            half = int(x > 0.5)
            inside = V.basis.interpolation([2.0 * x - half])[0]
            back[k, half * (n - 1) : half * (n - 1) + n] = inside
        back = coarse.basis.from_nodal @ back
        self._up = elementwise([(coarse, halves, up, halves)], _DOUBLE)
        self._down = elementwise([(halves, coarse, up.T, halves)], _DOUBLE)
        self._back = elementwise([(halves, coarse, back, coarse)], _DOUBLE)
        self._of_halves = halves.restriction.shares(_DOUBLE)[self._order][:, np.newaxis]
        self._of_coarse = coarse.restriction.shares(_DOUBLE)[:, np.newaxis]

    def positions(self, dofs: Ints) -> Ints:
        """Ascending positions in `halves` of entries of the fine space."""
        node, component = np.divmod(dofs, self.halves.ncomp)
        return np.sort(self._order[node] * self.halves.ncomp + component)

    def interpolated(self, x: Vector) -> Vector:
        """A coarse function as a vector of the fine space."""
        y = self._vector(self.halves)
        self._up.apply(self._padded(self._coarse, x), y)
        rows = y[: self.halves.size].reshape(-1, self.halves.ncomp)[self._order]
        return (rows * self._of_halves).reshape(-1)

    def restricted(self, b: Vector) -> Vector:
        """Products of a fine load with the coarse functions."""
        right, y = self._vector(self.halves), self._vector(self._coarse)
        rows = right[: self.halves.size].reshape(-1, self.halves.ncomp)
        rows[self._order] = b.reshape(rows.shape) * self._of_halves
        self._down.apply(right, y)
        return y[: self._coarse.size]

    def injected(self, x: Vector) -> Vector:
        """Values of a fine function at the nodes of the coarse space."""
        right, y = self._vector(self.halves), self._vector(self._coarse)
        rows = right[: self.halves.size].reshape(-1, self.halves.ncomp)
        rows[self._order] = x.reshape(rows.shape)
        self._back.apply(right, y)
        rows = y[: self._coarse.size].reshape(-1, self._coarse.ncomp)
        return (rows * self._of_coarse).reshape(-1)

    @staticmethod
    def _vector(space: Space) -> Vector:
        made: Vector = backend_of(space).updates.vector(space.size, _DOUBLE)
        made[:] = 0.0
        return made

    def _padded(self, space: Space, x: Vector) -> Vector:
        made = self._vector(space)
        made[: space.size] = x
        return made


def _refused(why: str) -> SolverError:
    return SolverError(
        f"the error of the discretisation cannot be estimated: {why}; leave accuracy out"
    )


def _coarser(A: Operator, few: int) -> tuple[Operator, _Between] | None:
    """Discretise an operator on the coarser mesh. None if it is missing, or A has few unknowns."""
    V = A.space
    made = coarse_mesh(V.mesh) if V.size > few else None
    if made is None:
        return None
    mesh, children = made
    coarse = H1(mesh, V.order, V.ncomp, V.family)
    if not (V.mesh.element_attributes[children] == mesh.element_attributes[:, np.newaxis]).all():
        raise _refused("elements of the coarser mesh have halves of several attributes")
    between = _Between(V, coarse, children)
    terms = [
        (factor, Term.make(_moved(term, coarse, children), A.dtype, None, A.level).ready(A.level))
        for factor, term in A.summands
    ]
    rows = between.positions(A.constrained_dofs)
    fine = replace(A.constraints, rows=rows, columns=rows)
    constraints = coarse_constraints(fine, between.halves, coarse)
    return Operator(terms, constraints, A.level), between


def _moved(term: Term, coarse: Space, children: Ints) -> Integral:
    """The integral of a term over the coarser mesh, or over the same part of its boundary."""
    form, first = term.source, term.fields.first
    arguments, halves = Arguments.of(coarse), children
    if isinstance(first.domain, BoundaryFaces):
        (faces,) = boundary_spaces(coarse, first.domain.attributes, slopes=first.have_slopes)
        arguments, halves = (
            Arguments.of(faces),
            _halves_of_faces(first.domain, faces.domain, children),
        )
    given = {n: _resampled(c, form, halves) for n, c in form.coefficients.items()}
    return replace(
        form, fields=arguments, tests=arguments, coefficients=given, traced=form.qfunction
    )


def _halves_of_faces(fine: BoundaryFaces, coarse: BoundaryFaces, children: Ints) -> Ints:
    """Faces (nf, 2**(dim - 1)) in the halves of each coarse face, lexicographic."""
    dim = children.shape[1].bit_length() - 1
    corners = np.arange(2**dim)
    halves = np.empty((coarse.num_elements, 2 ** (dim - 1)), np.int64)
    for code, digits in face_digits(dim):
        (fixed,) = (d for d, digit in enumerate(digits) if digit != 1)
        on_face = corners[corners >> fixed & 1 == digits[fixed] // 2]
        mine = coarse.codes == code
        halves[mine] = children[coarse.elements[mine]][:, on_face] * 3**dim + code
    keys = fine.elements * 3**dim + fine.codes
    order = np.argsort(keys)
    found = order[np.minimum(np.searchsorted(keys, halves, sorter=order), len(keys) - 1)]
    if not np.array_equal(keys[found], halves):
        raise _refused("faces of the coarser mesh have halves of several attributes")
    return found


def _resampled(given: FormCoefficient, form: Integral, children: Ints) -> FormCoefficient:
    """A coefficient at the points of the coarser mesh, from polynomials in each half."""
    value = given.value
    if isinstance(value, Field):
        raise _refused(
            f"the coefficient {given.name} is a GridFunction of this mesh: give a function of x"
        )
    if not isinstance(value, Sampled):
        return given
    points = np.asarray(grid_rule(form.quadrature, "accuracy").points)
    q, dim = len(points), children.shape[1].bit_length() - 1
    places = np.concatenate([points / 2.0, 0.5 + points / 2.0])
    halves = lagrange_matrix(points, np.mod(2.0 * points, 1.0))
    down = np.zeros((q, 2 * q))
    for k, x in enumerate(points):
        first = q * int(x >= 0.5)
        down[k, first : first + q] = halves[k]
    again = lagrange_matrix(points, places)
    parts = []
    for part in value.parts:
        if not part.ndim:
            parts.append(part)
            continue
        whole = on_blocks(np.asarray(part, dtype=np.float64)[children], q)
        found = tensor_apply([down] * dim, whole)
        miss = abs(tensor_apply([again] * dim, found) - whole).max(axis=1)
        if (miss > _ROUGH * abs(whole).max(axis=1)).any():
            raise _refused(
                f"the coefficient {given.name} jumps within elements of the coarser mesh"
            )
        parts.append(found)
    return replace(given, value=Sampled(value.shape, tuple(parts)))


# --- Nested iteration ----------------------------------------------------------------------------


def _check(A: Operator) -> None:
    """Raise unless nested iteration takes the operator."""
    V = A.space
    if not (isinstance(V, H1) and not V.mixed and V.mesh.cell.cube and V.mesh.conforming):
        raise SolverError(
            'accuracy="discretisation" is for H1 on conforming meshes of quadrilaterals or '
            "hexahedra: leave it out"
        )
    if V.comm.size > 1 or V.device is not None:
        raise SolverError('accuracy="discretisation" is for one process on the host: leave it out')
    if not A.symmetric or A.dtype != np.float64:
        raise SolverError(
            'accuracy="discretisation" is for symmetric positive definite operators in float64'
        )
    for _, term in A.summands:
        whole = term.domain.on_elements and term.domain.covers
        if not (whole or isinstance(term.domain, BoundaryFaces)) or term.source.state.spaces:
            raise SolverError(
                'accuracy="discretisation" is for linear forms over all elements or a boundary: '
                f"{term.source.name} is over faces between elements, or a linearisation"
            )


@final
@dataclass(frozen=True)
class _Level:
    """An operator, its preconditioner, and the maps to the coarser level; None on the last."""

    A: Operator
    M: Preconditioner
    between: _Between | None = None


def levels_of(A: Operator, M: Any = None) -> list[_Level]:
    """Set up an operator on its mesh and on coarser ones; M is for the mesh itself."""
    _check(A)
    M = as_preconditioner(named(M, A), A.space, A.dtype)
    levels = list[_Level]()
    below = _coarser(A, 0)
    if below is None:
        raise _refused(
            "the mesh has no coarser one, all of whose elements are halved: take a mesh of "
            "refine(), or a generator with even counts"
        )
    while below is not None:
        levels.append(_Level(A, M or multigrid(A), below[1]))
        A, M = below[0], None
        below = _coarser(A, _FEW)
    return [*levels, _Level(A, multigrid(A))]


def nested(levels: list[_Level], b: Vector) -> tuple[Vector, Accuracy]:
    """Solve on the coarser mesh, then on this one from that solution."""
    (level, *coarser), A = levels, levels[0].A
    if level.between is None:
        x, info = cg(A, b, M=level.M, rtol=_EXACT)
        return x, Accuracy(info.converged, info.iterations, math.nan, 0.0, (A.space.size,), _GUESS)
    between, below = level.between, coarser[0].A
    held, given = A.constrained_dofs, np.zeros(below.space.size)
    values, right = b[held], b.copy()
    if values.any():
        whole = np.zeros_like(b)
        whole[held] = values
        at = below.constrained_dofs
        given[at] = between.injected(whole)[at]
        lift = between.interpolated(given)
        lift[held] = values
        right -= A @ lift
    right[held] = 0.0
    load = between.restricted(right)
    load[below.constrained_dofs] = given[below.constrained_dofs]
    found, report = nested(coarser, load)
    x = between.interpolated(found)
    x[held] = values
    return _from(A, b, x, level.M, report)


def _from(
    A: Operator, b: Vector, x: Vector, M: Preconditioner, coarse: Accuracy
) -> tuple[Vector, Accuracy]:
    """Conjugate gradients from the coarse solution, to a part of the discretisation error."""
    held = A.constrained_dofs
    r = b - A @ x
    r[held] = 0.0
    d = M @ r
    square = float(r @ d)
    aim = _PART**2 * square / (4.0**A.space.order - 1.0)
    rate, left, count = min(1.0, _SLOWER * coarse.rate**2), square, 0
    while left > aim and count < _MOST:
        Ad = A @ d
        curvature = float(d @ Ad)
        if not curvature > 0.0:
            raise SolverError("A is not positive definite, or not finite: leave accuracy out")
        step = square / curvature
        x += step * d
        count += 1
        left = step * square * rate  # what this step removed, times how fast errors fall
        if left <= aim:
            break
        r -= step * Ad
        z = M @ r
        before, square = square, float(r @ z)
        left, rate = square, min(1.0, square / before)
        d *= rate
        d += z
    error = math.sqrt(aim) / _PART
    dofs = A.space.size, *coarse.dofs
    report = Accuracy(left <= aim, count, error, math.sqrt(left), dofs, math.sqrt(rate))
    if not report.converged:
        warn_unconverged(
            f"femops.solve has not converged: the solver's error is {report.remaining:.2g} after "
            f"{count} iterations, the discretisation's about {error:.2g}.",
            A.space.comm,
        )
    return x, report
