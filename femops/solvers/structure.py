"""Preconditioners that follow from a form: its blocks are read, and combined field by field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError, SpaceError
from femops.forms import diffusion, interior_penalty, mass
from femops.geometry.boundary import boundary_attributes, outer_attributes
from femops.operators import Operator
from femops.operators.integrals.arguments import FIELD, Arguments
from femops.operators.integrals.state import NO_STATE
from femops.operators.integrals.term import Term
from femops.pointwise.expressions.graph import substitute
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.sides import Argument, Objects
from femops.pointwise.trace import INVERSE, WEIGHT, Trace, symbols
from femops.solvers.any_preconditioner import NAMED
from femops.solvers.block_jacobi import block_jacobi
from femops.solvers.blocks import BlockDiagonal, BlockTriangular
from femops.solvers.direct import direct
from femops.solvers.gmres import gmres
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import jacobi
from femops.solvers.multigrid import Multigrid, multigrid
from femops.solvers.preconditioner import Preconditioner, Scaled
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.product import Product
from femops_common.arguments import checked

Vector = NDArray[Any]
# Unknowns up to which factors of an unsymmetric matrix take less time than iterations, by dimension
_FEW = {1: 10**7, 2: 150_000, 3: 12_000}
_INNER, _STEPS = 0.1, 20  # residual and iterations of the solves within a preconditioner
_POWERS = 10  # steps of a power iteration
_VALUE, _SLOPE = "value", "grad"


# --- What a block says ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _Tensor:
    """Coefficients of an integral over elements, as expressions in physical coordinates.

    Shapes: `entries` (1 + dim, components of the test function, 1 + dim, of the field): entry 0 is
    the value, the others are derivatives.
    """

    factor: float
    term: Term
    entries: Objects

    @property
    def graph(self) -> Any:
        """Graph of the expressions."""
        return self.term.source.qfunction.trace.graph

    def mean(self, places: list[tuple[int, int, int, int]]) -> Any:
        """Mean of some entries, times the integral's factor: a number, or an expression."""
        nodes = [self.entries[place] for place in places]
        total: Any = reduce(add, [node.value if node.op == "const" else node for node in nodes])
        return (self.factor / len(places)) * total

    def has(self, test: str, field: str) -> bool:
        """True if a value or derivative of the test function meets one of the field."""
        step = self.term.source.qfunction
        shape = self.entries.shape
        there = step.structure.reshape(shape) != 0
        rows, columns = (slice(1) if s == _VALUE else slice(1, None) for s in (test, field))
        return bool(there[rows][:, :, columns].any())


