"""Search for the element that contains a point, and the point's reference coordinates.

1. A tree of boxes that enclose the elements gives candidates.
2. A tighter box along the candidate's own axes rules out most wrong candidates.
3. Newton's method computes the reference coordinates in the remaining candidates.
4. If Newton's method fails, the candidate is halved until each part is ruled out, or Newton's
   method succeeds from the middle of a part.

Boxes enclose the Bernstein coefficients of the map x(xi). The basis is positive and sums to 1, so
an element lies in the convex hull of its coefficients (G. Farin, "Curves and Surfaces for CAGD",
5th edition, 2002, section 5.2; parts by de Casteljau's algorithm, section 5.4). Simplices have the
same basis in barycentric coordinates (chapter 17 there).
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Basis1D
from femops.element import Element, element_of_maps, tensor_element
from femops.geometry.domain import element_blocks
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import adjugates, determinants, tensor_apply
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.topology.entities import Cell, cell_and_degree
from femops_meshes.topology.ordering import hilbert_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TOLERANCE = 1e-10
"""Largest distance from an element at which a point counts as inside, relative to its size."""

NEAR = 2**60
"""More than any number of an element: added to it where a point is only near to the element."""

NOWHERE = np.iinfo(np.int64).max
"""In place of the number where a point is in no element."""

_ROUND_OFF = 16 * np.finfo(np.float64).eps  # error of a position relative to the largest coordinate
_INTERIOR = 1e-3  # distance in xi from the faces beyond which a point is in no other element
_STEPS = 40  # most steps of Newton's method, which doubles the digits in each but the first few
_LONGEST = 0.5  # longest step in xi: half an element
_LEAST_DAMPING = 2.0**-10
_CONVERGED = 1e-9  # length of the last step; the error after it is about its square
_HALVINGS = 8  # most halvings; Newton's method then starts within 2^-9 of the point
_FAN = 4  # children of a box in the tree
_POINTS = 4096  # points that are located together, to limit memory


def locate(mesh: Mesh | MixedMesh, points: Floats) -> tuple[Ints, Floats, Flags]:
    """Find the element (n,) and the reference coordinates (n, dim) of points in space.

    An element that contains a point up to round-off goes before elements that are within the
    `TOLERANCE`: in stretched cells this may be more than the thickness of the neighbours.

    Elements of a mesh of several shapes are numbered part by part.

    Shapes: `points` (n, dim), `elements` (n,), `reference` (n, dim), `near` (n,).
    """
    if isinstance(mesh, MixedMesh):
        return _among_parts(mesh, points)
    elements = np.full(len(points), -1, dtype=np.int64)
    reference = np.full(points.shape, np.nan)
    keys = np.full(len(points), NOWHERE)
    if mesh.num_elements:
        boxes = Boxes(mesh)
        for start in range(0, len(points), _POINTS):
            part = slice(start, start + _POINTS)
            _locate(mesh, boxes, points[part], keys[part], reference[part])
    found = keys < NOWHERE
    elements[found] = keys[found] % NEAR
    return elements, reference, found & (keys >= NEAR)


def locate_beside(mesh: Mesh | MixedMesh, points: Floats, beside: Floats) -> tuple[Ints, Floats]:
    """Find elements (n,) and reference coordinates (n, dim), as `locate` does, on one side.

    Of several elements that contain a point, as one on their common face, it is the element in
    which the point `beside` it, (n, dim), lies.
    """
    elements, reference, _ = locate(mesh, points)
    wanted, start, _ = locate(mesh, beside)
    other, first = np.flatnonzero((wanted >= 0) & (wanted != elements)), 0
    for part in mesh.parts:
        last = first + part.num_elements
        mine = other[(wanted[other] >= first) & (wanted[other] < last)]
        for at in range(0, len(mine), _POINTS):
            some = mine[at : at + _POINTS]
            nodes = part.coordinates[wanted[some] - first]
            _, _, _, reach = _hulls(nodes)
            held, xi = _newton(nodes, points[some], start[some], reach)
            elements[some[held]], reference[some[held]] = wanted[some[held]], xi[held]
        first = last
    return elements, reference


def _hulls(coordinates: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Ends (2 x (ne, dim)) of boxes that enclose elements, and their `round_off` and `reach`."""
    hull = _bernstein(coordinates)
    lower, upper = hull.min(axis=1), hull.max(axis=1)
    size = (upper - lower).max(axis=1, keepdims=True)
    round_off: Floats = _ROUND_OFF * np.maximum(np.abs(lower), np.abs(upper))
    return lower, upper, round_off, TOLERANCE * size + round_off


