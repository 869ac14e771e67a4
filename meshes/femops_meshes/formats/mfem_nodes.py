"""Node coordinates in MFEM mesh files: collections by name, and conversion to GLL nodes."""

import re
from dataclasses import dataclass
from math import comb
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.interpolation import (
    equispaced,
    gauss_legendre,
    gauss_lobatto,
    lagrange_matrix,
)
from femops_meshes.formats.scanner import Scanner, shorten

Floats = NDArray[np.float64]

MAX_DEGREE = 32
"""Largest degree of coordinates: beyond it equispaced points lose too many digits."""

_LEGACY = {"Linear": 1, "Quadratic": 2, "Cubic": 3}
_NAME = re.compile(r"(H1|H1Pos|L2)(?:_T([0-9]))?_([1-3])D_P([0-9]{1,6})", re.ASCII)
_L2_BASES = ("gauss", "gll", "bernstein", "open", "equispaced", "half")


@final
@dataclass(frozen=True)
class Collection:
    """MFEM's finite element collection: continuity, 1-D basis, degree and name."""

    continuous: bool
    basis: str
    degree: int
    name: str

    def to_gll(self) -> Floats:
        """1-D matrix (p + 1, p + 1) from the collection's coefficients to values at GLL points."""
        p = self.degree
        x = gauss_lobatto(p + 1)[0]
        if self.basis == "gll":
            return np.eye(p + 1)
        if self.basis == "bernstein":
            columns = [comb(p, i) * x**i * (1 - x) ** (p - i) for i in range(p + 1)]
            return np.stack(columns, axis=1)
        points = {
            "equispaced": lambda: equispaced(p + 1),
            "gauss": lambda: gauss_legendre(p + 1)[0],
            "open": lambda: np.arange(1, p + 2) / (p + 2),
            "half": lambda: (np.arange(p + 1) + 0.5) / (p + 1),
        }
        return lagrange_matrix(points[self.basis](), x)


def parse_collection(scanner: Scanner, dim: int) -> Collection:
    """Read the line that names the collection."""
    name = scanner.label("FiniteElementCollection")
    if name in _LEGACY:
        return Collection(True, "equispaced", _LEGACY[name], name)
    found = _NAME.fullmatch(name)
    kind, basis = (found[1], found[2]) if found else ("", None)
    if not found or (basis is not None and (kind != "L2" or int(basis) >= len(_L2_BASES))):
        raise scanner.fail(
            f'nodes in "{shorten(name)}" are not supported: known are H1_*D_P*, H1Pos_*D_P*, '
            "L2_*D_P*, L2_T0 to T5_*D_P*, Linear, Quadratic and Cubic; save the mesh with "
            "SetCurvature(p)"
        )
    if int(found[3]) != dim:
        raise scanner.fail(f'"{name}" has dimension {found[3]}, the mesh has {dim}')
    degree = scanner.integer(found[4], f'the degree in "{name}"', 1, MAX_DEGREE)
    if kind == "L2":
        return Collection(False, _L2_BASES[int(basis or 0)], degree, name)
    return Collection(True, "gll" if kind == "H1" else "bernstein", degree, name)


def interior_order(collection: Collection, dim: int) -> list[int]:
    """Index in MFEM's order of each lexicographic dof inside a cell.

    Both orders are equal, except in the legacy cubic hexahedron, whose dofs have the order of
    MFEM's corners.
    """
    if collection.name == "Cubic" and dim == 3:
        return [0, 1, 3, 2, 4, 5, 7, 6]
    return list(range((collection.degree - 1) ** dim))
