"""Fields as .vtu files with high-order cells, for ParaView, VisIt and PyVista."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import FileError, SpaceError
from femops.io.atomic import checked_path, replacing
from femops.io.mesh_files import save_mesh
from femops.io.vtk.nodes import CELL_TYPES, vtk_order
from femops.io.vtk.pieces import save_joined, save_pieces
from femops.io.vtk.vtu_file import Array, Piece, check_name, write_vtu
from femops.parallel.collective_checks import check, check_same
from femops.parallel.mesh import DistributedMesh
from femops.spaces.base import GridFunction
from femops.spaces.h1_l2 import H1, L2, Space
from femops_meshes.arguments import checked
from femops_meshes.coordinates.interpolation import equispaced
from femops_meshes.coordinates.mapping import positions
from femops_meshes.mesh import Mesh

MAX_DEGREE = 10
"""Highest degree of a cell that VTK's readers accept."""


@checked(FileError, space=SpaceError)
def save(
    path: str | os.PathLike[str], space: Space | Mesh | DistributedMesh, /, **fields: Any
) -> Path:
    """Write the mesh and fields of a space as a VTU file with Lagrange cells of its degree.

    A mesh can stand in place of the space. It goes to a VTU file without fields, or to a file of
    MFEM's, ending in .mesh, which `read_mesh` reads back with all that the mesh has: attributes,
    their names (as attribute sets, format v1.3), boundary, curved and periodic geometry.

    Collective, where ranks share the mesh: all call it with the same path, and the file has a piece
    of each. Many ranks had better write a .pvtu file: each writes its own piece, in a folder
    beside it, and no data passes through rank 0.

    Cells have the highest degree of the spaces and the mesh, at least 1, so nothing is lost: not
    the curved geometry, not the polynomials. Nodes are VTK's equispaced ones. With an H1 space on a
    mesh that is continuous in space neighbours share nodes; otherwise each cell has its own, and
    jumps are kept. The attributes of the elements are written as the cell data ``attribute``.

    Parameters
    ----------
    path : path ending in .vtu or .pvtu; of a mesh also in .mesh
        In a folder that all ranks see.
    space : Space, Mesh or DistributedMesh
        The space of the fields, or a mesh alone.
    **fields : (size,) array or GridFunction
        Vectors of the space by the name they get in the file, or fields in other spaces on its
        mesh, such as pressures beside velocities. With as many components as the mesh has
        dimensions they are written as 3-D vectors, with zeros in the missing directions.

    Returns
    -------
    pathlib.Path
        The file, which appears under its name only when complete.

    Raises
    ------
    FileError
        The file cannot be written, does not end so, a name cannot be held by XML, or ranks do not
        see each other's files; a .mesh file of fields, or of a mesh that several ranks share.
    MeshError
        The mesh has a name that MFEM's format cannot hold.
    CommunicatorError
        Ranks disagree about the path or the fields.
    SpaceError
        `space` is no space, or a field lies on another mesh, or in L2 where cells share nodes.
    VectorError
        A field does not fit the space.

    Warns
    -----
    UserWarning
        Above degree 10, which is the highest that VTK reads: the fields are then interpolated at
        the nodes of degree 10.
    """
    if Path(path).suffix.lower() == ".mesh":
        return save_mesh(path, space, fields)
    alone = isinstance(space, Mesh | DistributedMesh)
    suffixes = [".mesh"] * alone + [".vtu", ".pvtu"]
    space = space_of(space, "save")
    comm = space.comm
    with check(comm):
        target = checked_path(path, *suffixes)
        if target.suffix.lower() == ".pvtu":
            check_name(target.stem, "the file")
        found = checked_fields(space, fields)
    kinds = [(name, own.order, own.ncomp, str(u.dtype)) for name, (own, u) in found.items()]
    facts = {"the path": str(target.absolute()), "names, orders and types of fields": kinds}
    check_same(comm, "what is saved", facts)
    # a file of several pieces has the order of VTK's memory, see `head`
    joined = comm.size > 1 and target.suffix.lower() == ".vtu"
    piece = lagrange_piece(space, found, in_memory=joined, warn=comm.rank == 0)
    if target.suffix.lower() == ".pvtu":
        save_pieces(target, piece, comm)
    elif comm.size > 1:
        save_joined(target, piece, comm)
    else:
        with replacing(target) as temporary:
            write_vtu(temporary, piece)
    return target


def space_of(given: Any, caller: str) -> Space:
    """The space of fields; of a mesh alone one without continuity.

    Raises
    ------
    SpaceError
        It is neither a space nor a mesh.
    """
    if isinstance(given, Mesh | DistributedMesh):
        return L2(given, 0)
    if not isinstance(given, Space):
        raise SpaceError(
            f"{caller} was given a {type(given).__name__} for a space: it takes the space of the "
            "fields, for instance V = femops.H1(mesh, order=1), or a mesh alone"
        )
    return given


