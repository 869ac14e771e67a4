"""MFEM's mesh format v1.0, read and written, and MFEM's numbering of H1 dofs."""

import os
from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.mapping import gauss_lobatto
from femops_meshes.errors import MeshGeometryError
from femops_meshes.formats.files import write_text
from femops_meshes.formats.mfem_numbering import (
    INSIDE,
    OUTSIDE,
    check_writable_names,
    mfem_h1_dofs,
    nodes_of_elements,
    written_sets,
)
from femops_meshes.formats.mfem_reader import GEOMETRIES, read_mfem
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.topology.entities import VTK_CORNERS, Cell

_NAMES = {"quadrilateral": "square", "hexahedron": "cube"}
_ROWS = 65536

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def write_mfem(
    mesh: Mesh | MixedMesh, path: str | os.PathLike[str], digits: int | None = None
) -> None:
    """Write a mesh in MFEM's format v1.0, or v1.3 if it has names, which become attribute sets.

    Locally refined meshes are written in the format "MFEM NC mesh v1.0", with their trees. It has
    no names: they become comments, which `read_mfem` reads and MFEM leaves out.

    Elements are written in the file's order (`Mesh.file_elements`). Straight meshes get vertices,
    curved meshes nodes in H1, discontinuous meshes nodes in L2 (Gauss-Lobatto).
    """
    check_writable_names(mesh.element_names, mesh.boundary_names)
    if isinstance(mesh, MixedMesh):
        write_text(path, _mixed_chunks(mesh, digits))
        return
    write_text(path, _chunks(mesh, digits))


def _chunks(mesh: Mesh, digits: int | None) -> Iterator[str]:
    dim = mesh.dim
    if mesh.forest is not None:
        yield from _tree_chunks(mesh, digits)
        return
    named = bool(mesh.element_names or mesh.boundary_names)
    order, cell = np.argsort(mesh.file_elements, kind="stable"), mesh.cell
    elements, boundary, nodes = mesh.elements, mesh.boundary, mesh.coordinates
    if not cell.cube:
        from femops_meshes.formats.mfem_simplices import written_elements

        line = gauss_lobatto(mesh.order + 1)[0]
        elements, nodes, boundary = written_elements(mesh, line)
    version = "v1.3" if named else "v1.0"  # older programs read only v1.0
    yield f"MFEM mesh {version}\n\ndimension\n{dim}\n\nelements\n{mesh.num_elements}\n"
    yield from _entries(elements[order], mesh.element_attributes[order], cell)
    yield from written_sets(INSIDE, mesh.element_names) if named else ()
    yield f"\nboundary\n{mesh.num_boundary}\n"
    yield from _entries(boundary, mesh.boundary_attributes, cell.face if dim > 1 else None)
    yield from written_sets(OUTSIDE, mesh.boundary_names) if named else ()
    yield from _positions(mesh, order, digits, elements, nodes)
    yield "\nmfem_mesh_end\n" if named else ""


def _mixed_chunks(mesh: MixedMesh, digits: int | None) -> Iterator[str]:
    from femops_meshes.formats.mfem_mixed import h1_nodes, written

    if not mesh.continuous:
        raise MeshGeometryError(
            f"a mesh of {mesh.plural} whose neighbours have other nodes on common faces, as a "
            "periodic one, is not written to MFEM's format: give neighbours the same nodes"
        )
    named, dim = bool(mesh.element_names or mesh.boundary_names), mesh.dim
    elements, faces, places, nodes = written(mesh)
    order = np.argsort(np.concatenate([*places.values()]))
    yield f"MFEM mesh {'v1.3' if named else 'v1.0'}\n\ndimension\n{dim}\n\n"
    yield f"elements\n{mesh.num_elements}\n"
    lines = [line for cell, rows, tags in elements for line in _lines(_entries(rows, tags, cell))]
    yield from (lines[k] for k in order.tolist())
    yield from written_sets(INSIDE, mesh.element_names) if named else ()
    yield f"\nboundary\n{mesh.num_boundary}\n"
    for cell, rows, tags in faces:
        yield from _entries(rows, tags, cell)
    yield from written_sets(OUTSIDE, mesh.boundary_names) if named else ()
    yield f"\nvertices\n{mesh.num_vertices}\n"
    values = h1_nodes(elements, places, mesh.num_vertices, nodes)
    if mesh.order == 1:
        yield f"{dim}\n"
    else:
        yield f"\nnodes\nFiniteElementSpace\nFiniteElementCollection: H1_{dim}D_P{mesh.order}\n"
        yield f"VDim: {dim}\nOrdering: 1\n\n"
    yield from _floats(values, digits)
    yield "\nmfem_mesh_end\n" if named else ""


