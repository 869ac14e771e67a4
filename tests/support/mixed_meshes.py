"""Meshes of several shapes, with vertices and corners in random order, and dense sums on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry import Geometry
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


def flat_mesh(n: int = 1, *, curved: int = 0) -> Any:
    """Quadrilaterals, and to the right of them triangles, of n refinements."""
    x = np.array([[0, 0], [1, 0], [2, 0.2], [0, 1], [1, 1.1], [2, 1.0]])
    shapes = {"quadrilaterals": [[0, 1, 3, 4]], "triangles": [[1, 2, 4], [2, 5, 4]]}
    mesh = MixedMesh.from_arrays(x, shapes).refine(n)
    return mesh.mapped(lambda x: x + 0.06 * np.sin(2.0 * x[::-1]), curved) if curved else mesh


MIXED_MESHES = {
    "prisms": lambda: mixed_mesh(1, seed=2, shapes=("prisms",)),
    "curved squares and triangles": lambda: flat_mesh(curved=2),
    "curved hexahedra, prisms, tetrahedra": lambda: mixed_mesh(1, seed=1, curved=2),
}


def bulged(x: Floats) -> Floats:
    """A smooth map of space."""
    return np.array(
        [
            x[0] + 0.08 * np.sin(2.0 * x[1]) * x[2],
            x[1] + 0.06 * x[0] * np.cos(x[2]),
            x[2] + 0.05 * x[0] * x[1],
        ]
    )


MIXED = {2: lambda: flat_mesh(curved=2), 3: lambda: mixed_mesh(1, curved=2)}
"""Curved meshes by dimension."""


def form(u: Any, x: Any) -> Any:
    """Values and derivatives, with a coefficient each."""
    return {"value": (1 + x[0]) * u, "grad": (2 - x[-1]) * u.grad}


def matrix(V: Any) -> Floats:
    """Dense matrix of `form`, a sum over the elements of all parts by NumPy."""
    dense = np.zeros((V.size, V.size))
    for part in V.parts:
        rule, element = part.quadrature(), part.element
        unit = np.eye(element.size)
        values = element.values(rule.places, unit)
        slopes = np.array([element.values(rule.places, unit, d) for d in range(V.dim)])
        geometry = Geometry(part.mesh, rule)
        for e in range(part.mesh.num_elements):
            block = geometry.block(e, e + 1)
            w, x = block.weighted_det[0], block.points[0]
            grads = np.einsum("dnq,qdi->inq", slopes, block.inverse[0])
            local = np.einsum("q,iq,jq->ij", w * (1 + x[:, 0]), values, values)
            local += np.einsum("q,diq,djq->ij", w * (2 - x[:, -1]), grads, grads)
            dofs = part.restriction.indices[e]
            dense[np.ix_(dofs, dofs)] += local
    return dense


def positions_of(V: Any, W: Any) -> Ints:
    """Dof of a serial space V at each dof that this rank owns of the space W that ranks share."""
    found, first = np.full(W.parts[0].restriction.ndofs, -1), 0
    for one, mine in zip(V.parts, W.parts, strict=True):
        rows = mine.distributed.part.elements - first
        found[mine.restriction.indices] = one.restriction.indices[rows]
        first += one.mesh.num_elements
    return found[: W.ndofs]
