"""Positions, Jacobians and modes of mesh elements at quadrature points.

Sum factorisation computes them on demand in blocks of elements. So no array exceeds a few
megabytes, whatever the size of the mesh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, final

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from femops.basis import Quadrature1D, Rule, bernstein_coefficients, grid_rule
from femops.element import Element
from femops.errors import GeometryError
from femops.geometry.domain import Domain, DomainBlock, DomainGeometry, Nodal, element_blocks
from femops.parallel.comm import Communicator
from femops.parallel.mesh import DistributedMesh
from femops_common.arguments import check_memory, checked
from femops_kernels.cpu.in_order import computed_once, in_order
from femops_kernels.exclusive import Derived
from femops_kernels.spec import MapMatrices
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import (
    adjugates,
    determinants,
    gauss_lobatto,
    geometry_degree,
    jacobians,
    lagrange_matrix,
    positions,
    tensor_apply,
)
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import Cell

Floats = NDArray[np.float64]

# Largest error of a map without some modes, in the element's own coordinates.
EXACT = 1e-13
# Relative round-off of coordinates from files and generators.
_ROUND_OFF = 8 * np.finfo(np.float64).eps

# Results of `_look` for meshes, or results of the mesh that a part is from, or of all ranks.
_facts = Derived[Mesh, tuple[bool, int]]()


def mode_values(count: int, points: NDArray[Any]) -> tuple[Floats, Floats]:
    """Values and slopes (n, count) of the first ``count`` 1-D modes at n points."""
    t = 2.0 * np.asarray(points, dtype=np.float64) - 1.0
    scale = np.ones(count)
    scale[1:2] = 0.5
    values = legendre.legvander(t, count - 1) * scale
    slopes = np.zeros_like(values)
    for k in range(1, count):
        slopes[:, k] = 2.0 * scale[k] * legendre.legval(t, legendre.legder(np.eye(count)[k]))
    return values, slopes


def element_modes(coordinates: Floats, order: int) -> Floats:
    """Compute modes of elements from their nodes. Both have shape (n, (order + 1)**dim, dim)."""
    values = mode_values(order + 1, gauss_lobatto(order + 1)[0])[0]
    return tensor_apply([np.linalg.inv(values)] * coordinates.shape[-1], coordinates)


def mode_degrees(order: int, dim: int) -> NDArray[np.int64]:
    """Degree ((order + 1)**dim, dim) of each mode in each direction, x fastest."""
    return np.indices((order + 1,) * dim).reshape(dim, -1)[::-1].T


def negligible(
    coordinates: Floats, modes: Floats, left_out: NDArray[np.bool_], tol: float
) -> NDArray[np.bool_]:
    """True (n,) for elements whose nodes stay in place if some modes are left out.

    Nodes may move by the round-off of their coordinates, and by ``tol`` in the coordinates of the
    affine part. So the tolerance is smaller in a thin direction.

    Shapes: `coordinates` (n, nodes, dim), `modes` (n, nodes, dim), `left_out` (nodes,).
    """
    dim = coordinates.shape[2]
    order = geometry_degree(coordinates.shape[1], dim)
    values = mode_values(order + 1, gauss_lobatto(order + 1)[0])[0]
    rest = np.where(left_out[:, np.newaxis], modes, 0.0)
    gap = np.abs(tensor_apply([values] * dim, rest)).max(axis=1)
    gap = np.maximum(gap - _ROUND_OFF * np.abs(coordinates).max(axis=1), 0.0)
    slopes = modes[:, (order + 1) ** np.arange(dim)].swapaxes(1, 2)
    with np.errstate(all="ignore"):  # a singular affine part gives NaN, which compares as False
        inverse = np.abs(adjugates(slopes) / determinants(slopes)[:, np.newaxis, np.newaxis])
        own = (inverse * gap[:, np.newaxis]).sum(axis=2)
    return np.asarray((own <= tol).all(axis=1) | ~gap.any(axis=1))


def _look(mesh: Mesh) -> tuple[bool, int]:
    """True if all elements are affine, and the lowest degree that represents all maps."""
    if not mesh.cell.cube:
        straight = _affine_tables(mesh)
        return straight, 1 if straight else mesh.order
    degrees = mode_degrees(mesh.order, mesh.dim)
    affine, degree = True, 1
    for start, stop in element_blocks(mesh.num_elements, mesh.coordinates.shape[1]):
        x = mesh.coordinates[start:stop]
        modes = element_modes(x, mesh.order)
        if affine:
            affine = bool(negligible(x, modes, degrees.sum(axis=1) > 1, EXACT).all())
        while degree < mesh.order and not (
            negligible(x, modes, degrees.max(axis=1) > degree, EXACT).all()
        ):
            degree += 1
    return affine, degree


def _affine_tables(mesh: Mesh) -> bool:
    """True if all nodes are where the corners put them."""
    blocks = element_blocks(mesh.num_elements, mesh.coordinates.shape[1])
    return (mesh.cell.simplex and mesh.order == 1) or all(
        _straight(mesh.coordinates[start:stop], mesh.cell, mesh.order, EXACT).all()
        for start, stop in blocks
    )


def _straight(x: Floats, cell: Cell, order: int, tol: float) -> NDArray[np.bool_]:
    """True (n,) for elements whose nodes (n, nodes, dim) are where an affine map puts them."""
    places = simplices.nodes(cell, order)
    linear = np.column_stack([1.0 - places.sum(axis=1), places])
    frame = [0, *range(1, cell.dim), cell.num_corners // 2 if cell.shape == "prism" else cell.dim]
    gap = np.abs(linear @ x[:, frame] - x).max(axis=1)
    least = tol * np.ptp(x, axis=1) + _ROUND_OFF * np.abs(x).max(axis=1)
    return np.asarray((gap <= least).all(axis=1))


def oriented(jacobian: Floats, *, turned: bool) -> Floats:
    """Determinants (n, points), positive for a valid element.

    A simplex, or an element that is turned to a face, may be mirrored.
    """
    det = determinants(jacobian)
    return det * np.sign(det[:, :1]) if turned else det


@final
@dataclass(frozen=True, eq=False)
class LegendreGeometry:
    """Maps of a mesh's elements, in as few modes as the mesh needs.

    The number of modes is determined once for a mesh.
    """

    mesh: Mesh

    @staticmethod
    def share(mesh: Mesh, part: Mesh) -> None:
        """Treat a part of a mesh like the full mesh, even if the part's maps are simpler."""
        _facts.put(part, LegendreGeometry(mesh)._found)

    @staticmethod
    def agree(mesh: Mesh, comm: Communicator) -> None:
        """Make all ranks treat the parts of a mesh in the same way. Collective."""
        affine, degree = LegendreGeometry(mesh)._found
        worst = comm.max(np.array([not affine, degree], dtype=np.int64))
        _facts.put(mesh, (not worst[0], int(worst[1])))

    @property
    def _found(self) -> tuple[bool, int]:
        return _facts.get(self.mesh, partial(_look, self.mesh))

    @property
    def affine(self) -> bool:
        """True if the map of every element is affine."""
        return self._found[0]

    @property
    def degree(self) -> int:
        """Degree in each direction that represents all maps; 1 for multilinear elements."""
        return self._found[1]

    @property
    def maps(self) -> Maps:
        """Modes of the elements' maps, as kernels read them."""
        mesh = self.mesh
        kind = ProductMaps if mesh.cell.cube else TableMaps
        # derivatives on a prism have the degree of its map in some direction
        less = 1 if self.affine or mesh.cell.simplex else 0
        return kind(mesh.cell, mesh.order, self.degree, self.degree - less)

    def blocks(self, *, slopes: bool = True, places: bool = True) -> Iterator[tuple[int, Floats]]:
        """Yield the first element and the modes (n, *shape) of each block; see `Maps`."""
        mesh, maps = self.mesh, self.maps

        def made(ends: tuple[int, int]) -> tuple[int, Floats]:
            return ends[0], maps.modes(mesh.coordinates[slice(*ends)], slopes, places)

        yield from in_order(made, element_blocks(mesh.num_elements, mesh.coordinates.shape[1]))


