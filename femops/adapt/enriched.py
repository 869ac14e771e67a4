"""Equations and goals on other spaces of their mesh, in particular on spaces of a higher order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import grid_rule
from femops.errors import OperatorError
from femops.numbering import local_nodes, ternary_codes
from femops.operators import Functional, Operator, Residual
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.term import Term
from femops.parallel.comm import check
from femops.pointwise.sides import base_name
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.product import Product
from femops_common.arguments import shown
from femops_meshes.mesh import Mesh, check_cubes

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Load = Callable[[Any], Any]
AnySpace = Space | Product
_REMEDIES = {
    "load": "lambda V: femops.load(V, f)",
    "values": "lambda V: V.interpolate(g)",
}


@final
@dataclass(frozen=True, eq=False)
class Equation:
    """An equation F(u) = 0, or A u = b where a function gives b in any space."""

    form: Residual | Operator
    load: Load | None
    values: Load | None  # prescribed values in any space, or those of the solution

    @property
    def space(self) -> AnySpace:
        """Space of the solution."""
        space: AnySpace = self.form.space
        return space

    def residual(self, space: AnySpace, u: Vector) -> Vector:
        """Load less form at a vector of a space of the same mesh, tested with all its functions."""
        form = on_space(self.form, space)
        if isinstance(form, Residual):
            return -form.residual(u)
        result: Vector = -(form @ u)
        return result if self.load is None else result + vector_of(self.load, space, "the load")

    def jacobian(self, space: AnySpace, u: Vector) -> Operator:
        """Derivative on a space of the same mesh, without essential conditions."""
        form = on_space(self.form, space)
        return form.jacobian(u) if isinstance(form, Residual) else form


def equation_of(F: Any) -> Equation:
    """Check the equation that a user gives: a residual, or an operator and its load."""
    form, *rest = F if isinstance(F, tuple) and F else (F,)
    if not isinstance(form, Residual | Operator) or len(rest) > 1 + isinstance(form, Operator):
        raise OperatorError(
            f"the equation is {shown(F)}: give a residual F, an operator and a function of the "
            "space that returns the load, (A, lambda V: femops.load(V, f)), or one of these with a "
            "function that returns prescribed values, (F, values) or (A, load, values)"
        )
    if isinstance(form, Operator) and not rest:
        raise OperatorError(
            "an operator alone has no right-hand side: give (A, load), where load(V) returns the "
            "load in a space V, as lambda V: femops.load(V, f); lambda V: V.zeros() if there is "
            "none"
        )
    names = ["load", "values"] if isinstance(form, Operator) else ["values"]
    for name, one in zip(names, rest, strict=False):
        if not callable(one):
            raise OperatorError(
                f"{name} is {shown(one)}, but is needed in a space of a higher order too: give a "
                f"function of the space, as {_REMEDIES[name]}"
            )
    if form.dtype != np.float64:
        raise OperatorError("estimates are for float64: leave out dtype")
    check_host(form.space)
    given = dict(zip(names, rest, strict=False))
    return Equation(form, given.get("load"), given.get("values"))


def check_host(space: AnySpace) -> None:
    """Raise for spaces of devices, and on triangles and tetrahedra."""
    check_cubes(mesh_of(space), "femops.adapt", OperatorError)
    if any(one.device is not None for one in parts_of(space).values()):
        raise OperatorError("femops.adapt works on the host: make the space without device=")


def checked_vector(space: AnySpace, u: object, name: str = "u") -> Vector:
    """A vector (size,), checked on all ranks before they work together. Collective."""
    with check(space.comm):
        check_host(space)
        return np.asarray(space.check_vector(u, name), dtype=np.float64)


def vector_of(function: Load, space: AnySpace, what: str) -> Vector:
    """The vector that a user's function returns for a space."""
    return checked_vector(space, function(space), what).copy()


def parts_of(space: AnySpace) -> Mapping[str, Space]:
    """Spaces of the fields by name. The only field of a space has the name ""."""
    return space.spaces if isinstance(space, Product) else {"": space}


def mesh_of(space: AnySpace) -> Mesh:
    """Mesh of all fields."""
    return next(iter(parts_of(space).values())).mesh


def like(space: AnySpace, make: Callable[[Space], Space]) -> AnySpace:
    """Space, or product of spaces, made from each field's space."""
    if isinstance(space, Product):
        return Product(**{name: make(one) for name, one in space.spaces.items()})
    return make(space)


def enriched(space: AnySpace) -> AnySpace:
    """Space whose functions have an order more, by nodes."""
    return like(space, _richer)


def _richer(space: Space) -> Space:
    kind = H1 if space.continuous else L2
    return kind(space.distributed or space.mesh, space.order + 1, space.ncomp, "gll")


def broken(space: AnySpace) -> AnySpace:
    """Functions of a space of nodes that may jump between elements."""
    return like(space, lambda one: L2(one.distributed or one.mesh, one.order, one.ncomp, "gll"))