def _lines(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield from text.splitlines(keepends=True)


def _tree_chunks(mesh: Mesh, digits: int | None) -> Iterator[str]:
    from femops_meshes.formats.mfem_trees import root_coordinates, tree_sections

    yield from tree_sections(mesh)
    vertices = root_coordinates(mesh)
    if vertices is None:
        order = np.argsort(mesh.file_elements, kind="stable")
        yield from _nodes(mesh, order, digits, mesh.elements, mesh.coordinates)
    else:
        yield f"\n# top-level node coordinates\ncoordinates\n{len(vertices)}\n{mesh.dim}\n"
        yield from _floats(vertices, digits)
    yield "\nmfem_mesh_end\n"


def _positions(
    mesh: Mesh, order: Ints, digits: int | None, elements: Ints, nodes: Floats
) -> Iterator[str]:
    dim = mesh.dim
    yield f"\nvertices\n{mesh.num_vertices}\n"
    if mesh.continuous and mesh.order == 1:
        vertices = np.empty((mesh.num_vertices, dim))
        vertices[mesh.elements] = mesh.coordinates
        yield f"{dim}\n"
        yield from _floats(vertices, digits)
        return
    yield from _nodes(mesh, order, digits, elements, nodes)


def _nodes(
    mesh: Mesh, order: Ints, digits: int | None, elements: Ints, nodes: Floats
) -> Iterator[str]:
    """Text of nodes (ne, n, dim) of elements whose corners are written in this order."""
    dim, simplex = mesh.dim, not mesh.cell.cube
    if simplex:
        from femops_meshes.formats.mfem_simplices import broken_order, h1_numbers
    if mesh.continuous:
        if simplex:
            rows, count = h1_numbers(elements[order], mesh.num_vertices, mesh.order)
            nodes = nodes[order]
        else:
            rows, count = nodes_of_elements(mesh, mesh.order)
        values = np.empty((count, dim))
        values[rows] = nodes
        name = f"H1_{dim}D_P{mesh.order}"
    else:
        values = nodes[order]
        if simplex:
            values[:, broken_order(mesh.cell, mesh.order)] = nodes[order]
        values = values.reshape(-1, dim)
        name = f"L2_T1_{dim}D_P{mesh.order}"
    yield f"\nnodes\nFiniteElementSpace\nFiniteElementCollection: {name}\n"
    yield f"VDim: {dim}\nOrdering: 1\n\n"
    yield from _floats(values, digits)


def _entries(corners: Ints, attributes: NDArray[np.int32], cell: Cell | None) -> Iterator[str]:
    """Text of elements, or of points (cell None)."""
    name = "point" if cell is None else cell.name
    turned = corners if cell is None or not cell.cube else corners[:, VTK_CORNERS[cell.dim]]
    geometry = np.full(len(corners), GEOMETRIES.index(_NAMES.get(name, name)))
    table = np.column_stack([attributes, geometry, turned])
    for start in range(0, len(table), _ROWS):
        rows = table[start : start + _ROWS].tolist()
        yield "".join(" ".join(map(str, row)) + "\n" for row in rows)


def _floats(values: NDArray[np.float64], digits: int | None) -> Iterator[str]:
    form = repr if digits is None else f"{{:.{digits}g}}".format
    for start in range(0, len(values), _ROWS):
        block = (values[start : start + _ROWS] + 0.0).tolist()  # + 0.0: no minus zeros
        words = map(form, chain.from_iterable(block))
        yield "".join(" ".join(row) + "\n" for row in zip(*[words] * values.shape[1], strict=True))


__all__ = ["mfem_h1_dofs", "read_mfem", "write_mfem"]
