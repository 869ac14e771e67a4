"""Transfer of fields between meshes of one tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.adapt.enriched import AnySpace, check_host, checked_vector, parts_of
from femops.adapt.solving import solved
from femops.basis import Basis1D
from femops.errors import SpaceError
from femops.forms import load, mass
from femops.parallel.comm import check_same, gathered
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import L2
from femops.spaces.product import Product
from femops_common.arguments import checked
from femops_meshes.forest import Forest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vector = NDArray[np.float64]


@checked(SpaceError)
def transfer(
    u: Vector,
    V_from: Space | Product,
    V_to: Space | Product,
    *,
    how: Literal["projection", "nodal"] = "projection",
) -> Vector:
    """Transfer a field to a space on another mesh that was refined or coarsened from the same one.

    Elements of one tree lie in one another, whatever the shape of the domain, so nothing is
    searched, and a field is exact wherever the new mesh is not coarser, and the order not lower.

    Parameters
    ----------
    u : (V_from.size,) array
    V_from : Space or Product
    V_to : Space or Product
        Space of any order and kind, with as many components. Products have the same names.
    how : {"projection", "nodal"}
        Where the new space does not contain the field: the L2 projection, which keeps integrals, or
        the values at the new nodes, which keeps values at the boundary. Where the field jumps
        between elements, a node that these share has the mean of their values, without elements
        that are smaller than a neighbour there.

    Returns
    -------
    (V_to.size,) array

    Raises
    ------
    SpaceError
        If the meshes are not of one tree, or components differ.

    Examples
    --------
    >>> import numpy as np, femops
    >>> mesh = femops.box((4, 4))
    >>> fine = mesh.refined([0, 5])
    >>> V, W = femops.H1(mesh, order=2), femops.H1(fine, order=2)
    >>> u = V.interpolate(lambda x: x[0] * x[1])
    >>> w = femops.adapt.transfer(u, V, W)
    >>> bool(np.allclose(w, W.interpolate(lambda x: x[0] * x[1])))
    True
    >>> bool(np.allclose(femops.adapt.transfer(w, W, V), u))
    True
    """
    u = checked_vector(V_from, u)
    check_host(V_to)
    check_same(V_to.comm, "femops.adapt.transfer", {"how": how})
    if not isinstance(V_from, Product) and not isinstance(V_to, Product):
        return _transferred(u, V_from, V_to, how)
    old, new = parts_of(V_from), parts_of(V_to)
    if old.keys() != new.keys() or not isinstance(V_from, Product):
        raise SpaceError(
            f"the fields are {', '.join(old) or 'one'} and {', '.join(new) or 'one'}: give "
            "products of spaces with the same names"
        )
    fields = zip(old.values(), V_from.split(u), new.values(), strict=True)
    return np.concatenate([_transferred(part, V, W, how) for V, part, W in fields])


def _transferred(u: Vector, V: Space, W: Space, how: str) -> Vector:
    """The field of a space V in a space W."""
    if V.ncomp != W.ncomp:
        raise SpaceError(f"the field has {V.ncomp} component(s), the new space {W.ncomp}")
    if V.mesh is W.mesh and V.element is W.element and V.continuous == W.continuous:
        return u.copy()
    if (V.distributed is None) != (W.distributed is None) or V.comm.size != W.comm.size:
        raise SpaceError("ranks share one of the two meshes: share both, by femops.distribute")
    pairs = Pairs.of((V.distributed or V.mesh).trees, (W.distributed or W.mesh).trees)
    moved = _Moved(pairs, V, W)
    values = V.element_vector(V.l_vec(u), slice(None))
    values = values.reshape(*values.shape[:2], V.ncomp)
    values = moved(values)
    nodal = _nodal(values, V, W, moved.pairs)
    result = _meeting(W, nodal) if W.continuous and not V.continuous else _assigned(W, nodal)
    contained = not len(pairs.source) and V.order <= W.order
    if how == "nodal" or (contained and (V.continuous or not W.continuous)):
        return result
    b = _load(u, values, V, W, moved)
    A = mass(W, quadrature=_exact(V, W))
    # the nodal values are near the solution, so a correction is solved for
    correction, _ = solved(A, b - A @ result, "cg", "jacobi", 1e-12)
    return result + correction


@final
@dataclass(frozen=True)
class Pairs:
    """Elements of two meshes of one tree that lie in one another."""

    dim: int
    # elements of the new mesh that lie in one of the old mesh, and that element
    inside: Ints
    around: Ints
    levels: Ints  # number of halvings between them
    path: Ints  # the children that lead from the old to the new element, as in `Forest`
    # elements of the old mesh that are smaller than the one of the new mesh in which they lie
    source: Ints
    target: Ints
    source_levels: Ints
    source_path: Ints

    @staticmethod
    def of(one: Forest, other: Forest) -> Pairs:
        """Find the pairs of an old and a new mesh."""
        if one.roots.shape != other.roots.shape or not np.array_equal(one.roots, other.roots):
            raise SpaceError(
                "the meshes are not of one tree: both have to be made from one mesh by refined, "
                "coarsened or refine; V.interpolate((V_from, u)) takes fields of other meshes"
            )
        at = _containing(one, other)
        fits = one.level[at] <= other.level
        inside = np.flatnonzero(fits)
        around = at[inside]
        back = _containing(other, one)
        source = np.flatnonzero(other.level[back] < one.level)
        target = back[source]
        return Pairs(
            one.dim,
            inside,
            around,
            *_way(one, around, other, inside),
            source,
            target,
            *_way(other, target, one, source),
        )


@final
class _Moved:
    """Brings rows of elements of an old mesh to the ranks of a new mesh that need them.

    `pairs`: those of this rank's elements. `around` and `source` are places in the rows that this
    rank gets, which are all rows in one process.
    """

    def __init__(self, pairs: Pairs, V: Space, W: Space) -> None:
        self.pairs, self._comm = pairs, V.comm
        if V.distributed is None or W.distributed is None:
            self._send = None
            return
        mine = np.full(W.distributed.num_elements, -1)
        own = W.distributed.part.elements
        mine[own] = np.arange(len(own))
        inside, target = (np.flatnonzero(mine[of] >= 0) for of in (pairs.inside, pairs.target))
        wanted = np.unique(np.concatenate([pairs.around[inside], pairs.source[target]]))
        self.pairs = Pairs(
            pairs.dim,
            mine[pairs.inside[inside]],
            np.searchsorted(wanted, pairs.around[inside]),
            pairs.levels[inside],
            pairs.path[inside],
            np.searchsorted(wanted, pairs.source[target]),
            mine[pairs.target[target]],
            pairs.source_levels[target],
            pairs.source_path[target],
        )
        held, counts = (
            V.distributed.part.elements,
            V.comm.gather_all(np.array([V.mesh.num_elements])),
        )
        owner = np.empty(V.distributed.num_elements, dtype=np.int64)
        owner[gathered(V.comm, held)] = np.repeat(np.arange(V.comm.size), counts[:, 0])
        self._receive = {
            int(rank): np.flatnonzero(owner[wanted] == rank) for rank in np.unique(owner[wanted])
        }
        asked = V.comm.exchange({rank: wanted[at] for rank, at in self._receive.items()})
        self._send = {rank: np.searchsorted(held, numbers) for rank, numbers in asked.items()}

    def __call__(self, table: Floats) -> Floats:
        """Rows of a table (ne, ...) of the old mesh's elements. Collective."""
        if self._send is None:
            return table
        arrived = self._comm.exchange({rank: table[rows] for rank, rows in self._send.items()})
        result = np.empty((sum(map(len, self._receive.values())), *table.shape[1:]))
        for rank, places in self._receive.items():
            result[places] = arrived[rank]
        return result