def checked_fields(space: Space, fields: dict[str, Any]) -> dict[str, tuple[Space, Array]]:
    """Space and vector of each field, which can lie in another space.

    Raises
    ------
    FileError, SpaceError, VectorError
        See `save`.
    """
    for name in fields:
        check_name(name, "the field")
    return {name: _field(space, name, u) for name, u in fields.items()}


def lagrange_piece(
    space: Space,
    fields: dict[str, tuple[Space, Array]],
    *,
    in_memory: bool = False,
    warn: bool = True,
) -> Piece:
    """Lagrange cells of the highest degree, with the fields at their nodes.

    Parameters
    ----------
    space : Space
    fields : dict
        Space and vector by name (`checked_fields`).
    in_memory : bool
        Nodes in the order of VTK's memory, and not of its files.
    warn : bool
        Whether to warn of degrees that VTK does not read.
    """
    degree = _degree([space, *(own for own, _ in fields.values())], warn=warn)
    grid = _grid(space, degree, vtk_order(space.dim, degree, in_memory=in_memory))
    data = {name: _point_data(own, grid, u) for name, (own, u) in fields.items()}
    return _piece(grid, data, space.mesh.element_attributes)


@dataclass(frozen=True)
class _Grid:
    """Cells and nodes of the file: `nodes` (ne, n) numbers in VTK's order, `order` that order."""

    dim: int
    degree: int
    points: NDArray[np.float64]
    nodes: NDArray[np.int64]
    order: NDArray[np.int64]


def _field(space: Space, name: str, given: Any) -> tuple[Space, Array]:
    """Space and vector of a field, which can lie in another space."""
    if not isinstance(given, GridFunction):
        return space, space.check_vector(given, name)
    if (given.space.mesh, given.space.distributed) != (space.mesh, space.distributed):
        raise SpaceError(f"{name} is a field on another mesh: save it in a file of its own")
    if isinstance(space, H1) and not isinstance(given.space, H1):
        raise SpaceError(
            f"{name} is a field in L2, and cells of an H1 space share nodes: save(path, Q, ...) "
            "with the L2 space Q first keeps its jumps"
        )
    return given.space, given.vector


def _degree(spaces: Sequence[Space], *, warn: bool) -> int:
    degree = max(1, spaces[0].mesh.order, *(space.order for space in spaces))
    if degree > MAX_DEGREE and warn:
        warnings.warn(
            f"degree {degree} is written as degree {MAX_DEGREE}, the highest VTK reads: the file "
            "holds the values at the nodes of that degree",
            stacklevel=5,
        )
    return min(degree, MAX_DEGREE)


def _grid(space: Space, degree: int, order: NDArray[np.int64]) -> _Grid:
    mesh = space.mesh
    if isinstance(space, H1) and mesh.continuous:
        nodes = mesh.topology.lattice(degree)[:, order]
        count = mesh.topology.lattice_size(degree)
    else:
        nodes = np.arange(mesh.num_elements * len(order), dtype=np.int64).reshape(-1, len(order))
        count = nodes.size
    points = np.zeros((count, 3))
    where = positions(mesh.coordinates, equispaced(degree + 1))
    points[nodes, : space.dim] = where[:, order]
    return _Grid(space.dim, degree, points, nodes, order)


def _point_data(space: Space, grid: _Grid, u: Array) -> Array:
    """Values at the file's nodes, (nodes,) or (nodes, components), in the type of u."""
    values = space.sample(u, grid.degree + 1)[1].astype(u.dtype, copy=False)[:, grid.order]
    width = 3 if 1 < space.ncomp == space.dim else space.ncomp
    result = np.zeros((len(grid.points), width), dtype=u.dtype)
    result[grid.nodes, : space.ncomp] = values.reshape(*grid.nodes.shape, space.ncomp)
    return result if width > 1 else result[:, 0]


def _piece(grid: _Grid, data: dict[str, Array], attributes: Array) -> Piece:
    ne, per_cell = grid.nodes.shape
    cells = {
        "connectivity": grid.nodes.ravel(),
        "offsets": np.arange(1, ne + 1, dtype=np.int64) * per_cell,
        "types": np.full(ne, CELL_TYPES[grid.dim], dtype=np.uint8),
    }
    sections = {
        "PointData": data,
        "CellData": {"attribute": attributes},
        "Points": {"Points": grid.points},
        "Cells": cells,
    }
    return Piece(len(grid.points), ne, sections)