@dataclass(frozen=True)
class Maps(ABC):
    """Maps of elements in modes, and the matrices from modes to points.

    Kernels ask for the modes of Jacobians (``slopes``) and of positions (``places``).
    """

    cell: Cell
    order: int  # degree of the nodes that are given
    degree: int  # degree of the modes of positions
    slope_degree: int  # degree of those of Jacobians

    @abstractmethod
    def shape(self, slopes: bool, places: bool) -> tuple[int, int]:
        """Shape of an element's modes."""

    @abstractmethod
    def modes(self, x: Floats, slopes: bool, places: bool) -> Floats:
        """Modes (n, *shape) of elements with nodes x (n, nodes, dim)."""

    @abstractmethod
    def matrices(self, rule: Rule) -> MapMatrices:
        """Matrices from modes to the points of a rule."""


@final
class ProductMaps(Maps):
    """Products of Legendre's polynomials, (dim, (degree + 1)**dim), for positions and Jacobians."""

    def shape(self, slopes: bool, places: bool) -> tuple[int, int]:  # noqa: ARG002
        return self.cell.dim, (self.degree + 1) ** self.cell.dim

    def modes(self, x: Floats, slopes: bool, places: bool) -> Floats:  # noqa: ARG002
        kept = np.all(mode_degrees(self.order, self.cell.dim) <= self.degree, axis=1)
        return element_modes(x, self.order)[:, kept].swapaxes(1, 2)

    def matrices(self, rule: Rule) -> MapMatrices:
        return MapMatrices(*mode_values(self.degree + 1, grid_rule(rule, "geometry").points))


