"""Base class of finite element spaces: vectors, and the functions that they represent."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast, final, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import (
    MOST_POINTS,
    Basis1D,
    Family,
    Points,
    Quadrature1D,
    Rule,
    gauss,
    rule_of,
    whole_number,
)
from femops.element import Element, LagrangeElement, tensor_element
from femops.errors import SpaceError
from femops.geometry.boundary import Attributes, chosen
from femops.geometry.domain import element_blocks
from femops.geometry.jacobians import Geometry, LegendreGeometry, cells, physical_gradient
from femops.numbering import Dofs, distinct
from femops.parallel.comm import communicator, warn_of_copies
from femops.parallel.halo import Halo
from femops.parallel.mesh import DistributedMesh
from femops.parallel.numbering import RankNumbering
from femops.spaces.domain_space import DomainSpace
from femops.spaces.functions import Function, Predicate, evaluate, parts_of
from femops.spaces.hanging import hanging_nodes
from femops.spaces.interpolation import values_of_field
from femops.spaces.memory import DeviceLike, Memory, check_shape, find_memory
from femops.spaces.restriction import ElementRestriction, Vector, check_float_array, check_size
from femops.spaces.vectors import by_components, float64_or_complex, zeros
from femops_common import html
from femops_common.arguments import checked, names_checked, whole_numbers
from femops_common.hints import did_you_mean
from femops_kernels.device import Device
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.hanging import nodal_halves
from femops_meshes.coordinates.mapping import equispaced, positions
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.names import with_numbers
from femops_meshes.topology.entities import Cell

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def one_line(space: Any) -> str:
    """One line of text that describes a space, its ``repr``."""
    comm = space.comm
    whole = f", of {space.global_ndofs} on {comm.size} ranks" if comm.size > 1 else ""
    whole += f", vectors of {space.size}" if space.ncomp > 1 else ""
    return (
        f"{type(space).__name__}(order={space.order}, ncomp={space.ncomp}, "
        f"family={space.families!r}: {space.mesh.num_elements} elements in {space.dim}-D, "
        f"{space.ndofs} dofs{whole})"
    )


def field_table(field: Any) -> str:
    """HTML table that describes a GridFunction."""
    space, vector = field.space, field.vector
    rows = [("space", repr(space)), ("type", str(vector.dtype))]
    if space.size:
        values = space.components(vector)
        columns = zip(values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
        ranges = [f"{low:.6g} to {high:.6g}" for low, high in columns]
        nodal = all(part.element.is_nodal for part in space.parts)
        rows.append(("nodal values" if nodal else "coefficients", ", ".join(ranges)))
    return html.table("GridFunction", rows)


def as_table(space: Any) -> str:
    """HTML table that describes a space."""
    shape = space.mesh.plural if space.mixed else space.mesh.cell.plural
    rows = [
        ("order", f"{space.order}, basis {space.families}"),
        ("mesh", f"{space.mesh.num_elements} {shape} of degree {space.mesh.order}"),
        ("dofs", f"{space.ndofs:,} of {space.ncomp} component(s): vectors of {space.size:,}"),
        ("vectors on", space.memory.name),
    ]
    if space.comm.size > 1:
        rows.append(("ranks", f"{space.comm.size}, of all {space.global_ndofs:,} dofs"))
    return html.table(f"{type(space).__name__} space", rows)


def dofs_of_elements(
    space: Any, attributes: Attributes, components: int | Iterable[int] | None
) -> Ints:
    """See `Space.element_dofs`. Collective."""
    local, whole = space.mesh, space.distributed
    names = local.element_names if whole is None else whole.element_names
    everywhere = local.element_attributes if whole is None else whole.whole_element_attributes
    have = [*names, *np.unique(everywhere).tolist()]
    asked = with_numbers(attributes, names)
    numbers = chosen(asked, have, "element attribute", "mesh", local.boundary_names, "faces")
    picked = chosen(components, list(range(space.ncomp)), "component", "space")
    listed = [
        part.restriction.indices[np.isin(part.mesh.element_attributes, numbers)].ravel()
        for part in space.parts
    ]
    nodes = np.unique(np.concatenate(listed))
    if space.halo is not None:  # elements of other ranks have nodes that this rank owns
        nodes = space.halo.marked(nodes)
    return np.asarray(np.add.outer(nodes * space.ncomp, picked).ravel())


def simplex_rule_for(cell: Cell, rule: int | Rule, order: int) -> Rule:
    """Check a rule of simplices or of their faces, or make one for degree 2 ``rule`` - 1."""
    if isinstance(rule, Rule):
        rule.check_cell(cell)
    n = rule.q1d if isinstance(rule, Quadrature1D) else rule
    if isinstance(n, Rule):
        return n
    if n <= order:
        raise SpaceError(
            f"a rule for degree {2 * n - 1} cannot integrate order {order}: "
            f"use at least {order + 1}, for degree {2 * order + 1}"
        )
    return rule if isinstance(rule, Rule) else rule_of(cell, n)


_MOST_SIMPLEX_ORDER = 8
_OF_PARTS = "basis", "domain", "element", "p1d", "restriction", "tensor"
"""Attributes that a space on a mesh of several shapes leaves to its parts."""


def _simplex_order(order: int, family: Family) -> int:
    """Return the order of a space on triangles or tetrahedra, or raise if there is none such."""
    if order > _MOST_SIMPLEX_ORDER:
        raise SpaceError(
            f"spaces on triangles, tetrahedra and prisms have order {_MOST_SIMPLEX_ORDER} at most, "
            f"got {order}"
        )
    if family not in ("gll", "gauss"):
        raise SpaceError(
            "spaces on triangles, tetrahedra and prisms have functions by nodes, no "
            f"{family!r} basis: leave out family"
        )
    return order


AnyMesh = Mesh | DistributedMesh
SpaceMesh = AnyMesh | MixedMesh
BoundaryPart = Attributes | Predicate


class Space(DomainSpace, ABC):
    """Base class of H1 and L2.

    Attributes
    ----------
    mesh : Mesh or MixedMesh
        The mesh, or this rank's part of a distributed mesh.
    mixed : bool
        Whether the mesh has elements of several shapes, or prisms.
    parts : tuple of Space
        On such a mesh a space on each part, whose vectors are those of the whole space; else the
        space itself. Only parts have `basis`, `p1d`, `quadrature` and `restriction`.
    device : Device or None
        Device that stores the vectors; None for the host.
    memory : Memory
        Memory that stores the vectors, with its operations on arrays.
    reproducible : bool
        Whether a device adds in the order of the elements, as the host always does.
    any_width : bool
        Whether the bits of results on the host do not depend on the number of lanes.
    distributed : DistributedMesh or None
        The mesh of all ranks; None if the mesh is not distributed.
    comm : Communicator
        The ranks that hold the space; this process alone if its mesh is not distributed.
    order : int
        Polynomial degree p in each direction.
    ncomp : int
        Number of components.
    dim : int
        Dimension of the mesh.
    basis : Basis1D
    p1d : int
        Dofs of an element in each direction, p + 1.
    ndofs : int
        Number of nodes that this rank owns, each with `ncomp` entries in a vector.
    global_ndofs, first_dof : int
        Number of nodes on all ranks, and on the ranks below this one.
    size, global_size : int
        Length of this rank's vector, ndofs * ncomp, and of the vector of all ranks.
    shape : (size,)
        Shape of a vector; see `components`.
    restriction : ElementRestriction
        Map between l_vec and e_vec, (ne, p1d**dim) or (ne, p1d**dim, ncomp). Its `indices` are
        int64, C-contiguous, lexicographic in an element (x fastest). Numbers from `ndofs` on are
        ghosts, which other ranks own.
    halo : Halo or None
        Ranks that have ghosts, and these ghosts. None if no ranks share dofs.
    numbering : RankNumbering or None
        Global numbers of this rank's dofs; None if the mesh is not distributed.
    """

    reproducible: bool = False
    hangs: bool
    first_dof: int
    global_ndofs: int
    global_size: int
    continuous: ClassVar[bool]
    _given_as = "a space, as femops.H1(mesh, order)"

    def __init__(
        self, mesh: SpaceMesh, order: int, ncomp: int, family: Family, device: DeviceLike = None
    ) -> None:
        self.distributed, self.comm = None, communicator()
        if isinstance(mesh, DistributedMesh):
            self.distributed, self.comm, mesh = mesh, mesh.comm, mesh.mesh
        else:
            warn_of_copies()
        self.any_width = self.distributed is not None and self.distributed.reproducible
        self.memory: Memory = find_memory(device, self.comm)
        self.mesh, self.dim = cast(Mesh, mesh), int(mesh.dim)
        self.mixed = isinstance(mesh, MixedMesh)
        what, smallest = f"the order of an {type(self).__name__} space", self._lowest_order(family)
        self.order = whole_number(order, smallest, what, SpaceError)
        self.ncomp = whole_number(ncomp, 1, "the number of components", SpaceError)
        check_size(mesh.num_elements, self.order, self.dim, self.ncomp)
        self._trailing = () if self.ncomp == 1 else (self.ncomp,)
        if self.mixed and self.device is not None and self.distributed is not None:
            raise SpaceError(
                "ranks with a device each do not take meshes of several shapes, or of prisms, yet: "
                "leave device= out, or take one rank"
            )
        self.parts: tuple[Space, ...] = self._on_parts()
        for part in self.parts:
            part.domain = cells(part.mesh, covers=len(self.parts) == 1)
            part.element = part._element(family)
        self._number()
        if self.signed and self.device is not None:
            raise SpaceError("elements with signs have no kernels on a device: leave out device")
        hanging = any(part.restriction.hanging is not None for part in self.parts)
        if self.continuous and not self.mesh.conforming and not hanging:
            raise SpaceError(
                f"{type(self).__name__} would jump at the hanging nodes of a locally refined mesh: "
                "take femops.H1, an L2 space, or a mesh that conforms"
            )

    def _on_parts(self) -> tuple[Space, ...]:
        """Spaces on the parts of a mesh of several shapes, whose dofs are still to be numbered."""
        if not self.mixed:
            return (self,)
        whole: Any = self.distributed or self.mesh
        made = []
        for one in whole.parts:
            part = copy.copy(self)
            part._whole, part.mixed, part.parts, part.mesh = self, False, (part,), one
            if self.distributed is not None:
                part.distributed, part.mesh = one, one.mesh
            made.append(part)
        return tuple(made)

    def _number(self) -> None:
        """Number the dofs, on many ranks those of all ranks.

        Parts of a mesh follow each other. Each has the dofs that no earlier part has.
        """
        mesh = self.distributed
        if mesh is None:
            restrictions = self._restrictions()
            hangs = restrictions[0].hanging is not None
            numbers, halo = cast("RankNumbering | None", None), cast("Halo | None", None)
            first, count = 0, restrictions[0].ndofs
        else:
            for part in self.parts:
                LegendreGeometry.agree(part.mesh, mesh.comm)
            numbers = self._rank_numbering(mesh)
            restrictions = self._restricted(numbers.dofs, numbers.ndofs, numbers.owned)
            halo, hangs = Halo(numbers, mesh.comm), restrictions[0].hanging is not None
            ghosts, hanging = mesh.comm.max(np.array([halo.ghosts, int(hangs)])).tolist()
            halo, hangs = halo if ghosts else None, bool(hanging)
            first, count = int(numbers.offsets[mesh.comm.rank]), int(numbers.offsets[-1])
        for part, restriction in zip(self.parts, restrictions, strict=True):
            part.restriction = restriction
        for one in dict.fromkeys((self, *self.parts)):
            one.numbering, one.halo, one.hangs = numbers, halo, hangs
            one.ndofs, one.first_dof, one.global_ndofs = restrictions[0].owned, first, count
            one.size, one.global_size = one.ndofs * one.ncomp, count * one.ncomp
            one.shape = (one.size,)

    def _restricted(
        self, dofs: Sequence[Dofs], ndofs: int, owned: int | None = None
    ) -> list[ElementRestriction]:
        """Restrictions of the parts to the space's dofs. This rank owns the first ones."""
        found = []
        for part, each in zip(self.parts, dofs, strict=True):
            each.indices.setflags(write=False)  # a restriction copies what may change
            hanging = hanging_nodes(part, part.mesh)
            more = owned, each.flipped, hanging, each.first
            found.append(ElementRestriction(each.indices, ndofs, *more))
        return found

    def _element(self, family: Family) -> Element:
        """Element of the space."""
        cell = self.mesh.cell
        if not cell.cube:
            return LagrangeElement(cell, _simplex_order(self.order, family), closed=self.continuous)
        return tensor_element(Basis1D(family, self.order), self.dim, closed=self.continuous)

    @property
    def device(self) -> Device | None:
        """Device that stores the vectors; None for the host."""
        return self.memory.device

    @property
    def family(self) -> Family:
        """Basis: "gll", "gauss", "bernstein" or "hermite"; see `Basis1D`.

        On triangles and tetrahedra it is "gll", the nodes on edges.
        """
        first = self.parts[0]
        return first.basis.family if first.mesh.cell.cube else "gll"

    @property
    def families(self) -> str:
        """Names of the bases of all directions, or "tables"; on simplices as `family`."""
        if len(self.parts) > 1 or not self.parts[0].mesh.cell.cube:
            return ", ".join(dict.fromkeys(part.family for part in self.parts))
        bases = getattr(self.element, "bases", ())
        return ", ".join(dict.fromkeys(basis.family for basis in bases)) or "tables"

    if not TYPE_CHECKING:  # type checkers would think that any attribute exists

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names a similar attribute, or says which spaces have it."""
            if self.__dict__.get("mixed") and name in _OF_PARTS:
                raise AttributeError(
                    f"a space on a mesh of several shapes has no {name!r}: V.parts are spaces on "
                    "meshes of one shape, which have it"
                )
            names = [known for known in {*vars(self), *dir(type(self))} if known[0] != "_"]
            hint = "" if name.startswith("_") else did_you_mean(name, sorted(names), 0.75)
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    @property
    def has_ends(self) -> bool:
        """True if functions on a face are determined by nodes on the face."""
        return self.basis.family != "gauss" if self.mesh.cell.cube else self.order > 0

    @property
    def at_gll_nodes(self) -> bool:
        """True if coefficients are values at nodes of Gauss and Lobatto, or those of simplices."""
        if self.mixed:
            return all(part.at_gll_nodes for part in self.parts)
        return not self.mesh.cell.cube or self.basis.family == "gll"

    volume = property(lambda self: self)
    _whole: Space | None = None

    @property
    def whole(self) -> Space:
        """Space of a mesh of several shapes of which this is a part; else the space itself."""
        return self if self._whole is None else self._whole

    @property
    def touched(self) -> int:
        if self._whole is None:
            return self.ndofs
        return len(distinct(self.restriction.indices.reshape(-1)))

    @property
    def signed(self) -> bool:
        """True if elements have minus some dofs."""
        return any(part.restriction.flipped is not None for part in self.parts)

    have_slopes = True

    def with_slopes(self, slopes: bool) -> Space:  # noqa: ARG002  (elements have derivatives)
        """Return the space itself. Its functions always have derivatives."""
        return self

    def on(self, volume: Space) -> Space:
        """Return the space ``volume``, or the part of it on the same elements."""
        whole = self.whole
        return volume if whole is self else volume.whole.parts[whole.parts.index(self)]

    @abstractmethod
    def _lowest_order(self, family: Family) -> int:
        """Lowest order that the space can have with a basis family."""

    @abstractmethod
    def _restrictions(self) -> list[ElementRestriction]:
        """Number the dofs, and return the restriction of each part."""

    @abstractmethod
    def _rank_numbering(self, mesh: DistributedMesh) -> RankNumbering:
        """Number the dofs of this rank's elements."""

    @abstractmethod
    def file_dofs(self) -> Ints:
        """Number (ndofs,) of each node in the numbering of the mesh's file: a permutation.

        `femops_meshes.write_mfem` writes this file, also for a refined mesh (details: `H1`). For a
        vector ``u``, ``in_file[V.file_dofs()] = V.components(u)`` sets an array (ndofs, ncomp) in
        the order of MFEM's grid functions. ``u = in_file[V.file_dofs()].reshape(-1)`` goes back.
        """

    @abstractmethod
    def boundary_dofs(
        self,
        attributes: BoundaryPart = None,
        components: int | Iterable[int] | None = None,
        where: Predicate | None = None,
    ) -> Ints:
        """Flat positions (k,) of the dofs on the boundary, for essential conditions.

        Parameters
        ----------
        attributes : "all", int, name, or several, optional
            Boundary attributes, or names of ``mesh.boundary_names``. By default all outer faces:
            those of one element, listed or not. A callable is taken as `where`.
        components : int or ints, optional
            Components to select. By default all.
        where : callable, optional
            Predicate that selects nodes by position. It takes the positions x (dim, n) of the nodes
            on these faces (see `dof_coordinates`), and returns n booleans.

        Returns
        -------
        (k,) int64
            Ascending indices into a vector, node * ncomp + component.

        Raises
        ------
        SpaceError
            If the mesh has no such attribute, the space has no such component, the predicate is
            true nowhere or does not return n booleans, or the space is L2, without such dofs.
        """

    def element_dofs(
        self, attributes: Attributes = None, components: int | Iterable[int] | None = None
    ) -> Ints:
        """Flat positions (k,) of the dofs of a part of the elements, such as a material.

        Parameters
        ----------
        attributes : int, name, or several, optional
            Element attributes, or names of ``mesh.element_names``. By default all.
        components : int or ints, optional
            Components to select. By default all.

        Returns
        -------
        (k,) int64
            Ascending, as of `boundary_dofs`. Nodes on the surface of the part are among them.

        Raises
        ------
        SpaceError
            If the mesh has no such attribute, or the space no such component.
        """
        return dofs_of_elements(self, attributes, components)

    # --- vectors ---------------------------------------------------------------------------------

    def zeros(self, dtype: DTypeLike = np.float64) -> Vector:
        """Return a new vector (size,) of zeros, float64, float32, complex128 or complex64.

        Raises
        ------
        VectorError
            The type is another one.
        """
        return zeros(self, dtype)

    def check_vector(self, u: Any, what: str = "u") -> Vector:
        """Return u (size,) if it is a vector of the space.

        Raises
        ------
        VectorError
            u is no NumPy array, its type is not float64 or float32, or its shape is wrong.
        """
        return check_shape(self, check_float_array(u, what), what)

    def components(self, u: Any) -> Any:
        """View (ndofs, ncomp) of a vector by nodes and components. Writing to the view changes u.

        Parameters
        ----------
        u : (size,) or (size, nvec) array
            One vector, or one vector in each column. For columns the view is (ndofs, ncomp, nvec).

        Raises
        ------
        VectorError
            u is no array, or has another shape.
        """
        return by_components(self, u)

    def l_vec(self, u: Any) -> Vector:
        """Return the values of u at all nodes of this rank's elements. Ghosts come last.

        The shape is (nodes,) or (nodes, ncomp). If ranks share dofs, the call is collective. Else
        the result is a view of u.

        Raises
        ------
        VectorError
            See `check_vector`.
        """
        table = self.owned_values(u)
        if self.halo is None:
            return table
        return np.concatenate([table, self.halo.forward(table)])

    def owned_values(self, u: Any) -> Vector:
        """View (ndofs,) or (ndofs, ncomp) of a vector (size,) by nodes; see `check_vector`."""
        return self.check_vector(u).reshape(self.ndofs, *self._trailing)

    @cached_property
    def doubled(self) -> Self:
        """Space with twice as many components, for complex vectors as vectors of real numbers.

        It has the nodes of this space. Components are the real part of the first one, its imaginary
        part, those of the second one, and so on.
        """
        twin = copy.copy(self)
        twin.ncomp = 2 * self.ncomp
        check_size(self.mesh.num_elements, self.order, self.dim, twin.ncomp)
        twin.size, twin.global_size = 2 * self.size, 2 * self.global_size
        twin.shape, twin._trailing = (twin.size,), (twin.ncomp,)
        twin.parts = (twin,)
        if self.mixed:
            twin.parts = tuple(part.doubled for part in self.parts)
            for part in twin.parts:
                part._whole = twin
        return twin

    def _check_order(self) -> None:
        """Raise if `reproducible` is True and devices of many ranks add in any order."""
        ordered = self.any_width or (self.reproducible and self.halo is not None)
        if self.device is not None and ordered:
            raise SpaceError(
                "reproducible=True is not for ranks with a GPU each, which add results of other "
                "ranks in any order: leave it out, or leave out the device"
            )

    # --- functions -------------------------------------------------------------------------------

    def dof_coordinates(self) -> Floats:
        """Positions (ndofs, dim) of the nodes, in the mesh's unit of length.

        A shared node has the position that its first element gives. On a periodic mesh the other
        elements may place the node elsewhere. Nodes of a Bernstein basis are Gauss-Lobatto points.
        """
        if self.mixed:
            return np.concatenate([part.dof_coordinates()[part.own] for part in self.parts])
        result = np.empty((self.restriction.ndofs, self.dim))
        if self._whole is not None:
            result[:] = np.nan  # at the dofs of other parts
            result[self.restriction.indices] = positions(self.mesh.coordinates, self.element.nodes)
        n, owner = self.element.size, self.restriction.owner
        for start, stop in element_blocks(self.mesh.num_elements, n):
            x = positions(self.mesh.coordinates[start:stop], self.element.nodes)
            new = self.restriction.owned_by(start, stop, ghosts=self.hangs)
            result[new] = x.reshape(-1, self.dim)[owner[new] - start * n]
        return self.owned_rows(result)

    def owned_rows(self, table: NDArray[Any]) -> NDArray[Any]:
        """Rows (ndofs, ...) of the dofs that this rank owns, of a table of all it touches.

        Of those that no node of the rank has, as only hanging nodes read them, other ranks tell
        them. Collective if nodes hang and ranks share dofs.
        """
        if self.hangs and self.halo is not None:
            return self.halo.completed(table, self.restriction.owner >= 0)
        return table[: self.ndofs]

    def multiplicity(self) -> Floats:
        if self.mixed:
            return np.asarray(np.sum([part.multiplicity() for part in self.parts], axis=0))
        return super().multiplicity()

    @property
    def own(self) -> slice:
        """Dofs of a part that no earlier part has; else all."""
        if self._whole is None:
            return slice(0, self.ndofs)
        return slice(int(self.restriction.first_touch[0]), int(self.restriction.first_touch[-1]))

    @names_checked
    def interpolate(
        self, f: Function | GridFunction | tuple[Space, Any], *, dtype: DTypeLike = np.float64
    ) -> Vector:
        """Interpolate f at the nodes. Return the vector (size,) of the interpolant.

        A field of another space is evaluated in its own basis. If its mesh is this mesh, or a
        coarser mesh that this mesh refines, the elements that contain the nodes are known. Else the
        nodes are located by search. If the field jumps at a shared node, one element gives the
        value. Collective if ranks share the mesh.

        Parameters
        ----------
        f : callable, number(s) or field
            ``f(x)`` with x of shape (dim, n) returns (n,) for one component, else (ncomp, n). A
            number, or one number for each component, is a constant. A field is a `GridFunction`
            or a pair (space, vector).
        dtype : dtype
            float64, or complex128 for a function or number with complex values.

        Returns
        -------
        (size,) array

        Raises
        ------
        SpaceError
            If f returns another shape or values that are not finite, if a field has another number
            of components or another dimension, or if ranks share one of two different meshes.
        ProbeError
            If nodes lie outside the mesh of the field.
        VectorError
            If the vector of a pair is not a vector of its space, or for another ``dtype``.
        """
        if float64_or_complex(dtype) and not isinstance(f, GridFunction):
            real, imaginary = map(self.interpolate, parts_of(f))
            return real + 1j * imaginary
        if isinstance(f, tuple) and len(f) == 2 and isinstance(f[0], Space):
            f = GridFunction(*f)
        if self.mixed:
            values = np.concatenate([part._own_values(f) for part in self.parts])
            return self.memory.put(values.reshape(-1))
        apart, places = self._apart, self.restriction.owner[: self.ndofs]
        x = self.dof_coordinates()
        if apart:
            places = np.arange(self.restriction.indices.size)
            x = positions(self.mesh.coordinates, self.element.nodes).reshape(-1, self.dim)
        if isinstance(f, GridFunction):
            values = self._of_field(f, places, x)
        else:
            values = evaluate(f, np.ascontiguousarray(x.T), self._trailing)
        if apart:
            e_vec = values.reshape(-1, self.element.size, *self._trailing)
            return self._coefficients(lambda some: e_vec[some])
        values = values.reshape(-1)
        return self.memory.put(values if self.element.is_nodal else self.from_nodal(values))

    def _own_values(self, f: Any) -> Floats:
        """Values (n[, ncomp]) of f at the dofs that a part has and no earlier part."""
        x = self.dof_coordinates()[self.own]
        if not isinstance(f, GridFunction):
            return evaluate(f, np.ascontiguousarray(x.T), self._trailing)
        source = f.space
        if source.mesh is self.whole.mesh:
            source = source.parts[self.whole.parts.index(self)]
        return values_of_field(source, f.vector, self, self.restriction.owner[self.own], x)

    def _of_field(self, f: GridFunction, places: Ints, x: Floats) -> Floats:
        """Values (n, ...) of a field at nodes at some places in an e_vec, and positions x."""
        if not self.hangs or self.halo is None:
            return values_of_field(f.space, f.vector, self, places, x)
        x, owner = np.concatenate([x, self.halo.forward(x)]), self.restriction.owner
        some = np.flatnonzero(owner >= 0)
        found = values_of_field(f.space, f.vector, self, owner[some], x[some])
        table = np.zeros((len(owner), *found.shape[1:]))
        table[some] = found
        return self.owned_rows(table)

    # an element may see the nodes of an edge in another order than the edge's dofs
    _apart = property(lambda self: self.signed and not self.element.is_nodal)

    def from_nodal(self, values: Floats) -> Floats:
        """Return the vector (size,), on the host, of the function with nodal values (size,)."""
        if self.mixed:  # coefficients are values at nodes
            return self.memory.get(self.check_vector(values)).copy()
        if self._apart:
            raise SpaceError("dofs with signs have no nodes: give a function to V.interpolate")
        table, hanging = self.l_vec(values), self.restriction.hanging

        def nodal(some: slice) -> Floats:
            found = self.restriction.entries(table, some)
            if hanging is None:
                return found
            return replace(hanging, halves=nodal_halves(self.order)).interpolated(found, some)

        return self._coefficients(nodal)

    def _coefficients(self, nodal: Callable[[slice], Floats]) -> Floats:
        """Vector (size,) of the function with nodal values (n, nodes[, ncomp]) in elements."""
        result = np.empty((self.restriction.ndofs, *self._trailing))
        n = self.element.size
        owner = self.restriction.owner
        for start, stop in element_blocks(self.mesh.num_elements, n):
            # elements that share a face compute the same values on it, from the face's nodes alone
            block = self.element.from_nodal(nodal(slice(start, stop)))
            new = self.restriction.owned_by(start, stop, ghosts=self.hangs)
            result[new] = block.reshape(-1, *self._trailing)[owner[new] - start * n]
        return self.owned_rows(result).reshape(-1)

    @overload
    def quadrature(self, q1d: int | Quadrature1D | None = None) -> Quadrature1D: ...

    @overload
    def quadrature(self, q1d: int | Rule | None = None) -> Rule: ...

    @checked(SpaceError)
    def quadrature(self, q1d: Points | Rule | None = None) -> Rule:
        """Return the rule of q1d Gauss points (default p + 2). An existing rule is only checked.

        On triangles, tetrahedra and prisms it is a rule of the same degree, 2 q1d - 1, by default
        2p + 1, on meshes whose elements are curved, or are prisms that are not affine, 2p + 3.

        Raises
        ------
        SpaceError
            If there are fewer than p + 1 points in a direction, or of a list fewer than an element
            has nodes: too few for a mass matrix of full rank.
        BasisError
            If the points of a list are in another dimension.
        """
        if self.mixed:
            raise SpaceError(
                "elements of several shapes have a rule each: take those of V.parts, or give the "
                "number of points, quadrature=n, where a rule is asked for"
            )
        cell = self.mesh.cell
        if q1d is None:
            bent = cell.cube or self.mesh.order > 1 or not LegendreGeometry(self.mesh).affine
            q1d = self.order + 1 + bent
        if not cell.cube and not isinstance(q1d, Rule):
            return simplex_rule_for(cell, q1d, self.order)
        rule = q1d if isinstance(q1d, Rule) else gauss(q1d)
        rule.check_cell(cell)
        if not isinstance(rule, Quadrature1D):
            if rule.count(self.dim) < self.element.size:
                raise SpaceError(
                    f"{rule} cannot integrate products of {self.element.size} functions: use at "
                    "least as many points"
                )
            return rule
        if rule.q1d <= self.order:
            raise SpaceError(
                f"q1d = {rule.q1d} cannot integrate order {self.order}: "
                f"use at least {self.order + 1}"
            )
        return rule

    def element_vector(self, l_vec: Vector, elements: slice | Ints) -> Floats:
        """Values (n, p1d**dim[, ncomp]) of an `l_vec` at the nodes of some elements, in float64."""
        return self.restriction.of(l_vec)(elements)

    def values(self, u: Any, quadrature: int | Rule | None = None) -> Floats:
        """Evaluate u at the quadrature points. Return a q_vec (ne, points[, ncomp]).

        On a mesh of several shapes it is a list of arrays, one for each part.

        Raises
        ------
        VectorError, SpaceError
            See `check_vector` and `quadrature`.
        """
        if self.mixed:
            return cast(Floats, [part.values(u, quadrature) for part in self.parts])
        rule = self.quadrature(quadrature)
        return self._at_points(u, rule.places)

    def gradient(self, u: Any, quadrature: int | Rule | None = None) -> Floats:
        """Gradient (ne, points[, ncomp], dim) of u in space at the quadrature points.

        On a mesh of several shapes it is a list of arrays, one for each part.

        Raises
        ------
        VectorError, SpaceError
            See `check_vector` and `quadrature`.
        GeometryError
            If an element is inverted.
        """
        if self.mixed:
            return cast(Floats, [part.gradient(u, quadrature) for part in self.parts])
        rule = self.quadrature(quadrature)
        u = self.l_vec(u)
        geometry = Geometry(self.mesh, rule)
        result = np.empty((self.mesh.num_elements, geometry.num_points, *u.shape[1:], self.dim))
        for block in geometry:
            slopes = block.slopes(self.element, self.restriction.of(u))
            result[block.start : block.stop] = physical_gradient(slopes, block.inverse)
        return result

    @checked(SpaceError)
    def sample(
        self, u: Any, n: Annotated[int, whole_numbers(2, MOST_POINTS)]
    ) -> tuple[Floats, Floats]:
        """Positions and values of u at an equispaced grid of n points in each direction.

        Returns
        -------
        positions : (ne, points, dim) float64
        values : (ne, points[, ncomp]) float64
            The n**dim points are lexicographic, x fastest. On triangles and tetrahedra they are
            those of `femops_meshes.coordinates.simplices.equispaced`, with n along each edge. The
            points include the element's corners. On a mesh of several shapes both are lists of
            arrays, one for each part.

        Raises
        ------
        VectorError
            See `check_vector`.
        SpaceError
            n < 2.
        """
        if self.mixed:
            sampled = [part.sample(u, n) for part in self.parts]
            return cast("tuple[Floats, Floats]", tuple(map(list, zip(*sampled, strict=True))))
        cell, count = self.mesh.cell, int(n)
        grid = equispaced(count) if cell.cube else simplices.equispaced(cell, count - 1)
        values = self._at_points(u, grid)
        where = np.empty((*values.shape[:2], self.dim))
        for start, stop in element_blocks(*values.shape[:2]):
            where[start:stop] = positions(self.mesh.coordinates[start:stop], grid)
        return where, values

    def _at_points(self, u: Any, points: Floats) -> Floats:
        u, ne = self.l_vec(u), self.mesh.num_elements
        n = len(points) ** (self.dim if points.ndim == 1 else 1)
        result = np.empty((ne, n, *u.shape[1:]))
        for start, stop in element_blocks(ne, n):
            e_vec = self.element_vector(u, slice(start, stop))
            result[start:stop] = self.element.values(points, e_vec)
        return result

    def __repr__(self) -> str:
        return one_line(self)

    def _repr_html_(self) -> str:
        return as_table(self)


@final
@checked(SpaceError)
@dataclass(frozen=True, eq=False)
class GridFunction:
    """A space and a vector: a function to use as coefficient, to interpolate or to save.

    Attributes
    ----------
    space : Space
        Space of any order. The space of a coefficient must be on the mesh of the form.
    vector : (space.size,) array
        Vector of the space. The GridFunction does not copy it. A new or updated operator copies it.
        So the same GridFunction can be passed again after the vector has changed.

    Raises
    ------
    VectorError
        If the vector is not a vector of the space.
    """

    space: Space
    vector: NDArray[Any]

    def __post_init__(self) -> None:
        self.space.check_vector(self.vector, "vector")

    _repr_html_ = field_table