def _containing(old: Forest, new: Forest) -> Ints:
    """Old leaf (ne,) that contains the low corner of each new leaf."""
    depth = max(old.depth, new.depth)
    first = [one.path << one.dim * (depth - one.level.astype(np.int64)) for one in (old, new)]
    count = len(first[0])
    is_new = np.arange(count + len(first[1])) >= count
    roots = np.concatenate([old.root, new.root])
    order = np.lexsort((is_new, np.concatenate(first), roots))
    place = np.where(is_new[order], -1, np.arange(len(order)))
    last = order[np.maximum.accumulate(place)]
    result = np.empty(len(first[1]), dtype=np.int64)
    result[order[is_new[order]] - count] = last[is_new[order]]
    return result


def _way(coarse: Forest, outer: Ints, fine: Forest, inner: Ints) -> tuple[Ints, Ints]:
    """Halvings (n,) between leaves, and the children on the way."""
    levels = fine.level[inner].astype(np.int64) - coarse.level[outer]
    return levels, fine.path[inner] & ((1 << fine.dim * levels) - 1)


@final
@dataclass(frozen=True, eq=False)
class _Places:
    """Where smaller elements (n,) lie in larger ones."""

    dim: int
    levels: Ints
    path: Ints

    @cached_property
    def offsets(self) -> Ints:
        """Number (dim, n) of small elements below, in each direction."""
        result = np.zeros((self.dim, len(self.path)), dtype=np.int64)
        for level in range(int(self.levels.max(initial=0))):
            child = self.path >> self.dim * level
            for d in range(self.dim):
                result[d] |= (child >> d & 1) << level
        return result

    def matrices(self, basis: Basis1D, points: Floats) -> list[Floats]:
        """For each direction, matrices (n, k, p + 1) from a basis of the large to points (k,)."""
        found = []
        for offset in self.offsets:
            keys, which = np.unique(np.stack([self.levels, offset]), axis=1, return_inverse=True)
            each = [basis.interpolation((points + k) / 2.0**level) for level, k in keys.T]
            table = np.stack(each) if each else np.zeros((0, len(points), basis.p + 1))
            found.append(table[which.reshape(-1)])
        return found


