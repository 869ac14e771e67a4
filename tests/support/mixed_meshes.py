"""Meshes of hexahedra, prisms and tetrahedra, with vertices and corners in random order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_meshes.mixed import MixedMesh

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# corners of a prism after its rotations and half turns, which keep it right-handed
_TURNS = np.array(
    [
        *([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3], [2, 0, 1, 5, 3, 4]),
        *([3, 5, 4, 0, 2, 1], [5, 4, 3, 2, 1, 0], [4, 3, 5, 1, 0, 2]),
    ]
)


def blocks(n: int) -> tuple[Floats, dict[str, Ints]]:
    """Vertices and elements of an L of three unit cubes, n elements along each edge.

    Hexahedra are in [0, 1]^3, prisms beside them along x, tetrahedra above these.
    """
    nx, ny = 2 * n + 1, n + 1
    rows: dict[str, list[Any]] = {"hexahedra": [], "prisms": [], "tetrahedra": []}
    for i, j, k in np.ndindex(2 * n, n, 2 * n):
        ends = (0, 1)
        a = [i + d + nx * (j + e + ny * (k + f)) for f in ends for e in ends for d in ends]
        two = ([a[c] for c in (0, 1, 2, 4, 5, 6)], [a[c] for c in (1, 3, 2, 5, 7, 6)])
        if i < n and k < n:
            rows["hexahedra"].append(a)
        elif i >= n and k < n:
            rows["prisms"] += two
        elif i >= n:
            for prism in two:
                order = np.argsort(prism[:3])
                low, high = np.array(prism[:3])[order], np.array(prism[3:])[order]
                rows["tetrahedra"] += [[*low[: t + 1], *high[t:]] for t in range(3)]
    grid = np.indices((2 * n + 1, ny, nx)).reshape(3, -1)[::-1].T
    return grid / n, {name: np.array(each) for name, each in rows.items()}


def mixed_mesh(n: int = 2, seed: int = 0, *, shapes: tuple[str, ...] = (), curved: int = 0) -> Any:
    """The mesh of `blocks` in random order, with some of its shapes, or of a curved degree."""
    rng = np.random.default_rng(seed)
    x, elements = blocks(n)
    order = rng.permutation(len(x))
    number = np.argsort(order)
    found = {}
    for name, given in elements.items():
        if shapes and name not in shapes:
            continue
        rows = number[given][rng.permutation(len(given))]
        if name == "prisms":
            rows = np.take_along_axis(rows, _TURNS[rng.integers(6, size=len(rows))], axis=1)
        found[name] = rows
    mesh = MixedMesh.from_arrays(x[order], found)
    return mesh.mapped(bulged, curved) if curved else mesh


def bulged(x: Floats) -> Floats:
    """A smooth map of space."""
    return np.array(
        [
            x[0] + 0.08 * np.sin(2.0 * x[1]) * x[2],
            x[1] + 0.06 * x[0] * np.cos(x[2]),
            x[2] + 0.05 * x[0] * x[1],
        ]
    )


def squares_and_triangles(times: int = 2) -> Any:
    """A square that is no parallelogram, beside triangles, refined a number of times."""
    x = np.array([[0, 0], [1, 0], [2, 0.2], [0, 1], [1, 1.1], [2, 1.0]])
    shapes = {"quadrilaterals": [[0, 1, 3, 4]], "triangles": [[1, 2, 4], [2, 5, 4]]}
    return MixedMesh.from_arrays(x, shapes).refine(times)


def positions_of(V: Any, W: Any) -> Ints:
    """Dof of a serial space V at each dof that this rank owns of the space W that ranks share."""
    found, first = np.full(W.parts[0].restriction.ndofs, -1), 0
    for one, mine in zip(V.parts, W.parts, strict=True):
        rows = mine.distributed.part.elements - first
        found[mine.restriction.indices] = one.restriction.indices[rows]
        first += one.mesh.num_elements
    return found[: W.ndofs]
