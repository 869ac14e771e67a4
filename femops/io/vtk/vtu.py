"""Fields as .vtu files with high-order cells, for ParaView, VisIt and PyVista."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import FileError, SpaceError
from femops.io.atomic import checked_path, writing
from femops.io.mesh_files import save_mesh
from femops.io.mfem_fields import save_mfem_field
from femops.io.vtk.hdf_file import check_hdf_names, h5py, save_hdf
from femops.io.vtk.nodes import CELL_TYPES, prism_order, simplex_order, vtk_order
from femops.io.vtk.pieces import save_joined, save_pieces
from femops.io.vtk.vtu_file import Array, Piece, check_name, write_vtu
from femops.parallel.comm import check, check_same
from femops.parallel.mesh import DistributedMesh
from femops.spaces.base import GridFunction
from femops.spaces.h1_l2 import H1, Space
from femops.spaces.product import Product
from femops.spaces.vectors import any_vector, has_complex
from femops_common.arguments import checked, type_name
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import equispaced_grid, positions
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.topology.entities import PRISM

Owner = Space | Product | Mesh | MixedMesh | DistributedMesh | None
"""Space, product or mesh of fields that are vectors. None if all fields are GridFunctions."""

MAX_DEGREE = 10
"""Highest degree of a cell that VTK's readers accept."""


@checked(FileError, space=SpaceError)
def save(path: str | os.PathLike[str], space: Owner = None, /, **fields: Any) -> Path:
    """Write fields and their mesh as a VTU or VTKHDF file with Lagrange cells of their degree.

    Fields of several spaces on one mesh, H1 and L2, can go into one file. Instead of a space, pass
    a mesh to write it without fields: to a VTU file, or to an MFEM file, which ends in .mesh.
    `read_mesh` reads an MFEM file back with all parts of the mesh: attributes, their names (as
    attribute sets, format v1.3), boundary, curved and periodic geometry.

    One field of one process may also go to an MFEM grid function, a file that ends in .gf. Its dofs
    are numbered as on the .mesh file that this function writes, or on the MFEM file that the mesh
    was read from, if it was not refined.

    Collective if ranks share the mesh. All ranks pass the same path, and the file has a piece of
    each rank. Many ranks should write a .pvtu file. Then each rank writes its piece to a folder
    with the name of that file, and no data pass through rank 0. Ranks write to a .vtkhdf file one
    after the other. It needs h5py (extra ``hdf``).

    Cells have the highest degree of the spaces and the mesh, at least 1. So the file represents
    curved geometry and polynomials exactly. Nodes are VTK's equispaced nodes. If all spaces are H1
    and the mesh is continuous in space, neighbours share nodes. Otherwise each cell has its own
    nodes, which keep the jumps. The attributes of the elements are the cell data ``attribute``.

    Parameters
    ----------
    path : path ending in .vtu, .pvtu or .vtkhdf
        Path in a folder that all ranks see. A mesh may also go to .mesh, and one field to .gf.
    space : Space, Product, Mesh, MixedMesh or DistributedMesh, optional
        Space of the fields, a product with a space for each field's name, or a mesh without fields.
        Not needed if all fields are GridFunctions.
    **fields : (size,) array or GridFunction
        Fields by their names in the file. Vectors of the space or of the product's spaces, or
        GridFunctions of other spaces on the mesh, such as stresses. If the number of components is
        the dimension of the mesh, the file has 3-D vectors, with zeros in the missing directions.
        A complex vector u is in the file as ``u_real`` and ``u_imag``.

    Returns
    -------
    pathlib.Path
        The file, which appears under its name only when complete.

    Raises
    ------
    FileError
        The file cannot be written or has a wrong suffix, the format cannot hold a name, or ranks do
        not see each other's files. Or there are fields, or several ranks, for a .mesh file. Or
        there is not one field of one process for a .gf file.
    MissingExtraError
        `path` ends in .vtkhdf, and h5py is missing.
    MeshError
        The mesh has a name that MFEM's format cannot hold.
    CommunicatorError
        Ranks disagree about the path or the fields.
    SpaceError
        `space` is no space, a field is on another mesh, or the space of a vector is missing.
    VectorError
        A field does not fit the space.

    Warns
    -----
    UserWarning
        The degree is above 10, the highest degree that VTK reads. Then the fields are interpolated
        at the nodes of degree 10.

    Examples
    --------
    >>> import femops, tempfile
    >>> folder, mesh = tempfile.mkdtemp(), femops.disc(2)
    >>> V, Q = femops.H1(mesh, order=3, ncomp=2), femops.L2(mesh, order=2)
    >>> u, p = femops.GridFunction(V, V.zeros()), femops.GridFunction(Q, Q.zeros())
    >>> femops.save(folder + "/flow.vtu", u=u, p=p).name
    'flow.vtu'

    The same with the vectors of a product:

    >>> W = femops.Product(u=V, p=Q)
    >>> u, p = W.split(W.zeros())
    >>> femops.save(folder + "/flow.vtu", W, u=u, p=p).name
    'flow.vtu'
    """
    if Path(path).suffix.lower() == ".mesh":
        return save_mesh(path, space, fields)
    if Path(path).suffix.lower() == ".gf":
        return save_mfem_field(path, space, fields)
    alone = isinstance(space, Mesh | MixedMesh | DistributedMesh)
    suffixes = [".mesh"] * alone + [".vtu", ".pvtu", ".vtkhdf"]
    comm = first_space(space, fields, "save").comm
    with check(comm):
        target = checked_path(path, *suffixes)
        suffix = target.suffix.lower()
        if suffix == ".pvtu":
            check_name(target.stem, "the file")
        if suffix == ".vtkhdf":
            h5py()
            check_hdf_names(fields)
    check_same(comm, "what is saved", {"the path": str(target.absolute())})
    # a VTU file of several pieces has the order of VTK's memory, see `head`
    in_memory = suffix == ".vtkhdf" or (suffix == ".vtu" and comm.size > 1)
    first, found = same_fields(space, fields, "save")
    piece = lagrange_piece(first, found, in_memory=in_memory, warn=comm.rank == 0)
    if suffix == ".vtkhdf":
        save_hdf(target, piece, comm)
    elif suffix == ".pvtu":
        save_pieces(target, piece, comm)
    elif comm.size > 1:
        save_joined(target, piece, comm)
    else:
        with writing(target) as file:
            write_vtu(file, piece)
    return target


