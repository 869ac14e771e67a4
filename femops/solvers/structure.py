"""Preconditioners that follow from a form: its blocks are read, and combined field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.forms import form, mass
from femops.operators import Operator
from femops.operators.integrals.arguments import FIELD, Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.state import NO_STATE, Sampled, State
from femops.pointwise.expressions.graph import ancestors, substitute
from femops.pointwise.expressions.tensors import inv
from femops.pointwise.linear import LinearQFunction, decode, encode
from femops.pointwise.sides import Argument, Objects
from femops.pointwise.trace import INVERSE, POSITION, WEIGHT, Trace, symbols
from femops.solvers.any_preconditioner import NAMED
from femops.solvers.block_jacobi import block_jacobi
from femops.solvers.blocks import BlockDiagonal, BlockTriangular
from femops.solvers.direct import direct
from femops.solvers.flow import Inner, coarse_corrected, commutator, opened
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
_VALUE, _SLOPE = "value", "grad"
_CYCLES, _FALLS = 6, 0.6  # cycles to measure, and the factor of the last above which it is slow
_JUMPS = 4.0  # of a discontinuous field, over the squares of the inverse Jacobian


# --- What a block says ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _Tensor:
    """Coefficients of integrals over one domain, as expressions in physical coordinates.

    Shapes: `entries` (1 + dim, components of the test function, 1 + dim, of the field): entry 0 is
    the value, the others are derivatives.
    """

    entries: Objects
    source: Integral  # it has the rule, the domain and the graph of the expressions
    # what the expressions read: those of all fields, as blocks share a graph
    coefficients: Mapping[str, FormCoefficient]
    static: Mapping[str, Objects]
    state: State
    dtype: np.dtype[Any]

    @property
    def graph(self) -> Any:
        """Graph of the expressions."""
        return self.source.qfunction.trace.graph

    def mean(self, places: list[tuple[int, int, int, int]]) -> Any:
        """Mean of some entries: a number, or an expression."""
        total: Any = reduce(add, [_number(self.entries[place]) for place in places])
        return (1.0 / len(places)) * total

    def has(self, test: str, field: str) -> bool:
        """True if a value or derivative of the test function meets one of the field."""
        rows, columns = (slice(1) if s == _VALUE else slice(1, None) for s in (test, field))
        return any(_present(node) for node in self.entries[rows][:, :, columns].flat)

    def reading(self, other: _Tensor) -> tuple[_Tensor, Objects] | None:
        """Copy that reads another tensor's coefficients too, and the other's entries in this graph.

        None if the other tensor reads a state, or values at the points of another rule.
        """
        if other.graph is self.graph:
            return self, other.entries
        nodes = [*other.entries.flat]
        used = {node.number for node in ancestors(nodes)}
        names = [n for n, at in other.static.items() if any(i.number in used for i in at.flat)]
        read = [n for n in names if n in other.coefficients]
        fixed = any(isinstance(other.coefficients[n].value, Sampled) for n in read)
        same_rule = self.source.quadrature.key == other.source.quadrature.key
        if (fixed and not same_rule) or not {*names} <= {*read, INVERSE, WEIGHT, POSITION}:
            return None
        new = {name: f"{name}@{len(self.coefficients) + k}" for k, name in enumerate(read)}
        inputs = {node.number: name for name in read for node in other.static[name].flat}
        kept = [node for name in read for node in other.static[name].flat]
        text = encode([*nodes, *kept])
        for row, node in zip(text["rows"], ancestors([*nodes, *kept]), strict=True):
            if node.number in inputs:
                row[2] = f"{new[inputs[node.number]]}:{row[2]}"
        found = iter(decode(self.graph, text))
        entries = np.empty(len(nodes), dtype=object)
        entries[:] = [next(found) for _ in nodes]
        static, coefficients = dict(self.static), dict(self.coefficients)
        for name in read:
            array = np.empty(other.static[name].size, dtype=object)
            array[:] = [next(found) for _ in array]
            static[new[name]] = array.reshape(other.static[name].shape)
            coefficients[new[name]] = replace(other.coefficients[name], name=new[name])
        whole = replace(self, static=static, coefficients=coefficients)
        return whole, entries.reshape(other.entries.shape)

    def plus(self, other: _Tensor) -> _Tensor | None:
        """Sum with the integrals of another form over the same domain; see `reading`."""
        found = self.reading(other)
        return (
            None if found is None else replace(found[0], entries=_folded(self.entries + found[1]))
        )


def _folded(entries: Objects) -> Objects:
    """Entries with operations on constants evaluated."""
    found = np.empty(entries.size, dtype=object)
    found[:] = substitute([*entries.flat], {})
    return found.reshape(entries.shape)


def _present(node: Any) -> bool:
    """True if an entry is not the constant zero."""
    return not (node.op == "const" and node.value == 0.0)


def _number(node: Any) -> Any:
    """Value of an entry that is constant; else the entry."""
    return node.value if getattr(node, "op", "") == "const" else node


def _tensors(A: Operator, *pair: str) -> list[_Tensor]:
    """Coefficients of an operator, or of its block for a test function and a field.

    There is one tensor for each domain of elements, and further ones where forms do not add up.
    """
    found = list[_Tensor]()
    for factor, whole in A.summands:
        if not whole.domain.on_elements or (pair and pair not in whole.pairs):
            continue
        turned, of_all = whole.original is not None, (whole.original or whole).source
        source = of_all.block(*(pair[::-1] if turned else pair)) if pair else of_all
        tensor = _tensor(factor, source, of_all, whole.dtype, turned=turned)
        for k, other in enumerate(found):
            same = other.source.domain is tensor.source.domain
            summed = other.plus(tensor) or tensor.plus(other) if same else None
            if summed is not None:
                found[k] = summed
                break
        else:
            found.append(tensor)
    return found


def _tensor(
    factor: float, source: Integral, whole: Integral, dtype: np.dtype[Any], *, turned: bool
) -> _Tensor:
    """Coefficients of one integral, or of the transposed integral."""
    step = source.qfunction
    traced, graph = step.trace, step.trace.graph
    inverse, dim = traced.static[INVERSE], traced.dim
    plain = {traced.static[WEIGHT].item().number: graph.constant(1.0)}
    ones = {node.number: graph.constant(1.0) for node in np.diag(inverse)}
    plain |= {node.number: graph.constant(0.0) for node in inverse.flat} | ones
    scaled = np.empty(step.entries.size, dtype=object)
    scaled[:] = [factor * node for node in substitute([*step.entries.flat], plain)]
    rows, columns = (size // (1 + dim) for size in step.entries.shape)
    entries: Objects = _folded(scaled).reshape(1 + dim, rows, 1 + dim, columns)
    entries = entries.transpose(2, 3, 0, 1) if turned else entries
    return _Tensor(entries, source, whole.coefficients, traced.static, whole.state, dtype)


Result = Callable[[Objects, Objects], tuple[Any, Any]]
"""Factors (n,) of the test function and (n, dim) of its gradient, from a field and its gradient."""


def _derived(tensor: _Tensor, V: Space, result: Result) -> Operator:
    """Make a form on V. Its coefficients are expressions in the coefficients of an integral."""
    source, graph = tensor.source, tensor.graph
    n, dim = V.ncomp, source.qfunction.trace.dim
    given = Argument(symbols(graph, "@q", (n,)), symbols(graph, "d(@q)", (n, dim)))
    inverse, weight = tensor.static[INVERSE], tensor.static[WEIGHT][()]
    value, flux = result(given.values, given.derivatives @ inverse)
    factors = Argument(weight * value, (weight * flux) @ inverse.T)
    step = LinearQFunction(Trace(graph, dim, {FIELD: given}, {FIELD: factors}, {**tensor.static}))
    used, state = set(step.used()), tensor.state
    names = [name for name in state.spaces if {name, f"d{name}"} & used]
    part = next(part for part in V.parts if part.domain is source.domain)
    form = replace(
        source,
        fields=Arguments.of(part),
        tests=Arguments.of(part),
        coefficients={n: c for n, c in tensor.coefficients.items() if n in used},
        traced=step,
        state=state.of(names, {}) if names else NO_STATE,
    )
    return Operator.of_form(form, tensor.dtype)


def _weighted(mass: Any = 0.0, diffusion: Any = 0.0) -> Result:
    """Factors of a form with a mass and a diffusion, a number or a matrix (dim, dim)."""

    def result(value: Objects, grad: Objects) -> tuple[Any, Any]:
        return mass * value, grad @ diffusion if np.ndim(diffusion) else diffusion * grad

    return result


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


def _of_field(A: Operator, *, positive: bool = False) -> _Made:
    """Return a preconditioner of an operator on one space. Collective."""
    if isinstance(A.space, L2) and not A.space.mixed and _inside(A):
        return _Made(block_jacobi(A), "blocks of elements, which are not coupled")
    if A.symmetric:
        try:
            return _Made(multigrid(A), "multigrid")
        except SolverError as error:
            if _common_sign([A.unconstrained]) < 0.0:
                M = multigrid(_times(-1.0, A.unconstrained).constrained(A.constrained_dofs))
                return _Made(-M, "minus multigrid of the negative")
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
    M, words = multigrid(B), "multigrid of the part without convection"
    if A.space.device is None and (corrected := coarse_corrected(A, M)) is not None:
        return _Made(corrected, f"{words}, with factors of A at order 1")
    return _Made(M, words)


def _times(factor: float, A: Operator) -> Operator:
    """A number times an operator."""
    scaled: Any = factor * A
    assert isinstance(scaled, Operator)
    return scaled


def _inside(A: Operator) -> bool:
    """True if no integral couples elements of an L2 space."""
    return not any(term.domain.two_sided for _, term in A.summands)


def _elliptic(A: Operator) -> Operator | None:
    """Symmetric positive part of an unsymmetric form: diffusion, and mass if it is positive."""
    parts = [term for term in _tensors(A) if term.has(_SLOPE, _SLOPE)]
    if not parts or not isinstance(A.space, H1):
        return None

    def diffusion(tensor: _Tensor) -> Result:
        D = tensor.entries[1:, :, 1:]  # (dim, n, dim, n)
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
    for made in masses:
        if V.comm.max(float(-made.diagonal().min(initial=0.0))) <= 0.0:
            whole = whole + made
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


@final
@dataclass(frozen=True)
class _Schur:
    """Schur complement of a field p, sign * (S1^-1 + S2^-1 + ...)^-1, without the block of p.

    Parts are ``mass`` (divided by the stiffness of u) and ``diffusion`` (by its density); of
    discontinuous p the ``diffusion`` is one of continuous functions, with ``jumps`` beside it.
    They say little where a velocity carries u.
    """

    sign: float
    u: tuple[str, ...]
    directions: frozenset[int]  # along which p sees derivatives of u
    parts: Mapping[str, Operator]
    carried: bool


def _schur(A: Operator, u: str, p: str) -> _Schur | None:
    """Read the Schur complement of p that u leaves, if p sees derivatives of u. Collective."""
    assert isinstance(A.space, Product)
    U, Q = A.space.spaces[u], A.space.spaces[p]
    pairs = (u, p), (p, u)
    if Q.ncomp != 1 or (u, u) not in A.pairs or not all(_has_slopes(A, *pair) for pair in pairs):
        return None
    block, dim, parts = _tensors(A, u, u), U.dim, dict[str, Operator]()
    dense = [tensor for tensor in block if tensor.has(_VALUE, _VALUE)]
    positive, directions, carried = _is_mass(dense, U), set[int](), False
    whole = isinstance(Q, H1)
    R = Q if whole else _continuous(Q)

    def give(name: str, tensor: _Tensor, space: Space, result: Result) -> None:
        made = _derived(tensor, space, result)
        parts[name] = parts[name] + made if name in parts else made

    for given in block:
        stiffness = _stiffness(given)
        if given.has(_SLOPE, _SLOPE) and isinstance(stiffness, float) and stiffness == 0.0:
            return None  # curls alone, which leave potentials free
        tensor, down = _coupling(A, (p, u), given)
        tensor, up = _coupling(A, (u, p), tensor)
        if down is None or up is None:
            return None
        up = up.transpose(2, 3, 0, 1)
        # factors (dim, components of u) of derivatives; those by parts have the opposite sign
        down, up = (_folded(one[0, 0, 1:] - one[1:, 0, 0]) for one in (down, up))
        seen = [(a, i) for a, i in np.ndindex(down.shape) if _both(down[a, i], up[a, i])]
        if not seen:
            return None
        directions |= {a for a, _ in seen}
        size: Any = _number(_sum([down[at] * up[at] for at in seen]))
        size = (-1.0 / dim) * size
        if tensor.has(_SLOPE, _SLOPE):
            give("mass", tensor, Q, _weighted(mass=size / stiffness))
        if tensor.has(_VALUE, _VALUE) and positive:
            inverse = _over_density(tensor, down, up)
            give("diffusion", tensor, R, _weighted(diffusion=inverse))
            if not whole:
                scale = _sum([*tensor.static[INVERSE].flat], squared=True)
                mean = _sum([inverse[a, a] for a in range(dim)])
                give("jumps", tensor, Q, _weighted(mass=_JUMPS / dim * mean * scale))
        carried |= tensor.has(_VALUE, _SLOPE) or tensor.has(_SLOPE, _VALUE)
    sign = _common_sign([parts[name] for name in ("mass", "diffusion") if name in parts])
    if not sign:
        return None
    signed = {name: _times(sign, B) for name, B in parts.items()}
    return _Schur(sign, (u,), frozenset(directions), signed, carried and Q.order > 0)


def _has_slopes(A: Operator, test: str, field: str, kinds: int = 2) -> bool:
    """True if values of a test function meet derivatives of a field; of two kinds the reverse, too.

    Shapes and coefficients are not read, so it takes little time.
    """
    for _, term in A.summands:
        if not term.domain.on_elements or (test, field) not in term.pairs:
            continue
        turned = term.original is not None
        step = (term.original or term).source.qfunction
        out, into = (field, test) if turned else (test, field)
        rows, columns = step.places(step.trace.tests, out), step.places(step.trace.fields, into)
        first = len(step.trace.tests[out].values), len(step.trace.fields[into].values)
        there = step.structure[np.ix_(rows, columns)] != 0
        blocks = there[: first[0], first[1] :], there[first[0] :, : first[1]]
        blocks = blocks[::-1] if turned else blocks
        if any(block.any() for block in blocks[:kinds]):
            return True
    return False


def _coupling(
    A: Operator, pair: tuple[str, str], tensor: _Tensor
) -> tuple[_Tensor, Objects | None]:
    """Entries of a block on a tensor's domain, in the graph of the tensor, which reads them."""
    total: Any = None
    for other in _tensors(A, *pair):
        if other.source.domain is not tensor.source.domain:
            continue
        found = tensor.reading(other)
        if found is None:
            return tensor, None
        tensor, entries = found
        total = entries if total is None else total + entries
    return tensor, total


