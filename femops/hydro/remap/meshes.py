"""Meshes of Remhos' runs: periodic boxes, a periodic hexagon, and boxes that have a boundary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.hydro import meshes as hydro_meshes
from femops_meshes import Mesh, box

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_THIRDS = {2: 0.333333333, 3: 0.333333}  # as Remhos' files write a third


def _periodic_box(dim: int) -> Mesh:
    """Box [-1, 1]^dim of three elements in each direction, which is periodic."""
    third = _THIRDS[dim]
    lines = [-1.0, -third, third, 1.0]
    mesh = box([3] * dim, 0.0, 3.0, periodic=True)
    return mesh.mapped(lambda x: np.interp(x, range(4), lines))


def _periodic_hexagon() -> Mesh:
    """Hexagon of radius 1, of three rhombi with 2 x 2 elements each, whose sides are joined."""
    corners = np.array([(np.cos(a), np.sin(a)) for a in np.pi / 3.0 * np.arange(6)])
    unit, nodes = np.array([(0, 0), (1, 0), (0, 1), (1, 1)]), []
    for first in (4, 0, 2):  # a rhombus has two sides of the hexagon and two that end in its centre
        origin = corners[first]
        sides = np.array([corners[(first + 1) % 6] - origin, -origin])
        nodes += [origin + 0.5 * (unit + shift) @ sides for shift in unit]
    coordinates = np.array(nodes)
    return Mesh.from_arrays(None, _joined(coordinates), coordinates=coordinates)


def _joined(coordinates: Floats) -> Ints:
    """Vertex numbers (ne, 4) of a periodic hexagon: vertices that a translation joins are one."""
    height = np.sqrt(0.75)
    periods = [(0.0, 0.0), *[(1.5 * a, height * b) for a in (-1, 1) for b in (-1, 1)]]
    periods += [(0.0, 2.0 * height), (0.0, -2.0 * height)]
    found: list[Floats] = []
    numbers = []
    for x in coordinates.reshape(-1, 2):
        near = [k for k, y in enumerate(found) for p in periods if np.allclose(x, y + p)]
        numbers.append(near[0] if near else len(found))
        if not near:
            found.append(x)
    return np.array(numbers).reshape(-1, 4)


_MAKERS: dict[str, Callable[[], Mesh]] = {
    "periodic-square": lambda: _periodic_box(2),
    "periodic-cube": lambda: _periodic_box(3),
    "periodic-hexagon": _periodic_hexagon,
    "inline-quad": lambda: box((4, 4)),
    "cube01_hex": lambda: hydro_meshes.built_in("cube01_hex"),
}

ADVECTION_MESHES = tuple(_MAKERS)
"""Names of the meshes that `advection_mesh` makes."""


def advection_mesh(name: str) -> Mesh:
    """Make the mesh of Remhos with a name in `ADVECTION_MESHES`.

    Raises
    ------
    HydroError
        There is no such mesh.
    """
    if name not in _MAKERS:
        raise HydroError(f"there is no mesh {name!r}: give one of {', '.join(_MAKERS)}")
    return _MAKERS[name]()