def _among_parts(mesh: MixedMesh, points: Floats) -> tuple[Ints, Floats, Flags]:
    """As `locate`."""
    keys, places, first = [], [], 0
    for part in mesh.parts:
        elements, reference, near = locate(part, points)
        keys.append(np.where(elements < 0, NOWHERE, first + elements + NEAR * near))
        places.append(reference)
        first += part.num_elements
    chosen = np.argmin(keys, axis=0)
    key = np.min(keys, axis=0)
    found = key < NOWHERE
    rows = np.arange(len(points))
    return np.where(found, key % NEAR, -1), np.array(places)[chosen, rows], found & (key >= NEAR)


@final
class Boxes:
    """Tree of axis-parallel boxes that enclose the elements of a mesh.

    The leaves are boxes of elements in the order of a Hilbert curve. Each box of a higher level
    encloses `_FAN` consecutive boxes.

    `round_off` (ne, dim): round-off of the coordinates of an element. `reach` (ne, dim): distance
    up to which a point counts as inside an element: `TOLERANCE` times the size of the element, plus
    the round-off. Boxes are enlarged by this distance.
    """

    def __init__(self, mesh: Mesh) -> None:
        found = np.empty((4, mesh.num_elements, mesh.dim))
        for start, stop in element_blocks(mesh.num_elements, mesh.coordinates.shape[1]):
            found[:, start:stop] = _hulls(mesh.coordinates[start:stop])
        lower, upper, self.round_off, self.reach = found
        self._order = hilbert_order((lower + upper) / 2)
        level = ((lower - self.reach)[self._order], (upper + self.reach)[self._order])
        self._levels = [level]
        while len(level[0]) > 1:
            level = _enclosing(*level)
            self._levels.insert(0, level)

    def find(self, points: Floats) -> tuple[Ints, Ints]:
        """Find all pairs of a point and an element whose box contains the point.

        Shapes: `points` (n, dim), returned (k,).
        """
        which = np.arange(len(points))
        box = np.zeros(len(points), dtype=np.int64)
        for depth, (lower, upper) in enumerate(self._levels):
            if depth:
                box = (box[:, None] * _FAN + np.arange(_FAN)).ravel()
                which = np.repeat(which, _FAN)
                exists = box < len(lower)
                which, box = which[exists], box[exists]
            x = points[which]
            holds = ((lower[box] <= x) & (x <= upper[box])).all(axis=1)
            which, box = which[holds], box[holds]
        return which, self._order[box]


