"""Scenes: polygons with values, element edges and arrows, and cuts through them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.domain import element_blocks
from femops.io.plots.sampling import Sampler, all_faces, boundary_faces, together
from femops_meshes.coordinates import simplices
from femops_meshes.topology.entities import Cell

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def heights(corners: Floats, plane: Floats) -> Floats:
    """Signed distances (...) of corners (..., c) from a plane (4,)."""
    return np.asarray(corners[..., :3] @ plane[:3] - plane[3])


def below(corners: Floats, plane: Floats) -> Floats:
    """Cut convex polygons or lines. Return the parts below a plane.

    Shapes: `corners` (n, k, c), `plane` (4,), returned (m, k', c).
    """
    n, k, c = corners.shape
    height = heights(corners, plane)
    following = np.roll(height, -1, axis=1)
    inside = height <= 0
    crosses = inside != (following <= 0)
    part = np.where(crosses, height / np.where(crosses, height - following, 1), 0)
    crossings = corners + part[..., None] * (np.roll(corners, -1, axis=1) - corners)
    found = np.stack([corners, crossings], axis=2).reshape(n, 2 * k, c)
    used = np.stack([inside, crosses], axis=2).reshape(n, 2 * k)
    count = used.sum(axis=1)
    left = count > 0
    width = 2 if k == 2 else int(count.max(initial=1))
    order = np.argsort(~used[left], axis=1, kind="stable")
    slots = np.minimum(np.arange(width), count[left, None] - 1)
    chosen = np.take_along_axis(order, slots, axis=1)
    return np.take_along_axis(found[left], chosen[..., None], axis=1)


def outside_corner(corners: Floats, planes: Floats) -> Floats:
    """Cut convex polygons or lines (n, k, c). Return the parts below at least one of some planes.

    The parts are those below the first plane, then those above the first and below the second, and
    so on.
    """
    pieces = []
    for k, plane in enumerate(planes):
        piece = corners
        for earlier in planes[:k]:
            piece = below(piece, -earlier)
        pieces.append(below(piece, plane))
    return together(pieces)


def section(lattices: Floats, cell: Cell, n: int, plane: Floats) -> Floats:
    """Polygons in which a plane cuts elements, counterclockwise as seen from above the plane.

    Shapes: `lattices` (ne, points, c), n along each edge, `plane` (4,), returned (m, 4, c).
    """
    flat = lattices.reshape(-1, lattices.shape[2])
    height = heights(flat, plane)
    if not cell.cube:
        small, inner = simplices.pieces(cell, n - 1), np.arange(4)[np.newaxis]
    else:
        small, inner = np.add.outer(_first_corners(n), _CELL @ [n * n, n, 1]), _TETRAHEDRA
    first = np.arange(len(lattices)) * lattices.shape[1]
    nodes = np.add.outer(first, small).reshape(-1, small.shape[1])
    above = height[nodes] > 0
    nodes = nodes[above.any(axis=1) & ~above.all(axis=1)]
    tetrahedra = nodes[:, inner].reshape(-1, 4)
    case = (height[tetrahedra] > 0) @ [1, 2, 4, 8]
    met = (case > 0) & (case < 15)
    ends = _edges_met()[case[met]]  # (m, 4, 2)
    a, b = (np.take_along_axis(tetrahedra[met], ends[..., k], axis=1) for k in (0, 1))
    part = (height[a] / (height[a] - height[b]))[..., None]
    polygons = (1 - part) * flat[a] + part * flat[b]
    normals = np.cross(
        polygons[:, 2, :3] - polygons[:, 0, :3], polygons[:, 3, :3] - polygons[:, 1, :3]
    )
    turned = normals @ plane[:3] < 0
    polygons[turned] = polygons[turned, ::-1]
    return np.asarray(polygons)


def fans(polygons: Floats) -> Floats:
    """Triangles of convex polygons: (n, k, c) -> ((k - 2) n, 3, c)."""
    last = range(2, polygons.shape[1])
    return np.concatenate([polygons[:, [0, k - 1, k]] for k in last])


def section_lines(triangles: Floats, plane: Floats) -> Floats:
    """Lines in which a plane cuts triangles: (n, 3, c) -> (m, 2, c)."""
    height = heights(triangles, plane)
    above = height > 0
    met = above.any(axis=1) & ~above.all(axis=1)
    triangles, height, above = triangles[met], height[met], above[met]
    alone = np.argmax(above == (above.sum(axis=1) == 1)[:, None], axis=1)
    turn = (alone[:, None] + np.arange(3)) % 3
    triangles = np.take_along_axis(triangles, turn[..., None], axis=1)
    height = np.take_along_axis(height, turn, axis=1)
    part = (height[:, :1] / (height[:, :1] - height[:, 1:]))[..., None]
    return np.asarray((1 - part) * triangles[:, :1] + part * triangles[:, 1:])


_CELL = np.array([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)])
"""Corners of a cell along z, y and x; x is fastest."""

_TETRAHEDRA = np.array(
    [[0, 1 << a, 1 << a | 1 << b, 7] for a, b, _ in permutations(range(3))], dtype=np.int64
)
"""Six tetrahedra of a cell, one for each path along edges from its first corner to its last."""


def _first_corners(n: int) -> Ints:
    i = np.arange(n - 1)
    return (i[:, None, None] * n * n + i[:, None] * n + i).ravel()


@lru_cache
def _edges_met() -> Ints:
    """Edges (16, 4, 2) of a tetrahedron that a plane cuts, in cyclic order.

    The first index tells which corners are above the plane: bit k is set for corner k.
    """
    table = np.zeros((16, 4, 2), dtype=np.int64)
    for case in range(1, 15):
        up = [v for v in range(4) if case >> v & 1]
        down = [v for v in range(4) if v not in up]
        if len(up) == 2:
            ring = [(up[0], down[0]), (up[0], down[1]), (up[1], down[1]), (up[1], down[0])]
        else:
            edges = [(a, b) for a in up for b in down]
            ring = [*edges, edges[-1]]
        table[case] = ring
    return table


VIEW = np.array([1.0, -1.3, 0.9])
"""Direction from a mesh in 3-D to the viewer."""

PATCHES = 60_000
"""Approximate number of flat patches in a picture."""

HIDDEN = 0.5
"""A mesh is cut open if its boundary shows less than this share of the field's range."""


@final
@dataclass(frozen=True, eq=False)
class Scene:
    """Flat polygons and lines in space. A corner has a 3-D position and the field's components."""

    dim: int  # dimension of the mesh
    # (m, k, 3 + ncomp): convex polygons, counterclockwise from outside. The last corner may be
    # repeated.
    patches: Floats
    edges: Floats  # (n, 2, 3 + ncomp): line segments along the elements' edges
    label: str  # label of the colour scale
    arrows: bool  # whether to show arrows of a vector field
    # (n, 2, 2): in 2-D with arrows, line segments along the sides of all elements. Sides between
    # two elements are included twice.
    outline: Floats
    # lowest and highest value of the colour scale; by default of the values at the corners
    limits: tuple[float, float] | None = None

    @property
    def has_field(self) -> bool:
        """True if the scene has a field, and not only a mesh."""
        return bool(self.patches.shape[2] > 3)

    @property
    def shades(self) -> Floats:
        """Values (m, k) at the corners that colours show: the field, or the length of a vector."""
        return magnitude(self.patches[..., 3:])

    @property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest value of the colour scale."""
        return self.limits or (float(self.shades.min()), float(self.shades.max()))

    def middles(self) -> tuple[Floats, Floats]:
        """Centres (m, 3) of the patches, and mean values (m, ncomp) of the field there."""
        p = self.patches
        once = np.ones(p.shape[:2])
        once[:, 1:] = (p[:, 1:] != p[:, :-1]).any(axis=2)
        mean = (once[..., None] * p).sum(axis=1) / once.sum(axis=1)[:, None]
        return mean[:, :3], mean[:, 3:]

    def plane_arrows(self) -> tuple[Floats, Floats]:
        """Starts and directions (k, 2) of arrows inside a mesh in 2-D."""
        points, vectors = self.middles()
        return kept_inside(*arrows_of(points[:, :2], vectors), self.outline)


def is_flat(points: Floats) -> bool:
    """True if points (..., 2) of a picture extend at least four times as wide as tall."""
    width, height = np.ptp(points.reshape(-1, 2), axis=0)
    return bool(width >= 4 * height)


def magnitude(values: Floats) -> Floats:
    """Value of a single component, or Euclidean length of several: (..., ncomp) -> (...)."""
    return values[..., 0] if values.shape[-1] == 1 else np.linalg.norm(values, axis=-1)


def points_per_line(count: int, dim: int, degree: int) -> int:
    """Number of sampling points per direction for ``count`` elements or faces of dimension dim."""
    affordable = int((PATCHES / max(count, 1)) ** (1 / dim))
    return int(np.clip(affordable, 2, 6 * degree + 10)) + 1


def make_scene(sampler: Sampler, label: str, cut: str | None, arrows: bool, edges: bool) -> Scene:
    """Sample a mesh in 2-D or 3-D, and make the scene."""
    mesh, parts = sampler.mesh, sampler.parts
    faces = [boundary_faces(part.mesh) if mesh.dim == 3 else None for part in parts]
    count = (
        mesh.num_elements if mesh.dim == 2 else sum(len(some) for some in faces if some is not None)
    )
    n = points_per_line(count, 2, sampler.degree)
    found = [part.surface(n, some) for part, some in zip(parts, faces, strict=True)]
    patches, lines = together([p for p, _ in found]), np.concatenate([each for _, each in found])
    if mesh.dim == 3:
        planes = _planes(patches, _chosen_cut(sampler, patches) if cut is None else cut)
        if len(planes):
            inner, inner_lines = _sections(sampler, planes)
            outer = outside_corner(patches, planes)
            patches = together([outer, inner])
            lines = np.concatenate([outside_corner(lines, planes), inner_lines])
    outline = lines[..., :2] if arrows and mesh.dim == 2 else lines[:0, :, :2]
    return Scene(mesh.dim, patches, lines if edges else lines[:0], label, arrows, outline)


def _chosen_cut(sampler: Sampler, patches: Floats) -> str:
    """Return the axes "xyz" (an octant) if the boundary hides most of the field, else ""."""
    if sampler.field is None:
        return ""
    space = sampler.field.space
    inside = magnitude(space.components(sampler.field.vector))
    shown = magnitude(patches[..., 3:])
    return "xyz" if np.ptp(shown) < HIDDEN * np.ptp(inside) else ""


def _planes(patches: Floats, axes: str) -> Floats:
    """Planes (k, 4) through the middle, with normals toward the viewer."""
    points = patches[..., :3].reshape(-1, 3)
    lower, upper = points.min(axis=0), points.max(axis=0)
    # a little off the middle, where meshes often have faces
    middle = (lower + upper) / 2 + 1e-6 * np.sign(VIEW) * (upper - lower)
    planes = np.zeros((len(axes), 4))
    for plane, d in zip(planes, ("xyz".index(axis) for axis in axes), strict=True):
        plane[d] = np.sign(VIEW[d])
        plane[3] = plane[d] * middle[d]
    return planes


def _sections(sampler: Sampler, planes: Floats) -> tuple[Floats, Floats]:
    """Polygons and lines in which each plane cuts elements, where no other plane is above it."""
    polygons, lines = [], []
    for k, plane in enumerate(planes):
        met = [_met(part, plane) for part in sampler.parts]
        n = points_per_line(6 * sum(map(len, met)), 2, sampler.degree)
        cuts, traces = [], []
        for part, some in zip(sampler.parts, met, strict=True):
            cell = part.mesh.cell
            cuts.append(section(part.lattice(some, n), cell, n, plane))
            corners = part.surface(n, all_faces(cell, some))[0]
            traces.append(section_lines(fans(corners), plane))
        inner, inner_lines = np.concatenate(cuts), np.concatenate(traces)
        for other in np.delete(planes, k, axis=0):
            inner, inner_lines = below(inner, -other), below(inner_lines, -other)
        polygons.append(inner)
        lines.append(inner_lines)
    return together(polygons), np.concatenate(lines)


def _met(sampler: Sampler, plane: Floats) -> Ints:
    """Elements that a plane cuts."""
    bare, n, found = replace(sampler, field=None), sampler.mesh.order + 2, []
    for start, stop in element_blocks(sampler.mesh.num_elements, n**3):
        above = heights(bare.lattice(np.arange(start, stop), n), plane) > 0
        found.append(start + np.flatnonzero(above.any(axis=1) & ~above.all(axis=1)))
    return np.concatenate(found)


def arrows_of(
    points: Floats, vectors: Floats, count: int = 18, depth: Floats | None = None
) -> tuple[Floats, Floats]:
    """Starts and directions of arrows, evenly spread, about as long as their distances.

    Shapes: `points`, `vectors` (n, d), `depth` (n,).
    """
    lower = points.min(axis=0)
    *_, second, longest_side = np.sort(np.ptp(points, axis=0))
    most = longest_side / count
    spacing = float(np.clip(second / 2, most / 3, most)) or 1.0
    cells = np.floor((points - lower) / spacing)
    off = np.square((points - lower) / spacing - cells - 0.5).sum(axis=1)
    if depth is not None:
        off = off - depth / spacing
    order = np.lexsort([off, *cells.T])
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (np.diff(cells[order], axis=0) != 0).any(axis=1)
    chosen = order[first]
    longest = np.linalg.norm(vectors[chosen], axis=1).max() or 1.0
    return points[chosen], vectors[chosen] * (1.2 * spacing / longest)


def kept_inside(starts: Floats, vectors: Floats, outline: Floats) -> tuple[Floats, Floats]:
    """Move arrows along their direction into an outline. Shorten arrows that do not fit.

    Shapes: `starts`, `vectors` (k, 2), `outline` (n, 2, 2), `starts`, `vectors` (k, 2).
    """
    begin, along = starts.copy(), vectors.copy()
    left = np.arange(len(starts))
    along_it = np.linspace(0, 1, 5)[:, None, None]
    for back, factor in ((0, 1), (0.5, 1), (1, 1), (0.5, 0.5), (0.5, 0.25), (0.5, 0.1)):
        along[left] = factor * vectors[left]
        begin[left] = starts[left] - back * along[left]
        seen = begin[left] + along_it * along[left]
        fits = inside(seen.reshape(-1, 2), outline).reshape(5, -1).all(axis=0)
        left = left[~fits]
    return begin, along


def inside(points: Floats, outline: Floats) -> NDArray[np.bool_]:
    """True (k,) for points inside an outline: a ray crosses it an odd number of times.

    Shapes: `points` (k, 2), `outline` (n, 2, 2).
    """
    (x0, y0), (x1, y1) = outline[:, 0].T, outline[:, 1].T
    rise = np.where(y1 == y0, 1.0, y1 - y0)
    result = np.empty(len(points), dtype=np.bool_)
    step = max(1, 4_000_000 // max(len(outline), 1))
    for first in range(0, len(points), step):
        x, y = points[first : first + step, :, None].swapaxes(0, 1)
        crossed = ((y0 <= y) != (y1 <= y)) & (x < x0 + (y - y0) / rise * (x1 - x0))
        result[first : first + step] = crossed.sum(axis=1) % 2 == 1
    return result


def view_axes(view: Floats) -> Floats:
    """Orthonormal rows (3, 3): right, up, toward the viewer. The z axis points up."""
    toward = view / np.linalg.norm(view)
    right = np.cross([0.0, 0.0, 1.0], toward)
    right /= np.linalg.norm(right)
    return np.array([right, np.cross(toward, right), toward])