def _both(a: Any, b: Any) -> bool:
    """True if neither of two entries is the constant zero."""
    return _present(a) and _present(b)


def _sum(nodes: list[Any], *, squared: bool = False) -> Any:
    """Sum of expressions, or of their squares."""
    return reduce(add, [node * node if squared else node for node in nodes])


def _over_density(tensor: _Tensor, down: Objects, up: Objects) -> Objects:
    """Factors (dim, dim) of a diffusion: minus down R^-1 up^T, with the density R of u, symmetric.

    Of R (n, n) the symmetric part counts, and of more than three components the diagonal.
    """
    n = down.shape[1]
    R = tensor.entries[0, :, 0]
    if n <= 3 and any(_present(R[i, j]) for i, j in np.ndindex(n, n) if i != j):
        R = _folded(0.5 * (R + R.T))
        inverse = inv(R)
    else:
        zero, one = (tensor.graph.constant(value) for value in (0.0, 1.0))
        inverse = np.full((n, n), zero, dtype=object)
        for i in range(n):
            inverse[i, i] = one / R[i, i] if _present(R[i, i]) else zero
    found = -(down @ inverse @ up.T)
    return _folded(0.5 * (found + found.T))


def _common_sign(operators: list[Operator]) -> float:
    """Sign of the diagonals of operators on one space each; 0 if they have none. Collective."""
    bounds = [0.0, 0.0]
    for B in operators:
        diagonal = B.space.memory.get(B.diagonal())
        ends = float(diagonal.max(initial=0.0)), float(-diagonal.min(initial=0.0))
        bounds = [max(old, B.space.comm.max(new)) for old, new in zip(bounds, ends, strict=True)]
    return 0.0 if bool(bounds[0]) == bool(bounds[1]) else 1.0 if bounds[0] else -1.0