def _enclosing(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Lower and upper corners of the boxes around each `_FAN` consecutive boxes."""
    first = np.arange(0, len(lower), _FAN)
    return np.minimum.reduceat(lower, first), np.maximum.reduceat(upper, first)


def _locate(mesh: Mesh, boxes: Boxes, points: Floats, keys: Ints, reference: Floats) -> None:
    """Locate a few points, see `locate`. Write to `keys` and `reference`.

    The key of an element is its number, plus `NEAR` if the point is only near to it. A point
    belongs to the element of the lowest key.
    """
    element = element_of_maps(mesh.coordinates)
    which, candidate = boxes.find(points)
    for search in (_newton_only, _newton_in_parts):
        # A point in the interior of an element is in no other element, as elements do not overlap.
        # A failure of Newton's method does not prove that a point is outside, so search on.
        inside = _depths(element.cell, reference[which]) > _INTERIOR
        open_ = ~inside & (candidate < keys[which])
        which, candidate = which[open_], candidate[open_]
        for start, stop in element_blocks(len(which), mesh.coordinates.shape[1]):
            i, e = which[start:stop], candidate[start:stop]
            held, xi = search(mesh.coordinates[e], points[i], boxes.reach[e])
            i, e = i[held], e[held]
            distance = np.abs(element.values_at(xi, mesh.coordinates[e]) - points[i])
            key = e + NEAR * (distance > boxes.round_off[e]).any(axis=1)
            np.minimum.at(keys, i, key)
            lowest = keys[i] == key
            reference[i[lowest]] = xi[lowest]


def _newton_only(coordinates: Floats, x: Floats, reach: Floats) -> tuple[Ints, Floats]:
    """Try Newton's method from the middle of each element that may contain the point.

    Shapes: `coordinates` (n, nodes, dim), `x` (n, dim), `reach` (n, dim), `held` (k,), `xi`
    (k, dim).
    """
    near = np.flatnonzero(_may_hold(_bernstein(coordinates), x, reach))
    middle = np.tile(element_of_maps(coordinates).cell.center, (len(near), 1))
    held, xi = _newton(coordinates[near], x[near], middle, reach[near])
    return near[held], xi[held]


def _newton_in_parts(coordinates: Floats, x: Floats, reach: Floats) -> tuple[Ints, Floats]:
    """Try Newton's method from the middle of smaller and smaller parts of the elements.

    See `_newton_only` for parameters and results.
    """
    cell = element_of_maps(coordinates).cell
    lows, sides = _halves(cell)
    place = np.full(x.shape, np.nan)
    pair, low = np.arange(len(x)), np.zeros_like(x)
    frame = np.tile(np.eye(cell.dim), (len(x), 1, 1))  # xi in the element of those in the part
    parts = _bernstein(coordinates)
    for _ in range(_HALVINGS):
        low = (low[:, None] + lows @ frame.swapaxes(1, 2)).reshape(-1, cell.dim)
        frame = (frame[:, None] @ sides).reshape(-1, cell.dim, cell.dim)
        parts, pair = _halved(parts), np.repeat(pair, len(lows))
        near = _may_hold(parts, x[pair], reach[pair])
        parts, pair, low, frame = parts[near], pair[near], low[near], frame[near]
        middle = low + frame @ cell.center[0]
        held, xi = _newton(coordinates[pair], x[pair], middle, reach[pair])
        place[pair[held]] = xi[held]
        open_ = np.isnan(place[pair, 0])
        parts, pair, low, frame = parts[open_], pair[open_], low[open_], frame[open_]
        if not len(pair):
            break
    found = np.flatnonzero(~np.isnan(place[:, 0]))
    return found, place[found]


def _depths(cell: Cell, xi: Floats) -> Floats:
    """Distances (n,) of reference points from the faces of the cell, negative outside."""
    far = 1.0 - (xi if cell.cube else _summed(cell, xi))
    return np.asarray(np.minimum(xi.min(axis=1), far.min(axis=1)))


def _summed(cell: Cell, xi: Floats) -> Floats:
    """Numbers (n, k) that are at most 1 in a simplex or prism."""
    flat = 2 if cell.shape == "prism" else cell.dim
    return np.column_stack([xi[:, :flat].sum(axis=1), xi[:, flat:]])


def _clipped(cell: Cell, xi: Floats) -> Floats:
    """Reference points (n, dim), those outside the cell moved into it."""
    if cell.cube:
        return np.clip(xi, 0.0, 1.0)
    inside = np.maximum(xi, 0.0)
    most = np.maximum(_summed(cell, inside), 1.0)
    if cell.shape == "prism":
        most = most[:, [0, 0, 1]]
    return np.asarray(inside / most)


def _bernstein(coordinates: Floats) -> Floats:
    """Bernstein coefficients (n, nodes, dim) of the map, from the nodes."""
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    if not cell.cube:
        return np.asarray(simplices.from_nodes(cell, degree) @ coordinates)
    return tensor_element(Basis1D("bernstein", degree), cell.dim).from_nodal(coordinates)


@lru_cache
def _halves(cell: Cell) -> tuple[Floats, Floats]:
    """First corners (2**dim, dim) of the halves of a cell, and their sides as columns."""
    corners = cell.corners[:, None] / 2 if cell.cube else simplices.halves(cell)
    if cell.cube:
        return corners[:, 0], np.tile(np.eye(cell.dim) / 2, (len(corners), 1, 1))
    return corners[:, 0], (corners[:, 1 : cell.dim + 1] - corners[:, :1]).swapaxes(1, 2)


def _halved(parts: Floats) -> Floats:
    """Bernstein coefficients (n * 2**dim, nodes, dim) of the 2**dim halves of parts."""
    cell, degree = cell_and_degree(*parts.shape[1:])
    if not cell.cube:
        children = np.matmul(_of_halves(cell, degree), parts[:, None])
        return np.asarray(children.reshape(-1, *parts.shape[1:]))
    low = _first_half(degree)
    halves = (low, low[::-1, ::-1])
    lines = itertools.product(halves, repeat=cell.dim)
    return np.stack([tensor_apply(line[::-1], parts) for line in lines], axis=1).reshape(
        -1, *parts.shape[1:]
    )


@lru_cache(maxsize=32)
def _of_halves(cell: Cell, degree: int) -> Floats:
    """Matrices (2**dim, nodes, nodes) from Bernstein coefficients on a simplex to its halves'."""
    nodes, (lows, sides) = simplices.nodes(cell, degree), _halves(cell)
    values = [
        simplices.bernstein(cell, degree, low + nodes @ side.T)
        for low, side in zip(lows, sides, strict=True)
    ]
    return np.asarray(simplices.from_nodes(cell, degree) @ np.stack(values))


@lru_cache(maxsize=32)
def _first_half(g: int) -> Floats:
    """Matrix from Bernstein coefficients on [0, 1] to those on [0, 1/2]: binom(i, j) / 2^i."""
    return np.array([[math.comb(i, j) / 2.0**i for j in range(g + 1)] for i in range(g + 1)])


def _may_hold(parts: Floats, x: Floats, reach: Floats) -> Flags:
    """True (n,) if x lies in the box around a part along the part's own axes.

    The axes are the columns of the Jacobian J at the middle of the part, or the edges at the first
    corner of a simplex or prism. The adjugate of J, det J times the inverse, avoids a division by
    the determinant.
    """
    cell, degree = cell_and_degree(*parts.shape[1:])
    if not cell.cube:
        adjugate = adjugates((parts[:, 1 : cell.dim + 1] - parts[:, :1]).swapaxes(1, 2))
        # the face that does not touch the corner bounds a sum, in a prism of two coordinates
        flat = 2 if cell.shape == "prism" else cell.dim
        among = adjugate[:, :flat].sum(axis=1, keepdims=True)
        adjugate = np.concatenate([adjugate, among], axis=1)
    else:
        columns = tensor_element(Basis1D("bernstein", degree), cell.dim).slopes([0.5], parts)
        adjugate = adjugates(np.stack(columns, axis=-1)[:, 0])
    own = np.einsum("nij,nmj->nmi", adjugate, parts - x[:, None])
    margin = np.einsum("nij,nj->ni", np.abs(adjugate), reach)
    return np.asarray(
        ((own.min(axis=1) <= margin) & (own.max(axis=1) >= -margin)).all(axis=1), dtype=np.bool_
    )


def _newton(coordinates: Floats, x: Floats, start: Floats, reach: Floats) -> tuple[Flags, Floats]:
    """Solve x(xi) = x by damped Newton's method, in one element for each point.

    A step that does not come closer is halved. The method gives up a point if no step helps, or if
    xi is outside the element by half its width.

    Shapes: `held` (n,), `xi` (n, dim).
    """
    element = element_of_maps(coordinates)
    xi = start.copy()
    misfit, step = _newton_step(element, coordinates, x, xi)
    damping = np.ones(len(x))
    active = np.arange(len(x))
    for _ in range(_STEPS):
        nodes, goal = coordinates[active], x[active]
        trial = xi[active] + damping[active, None] * step[active]
        new_misfit, new_step = _newton_step(element, nodes, goal, trial)
        better = new_misfit < misfit[active]
        done = better & (np.abs(trial - xi[active]).max(axis=1) < _CONVERGED)
        left = better & (np.abs(trial - 0.5).max(axis=1) > 1.0)
        took = active[better]
        xi[took], misfit[took], step[took] = trial[better], new_misfit[better], new_step[better]
        damping[active] = np.where(better, 1.0, damping[active] / 2)
        going = ~done & ~left & (damping[active] >= _LEAST_DAMPING) & (misfit[active] > 0.0)
        active = active[going]
        if not len(active):
            break
    xi = _clipped(element.cell, xi)
    distance = np.abs(element.values_at(xi, coordinates) - x)
    return np.asarray((distance <= reach).all(axis=1)), xi


def _newton_step(
    element: Element, coordinates: Floats, x: Floats, xi: Floats
) -> tuple[Floats, Floats]:
    """Distance |x(xi) - x| (n,), and Newton's step (n, dim) at xi, of at most half an element.

    The step is 0 if the Jacobian is singular.
    """
    residual = element.values_at(xi, coordinates) - x
    jacobian = np.stack(element.slopes_at(xi, coordinates), axis=-1)
    towards = np.einsum("nij,nj->ni", adjugates(jacobian), -residual)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        step = towards / determinants(jacobian)[:, None]
    step[~np.isfinite(step).all(axis=1)] = 0.0
    longest = np.abs(step).max(axis=1, initial=_LONGEST)
    step *= (_LONGEST / longest)[:, None]
    return np.linalg.norm(residual, axis=1), step
