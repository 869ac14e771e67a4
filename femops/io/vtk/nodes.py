"""VTK's order of the nodes of its Lagrange cells.

VTK numbers the nodes of a cell of degree p by entity: corners, then the inside of each edge, then
of each face, then of the cell. Source: vtkLagrangeCurve, vtkLagrangeQuadrilateral and
vtkLagrangeHexahedron, ``PointIndexFromIJK``. In memory VTK 9 orders the vertical edges of a
hexahedron like the bottom's corners. In files below version 2.2 the last two vertical edges are
swapped, as in VTK 8. VTK 9 swaps them back when it reads such a file.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from femops.errors import GeometryError

CELL_TYPES = {1: 68, 2: 70, 3: 72}
"""VTK_LAGRANGE_CURVE, VTK_LAGRANGE_QUADRILATERAL, VTK_LAGRANGE_HEXAHEDRON by dimension."""

# Where an entity lies in each direction: at the low end, in the interior, at the high end.
_L, _I, _H = 0, 1, 2
_SQUARE_CORNERS = [(_L, _L), (_H, _L), (_H, _H), (_L, _H)]
_SQUARE_EDGES = [(_I, _L), (_H, _I), (_I, _H), (_L, _I)]
_ENTITIES: dict[int, list[tuple[int, ...]]] = {
    1: [(_L,), (_H,), (_I,)],
    2: [*_SQUARE_CORNERS, *_SQUARE_EDGES, (_I, _I)],
    3: [
        *((*corner, z) for z in (_L, _H) for corner in _SQUARE_CORNERS),
        *((*edge, z) for z in (_L, _H) for edge in _SQUARE_EDGES),
        *((*corner, _I) for corner in _SQUARE_CORNERS),
        *((_L, _I, _I), (_H, _I, _I), (_I, _L, _I), (_I, _H, _I), (_I, _I, _L), (_I, _I, _H)),
        (_I, _I, _I),
    ],
}


@lru_cache
def vtk_order(dim: int, degree: int, *, in_memory: bool = False) -> NDArray[np.int64]:
    """Lexicographic index ((p + 1)**dim,) of each node in VTK's order, in a file or in memory.

    Shapes: returned ((p + 1)**dim,).
    """
    if dim not in _ENTITIES or degree < 1:
        raise GeometryError(
            f"VTK has no Lagrange cell of dimension {dim} and degree {degree}: "
            "take dimension 1 to 3 and degree 1 or more"
        )
    entities = list(_ENTITIES[dim])
    if dim == 3 and not in_memory:
        entities[18:20] = entities[19], entities[18]
    ends = {_L: range(1), _I: range(1, degree), _H: range(degree, degree + 1)}
    order = [
        sum(j * (degree + 1) ** d for d, j in enumerate(reversed(index)))
        for entity in entities
        for index in product(*(ends[place] for place in reversed(entity)))
    ]
    result = np.array(order, dtype=np.int64)
    result.setflags(write=False)
    return result