@final
class TableMaps(Maps):
    """Values at nodes: of positions, and of Jacobians at those of their own degree.

    The first is that of a node, and the others are differences from it, so that the first function
    is 1. An element has (modes, dim, dim) for the Jacobian and the sign of its determinant, then
    (modes, dim) for the position.
    """

    def shape(self, slopes: bool, places: bool) -> tuple[int, int]:
        dim = self.cell.dim
        few, all_modes = (self.cell.size(g) if g else 1 for g in (self.slope_degree, self.degree))
        return 1, slopes * (few * dim * dim + 1) + places * all_modes * dim

    def modes(self, x: Floats, slopes: bool, places: bool) -> Floats:
        n, dim, parts = len(x), self.cell.dim, list[Floats]()
        of_slopes, of_places = _to_modes(self.cell, self.order, self.degree, self.slope_degree)
        if slopes:
            found = np.matmul(of_slopes.reshape(-1, x.shape[1]), x).reshape(n, dim, -1, dim)
            signs = np.sign(determinants(found[:, :, -1]))
            parts = [found[:, :, :-1].transpose(0, 2, 3, 1).reshape(n, -1), signs[:, np.newaxis]]
        if places:
            parts.append(np.matmul(of_places, x).reshape(n, -1))
        return np.concatenate(parts, axis=1)[:, np.newaxis]

    def matrices(self, rule: Rule) -> MapMatrices:
        degrees, points = (self.degree, self.slope_degree), np.asarray(rule.places)
        found = [simplices.tables(self.cell, degree, points)[0].copy() for degree in degrees]
        for table in found:
            table[:, 0] = 1.0
        return MapMatrices(*found)


@lru_cache(maxsize=64)
def _to_modes(cell: Cell, order: int, degree: int, slope_degree: int) -> tuple[Floats, Floats]:
    """Matrices from nodes of degree ``order`` to modes of Jacobians and of positions.

    Shapes: (dim, modes + 1, nodes), of which the last row is the Jacobian in the middle; (modes,
    nodes).
    """
    few, nodes = (simplices.nodes(cell, g) for g in (slope_degree, degree))
    slopes, places = simplices.tables(cell, order, few)[1:], simplices.tables(cell, order, nodes)[0]
    middle = simplices.tables(cell, order, cell.middle)[1:]
    slopes, places = slopes.copy(), places.copy()
    slopes[:, 1:] -= slopes[:, :1]
    places[1:] -= places[0]
    return np.asarray(np.concatenate([slopes, middle], axis=1)), places


Ints = NDArray[np.int64]

