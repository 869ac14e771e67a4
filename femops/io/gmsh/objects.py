"""Meshes of other libraries, and of MFEM's files, as the arrays of a Gmsh file.

No other library is imported: an object comes with its own.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.file import Cells, GmshArrays, arrays_of, read_arrays
from femops.io.gmsh.lagrange import WORDS, check_joined, in_gmsh_order, lagrange_type
from femops.io.gmsh.nodes import KINDS
from femops.io.gmsh.reader import SHAPES
from femops_meshes import MeshError, MeshFormatError
from femops_meshes.formats.mfem_reader import FileArrays
from femops_meshes.formats.scanner import printable
from femops_meshes.formats.temporary import temporary_file

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TAGS = ("gmsh:physical", "medit:ref", "cell_tags", "attribute")
"""Data of meshio's cells that are attributes; the first that a mesh has is taken."""

_SHAPES = {
    "vertex": "Point",
    "line": "Line",
    "triangle": "Triangle",
    "quad": "Quadrilateral",
    "tetra": "Tetrahedron",
    "hexahedron": "Hexahedron",
    "wedge": "Prism",
    "pyramid": "Pyramid",
}
_NUMBERS = {(kind.shape, kind.size): number for number, kind in reversed(KINDS.items())}
_ORDERS = {
    ("Tetrahedron", 10): [*range(8), 9, 8],
    ("Hexahedron", 27): [
        *(*range(8), 8, 11, 16, 9, 17, 10, 18, 19, 12, 15, 13, 14),
        *(24, 22, 20, 21, 23, 25, 26),
    ],
}
"""Gmsh's order of the nodes of elements that meshio orders as VTK does; others have Gmsh's."""

_VTK_PRISM = [*range(6), 6, 8, 12, 7, 13, 14, 9, 11, 10, 15, 17, 16]
"""Gmsh's order of the nodes of prisms of degree 2 that are in VTK's."""


def is_mesh_object(source: Any) -> bool:
    """True for a ``meshio.Mesh``, ``gmsh.model``, and meshes of Netgen and NGSolve."""
    return _of_meshio(source) or _of_gmsh(source) or _of_netgen(source)


def _of_meshio(source: Any) -> bool:
    mine = type(source).__module__.split(".")[0] == "meshio"
    return mine and hasattr(source, "points") and hasattr(source, "cells")


def _of_gmsh(source: Any) -> bool:
    return getattr(source, "__module__", None) == "gmsh" and source is sys.modules["gmsh"].model


def _of_netgen(source: Any) -> bool:
    """True for a ``netgen.meshing.Mesh`` and for an ``ngsolve.Mesh``."""
    package = type(source).__module__.split(".")[0]
    return (package == "netgen" and hasattr(source, "Elements2D")) or (
        package == "ngsolve" and hasattr(source, "ngmesh")
    )


def object_arrays(source: Any) -> tuple[GmshArrays, str]:
    """Arrays of a mesh of another library, and its name in errors.

    Of ``gmsh.model`` these are the elements that ``gmsh.write`` saves: those in physical groups,
    if there are groups.
    """
    if _of_netgen(source):
        from femops.io.gmsh.netgen import netgen_arrays

        try:
            return netgen_arrays(source)
        except MeshError:
            raise
        except Exception as error:  # Netgen raises its own
            raise MeshFormatError(
                f"the mesh of Netgen can't be read: {printable(str(error))}"
            ) from error
    if not _of_gmsh(source):
        try:
            with np.errstate(all="ignore"):  # positions that are not finite are refused later
                return _meshio_arrays(source), "the meshio.Mesh"
        except MeshError:
            raise
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise MeshFormatError(
                f"the meshio.Mesh was changed to what meshio does not make ({printable(str(error))}"
                "): make it by meshio.Mesh(points, cells)"
            ) from error
    # as complete when it is killed: the next process removes its file
    try:
        with temporary_file(Path(tempfile.gettempdir(), "gmsh-model.msh"), mode=0o600) as file:
            _write_model(sys.modules["gmsh"], file)
            return read_arrays(file, "gmsh.model"), "gmsh.model"
    except MeshError:
        raise
    except Exception as error:  # Gmsh raises plain ones
        raise MeshFormatError(
            f"gmsh.model can't be written as a Gmsh file: {printable(str(error))}"
        ) from error


def mixed_arrays(mixed: FileArrays) -> GmshArrays:
    """Arrays of a file of MFEM. Its geometry numbers are Gmsh's type numbers of degree 1."""
    positions = np.zeros((len(mixed.positions), 3))
    positions[:, : mixed.positions.shape[1]] = mixed.positions
    cells = [
        Cells(kind, 0, (tag,), corners[mine])
        for entries in (mixed.elements, mixed.boundary)
        for kind, (attributes, corners) in entries.items()
        for tag, mine in _by_tag(attributes)
    ]
    return arrays_of(np.arange(len(positions)), positions, cells, {}, [])


def _by_tag(tags: Ints) -> Iterator[tuple[int, Ints]]:
    """Each tag, and the rows (n,) that have it, in the time of sorting them."""
    order = np.argsort(tags, kind="stable")
    known, first = np.unique(tags[order], return_index=True)
    yield from zip(known.tolist(), np.split(order, first[1:]), strict=False)  # without tags no rows