def _complements(A: Operator) -> dict[str, list[_Schur]]:
    """Schur complements of the fields that are solved for first, by their names. Collective.

    A field is preferred that has no equation of its own, then one whose values test derivatives.
    """
    assert isinstance(A.space, Product)
    names, found, left = A.space.names, dict[str, list[_Schur]](), set[str]()
    ranked = sorted(names, key=lambda p: ((p, p) in A.pairs, not _tests_slopes(A, p)))
    for p in ranked:
        if p in left:
            continue
        others = [u for u in names if u != p and u not in found]
        read = [schur for u in others if (schur := _schur(A, u, p)) is not None]
        dim = A.space.spaces[p].dim
        alone = [schur for schur in read if len(schur.directions) == dim]
        partial = [schur for schur in read if len(schur.directions) < dim]
        if partial and len(frozenset[int]().union(*(s.directions for s in partial))) == dim:
            alone.append(reduce(_merged, partial))
        if alone:
            found[p] = alone
            left |= {u for schur in alone for u in schur.u}
    return {p: found[p] for p in names if p in found}


def _merged(a: _Schur, b: _Schur) -> _Schur:
    """Schur complement that two fields leave together, as components of a velocity do."""
    both = [{**a.parts}, {**b.parts}]
    parts = {n: reduce(add, [p[n] for p in both if n in p]) for n in {**both[0], **both[1]}}
    sign = a.sign if a.sign == b.sign else 0.0
    return _Schur(sign, a.u + b.u, a.directions | b.directions, parts, a.carried or b.carried)


