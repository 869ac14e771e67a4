"""A naive oracle for integrals over the boundary.

It stands on tests/support/oracles/naive.py and shares no code with femops.  Faces are found by
comparing vertex numbers; the basis of the adjacent element is evaluated at the points of the face;
the surface element comes from the tangents, and the normal is turned to point away from the
element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from support.oracles.naive import Array, degree, gauss_rule, line


def tabulate(family: str, p: int, grids: list[Array], slope: int | None = None) -> Array:
    """Values (points, nodes) of the basis at a grid, or derivatives along one direction."""
    full = np.ones((1, 1))
    for d, grid in enumerate(grids):
        full = np.kron(line(family, p, grid)[int(d == slope)].astype(float), full)
    return full


@final
@dataclass(frozen=True)
class Face:
    """One boundary face: the element's basis at its points, and the geometry.

    ``values`` (nq, nodes) and ``slopes`` (nq, nodes, dim), derivatives in space; ``h`` (nq,) is the
    length of the line across the element along the normal, if the element were its tangent's.
    """

    nodes: Array
    values: Array
    slopes: Array
    h: Array
    x: Array
    normal: Array
    measure: Array


def local_faces(dim: int) -> Iterator[tuple[int, int, set[int]]]:
    """Fixed direction, side and corner numbers of each face of an element."""
    for fixed, side in itertools.product(range(dim), (0, 1)):
        yield fixed, side, {c for c in range(2**dim) if (c >> fixed & 1) == side}


def listed_faces(mesh: Any, attributes: list[int] | None) -> list[tuple[int, int, int]]:
    """Element, fixed direction and side of the boundary entries of some attributes.

    Each once, in the order that femops has for 128 faces or fewer: by ternary code, then element.
    """
    of_vertices: dict[frozenset[int], tuple[int, int, int]] = {}
    for e, corners in enumerate(mesh.elements):
        for fixed, side, local in local_faces(mesh.dim):
            of_vertices.setdefault(frozenset(int(corners[c]) for c in local), (e, fixed, side))
    chosen = {
        of_vertices[frozenset(map(int, corners))]
        for corners, attribute in zip(mesh.boundary, mesh.boundary_attributes, strict=True)
        if attributes is None or attribute in attributes
    }
    return sorted(chosen, key=lambda face: (3 ** face[1] * (2 * face[2] - 1), face[0]))


def faces(space: Any, attributes: list[int] | None, q1d: int | None = None) -> Iterator[Face]:
    """The boundary faces of a space's mesh at the points of a Gauss rule, p + 2 if omitted."""
    mesh, dim = space.mesh, space.mesh.dim
    points, weights = gauss_rule(space.order + 2 if q1d is None else q1d)
    g = degree(mesh.coordinates.shape[1], dim)
    for e, fixed, side in listed_faces(mesh, attributes):
        grids = [np.array([float(side)]) if d == fixed else points for d in range(dim)]
        across = np.ones(1)
        for _ in range(dim - 1):
            across = np.outer(weights.astype(float), across).ravel()
        slopes = [tabulate("gll", g, grids, d) @ mesh.coordinates[e] for d in range(dim)]
        tangents = np.stack([slopes[d] for d in range(dim) if d != fixed], 1) if dim > 1 else None
        outwards = slopes[fixed] * (2 * side - 1)
        if tangents is None:
            normal = np.ones_like(outwards)
        elif dim == 2:
            normal = np.stack([tangents[:, 0, 1], -tangents[:, 0, 0]], 1)
        else:
            normal = np.cross(tangents[:, 0], tangents[:, 1])
        lengths = np.linalg.norm(normal, axis=1)
        normal = normal / lengths[:, None]
        normal = normal * np.sign((normal * outwards).sum(1))[:, None]
        values = tabulate(space.basis.family, space.order, grids)
        x = tabulate("gll", g, grids) @ mesh.coordinates[e]
        inverse = np.linalg.inv(np.stack(slopes, axis=2))  # (nq, reference, space)
        basis = [tabulate(space.basis.family, space.order, grids, d) for d in range(dim)]
        in_space = np.einsum("dqm,qdi->qmi", np.stack(basis), inverse)
        h = 1.0 / np.linalg.norm(inverse[:, fixed], axis=1)
        nodes = space.restriction.indices[e]
        yield Face(nodes, values, in_space, h, x, normal, lengths * across)


def matrix(
    trial: Any, test: Any, attributes: list[int] | None, weak: Callable[[Array, Array], Any]
) -> Array:
    """Dense matrix of the form whose D is ``weak(x, n)`` (ncomp_test, ncomp_trial) at a point."""

    def of_values(x: Array, n: Array, h: float) -> Array:
        slots = 1 + trial.mesh.dim
        d = np.zeros((slots, test.ncomp, slots, trial.ncomp))
        d[0, :, 0] = weak(x, n)
        return d

    return matrix_of_slots(trial, test, attributes, of_values, max(trial.order, test.order) + 2)


def matrix_of_slots(
    trial: Any,
    test: Any,
    attributes: list[int] | None,
    weak: Callable[[Array, Array, float], Array],
    q1d: int,
) -> Array:
    """Dense matrix of a form whose D is ``weak(x, n, h)`` at a point.

    D is (1 + dim, ncomp_test, 1 + dim, ncomp_trial): value, then derivatives in space.
    """
    total = np.zeros((test.ndofs, test.ncomp, trial.ndofs, trial.ncomp))
    sides = zip(faces(trial, attributes, q1d), faces(test, attributes, q1d), strict=True)
    for here, there in sides:
        into, out = (
            np.concatenate([side.values[:, :, None], side.slopes], axis=2) for side in (here, there)
        )
        for q in range(len(here.x)):
            d = here.measure[q] * weak(here.x[q], here.normal[q], here.h[q])
            local = np.tensordot(out[q], np.tensordot(d, into[q], (2, 1)), (1, 0))  # m a b n
            total[there.nodes[:, None], :, here.nodes[None]] += local.transpose(0, 3, 1, 2)
    return total.reshape(test.size, trial.size)


def load(
    space: Any, attributes: list[int] | None, g: Callable[[Array, Array], Any], q1d: int | None
) -> Array:
    """The integral of g v, (ndofs, ncomp); ``g(x, n)`` gives (ncomp,) or a number at a point."""
    total = np.zeros((space.ndofs, space.ncomp))
    for face in faces(space, attributes, q1d):
        for q in range(len(face.x)):
            value = np.broadcast_to(np.asarray(g(face.x[q], face.normal[q]), float), space.ncomp)
            np.add.at(total, face.nodes, np.outer(face.values[q] * face.measure[q], value))
    return total
