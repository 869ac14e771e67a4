"""CEED's bake-off problems, and the meshes they run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.forms import diffusion, mass
from femops.operators import Operator
from femops.space import H1
from femops_meshes import Mesh, box

PROBLEMS: dict[str, Callable[[H1], Operator]] = {
    "bp1": lambda V: mass(V, quadrature=V.order + 2),
    "bp3": lambda V: diffusion(V, quadrature=V.order + 2),
}
"""Scalar mass (bp1) and scalar diffusion (bp3): p + 2 Gauss points, data stored at every point."""

MESHES = ("deformed", "cartesian")


def _deform(x: NDArray[np.float64]) -> NDArray[Any]:
    """A smooth map of the unit cube that bends every direction: no element stays affine."""
    a, b, c = np.sin(np.pi * x)
    shift = 0.06 * np.stack([b * c * (1 + x[0]), a * c * (1 + x[1]), a * b * (1 + x[2])])
    return x + shift + 0.03 * np.stack([x[1] * x[2], x[0] * x[2], x[0] * x[1]])


def make_mesh(kind: str, order: int, dofs: float) -> Mesh:
    """Box of hexahedra on which a space of this order has about that many dofs.

    Parameters
    ----------
    kind : {"deformed", "cartesian"}
        ``deformed``: multilinear elements, none of them affine.  Both in the order of a
        space-filling curve, with no structure used.

    Raises
    ------
    OperatorError
        An unknown kind.
    """
    if kind not in MESHES:
        raise OperatorError(f"mesh {kind!r}: choose one of {', '.join(MESHES)}")
    n = max(1, round((dofs ** (1 / 3) - 1) / order))
    return box((n, n, n), mapping=_deform if kind == "deformed" else None)