def _tests_slopes(A: Operator, p: str) -> bool:
    """True if values of p test derivatives of another field."""
    return any(_has_slopes(A, p, u, 1) for test, u in A.pairs if test == p != u)


def _continuous(Q: Space) -> H1:
    """Continuous functions of the order of a discontinuous space, or of order 1."""
    return H1(Q.distributed or Q.mesh, max(Q.order, 1), device=Q.device)


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
class _Added(Preconditioner):
    """A number times the sum of products of maps, each applied from the last to the first."""

    _given_as = "femops.preconditioner(A)"

    def __init__(self, sign: float, products: list[list[Any]], A: Operator) -> None:
        self._sign, self._products = sign, products
        self.symmetric = all(len(maps) == 1 and maps[0].symmetric for maps in products)
        super().__init__(A.dtype, A.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        result[:] = 0.0
        for maps in self._products:
            found = x
            for one in reversed(maps):
                found = one @ found
            result += self._sign * found

    def _adjoint(self) -> Preconditioner:
        turned = [[one.T for one in reversed(maps)] for maps in self._products]
        return _Added(self._sign, turned, self._products[0][0])


@final
class _Transferred(Preconditioner):
    """Preconditioner of a space, for vectors of another space: its functions are projected."""

    _given_as = "femops.preconditioner(A)"

    def __init__(self, M: Preconditioner, into: Operator, inverse: Preconditioner) -> None:
        self._M, self._into, self._inverse = M, into, inverse
        super().__init__(M.dtype, inverse.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        coarse = self._M @ self._into.T.apply(self._inverse @ x)
        self._inverse.apply(self._into.apply(coarse), result)


def _outflow(A: Operator, fields: tuple[str, ...], p: str, Q: Space) -> NDArray[np.int64]:
    """Dofs of Q at the part of the boundary through which fields may flow. Collective.

    Either no component is given there, or constants of p do work on those that are free.
    """
    assert isinstance(A.space, Product)
    if not isinstance(Q, H1):
        return np.zeros(0, np.int64)
    edge, rng = Q.boundary_dofs(), np.random.default_rng(0)
    at, closed = np.zeros(Q.size), np.zeros(Q.size)
    P = A.space.spaces[p]
    ones: Any = P.interpolate(1.0).astype(A.dtype)
    for u in fields:
        U, B, memory = A.space.spaces[u], A[u, p], A.space.memory
        given = np.zeros(U.size)
        given[A.space.within(u, A.constrained_dofs)] = 1.0
        work, scale = np.zeros(U.size), np.zeros(U.size)
        if B is not None:
            work = abs(memory.get(B.apply(ones)))
            for _ in range(3):
                part = memory.put(rng.uniform(-1.0, 1.0, P.size).astype(A.dtype))
                scale = np.maximum(scale, abs(memory.get(B.apply(part))))
        flows = (work > 0.2 * scale) & (given == 0.0)
        nodes = given.reshape(-1, U.ncomp).max(axis=1), flows.reshape(-1, U.ncomp).max(axis=1)
        V = _scalar(U, U.order)
        held, free = (
            memory.get(Q.interpolate((V, memory.put(node.astype(float))))) for node in nodes
        )
        closed, at = np.maximum(closed, held), np.maximum(at, free)
    return edge[(closed[edge] < 0.5) | (at[edge] > 0.5)]


def _of_complement(A: Operator, p: str, seen: list[_Schur]) -> _Made:
    """Return a preconditioner of the Schur complement of p. Collective."""
    assert isinstance(A.space, Product)
    own, held = A[p, p], A.space.within(p, A.constrained_dofs)
    sign = seen[0].sign
    if not sign or any(schur.sign != sign for schur in seen):
        fields = ", ".join(u for schur in seen for u in schur.u)
        raise SolverError(f"{fields} leave {p} a Schur complement without a sign: give M")
    Q = A.space.spaces[p]
    if len(seen) == 1 and seen[0].carried and len(seen[0].u) == 1:
        (u,) = seen[0].u
        free = np.setdiff1d(_outflow(A, seen[0].u, p, Q), held)
        commuted = commutator(A, p, u, free)
        return _Made(commuted, f"a least-squares commutator of {u}: the Schur complement")
    whole, words, products = isinstance(Q, H1), list[str](), list[list[Any]]()
    main = []
    for schur in seen:
        if "mass" in schur.parts:
            main.append(schur.parts["mass"])
            words.append("mass / stiffness")
        elif whole:
            main.append(schur.parts["diffusion"])
            words.append("diffusion / density")
    if own is not None:
        main.append(_times(sign, own.unconstrained))
        words.append(f"the block of {p}")
    by = "multigrid"
    if main:
        made = _of_field(reduce(add, main).constrained(held))
        by = made.words
        products.append([made.M])
    for schur in seen:
        if "diffusion" in schur.parts and not whole:
            products += _discontinuous(A, schur, p)
            words.append("diffusion / density of continuous functions + jumps")
        elif {"mass", "diffusion"} <= schur.parts.keys():
            free = np.setdiff1d(_outflow(A, schur.u, p, Q), held)
            products.append([opened(schur.parts["diffusion"], held, free)])
            words.append("diffusion / density (Cahouet and Chabard)")
    text = f"{' + '.join(words)}, by {by}: the Schur complement"
    if len(products) == 1 and len(products[0]) == 1:
        M = products[0][0]
        return _Made(M if sign > 0.0 else -M, text)
    return _Made(_Added(sign, products, A[p, p] or _first(seen)), text)


def _first(seen: list[_Schur]) -> Operator:
    """An operator on the space of p."""
    parts = seen[0].parts
    return parts["mass"] if "mass" in parts else parts.get("jumps", parts["diffusion"])


def _discontinuous(A: Operator, schur: _Schur, p: str) -> list[list[Any]]:
    """Products that add up to the inverse of a diffusion of discontinuous functions. Collective.

    Continuous functions are the auxiliary space, and the diagonal blocks of elements smooth the
    jumps (J. Xu, "The auxiliary space method and optimal multigrid preconditioning techniques for
    unstructured grids", Computing 56, 1996).
    """
    assert isinstance(A.space, Product)
    Q, L = A.space.spaces[p], schur.parts["diffusion"]
    R, none = L.space, np.zeros(0, np.int64)
    assert isinstance(R, H1)
    inverse = block_jacobi(mass(Q, dtype=A.dtype))
    into = form(_values, R, test=Q, dtype=A.dtype)
    coarse = opened(L, none, _outflow(A, schur.u, p, R))
    jumps = block_jacobi(schur.parts["jumps"])
    return [[_Transferred(coarse, into, inverse)], [jumps]]


def _values(u: Any) -> dict[str, Any]:
    """Integrand of a mass between two spaces."""
    return {"value": u}


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
    (Cahouet and Chabard, 1988); if u has a density alone, as in Darcy's law, it is a diffusion. The
    block of p is added to it. If a velocity carries u, it is a least-squares commutator (Elman,
    Howle, Shadid, Shuttleworth and Tuminaro, 2006). The coefficients are those of the form, at the
    same points, or of several forms that are added. The components of u may be fields of their own.
    The other fields follow in their order, each by its own block.

    Unsymmetric products of few unknowns, such as linearised flow with inertia in 2-D, have factors.
    So have others of few unknowns that are not known, or whose fields are strongly coupled.

    It is made for the coefficients that A has now: make another one after ``A.update(...)``.

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
    try:
        found = _of_product(A, symmetric=symmetric)
    except SolverError as error:
        if symmetric or not _few(A):
            raise
        return Automatic(A, direct(A), {"": f"factors ({error})"})
    parts = {name: made.M for name, made in found.items()}
    words = {name: made.words for name, made in found.items()}
    if symmetric:
        positive = {name: -M if _negative(M) else M for name, M in parts.items()}
        return Automatic(A, BlockDiagonal(A.space, positive, A.dtype), words)
    M = BlockTriangular(A, parts)
    if _few(A) and not any("Schur" in why for why in words.values()) and _slow(A, M):
        return Automatic(A, direct(A), {"": "factors, as the coupling of the fields is strong"})
    return Automatic(A, M, words)


def _slow(A: Operator, M: Preconditioner) -> bool:
    """True if cycles of a preconditioner leave residuals that hardly fall. Collective."""
    sums, rng = Sums(A.space), np.random.default_rng(0)
    rest = A.apply(A.space.memory.put(rng.standard_normal(A.space.size).astype(A.dtype)))
    norms = [sums.norm(rest)]
    for _ in range(_CYCLES):
        rest = rest - A.apply(M @ rest)
        norms.append(sums.norm(rest))
    return not norms[-1] <= _FALLS * norms[-2]


def _of_product(A: Operator, *, symmetric: bool) -> dict[str, _Made]:
    """Preconditioner of each field, in the order of the solves. Collective."""
    assert isinstance(A.space, Product)
    names = A.space.names
    seen = _complements(A)
    found = {p: _of_complement(A, p, schurs) for p, schurs in seen.items()}
    for name in names:
        if name in seen:
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
            made = _Made(Inner(block, made.M), f"{made.words}, by some steps of gmres")
        found[name] = made
    return found


def _negative(M: Preconditioner) -> bool:
    return (isinstance(M, Scaled) and M.factor < 0.0) or (isinstance(M, _Added) and M._sign < 0.0)


def _auto(A: Operator, *, symmetric: bool = False) -> Preconditioner:
    """Return the preconditioner of A. Multigrid is returned as it is: `cg` has kernels for it."""
    found = preconditioner(A, symmetric=symmetric)
    return found.made if isinstance(found.made, Multigrid) else found


NAMED.update(auto=_auto, multigrid=multigrid, direct=direct, jacobi=jacobi)