def embedded(V: AnySpace, u: Vector, W: AnySpace) -> Vector:
    """Vector of u, of a space V, in a larger space W of the same mesh."""
    if not isinstance(V, Product):
        assert isinstance(W, Space)
        return W.interpolate(GridFunction(V, u))
    assert isinstance(W, Product)
    fields = zip(W.spaces.values(), V.spaces.values(), V.split(u), strict=True)
    return np.concatenate([rich.interpolate(GridFunction(own, part)) for rich, own, part in fields])


def on_space(form: Any, space: AnySpace) -> Any:
    """The same integrals on another space of the mesh, without essential conditions.

    Rules, coefficients and states are kept, and nothing is traced again.
    """
    if isinstance(form, Functional):
        return on_space(form.derivative, space)
    if isinstance(form, Residual):
        parts = []
        for part in form.parts:
            twin = copy(part)
            twin.form, twin._setups = _moved(part.form, space), {}
            for name in ("term", "_derivative"):
                twin.__dict__.pop(name, None)
            parts.append(twin)
        return Residual(space, form.dtype, parts)
    terms = []
    for factor, term in form.summands:
        if term.original is not None:
            raise OperatorError(f"{form!r} is a transpose: write it as a form of its own")
        moved = replace(_moved(term.source, space), traced=term.source.qfunction)
        terms.append((factor, Term.make(moved, form.dtype, None, "partial").ready("partial")))
    return Operator(terms)


def _moved(form: Integral, space: AnySpace) -> Integral:
    """The integral with fields and test functions of another space."""
    if not form.fields.same(form.tests) and form.fields.whole is not form.tests.whole:
        raise OperatorError(f"{form.name} maps between two spaces: it is no equation")
    highest = max(one.order for one in parts_of(space).values())
    rule = grid_rule(form.quadrature, "an enriched solution")
    if rule.q1d <= highest:
        raise OperatorError(
            f"{form.name} is integrated with {rule.q1d} points in each direction, but "
            f"functions of order {highest} need {highest + 1}: leave out quadrature="
        )
    return replace(
        form, fields=_on(form.fields, space), tests=_on(form.tests, space), traced=form.traced
    )


def _on(arguments: Arguments, space: AnySpace) -> Arguments:
    volumes = parts_of(space)
    spaces = {
        name: one.on(volumes[base_name(name)] if arguments.on_product else volumes[""])
        for name, one in arguments.spaces.items()
    }
    return Arguments(spaces, space)


def essential(form: Residual | Operator, W: AnySpace) -> Ints:
    """Positions of a richer space's dofs that are constrained as those of the form's space are."""
    held = np.zeros(form.space.size, dtype=np.bool_)
    held[form.constrained_dofs] = True
    found, start, first = [], 0, 0
    for name, V in parts_of(form.space).items():
        rich = parts_of(W)[name]
        flags = _held(V, held[start : start + V.size].reshape(V.ndofs, V.ncomp), rich)
        found.append(first + np.flatnonzero(flags))
        start, first = start + V.size, first + rich.size
    return np.concatenate(found)


def _held(V: Space, held: Flags, W: Space) -> Flags:
    """True (ndofs, ncomp) at nodes of W inside entities all of whose nodes in V are constrained.

    An edge or face without nodes of its own in V counts as constrained if it is on the outer
    boundary, and the nodes at its ends are constrained.
    """
    if not V.comm.max(int(held.any())) or not V.continuous:
        return np.zeros((W.ndofs, W.ncomp), dtype=np.bool_)
    outside = np.zeros(W.ndofs, dtype=np.bool_)
    outside[W.boundary_dofs(components=0) // W.ncomp] = True
    of_nodes: NDArray[Any] = V.restriction.entries(with_ghosts(V, held))
    is_outside: NDArray[Any] = W.restriction.entries(with_ghosts(W, outside))
    flags = np.zeros((V.mesh.num_elements, W.restriction.num_nodes, W.ncomp), dtype=np.bool_)
    for _, digits in ternary_codes(V.dim):
        own, inside = local_nodes(digits, V.order), local_nodes(digits, W.order)
        nodes = own if len(own) else local_nodes(digits, V.order, closed=True)
        whole: NDArray[Any] = np.asarray(of_nodes[:, nodes].all(axis=1, keepdims=True))
        if not len(own):
            outer: NDArray[Any] = np.asarray(is_outside[:, inside].all(axis=1))
            whole &= outer[:, np.newaxis, np.newaxis]
        flags[:, inside] = whole
    found = W.restriction.marked(flags)
    if W.halo is None:
        return found
    own = found[: W.ndofs].astype(np.int64)
    W.halo.reverse_add(found[W.ndofs :].astype(np.int64), own)
    return own > 0


def with_ghosts(V: Space, table: NDArray[Any]) -> NDArray[Any]:
    """Append the rows of ghosts to a table (ndofs, ...) of the dofs that this rank owns."""
    return table if V.halo is None else np.concatenate([table, V.halo.forward(table)])
