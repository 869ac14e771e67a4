"""Meshes of Netgen and NGSolve as the arrays of a Gmsh file. Neither package is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.file import Cells, GmshArrays, arrays_of
from femops.io.gmsh.nodes import KINDS
from femops.io.gmsh.reader import SHAPES
from femops_meshes import MeshFormatError
from femops_meshes.formats.scanner import printable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHAPES = {
    **dict.fromkeys((10, 12), "Triangle"),
    **dict.fromkeys((11, 13, 14), "Quadrilateral"),
    **dict.fromkeys((20, 21), "Tetrahedron"),
    **dict.fromkeys((22, 28), "Pyramid"),
    **dict.fromkeys((23, 24, 27), "Prism"),
    **dict.fromkeys((25, 26), "Hexahedron"),
}
"""Gmsh's word for the shape by Netgen's type number, of elements of degree 1 and 2."""

_SECOND = (12, 13, 14, 21, 24, 26, 27, 28)
_CORNERS = {kind.shape: kind.size for kind in KINDS.values() if kind.degree == 1}
_NUMBERS = {(kind.shape, kind.degree): number for number, kind in reversed(KINDS.items())}
_UNNAMED = ("", "default")


def netgen_arrays(source: Any) -> tuple[GmshArrays, str]:
    """Arrays of a mesh, and its name in errors. Elements have the degree of ``Curve``.

    Each element has nodes of its own inside its edges and faces.
    """
    name = f"the {type(source).__module__.split('.')[0]} mesh"
    if hasattr(source, "ngmesh"):
        if getattr(source, "deformation", None) is not None:
            raise MeshFormatError(
                f"{name} has a deformation, which is not read: call mesh.UnsetDeformation(), and "
                "move the mesh by mesh.mapped(function) afterwards"
            )
        source = source.ngmesh
    dim = int(source.dim)
    known = np.asarray(source.Coordinates(), dtype=np.float64).reshape(-1, dim)
    points = [np.zeros((len(known), 3))]
    points[0][:, :dim] = known
    cells: list[Cells] = []
    stop = len(known)
    for kind, nodes, tags in _elements(source, dim):
        degree = int(source.GetCurveOrder())
        degree = max(degree, 2) if kind in _SECOND else degree
        shape = "Line" if dim == 1 else _SHAPES[kind]
        corners = nodes[:, : _CORNERS[shape]]
        if degree == 1 or dim == 1:
            cells += _by_tag(_NUMBERS[shape, 1], corners, tags)
            continue
        if (shape, degree) not in _NUMBERS or shape not in SHAPES:
            raise MeshFormatError(
                f"{name} has {len(nodes)} {shape.lower()}(s) of degree {degree}, which are not "
                "read: call Curve with a lower degree"
            )
        inner = _mapped(source, _places(shape, degree)[_CORNERS[shape] :], kind)
        own = stop + np.arange(inner.shape[0] * inner.shape[1]).reshape(inner.shape[:2])
        stop += own.size
        points.append(inner.reshape(-1, 3))
        cells += _by_tag(_NUMBERS[shape, degree], np.hstack([corners, own]), tags)
    names = {(dim, k): printable(text) for k, text in _names(source, dim)}
    if dim > 1:
        for kind, nodes, tags in _elements(source, dim - 1):
            shape = "Line" if dim == 2 else _SHAPES[kind]
            cells += _by_tag(_NUMBERS[shape, 1], nodes[:, : _CORNERS[shape]], tags)
        names |= {(dim - 1, k): printable(text) for k, text in _names(source, dim - 1)}
    return arrays_of(np.arange(stop), np.concatenate(points), cells, names, []), name


def _elements(source: Any, dim: int) -> Iterator[tuple[int, Ints, Ints]]:
    """Netgen's type, nodes (n, k) counted from 0, and attributes (n,) of elements."""
    elements = getattr(source, f"Elements{dim}D")()
    if not len(elements):  # NumPy() fails then
        return
    table = elements.NumPy()
    nodes, tags = table["nodes"].astype(np.int64) - 1, table["index"].astype(np.int64)
    if dim == 2 and int(source.dim) == 3:
        conditions = np.array([0, *(face.bc for face in source.FaceDescriptors())])
        if tags.size and not 0 <= tags.min() <= tags.max() < len(conditions):
            raise MeshFormatError(
                f"the netgen mesh has faces of index {tags.max()} and {len(conditions) - 1} face "
                "descriptors: add one for each index, by mesh.Add(FaceDescriptor(...))"
            )
        tags = conditions[tags]
    kinds = table["type"] if dim > 1 else np.ones(len(table), dtype=np.int64)
    for kind in np.unique(kinds).tolist():
        if dim > 1 and kind not in _SHAPES:
            raise MeshFormatError(
                f"the netgen mesh has elements of Netgen's type {kind}, which are not read: mesh "
                "with triangles or tetrahedra"
            )
        yield kind, nodes[kinds == kind], tags[kinds == kind]


def _by_tag(kind: int, nodes: Ints, tags: Ints) -> Iterator[Cells]:
    """Runs of elements of one attribute, so that elements keep their order."""
    cuts = np.flatnonzero(np.diff(tags)) + 1
    for part, tag in zip(np.split(nodes, cuts), tags[[0, *cuts]].tolist(), strict=True):
        yield Cells(kind, 0, (tag,), part)


def _places(shape: str, degree: int) -> Floats:
    """Gmsh's nodes (n, dim) of an element on Netgen's reference element."""
    x, k = SHAPES[shape].nodes(degree), SHAPES[shape].simplex
    if not k:
        return (x + 1) / 2
    first = np.column_stack([1.0 - x[:, :k].sum(axis=1), x[:, : k - 1]])
    return np.hstack([first, (x[:, k:] + 1) / 2])


def _mapped(source: Any, places: Floats, kind: int) -> Floats:
    """Positions (n, places, 3) in all elements of a type."""
    kinds = getattr(source, f"Elements{source.dim}D")().NumPy()["type"]
    found = np.zeros((len(kinds), len(places), 3))
    source.CalcElementMapping(np.ascontiguousarray(places), found)
    return np.asarray(found[kinds == kind])


def _names(source: Any, dim: int) -> Iterator[tuple[int, str]]:
    """Attributes of elements of a dimension that have names. Netgen gives others "default"."""
    if dim == 2 and int(source.dim) == 3:
        pairs = [(int(face.bc), face.bcname) for face in source.FaceDescriptors()]
    else:
        pairs = [*enumerate(source.GetRegionNames(dim=dim), 1)]
    return ((number, name) for number, name in pairs if name not in _UNNAMED)