# Entries for meshes and points at which all determinants are known to be positive.
_checked = Derived[Mesh, None]()
# Elements whose determinants are not known to be positive everywhere.
_doubtful = Derived[Mesh, Ints]()
# Least determinant: with smaller ones, products of data are no normal numbers and lose digits.
_LEAST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
_SURE = 1e-10  # times the largest coefficient: far above the round-off of the others
# Jacobians of meshes of affine elements.
_of_affine = Derived[Mesh, Floats]()


class ElementClass(IntEnum):
    """Kind of an element's map. A more special map needs less storage."""

    AFFINE = 0
    """A parallelepiped: the Jacobian is constant."""
    MULTILINEAR = 1
    """Determined by the corners: bilinear in 2-D, trilinear in 3-D."""
    CURVED = 2
    """Any other map."""


@final
class Cells(Domain):
    """Elements of a mesh as a domain. Use `cells`, which keeps one domain for each mesh.

    Those of one part of several do not cover the mesh.
    """

    has_maps = on_elements = True
    has_normals = False

    def __init__(self, mesh: Mesh, *, covers: bool) -> None:
        self.mesh, self.num_elements, self.order = mesh, mesh.num_elements, mesh.order
        self.cell, self.covers = mesh.cell, covers

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(cells, covers=self.covers), (self.mesh,)

    def geometry(self, rule: Rule) -> Geometry:
        return Geometry(self.mesh, rule)


_cells = Derived[Mesh, Cells](weak=True)


def cells(mesh: Mesh, *, covers: bool = True) -> Cells:
    """Return the elements of a mesh as a domain: always the same object for a mesh."""
    return _cells.get(mesh, partial(Cells, mesh, covers=covers), covers)


@final
@checked(GeometryError)
class Geometry(DomainGeometry):
    """Positions and Jacobians of a mesh at the points of a quadrature rule.

    On a mesh that ranks share, a rank has the geometry of its own elements.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
    quadrature : Quadrature1D or PointRule

    Examples
    --------
    >>> import femops
    >>> mesh = femops.box((2, 2), upper=(2.0, 3.0))
    >>> geometry = femops.geometry.Geometry(mesh, femops.basis.gauss(2))
    >>> round(sum(float(block.weighted_det.sum()) for block in geometry), 12)
    6.0
    """

    def __init__(self, mesh: Mesh | DistributedMesh, quadrature: Rule) -> None:
        self.mesh = mesh = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
        quadrature.check_cell(mesh.cell)
        self.domain, self.quadrature = cells(mesh), quadrature
        self.dim, self.num_elements = mesh.dim, mesh.num_elements
        self.num_points = quadrature.count(mesh.dim)
        needed = 8 * self.num_points * (2 + mesh.dim + mesh.dim**2)
        what = f"an element of {self.num_points} points"
        check_memory(needed, what, "take fewer points", GeometryError)
        self.weights = quadrature.cell_weights(mesh.dim)

    @checked(GeometryError)
    def block(self, start: int, stop: int) -> GeometryBlock:
        """Geometry of the elements start <= e < stop, computed when first used.

        The range may exceed the last element. A rank may have no elements.
        """
        return GeometryBlock(self, start, min(stop, self.num_elements))

    def __iter__(self) -> Iterator[GeometryBlock]:
        return (self.block(start, stop) for start, stop in self.blocks())

    def check(self) -> None:
        """Check once per mesh and rule that all Jacobian determinants are positive.

        Raises
        ------
        GeometryError
            If a determinant is not positive. The message names the elements.
        """
        _checked.get(self.mesh, self._look, self.quadrature.key)

    @property
    def valid(self) -> bool:
        return _checked.known(self.mesh, self.quadrature.key)

    def _look(self) -> None:
        mesh, points = self.mesh, self.quadrature.places
        # the bound costs less, or nothing
        if mesh.cell.simplex:
            rest = _doubtful.get(mesh, partial(_beyond_center, mesh))
        elif not mesh.cell.cube:
            rest = np.arange(mesh.num_elements)
        elif _determinant_points(mesh) ** mesh.dim < self.num_points or _doubtful.known(mesh):
            rest = _doubtful.get(mesh, partial(_without_bound, mesh))
        else:
            rest = np.arange(mesh.num_elements)

        def valid(ends: tuple[int, int]) -> bool:
            found = oriented(
                jacobians(mesh.coordinates[rest[slice(*ends)]], points), turned=mesh.cell.simplex
            )
            return bool(np.all(found >= _LEAST))

        if not all(in_order(valid, element_blocks(len(rest), self.num_points))):
            raise _inverted(self)

    @checked(GeometryError)
    def points(self, start: int, stop: int) -> Floats:
        """Positions (n, q1d**dim, dim) of the quadrature points, in the mesh's unit of length."""
        return positions(self.mesh.coordinates[start:stop], self.quadrature.places)

    @checked(GeometryError)
    def jacobian(self, start: int, stop: int) -> Floats:
        """Jacobians (n, q1d**dim, dim, dim): [..., i, j] = dx_i / dxi_j.

        On a mesh of affine elements, the Jacobians at a one-point rule are kept.
        """
        if self.num_points == 1 and LegendreGeometry(self.mesh).affine:
            return _of_affine.get(self.mesh, partial(_centers, self.mesh))[start:stop]
        return jacobians(self.mesh.coordinates[start:stop], self.quadrature.places)

    @checked(GeometryError)
    def det(self, start: int, stop: int) -> Floats:
        """Determinants (n, q1d**dim) of J. Raises `GeometryError` unless they are positive."""
        return self.block(start, stop).det

    @checked(GeometryError)
    def weighted_det(self, start: int, stop: int) -> Floats:
        """Quadrature weights times det J: (n, q1d**dim). They sum to the volume."""
        return self.block(start, stop).weighted_det

    @checked(GeometryError)
    def inverse(self, start: int, stop: int) -> Floats:
        """Inverse Jacobians (n, q1d**dim, dim, dim): [..., j, i] = dxi_j / dx_i."""
        return self.block(start, stop).inverse

    def __repr__(self) -> str:
        return f"Geometry({self.mesh.num_elements} elements, {self.quadrature!r})"