def _tensors(A: Operator | None) -> list[_Tensor]:
    """Integrals over elements of a block; without those that are transposes of others."""
    found = []
    for factor, term in () if A is None else A.summands:
        if not term.domain.on_elements or term.original is not None:
            continue
        step = term.source.qfunction
        traced, graph = step.trace, step.trace.graph
        inverse, dim = traced.static[INVERSE], traced.dim
        plain = {traced.static[WEIGHT].item().number: graph.constant(1.0)}
        ones = {node.number: graph.constant(1.0) for node in np.diag(inverse)}
        plain |= {node.number: graph.constant(0.0) for node in inverse.flat} | ones
        entries = np.empty(step.entries.size, dtype=object)
        entries[:] = substitute([*step.entries.flat], plain)
        rows, columns = (size // (1 + dim) for size in step.entries.shape)
        found.append(_Tensor(factor, term, entries.reshape(1 + dim, rows, 1 + dim, columns)))
    return found


Result = Callable[[Objects, Objects], tuple[Any, Any]]
"""Factors (n,) of the test function and (n, dim) of its gradient, from a field and its gradient."""


def _derived(tensor: _Tensor, V: Space, result: Result) -> Operator:
    """Make a form on V whose coefficients are expressions of those of an integral."""
    term, source = tensor.term, tensor.term.source
    traced, graph = source.qfunction.trace, tensor.graph
    n, dim = V.ncomp, traced.dim
    given = Argument(symbols(graph, "@q", (n,)), symbols(graph, "d(@q)", (n, dim)))
    inverse, weight = traced.static[INVERSE], traced.static[WEIGHT][()]
    value, flux = result(given.values, given.derivatives @ inverse)
    factors = Argument(weight * value, (weight * flux) @ inverse.T)
    step = LinearQFunction(Trace(graph, dim, {FIELD: given}, {FIELD: factors}, traced.static))
    used, state = set(step.used()), source.state
    names = [name for name in state.spaces if {name, f"d{name}"} & used]
    part = next(part for part in V.parts if part.domain is term.domain)
    form = replace(
        source,
        fields=Arguments.of(part),
        tests=Arguments.of(part),
        coefficients={name: c for name, c in source.coefficients.items() if name in used},
        traced=step,
        state=state.of(names, {}) if names else NO_STATE,
    )
    return Operator.of_form(form, term.dtype)


def _weighted(mass: Any = 0.0, diffusion: Any = 0.0) -> Result:
    """Factors of a form with a mass and a diffusion."""
    return lambda value, grad: (mass * value, diffusion * grad)


# --- One field ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _Made:
    """A preconditioner, and what it is in words."""

    M: Preconditioner
    words: str


def _few(A: Operator) -> bool:
    """True if factors of an unsymmetric matrix are quick, on the host."""
    return A.space.memory.device is None and A.space.global_size <= _FEW[A.space.dim]


@final
class _Inner(Preconditioner):
    """A few steps of GMRES, which reduce the residual to `_INNER`. Only `gmres` takes such an M."""

    _given_as = "femops.preconditioner(A)"
    symmetric = False

    def __init__(self, A: Operator, M: Preconditioner) -> None:
        self._A, self._M = A, M
        super().__init__(A.dtype, A.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        result[:] = gmres(self._A, x, M=self._M, rtol=_INNER, maxiter=_STEPS, warn=False)[0]

    def _adjoint(self) -> Preconditioner:
        return _Inner(self._A.T, self._M.T)


def _of_field(A: Operator, *, positive: bool = False) -> _Made:
    """Return a preconditioner of an operator on one space. Collective."""
    if isinstance(A.space, L2) and not A.space.mixed and _inside(A):
        return _Made(block_jacobi(A), "blocks of elements, which are not coupled")
    if A.symmetric:
        try:
            return _Made(multigrid(A), "multigrid")
        except SolverError as error:
            if positive:
                raise
            if not _few(A):
                raise SolverError(
                    f"{A!r} is symmetric, and multigrid does not take it ({error}); its "
                    f"{A.space.global_size:,} unknowns are too many for factors: give M"
                ) from error
            return _Made(direct(A), f"factors, as multigrid does not take it ({error})")
    if _few(A):
        return _Made(direct(A), "factors of an unsymmetric matrix")
    B = _elliptic(A)
    if B is None:
        return _Made(jacobi(A), "the diagonal, as no symmetric part is known")
    return _Made(multigrid(B), "multigrid of the part without convection")


def _inside(A: Operator) -> bool:
    """True if no integral couples elements of an L2 space."""
    return not any(term.domain.two_sided for _, term in A.summands)


def _elliptic(A: Operator) -> Operator | None:
    """Symmetric positive part of an unsymmetric form: diffusion, and mass if it is positive."""
    parts = [term for term in _tensors(A) if term.has(_SLOPE, _SLOPE)]
    if not parts or not isinstance(A.space, H1):
        return None

    def diffusion(tensor: _Tensor) -> Result:
        D = tensor.factor * tensor.entries[1:, :, 1:]  # (dim, n, dim, n)
        D = 0.5 * (D + D.transpose(2, 3, 0, 1))

        def result(value: Objects, grad: Objects) -> tuple[Any, Any]:
            return 0.0 * value, np.einsum("ajbk,kb->ja", D, grad)

        return result

    assert isinstance(A.space, Space)
    V = A.space
    whole = reduce(add, [_derived(t, V, diffusion(t)) for t in parts])
    masses = [
        _derived(t, V, _weighted(mass=_density(t))) for t in _tensors(A) if t.has(_VALUE, _VALUE)
    ]
    for part in masses:
        if V.comm.max(float(-part.diagonal().min(initial=0.0))) <= 0.0:
            whole = whole + part
    for factor, term in A.summands:  # Robin's conditions
        if not term.domain.on_elements and term.symmetric:
            whole = whole + Operator([(factor, term)])
    return whole.constrained(A.constrained_dofs)


def _density(tensor: _Tensor) -> Any:
    """Mean factor of a field's values in the integral for the same component."""
    n = tensor.entries.shape[1]
    return tensor.mean([(0, i, 0, i) for i in range(n)])


def _stiffness(tensor: _Tensor) -> Any:
    """Stiffness against gradients of potentials: of a vector the modulus of plane waves."""
    _, n, slots, _ = tensor.entries.shape
    dim = slots - 1
    if n == dim:
        return tensor.mean([(1 + a, a, 1 + a, a) for a in range(dim)])
    return tensor.mean([(1 + a, i, 1 + a, i) for a in range(dim) for i in range(n)])


# --- Several fields -------------------------------------------------------------------------------


def _divergence(A: Operator, test: str, field: str, graph: Any) -> tuple[float, Any] | None:
    """Factor of q div u, or of p div v, in a block: its sign, and its size as an expression.

    None if the block has neither, nor what is left of it after an integration by parts. Factors
    that are not constant count only in the graph of the other expressions, else as 1.
    """
    sign, size, found = 1.0, graph.constant(1.0), False
    for tensor in _tensors(A[test, field]):
        _, rows, slots, columns = tensor.entries.shape
        for turned, kinds in ((rows > 1, (_SLOPE, _VALUE)), (columns > 1, (_VALUE, _SLOPE))):
            straight = turned and tensor.has(*kinds)
            parted = not turned and tensor.has(*kinds)
            if not (straight or parted):
                continue
            slope = kinds[0] == _SLOPE
            places = [
                (
                    1 + a if slope else 0,
                    a if rows > 1 else 0,
                    0 if slope else 1 + a,
                    a if columns > 1 else 0,
                )
                for a in range(slots - 1)
            ]
            mean = tensor.mean(places)
            if isinstance(mean, float):
                sign, size = float(np.sign(mean)), graph.constant(abs(mean))
            elif tensor.graph is graph:
                size = mean
            sign, found = sign * (1.0 if straight else -1.0), sign != 0.0
    return (sign, size) if found else None


@final
@dataclass(frozen=True)
class _Schur:
    """Schur complement of a field p, sign * (S1^-1 + S2^-1 + ...)^-1, without the block of p.

    Parts are ``mass`` (divided by the stiffness of u) and ``diffusion`` (by its density; not of a
    discontinuous p). They say little where `commuted`: a velocity carries u, or such a part is
    missing.
    """

    sign: float
    u: str
    parts: Mapping[str, Operator]
    commuted: bool


def _schur(A: Operator, u: str, p: str) -> _Schur | None:
    """Read the Schur complement of p that u leaves, if p sees the divergence of u. Collective."""
    assert isinstance(A.space, Product)
    U, Q = A.space.spaces[u], A.space.spaces[p]
    if U.ncomp != U.dim or Q.ncomp != 1 or not {(u, p), (p, u)} <= {*A.pairs}:
        return None
    block, sign, commuted = _tensors(A[u, u]), 0.0, False
    dense = [tensor for tensor in block if tensor.has(_VALUE, _VALUE)]
    positive, parts = _is_mass(dense, U), dict[str, Operator]()

    def give(name: str, tensor: _Tensor, result: Result) -> None:
        made = _derived(tensor, Q, result)
        parts[name] = parts[name] + made if name in parts else made

    for tensor in block:
        stiffness = _stiffness(tensor)
        if tensor.has(_SLOPE, _SLOPE) and isinstance(stiffness, float) and stiffness == 0.0:
            return None  # curls alone, which leave potentials free
        down, up = (_divergence(A, *pair, tensor.graph) for pair in ((p, u), (u, p)))
        if down is None or up is None:
            return None
        sign, size = -down[0] * up[0], down[1] * up[1]
        if tensor.has(_SLOPE, _SLOPE):
            give("mass", tensor, _weighted(mass=size / stiffness))
        if tensor.has(_VALUE, _VALUE) and positive:
            commuted |= not isinstance(Q, H1)
            if isinstance(Q, H1):
                give("diffusion", tensor, _weighted(diffusion=size / _density(tensor)))
        commuted |= tensor.has(_VALUE, _SLOPE) or tensor.has(_SLOPE, _VALUE)
    commuted &= Q.order > 0
    if not (parts or commuted):
        return None
    return _Schur(sign, u, parts, commuted)


def _scalar(U: Space, order: int) -> Space:
    """Space of one component with the elements of U."""
    kind: Any = type(U)
    found: Space = kind(U.distributed or U.mesh, order, device=U.device)
    return found


def _is_mass(tensors: list[_Tensor], U: Space) -> bool:
    """True if the mean factor of values is positive everywhere. Collective."""
    if not tensors:
        return False
    V = _scalar(U, 1)
    mass = reduce(add, [_derived(t, V, _weighted(mass=_density(t))) for t in tensors])
    return float(U.comm.max(float((-mass.diagonal()).max(initial=-1.0)))) < 0.0


@final
class _Commutator(Preconditioner):
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
        return _Commutator, (self._blocks, self._D, self._M)

    def _radius(self) -> float:
        """Spectral radius of D F, about."""
        F, sums = self._blocks[0], Sums(self._blocks[0].space)
        x, norm = F.space.memory.put(np.cos(np.arange(F.space.size) ** 2.0)), 1.0
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
            step = slope / dot(d, Ld)
            y, r = y + step * d, r - step * Ld
            z = self._M @ r
            before, slope = slope, dot(r, z)
            d = z + (slope / before) * d
        return y

    def _adjoint(self) -> Preconditioner:
        F, G, B, C = self._blocks
        return _Commutator((F.T, B.T, G.T, None if C is None else C.T), self._D, self._M.T)


@final
class _Added(Preconditioner):
    """A number times the sum of two preconditioners."""

    _given_as = "femops.preconditioner(A)"

    def __init__(self, sign: float, first: Preconditioner, second: Preconditioner) -> None:
        self._terms = sign, first, second
        self.factor, self.symmetric = sign, first.symmetric and second.symmetric
        super().__init__(first.dtype, first.space)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Added, self._terms

    def _apply(self, x: Vector, result: Vector) -> None:
        sign, first, second = self._terms
        result[:] = sign * (first @ x + second @ x)

    def _adjoint(self) -> Preconditioner:
        sign, first, second = self._terms
        return _Added(sign, first.T, second.T)


def _outflow(A: Operator, u: str, p: str) -> NDArray[np.int64]:
    """Dofs of p at the part of the boundary where no component of u is given. Collective."""
    assert isinstance(A.space, Product)
    U, Q = A.space.spaces[u], A.space.spaces[p]
    if not isinstance(Q, H1):
        return np.zeros(0, np.int64)
    given = np.zeros(U.size)
    given[A.space.within(u, A.constrained_dofs)] = 1.0
    nodes = given.reshape(-1, U.ncomp).max(axis=1)
    at = U.memory.get(Q.interpolate((_scalar(U, U.order), U.memory.put(nodes))))
    edge = Q.boundary_dofs()
    return edge[at[edge] < 0.5]


def _faces_of_outflow(A: Operator, u: str) -> list[int]:
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


def _commutator(A: Operator, p: str, u: str) -> Preconditioner:
    """Return the inverse of the Schur complement by a least-squares commutator. Collective."""
    assert isinstance(A.space, Product)
    U, Q = A.space.spaces[u], A.space.spaces[p]
    if isinstance(Q, H1):
        free = np.union1d(A.space.within(p, A.constrained_dofs), _outflow(A, u, p))
        L = diffusion(Q).constrained(free)
    else:
        L = interior_penalty(Q, boundary=_faces_of_outflow(A, u) or None)
    D = 1.0 / mass(U).diagonal()
    D[A.space.within(u, A.constrained_dofs)] = 0.0
    F, G, B = A[u, u], A[u, p], A[p, u]
    assert F is not None
    assert G is not None
    assert B is not None
    return _Commutator((F, G, B, A[p, p]), D, multigrid(L))


def _of_complement(A: Operator, p: str, seen: list[_Schur]) -> _Made:
    """Return a preconditioner of the Schur complement of p. Collective."""
    assert isinstance(A.space, Product)
    own, held = A[p, p], A.space.within(p, A.constrained_dofs)
    sign = seen[0].sign
    if any(schur.sign != sign for schur in seen):
        raise SolverError(
            f"{', '.join(s.u for s in seen)} leave {p} a Schur complement without a sign: give M"
        )
    if len(seen) == 1 and seen[0].commuted:
        commuted = _commutator(A, p, seen[0].u)
        return _Made(commuted, f"a least-squares commutator of {seen[0].u}: the Schur complement")
    if not all(s.parts for s in seen):
        raise SolverError(f"the Schur complement of {p} is not known: give femops.direct(A)")
    main = [s.parts["mass" if "mass" in s.parts else "diffusion"] for s in seen]
    first: Any = reduce(add, main)
    words = ["mass / stiffness" if "mass" in s.parts else "diffusion / density" for s in seen]
    if own is not None:
        first = first + sign * own.unconstrained
        words.append(f"the block of {p}")
    made = _of_field(first.constrained(held))
    M = made.M
    both = [s for s in seen if {"mass", "diffusion"} <= s.parts.keys()]
    if both:
        free = np.union1d(held, reduce(np.union1d, [_outflow(A, s.u, p) for s in both]))
        added = reduce(add, [s.parts["diffusion"] for s in both]).constrained(free)
        words.append("diffusion / density (Cahouet and Chabard)")
        M = _Added(sign, M, multigrid(added))
    elif sign < 0.0:
        M = -M
    return _Made(M, f"{' + '.join(words)}, by {made.words}: the Schur complement")


@final
class Automatic(Preconditioner):
    """Preconditioner that follows from a form. `preconditioner` makes it.

    Attributes
    ----------
    operator : Operator
    made : Preconditioner
        The preconditioner, `Multigrid`, `Direct`, `BlockDiagonal` or `BlockTriangular`.
    reasons : dict of str
        What was chosen for each field, in the order of the solves, and why.
    """

    _given_as = "femops.preconditioner(A)"

    def __init__(self, A: Operator, made: Preconditioner, reasons: dict[str, str]) -> None:
        self.operator, self.made, self.reasons = A, made, reasons
        self.symmetric = made.symmetric
        super().__init__(A.dtype, A.space)

    def __reduce__(self) -> tuple[Any, ...]:
        return Automatic, (self.operator, self.made, self.reasons)

    def _apply(self, x: Vector, result: Vector) -> None:
        self.made.apply(x, result)

    def _adjoint(self) -> Preconditioner:
        return Automatic(self.operator.T, self.made.T, self.reasons)

    def __repr__(self) -> str:
        fields = "; ".join(f"{name}: {why}" if name else why for name, why in self.reasons.items())
        name = " + ".join(dict.fromkeys(t.source.name for _, t in self.operator.summands))
        return f"<preconditioner of {name}: {fields}>"


@checked(SolverError)
def preconditioner(A: Operator, /, *, symmetric: bool = False) -> Automatic:
    """Preconditioner that follows from the form of an operator.

    On one space it is `multigrid` where A is symmetric and positive definite; factors, `direct`, of
    unsymmetric and of indefinite operators of few unknowns; multigrid of the symmetric part of an
    unsymmetric one of many.

    On a product the blocks are read. A field p with the divergence of a field u in its equation,
    and its gradient in the equation of u, is solved for before u, by its Schur complement. That is
    about the mass of p divided by the stiffness of u (flow, elasticity with a pressure, Biot's
    consolidation); if u has a density too, as in unsteady flow, the inverse of a diffusion is added
    (Cahouet and Chabard, 1988); if u has a density alone, as in Darcy's law, it is a diffusion.
    The block of p is added to it. If a velocity carries u, or u has a density and p is
    discontinuous, it is a least-squares commutator (Elman, Howle, Shadid, Shuttleworth and
    Tuminaro, 2006). The coefficients are those of the form, at the same points. The other fields
    follow in their order, each by its own block.

    Unsymmetric products of few unknowns, such as linearised flow with inertia in 2-D, have factors.

    Parameters
    ----------
    A : Operator
    symmetric : bool
        Whether to return a symmetric positive preconditioner, as `minres` needs, which solves for
        each field by itself.

    Returns
    -------
    Automatic
        A SciPy ``LinearOperator``. Its repr says what was chosen. `gmres` takes it of any A, `cg`
        of a positive definite A on one space.

    Raises
    ------
    SolverError
        No preconditioner fits: a field without an equation, or an indefinite block of many
        unknowns. The message names it.

    Examples
    --------
    >>> import femops, numpy as np
    >>> mesh = femops.box((8, 8))
    >>> U, Q = femops.H1(mesh, order=2, ncomp=2), femops.H1(mesh, order=1)
    >>> W = femops.Product(u=U, p=Q)
    >>> def stokes(u, p):
    ...     return {"u": {"grad": 2.0 * u.grad - p * np.eye(2)}, "p": {"value": -u.div}}
    >>> A = femops.form(stokes, W).constrained(W.positions(u=U.boundary_dofs()))
    >>> b = A.rhs(W.join(u=femops.load(U, lambda x: (x[1], 0.0))))
    >>> x, info = femops.gmres(A, b, M=femops.preconditioner(A), rtol=1e-8)
    >>> info.converged and info.iterations < 25
    True
    """
    if A.space is not A.test_space:
        raise SolverError(f"{A!r} goes from one space to another: its system has no solution")
    if not isinstance(A.space, Product):
        made = _of_field(A, positive=symmetric)
        return Automatic(A, made.M, {"": made.words})
    if not (A.symmetric or symmetric) and _few(A):
        return Automatic(A, direct(A), {"": "factors of an unsymmetric matrix"})
    found = _of_product(A, symmetric=symmetric)
    parts = {name: made.M for name, made in found.items()}
    words = {name: made.words for name, made in found.items()}
    if symmetric:
        positive = {name: -M if _negative(M) else M for name, M in parts.items()}
        return Automatic(A, BlockDiagonal(A.space, positive, A.dtype), words)
    return Automatic(A, BlockTriangular(A, parts), words)


def _of_product(A: Operator, *, symmetric: bool) -> dict[str, _Made]:
    """Preconditioner of each field, in the order of the solves. Collective."""
    assert isinstance(A.space, Product)
    names = A.space.names
    seen = {
        p: [schur for u in names if u != p and (schur := _schur(A, u, p)) is not None]
        for p in names
    }
    last = [p for p in names if seen[p]]
    found = {p: _of_complement(A, p, seen[p]) for p in last}
    for name in names:
        if name in last:
            continue
        block = A[name, name]
        if block is None:
            raise SolverError(
                f"{name} has no equation of its own, and does not see the divergence of another "
                "field: its Schur complement is not known. Give femops.block_triangular(A, ...) or "
                "femops.direct(A)"
            )
        made = _of_field(block, positive=symmetric)
        if not (symmetric or block.symmetric or _few(block)):
            made = _Made(_Inner(block, made.M), f"{made.words}, by some steps of gmres")
        found[name] = made
    return found


def _negative(M: Preconditioner) -> bool:
    return (isinstance(M, Scaled) and M.factor < 0.0) or (isinstance(M, _Added) and M.factor < 0.0)


def _auto(A: Operator, *, symmetric: bool = False) -> Preconditioner:
    """Return what `preconditioner` finds. Multigrid is not wrapped: `cg` has kernels for it."""
    found = preconditioner(A, symmetric=symmetric)
    return found.made if isinstance(found.made, Multigrid) else found


NAMED.update(auto=_auto, multigrid=multigrid, direct=direct, jacobi=jacobi)