def same_fields(
    owner: Owner, fields: Mapping[str, Any], caller: str
) -> tuple[Space, dict[str, tuple[Space, Array]]]:
    """Return the results of `first_space` and `checked_fields`, if ranks agree. Collective."""
    first = first_space(owner, fields, caller)
    with check(first.comm):
        found = checked_fields(first, owner, fields)
    kinds = [
        (name, type(own).__name__, own.order, own.ncomp, str(u.dtype))
        for name, (own, u) in found.items()
    ]
    facts = {"names, spaces and types of fields": kinds}
    check_same(first.comm, "what is saved", facts)
    return first, found


def first_space(owner: Owner, fields: Mapping[str, Any], caller: str) -> Space:
    """Choose the space whose cells are written: a discontinuous space, if there is one."""
    if isinstance(owner, Space):
        return owner
    if isinstance(owner, Mesh | MixedMesh | DistributedMesh):
        return H1(owner, 1)
    named = owner.spaces if isinstance(owner, Product) else {}
    found = [
        field.space if isinstance(field, GridFunction) else named.get(name)
        for name, field in fields.items()
    ]
    spaces = [space for space in found if space is not None] or [*named.values()]
    if not spaces or not isinstance(owner, Product | None):
        raise SpaceError(
            f"{caller} was given {type_name(type(owner))} for a space: it takes the space of the "
            "fields, for instance V = femops.H1(mesh, order=1), or a mesh alone, or GridFunctions"
        )
    return next((space for space in spaces if not isinstance(space, H1)), spaces[0])


def checked_fields(
    first: Space, owner: Owner, fields: Mapping[str, Any]
) -> dict[str, tuple[Space, Array]]:
    """Check the fields. Return the space and vector of each field, by name."""
    for name in fields:
        check_name(name, "the field")
    if isinstance(owner, Mesh | MixedMesh | DistributedMesh):
        owner = first
    found: dict[str, tuple[Space, Array]] = {}
    for name, u in fields.items():
        space, vector = _field(first, owner, name, u)
        parts = (vector.real, vector.imag) if has_complex(vector) else (vector,)
        for file_name, part in zip(file_names(name, vector), parts, strict=True):
            if file_name in found or (len(parts) > 1 and file_name in fields):
                raise FileError(f"two fields are {file_name!r} in a file: choose another name")
            found[file_name] = space, np.ascontiguousarray(part)
    return found


def file_names(name: str, field: Any) -> list[str]:
    """Names of a field in a file. A complex vector has two: of its real and imaginary part."""
    return [f"{name}_real", f"{name}_imag"] if has_complex(field) else [name]


def lagrange_piece(
    space: Space,
    fields: dict[str, tuple[Space, Array]],
    *,
    in_memory: bool = False,
    warn: bool = True,
) -> Piece:
    """Make the piece of a mesh: Lagrange cells of the highest degree, and fields at its nodes."""
    spaces = [space, *(own for own, _ in fields.values())]
    degree = _degree(spaces, warn=warn)
    shared = space.mesh.continuous and all(isinstance(own, H1) for own in spaces)
    meshes = [part.mesh for part in space.parts]
    orders = [_order(mesh, degree, in_memory=in_memory) for mesh in meshes]
    grid = _grid(space.mesh, meshes, degree, orders, shared=shared)
    data = {name: _point_data(own, grid, u) for name, (own, u) in fields.items()}
    return _piece(grid, data, space.mesh.element_attributes)


@dataclass(frozen=True)
class _Grid:
    """Cells and points of a file: the cells' `nodes` (ne, n), and `orders` (n,) or (ne, n).

    Both have an entry for each shape of cells.
    """

    meshes: Sequence[Mesh]
    degree: int
    points: NDArray[np.float64]
    nodes: list[NDArray[np.int64]]
    orders: list[NDArray[np.int64]]