def _applied(matrices: list[Floats], values: Floats) -> Floats:
    """Apply a matrix (n, k, m) in each direction to values (n, m**dim, ncomp)."""
    count, _, ncomp = values.shape
    dim = len(matrices)
    data = values.reshape(count, *[one.shape[2] for one in reversed(matrices)], ncomp)
    for d, one in enumerate(matrices):
        turned = np.moveaxis(data, dim - d, 1)
        shape = turned.shape[2:]
        product = one @ turned.reshape(*turned.shape[:2], math.prod(shape))
        data = np.moveaxis(product.reshape(count, one.shape[1], *shape), 1, dim - d)
    return np.ascontiguousarray(data).reshape(count, math.prod(data.shape[1:-1]), ncomp)


def _nodal(values: Floats, V: Space, W: Space, pairs: Pairs) -> Floats:
    """Values (ne, nodes, ncomp) at the nodes of W's elements."""
    nodes = W.basis.nodes
    result = np.empty((W.mesh.num_elements, len(nodes) ** W.dim, W.ncomp))
    places = _Places(pairs.dim, pairs.levels, pairs.path)
    result[pairs.inside] = _applied(places.matrices(V.basis, nodes), values[pairs.around])
    if not len(pairs.source):
        return result
    # a smaller element of the old mesh has some of the nodes of the larger one
    small = _Places(pairs.dim, pairs.source_levels, pairs.source_path)
    size = 2.0 ** small.levels[:, np.newaxis]
    matrices, has = [], np.ones((len(size), 1), dtype=np.bool_)
    for offset in small.offsets:
        local = nodes * size - offset[:, np.newaxis]
        here = (local > -_EPS) & (local < 1.0 + _EPS)
        flat = V.basis.interpolation(np.clip(local, 0.0, 1.0).reshape(-1))
        matrices.append(flat.reshape(*local.shape, V.order + 1))
        has = (here[:, :, np.newaxis] & has[:, np.newaxis]).reshape(len(size), -1)
    found = _applied(matrices, values[pairs.source])
    row, node = np.nonzero(has)
    result[pairs.target[row], node] = found[row, node]
    return result


_EPS = 1e-12


def _assigned(W: Space, nodal: Floats) -> Vector:
    """Vector of W with nodal values (ne, nodes, ncomp) in elements, which agree where they meet."""
    shape = nodal.shape[:2] + (() if W.ncomp == 1 else (W.ncomp,))
    e_vec = W.element.from_nodal(nodal.reshape(shape))
    return np.ascontiguousarray(W.owned_rows(W.restriction.assigned(e_vec))).reshape(-1)


def _meeting(W: Space, nodal: Floats) -> Vector:
    """Vector of W with the means of nodal values (ne, nodes, ncomp) in elements. Collective."""
    shape = nodal.shape[:2] + (() if W.ncomp == 1 else (W.ncomp,))
    e_vec, parts = W.element.from_nodal(nodal.reshape(shape)), np.ones(shape)
    if W.restriction.free is not None:
        parts[~W.restriction.free] = 0.0
    return np.asarray(W.sum_elements(parts * e_vec) / W.sum_elements(parts))


def _exact(V: Space, W: Space) -> int:
    """Points of a rule that integrates products of functions exactly, on curved elements too."""
    return max(V.order, W.order) + 1 + (V.dim * V.mesh.order + 1) // 2


def _load(u: Vector, values: Floats, V: Space, W: Space, moved: _Moved) -> Vector:
    """Integrals (size,) of the field times the functions of W."""
    pairs, mesh = moved.pairs, W.distributed or W.mesh
    whole, rule = L2(mesh, max(V.order, W.order), W.ncomp), _exact(V, W)
    inside = np.zeros((W.mesh.num_elements, whole.element.size, W.ncomp))
    places = _Places(pairs.dim, pairs.levels, pairs.path)
    inside[pairs.inside] = _applied(
        places.matrices(V.basis, whole.basis.nodes), values[pairs.around]
    )
    tests: Any = L2(mesh, W.order, W.ncomp, W.basis.family)
    field = GridFunction(whole, inside.reshape(-1))
    local = load(tests, field, quadrature=rule)
    local = local.reshape(len(inside), W.element.size, W.ncomp)
    if V.comm.max(len(pairs.source)):
        small: Any = L2(V.distributed or V.mesh, W.order, W.ncomp, W.basis.family)
        each = load(small, GridFunction(V, u), quadrature=rule)
        each = each.reshape(V.mesh.num_elements, W.element.size, W.ncomp)
        each = moved(each)[pairs.source]
        parts = _Places(pairs.dim, pairs.source_levels, pairs.source_path)
        basis = W.basis
        turn = [basis.from_nodal @ one for one in parts.matrices(basis, basis.nodes)]
        np.add.at(local, pairs.target, _applied([one.swapaxes(1, 2) for one in turn], each))
    shape = local.shape[:2] + (() if W.ncomp == 1 else (W.ncomp,))
    return W.sum_elements(local.reshape(shape))


__all__ = ["AnySpace", "transfer"]