def _write_model(gmsh: Any, file: Path) -> None:
    """Write the current model, in version 4.1. Options are as before afterwards."""
    if not gmsh.isInitialized():
        raise MeshFormatError(
            "gmsh.model is empty: call read_mesh between gmsh.initialize() and gmsh.finalize()"
        )
    if not len(gmsh.model.mesh.getElementTypes()):
        raise MeshFormatError(
            "gmsh.model has no mesh: call gmsh.model.mesh.generate(2), or (3) in 3-D, before"
        )
    wanted = {"Mesh.MshFileVersion": 4.1, "Mesh.Binary": 1.0, "Mesh.SaveParametric": 0.0}
    before = {name: gmsh.option.getNumber(name) for name in wanted}
    try:
        for name, value in wanted.items():
            gmsh.option.setNumber(name, value)
        gmsh.write(str(file))
    finally:
        for name, value in before.items():
            gmsh.option.setNumber(name, value)


def _meshio_arrays(source: Any) -> GmshArrays:
    """Arrays of a mesh of meshio, with its attributes and their names."""
    points = np.asarray(source.points, dtype=np.float64)
    if points.ndim != 2 or not 1 <= points.shape[1] <= 3 or not source.cells:
        raise MeshFormatError(
            f"the meshio.Mesh has {len(source.cells)} blocks of cells, and points of shape "
            f"{points.shape}: give it cells, and points of shape (n, 1) to (n, 3)"
        )
    positions = np.zeros((len(points), 3))
    positions[:, : points.shape[1]] = points
    blocks = [_block(block.type, np.asarray(block.data), positions) for block in source.cells]
    if any(block.type in WORDS for block in source.cells):
        check_joined(blocks, positions)
    data = next((source.cell_data[name] for name in _TAGS if name in source.cell_data), None)
    names: dict[tuple[int, int], str] = {}
    cells: list[Cells] = []
    if data is None:
        # elements of several sets come several times, as in a file of Gmsh's version 2
        cells = [Cells(kind, 0, (), nodes) for kind, nodes in blocks]
        for number, (name, parts) in enumerate(_sets(source), 1):
            for (kind, nodes), part in zip(blocks, parts, strict=True):
                if len(chosen := _chosen(name, part, len(nodes))):
                    cells.append(Cells(kind, 0, (number,), nodes[chosen]))
                    names[KINDS[kind].dim, number] = printable(name)
    else:
        for (kind, nodes), block in zip(blocks, data, strict=True):
            if len(tags := _whole(block)) != len(nodes):
                raise ValueError(f"{len(tags)} tags for {len(nodes)} cells")
            for tag, mine in _by_tag(tags):
                cells.append(Cells(kind, 0, (tag,), nodes[mine]))
        for name, pair in source.field_data.items():
            if np.shape(pair) == (2,):
                tag, dim = np.asarray(pair).tolist()
                names[int(dim), abs(int(tag))] = printable(name)
    return arrays_of(np.arange(len(positions)), positions, cells, names, [])


def _block(name: str, nodes: Ints, positions: Floats) -> tuple[int, Ints]:
    """Gmsh's type of a block of cells, and their nodes (n, k) in Gmsh's order."""
    word = re.sub(r"\d+$", "", name)
    size = nodes.shape[1] if nodes.ndim == 2 else 0
    key, of_vtk = (_SHAPES.get(word, ""), size), lagrange_type(name, size)
    if key not in _NUMBERS and of_vtk is None:
        raise MeshFormatError(
            f"the meshio.Mesh has cells of type {printable(name)} with {size} points, which are "
            "not read: give it cells as meshio names them for Gmsh, such as quad, quad9 or "
            "hexahedron27, or complete Lagrange cells of VTK"
        )
    with np.errstate(invalid="ignore"):
        whole = nodes.astype(np.int64)
    if (whole != nodes).any():
        raise ValueError("cells with numbers of points that are not whole")
    if of_vtk is not None:
        return of_vtk, in_gmsh_order(of_vtk, whole, positions)
    order = _ORDERS.get(key, slice(None))
    if key == ("Prism", 18) and _as_vtk(whole, positions):
        order = _VTK_PRISM
    return _NUMBERS[key], whole[:, order]


def _as_vtk(nodes: Ints, positions: Floats) -> bool:
    """True if prisms (n, 18) have VTK's order of nodes: those on edges lie nearer to the middles.

    meshio leaves them in the order of the file, be it Gmsh's or VTK's.
    """
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < len(positions):
        return False  # told by what reads the nodes
    x, ends = positions[nodes], np.array(SHAPES["Prism"].edges)
    middles = x[:, ends].mean(axis=2)
    far = [((x[:, order][:, 6:15] - middles) ** 2).sum() for order in (range(18), _VTK_PRISM)]
    return bool(far[1] < far[0])


def _sets(source: Any) -> Iterator[tuple[str, Any]]:
    """Sets of cells, without those in which meshio keeps facts about Gmsh's entities."""
    return ((name, parts) for name, parts in source.cell_sets.items() if name[:5] != "gmsh:")


def _chosen(name: str, part: Any, count: int) -> Ints:
    """Cells (n,) of a block that are in a set."""
    if part is None or not len(part):
        return np.zeros(0, dtype=np.int64)
    chosen = _whole(part)
    if chosen.min() < 0 or chosen.max() >= count:
        raise MeshFormatError(
            f"the set {name!r} of the meshio.Mesh has cell {chosen.max()} of a block of {count}"
        )
    return chosen


def _whole(values: Any) -> Ints:
    """Whole numbers (n,). Raise if they are none, or do not fit."""
    given = np.asarray(values)
    if given.dtype.kind not in "iuf":
        given = np.full(1, np.nan)
    with np.errstate(invalid="ignore"):
        result = given.astype(np.int64)
    if given.ndim != 1 or (result != given).any() or (abs(result) >= 2**31).any():
        raise MeshFormatError(
            "tags of cells, and sets, of the meshio.Mesh must be whole numbers of 4 bytes: correct "
            f"{', '.join(_TAGS)} in cell_data"
        )
    return result
