"""Meshes of the problems: boxes with walls.

The meshes equal the mesh files of Laghos, except ``cube_gresho`` and ``rt3D``, which Laghos does
not have. Boundary attributes 1, 2 and 3 are walls across x, y and z. At a wall the velocity
component across it is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from femops.errors import HydroError
from femops_common.arguments import checked, numbers_of
from femops_meshes import Mesh, box

_LINES: dict[str, Sequence[Sequence[float]]] = {
    "segment01": [(0.0, 0.5, 1.0)],
    "square01_quad": [(0.0, 0.5, 1.0)] * 2,
    "cube01_hex": [(0.0, 0.5, 1.0)] * 3,
    "rectangle01_quad": [range(8), range(4)],
    "box01_hex": [(0.0, 1.0, 3.0, 5.0, 7.0), (0.0, 1.5, 3.0), (0.0, 1.5, 3.0)],
    "square_gresho": [(-0.5, 0.0, 0.5)] * 2,
    "cube_gresho": [(-0.5, 0.0, 0.5)] * 3,
    "rt2D": [(0.0, 0.5), (-1.0, -0.5, 0.0, 0.5, 1.0)],
    "rt3D": [(0.0, 0.5), (-1.0, -0.5, 0.0, 0.5, 1.0), (0.0, 0.5)],
}

MESHES = tuple(_LINES)
"""Names of the meshes that `built_in` makes."""


def built_in(name: str) -> Mesh:
    """Make the built-in mesh with a name in `MESHES`.

    Raises
    ------
    HydroError
        The name is not in `MESHES`.
    """
    if name not in _LINES:
        raise HydroError(f"there is no mesh {name!r}: give one of {', '.join(MESHES)}")
    return grid(_LINES[name])


@checked(HydroError)
def grid(lines: Sequence[Sequence[float]]) -> Mesh:
    """Make a box from grid lines per direction. Walls across x, y, z have attributes 1, 2, 3."""
    given = [numbers_of(line, "a line", HydroError) for line in lines]
    counts = [line.size - 1 for line in given]
    mesh = box(counts, 0.0, [float(n) for n in counts])
    mesh = mesh.mapped(
        lambda x: np.array([np.interp(a, range(b.size), b) for a, b in zip(x, given, strict=True)])
    )
    return mesh.with_attributes(boundary=(mesh.boundary_attributes + 1) // 2)