@final
class GeometryBlock(DomainBlock):
    """Geometry of a range of elements. Each array is computed once, at first use.

    `points` (n, q1d**dim, dim): positions. `jacobian`, `inverse` (n, q1d**dim, dim, dim): J[..., i,
    j] = dx_i / dxi_j and its inverse. `det`, `weighted_det` (n, q1d**dim): determinant of J,
    positive, and determinant times quadrature weight.
    """

    geometry: Geometry

    def __init__(self, geometry: Geometry, start: int, stop: int) -> None:
        self.geometry = geometry
        self.start = start
        self.stop = stop

    @computed_once
    def points(self) -> Floats:
        """Positions (n, q1d**dim, dim) of the quadrature points."""
        return self.geometry.points(self.start, self.stop)

    @computed_once
    def jacobian(self) -> Floats:
        """Jacobians (n, q1d**dim, dim, dim): [..., i, j] = dx_i / dxi_j."""
        return self.geometry.jacobian(self.start, self.stop)

    @computed_once
    def det(self) -> Floats:
        """Determinants (n, q1d**dim) of J, checked to be positive."""
        det = oriented(self.jacobian, turned=self.geometry.mesh.cell.simplex)
        if not np.all(det >= _LEAST):
            raise _inverted(self.geometry)
        return det

    @computed_once
    def weighted_det(self) -> Floats:
        """Determinants times quadrature weights: (n, q1d**dim)."""
        return np.asarray(self.det * self.geometry.weights)

    @property
    def point_weights(self) -> Floats:
        geometry, mesh, rule = self.geometry, self.geometry.mesh, self.geometry.quadrature
        count = mesh.dim * mesh.order  # not by the maps that a rank has: bits are alike on all
        if mesh.dim < 3 or not isinstance(rule, Quadrature1D) or count >= rule.q1d:
            return super().point_weights
        nodes = _determinant_nodes(count)
        few = determinants(jacobians(mesh.coordinates[self.start : self.stop], nodes))
        det = tensor_apply([lagrange_matrix(nodes, rule.points)] * mesh.dim, few)
        if not np.all(det >= _LEAST):
            return super().point_weights
        det *= geometry.weights
        return det

    @computed_once
    def inverse(self) -> Floats:
        """Inverse Jacobians (n, q1d**dim, dim, dim): [..., j, i] = dxi_j / dx_i."""
        # determinants come first: they raise an error for inverted elements before a division by 0
        det = self.det
        if self.geometry.mesh.cell.simplex:
            det = determinants(self.jacobian)
        return np.asarray(adjugates(self.jacobian) / det[..., None, None])

    @property
    def normals(self) -> Floats:
        """Raise `GeometryError`, because elements have no normals."""
        raise GeometryError("points inside elements have no normals: take a boundary")

    def values(self, element: Element, nodal: Nodal) -> Floats:
        e_vec = nodal(slice(self.start, self.stop))
        return element.values(self.geometry.quadrature.places, e_vec)

    def slopes(self, element: Element, nodal: Nodal) -> Floats:
        e_vec = nodal(slice(self.start, self.stop))
        return np.stack(element.slopes(self.geometry.quadrature.places, e_vec), axis=-1)