def _field(first: Space, owner: Owner, name: str, given: Any) -> tuple[Space, Array]:
    """Check a field, and return its space and vector."""
    if isinstance(given, GridFunction):
        if (given.space.mesh, given.space.distributed) != (first.mesh, first.distributed):
            raise SpaceError(f"{name} is a field on another mesh: save it in a file of its own")
        return given.space, given.vector
    space = owner.spaces.get(name) if isinstance(owner, Product) else owner
    if not isinstance(space, Space):
        has = "no space is given" if owner is None else f"{owner!r} has no space of this name"
        raise SpaceError(f"{name} is a bare vector, and {has}: give femops.GridFunction(V, {name})")
    if has_complex(given):
        return space, any_vector(space, given, name)
    return space, space.check_vector(given, name)


def _degree(spaces: Sequence[Space], *, warn: bool) -> int:
    degree = max(1, spaces[0].mesh.order, *(space.order for space in spaces))
    if degree > MAX_DEGREE and warn:
        warnings.warn(
            f"degree {degree} is written as degree {MAX_DEGREE}, the highest VTK reads: the file "
            "holds the values at the nodes of that degree",
            stacklevel=5,
        )
    return min(degree, MAX_DEGREE)


def _order(mesh: Mesh, degree: int, *, in_memory: bool) -> NDArray[np.int64]:
    """Index of each node of a cell in VTK's order: (n,), or (ne, n) of simplices."""
    if mesh.cell.cube:
        return vtk_order(mesh.dim, degree, in_memory=in_memory)
    if mesh.cell is PRISM:
        return prism_order(degree)
    both = [simplex_order(mesh.cell, degree, mirrored=way) for way in (False, True)]
    return np.stack(both)[simplices.mirrored(mesh.coordinates).astype(np.int64)]


def _grid(
    whole: Mesh | MixedMesh,
    meshes: Sequence[Mesh],
    degree: int,
    orders: list[NDArray[np.int64]],
    *,
    shared: bool,
) -> _Grid:
    """Make cells with nodes in VTK's ``orders``. If ``shared``, neighbours share nodes."""
    if shared:
        if isinstance(whole, MixedMesh):
            numbers, count = whole.lattice(degree)
        else:
            topology = whole.topology
            numbers, count = [topology.lattice(degree)], topology.lattice_size(degree)
        nodes = [_ordered(part, order) for part, order in zip(numbers, orders, strict=True)]
    else:
        sizes = [
            (mesh.num_elements, order.shape[-1]) for mesh, order in zip(meshes, orders, strict=True)
        ]
        stops = np.cumsum([0, *(a * b for a, b in sizes)])
        nodes = [
            first + np.arange(a * b, dtype=np.int64).reshape(a, b)
            for first, (a, b) in zip(stops, sizes, strict=False)
        ]
        count = int(stops[-1])
    points = np.zeros((count, 3))
    for mesh, mine, order in zip(meshes, nodes, orders, strict=True):
        x = positions(mesh.coordinates, equispaced_grid(mesh.cell, degree))
        points[mine, : mesh.dim] = _ordered(x, order)
    return _Grid(meshes, degree, points, nodes, orders)


def _ordered(values: Array, order: NDArray[np.int64]) -> Array:
    """Values (ne, n, ...) of elements in the order of their cells' nodes."""
    if order.ndim == 1:
        return values[:, order]
    return np.asarray(values[np.arange(len(values))[:, np.newaxis], order])


def _point_data(space: Space, grid: _Grid, u: Array) -> Array:
    """Values (nodes,) or (nodes, components) at the file's nodes, in the type of u."""
    width = 3 if 1 < space.ncomp == space.dim else space.ncomp
    result = np.zeros((len(grid.points), width), dtype=u.dtype)
    for part, nodes, order in zip(space.parts, grid.nodes, grid.orders, strict=True):
        values = part.sample(u, grid.degree + 1)[1].astype(u.dtype, copy=False)
        values = _ordered(values, order)
        result[nodes, : space.ncomp] = values.reshape(*nodes.shape, space.ncomp)
    return result if width > 1 else result[:, 0]


def _piece(grid: _Grid, data: dict[str, Array], attributes: Array) -> Piece:
    counts = np.concatenate([np.full(len(nodes), nodes.shape[1]) for nodes in grid.nodes])
    kinds = [np.full(m.num_elements, CELL_TYPES[m.cell.name], dtype=np.uint8) for m in grid.meshes]
    cells = {
        "connectivity": np.concatenate([nodes.ravel() for nodes in grid.nodes]),
        "offsets": np.cumsum(counts, dtype=np.int64),
        "types": np.concatenate(kinds),
    }
    sections = {
        "PointData": data,
        "CellData": {"attribute": attributes},
        "Points": {"Points": grid.points},
        "Cells": cells,
    }
    return Piece(len(grid.points), len(counts), sections)