def physical_gradient(slopes: Floats, inverse: Floats) -> Floats:
    """Gradient in space by the chain rule: du/dx_i = sum_j du/dxi_j dxi_j/dx_i.

    Shapes: `slopes` (n, k[, ncomp], dim), `inverse` (n, k, dim, dim), returned (n, k[, ncomp],
    dim).
    """
    result = np.zeros_like(slopes)
    factors = inverse if slopes.ndim == 3 else inverse[..., np.newaxis, :, :]
    for i, j in np.ndindex(factors.shape[-2:]):
        result[..., i] += slopes[..., j] * factors[..., j, i]
    return result


def _centers(mesh: Mesh) -> Floats:
    """Jacobians (ne, 1, dim, dim) at the centers of elements, read-only."""
    blocks = element_blocks(mesh.num_elements, mesh.coordinates.shape[1])
    middle = mesh.cell.middle
    found = [jacobians(mesh.coordinates[start:stop], middle) for start, stop in blocks]
    whole = np.concatenate(found) if found else np.empty((0, 1, mesh.dim, mesh.dim))
    whole.flags.writeable = False
    return whole


def _determinant_points(mesh: Mesh) -> int:
    """Number of points in each direction that determine the polynomial det J of an element."""
    return mesh.dim * LegendreGeometry(mesh).degree


def _determinant_nodes(count: int) -> Floats:
    """Points (count,) in each direction, at which the values of det J determine it."""
    return gauss_lobatto(count)[0] if count > 1 else np.array([0.5])


def _without_bound(mesh: Mesh) -> Ints:
    """Elements (n,) that have a Bernstein coefficient of det J that is not clearly positive.

    A polynomial is not less than the least of its coefficients in Bernstein's basis. Round-off may
    change a coefficient, so it must exceed a small part of the largest one.
    """
    count = _determinant_points(mesh)
    nodes = _determinant_nodes(count)
    change = [bernstein_coefficients(nodes)] * mesh.dim

    def among(ends: tuple[int, int]) -> Ints:
        det = determinants(jacobians(mesh.coordinates[slice(*ends)], nodes))
        coefficients = tensor_apply(change, det)
        least = np.maximum(_SURE * np.abs(coefficients).max(axis=1), _LEAST)
        return ends[0] + np.flatnonzero(~(coefficients.min(axis=1) > least))

    blocks = element_blocks(mesh.num_elements, count**mesh.dim)
    return np.concatenate([np.empty(0, np.int64), *in_order(among, blocks)])


def _beyond_center(mesh: Mesh) -> Ints:
    """Simplices (n,) of which some determinant may have another sign than that in the middle.

    The others have |J_0^{-1} J - 1| <= r < 1 in Frobenius' norm, with the Jacobian J_0 in the
    middle. So det J has one sign, and is at least (1 - r)^dim |det J_0|. The norm is convex, so
    Bernstein's coefficients of J bound it.
    """
    cell, dim, degree = mesh.cell, mesh.dim, LegendreGeometry(mesh).degree
    nodes = simplices.nodes(cell, degree - 1)
    change = simplices.from_nodes(cell, degree - 1)
    change = np.matmul(change, simplices.tables(cell, mesh.order, nodes)[1:])
    middle = simplices.tables(cell, mesh.order, cell.middle)[1:]

    def among(ends: tuple[int, int]) -> Ints:
        x = np.moveaxis(mesh.coordinates[slice(*ends)], 0, 2).reshape(change.shape[2], -1)
        center, found = ((rows @ x).reshape(*rows.shape[:2], dim, -1) for rows in (middle, change))
        jacobian = center[:, 0].T  # (n, dim, dim)
        det, inverse = np.abs(determinants(jacobian)), adjugates(jacobian)
        found -= center
        far = np.zeros(found[0, :, 0].shape)
        for row, column in np.ndindex(dim, dim):
            gap = sum(inverse[:, row, k] * found[column, :, k] for k in range(dim))
            far += gap * gap
        near = det - np.sqrt(far.max(axis=0))  # (1 - r) |det J_0|
        with np.errstate(all="ignore"):  # a singular map gives NaN, which compares as False
            least = det * (near / det) ** dim
        return ends[0] + np.flatnonzero(~((near > _SURE * det) & (least >= _LEAST)))

    blocks = element_blocks(mesh.num_elements, len(nodes))
    return np.concatenate([np.empty(0, np.int64), *in_order(among, blocks)])


def _inverted(geometry: Geometry) -> GeometryError:
    """Make the error that counts and names the elements with a determinant <= 0, or too small."""
    found: list[int] = []
    for start, stop in geometry.blocks():
        det = oriented(geometry.jacobian(start, stop), turned=geometry.mesh.cell.simplex)
        bad = ~np.all(det > 0.0, axis=1)
        found.extend(int(e) for e in start + np.flatnonzero(bad))
    if not found:
        return GeometryError(
            f"Jacobian determinants are below {_LEAST:.0e}, where products with them lose digits: "
            "scale the coordinates"
        )
    count = "1 element has" if len(found) == 1 else f"{len(found)} elements have"
    names = ", ".join(str(e) for e in found[:5]) + (", ..." if len(found) > 5 else "")
    in_file = [int(e) for e in geometry.mesh.file_elements[found[:5]]]
    if in_file != found[:5]:
        names += " (" + ", ".join(map(str, in_file)) + " in the file)"
    return GeometryError(
        f"{count} a Jacobian determinant that is not positive at one of the "
        f"{geometry.num_points} points of {geometry.quadrature!r}: {names}; turn or repair them"
    )


@checked(GeometryError)
def classify(mesh: Mesh | DistributedMesh, tol: float = 1e-12) -> NDArray[np.int8]:
    """Class (ne,) of each element of a mesh or of this rank: affine, multilinear or curved.

    An element is multilinear if the multilinear part of its map gives the positions of all nodes.
    It is affine if the affine part does. Triangles and tetrahedra are affine or curved. Positions
    may differ by ``tol`` times the size of the element plus the round-off of its coordinates. In a
    thin direction the size is the thickness; for triangles and tetrahedra it is along each axis.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
    tol : float
        Tolerance relative to the size of the element, in each of its directions.

    Returns
    -------
    (ne,) int8, values of `ElementClass`
    """
    mesh = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    result = np.empty(mesh.num_elements, dtype=np.int8)
    for start, stop in element_blocks(mesh.num_elements, mesh.coordinates.shape[1]):
        x = mesh.coordinates[start:stop]
        if not mesh.cell.cube:
            straight = _straight(x, mesh.cell, mesh.order, tol)
            result[start:stop] = np.where(straight, ElementClass.AFFINE, ElementClass.CURVED)
        else:
            result[start:stop] = _classify(x, mesh.order, mesh.dim, tol)
    return result


def _classify(coordinates: Floats, order: int, dim: int, tol: float) -> NDArray[np.int8]:
    degrees = mode_degrees(order, dim)
    modes = element_modes(coordinates, order)
    result = np.full(len(coordinates), ElementClass.CURVED, dtype=np.int8)
    bilinear, affine = (
        negligible(coordinates, modes, left_out, tol)
        for left_out in (degrees.max(axis=1) > 1, degrees.sum(axis=1) > 1)
    )
    result[bilinear] = ElementClass.MULTILINEAR
    result[affine] = ElementClass.AFFINE
    return result
