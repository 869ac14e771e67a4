"""Boxes: whole meshes, and one rank's part made without the whole mesh."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from femops_common.arguments import Degree, checked
from femops_meshes.checks import compress_vertices, whole
from femops_meshes.errors import MeshArgumentError
from femops_meshes.generators.grids import Grid
from femops_meshes.mesh import Mesh, PointMap
from femops_meshes.partitioning.parts import Part, ordered_faces
from femops_meshes.partitioning.pieces import checked_piece, checked_rank, equal_piece
from femops_meshes.refinement import check_fits
from femops_meshes.topology.topology import Topology, exterior_boundary

# Parts up to which each has the elements of coarser grids: 8 bytes for each of the whole box's.
_RANKS_WITH_WHOLE = 32


@checked(MeshArgumentError)
def box(
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: Degree = 1,
) -> Mesh:
    """Mesh of an interval, rectangle or box by a grid of elements."""
    grid, degree = Grid.checked(counts, lower, upper, periodic), whole(order, "order")
    _check_memory(grid.num_cells, degree, grid)
    cells = grid.cells()
    coordinates = grid.coordinates(cells, degree)
    mesh = _with_sides(Mesh.assemble(grid.elements(cells), coordinates, grid.num_vertices))
    mesh = mesh.with_coarser(grid.coarsening(cells))
    return mesh if mapping is None else mesh.mapped(mapping)


def box_part(
    rank: int,
    size: int,
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: Degree = 1,
    *,
    piece: tuple[int, int] | None = None,
) -> Part:
    """Make the part of a box that one of `size` ranks holds, without the whole mesh.

    The part is the same as `part_of` the mesh that `box` makes, partitioned along its curve into
    equal or other pieces. Time and memory are proportional to the part. With up to 32 ranks each
    part also has the coarser grids of the whole box (`Mesh.coarser`).

    Parameters
    ----------
    rank
        Index of the part, from 0 to size - 1.
    size
        Number of parts; parts beyond the number of elements are empty.
    counts, lower, upper, periodic, mapping, order
        As in `box`. The mapping is called with the part's nodes only.
    piece
        The part's first element along the curve, and the first element after the part. None for
        equal pieces.

    Raises
    ------
    MeshArgumentError
        If there is no such rank or piece, counts, corners or order are invalid, or the part does
        not fit into memory.
    MeshGeometryError
        If the mapping inverts elements of the part.
    """
    rank, size = checked_rank(rank, size)
    grid, degree = Grid.checked(counts, lower, upper, periodic), whole(order, "order")
    if piece is None:
        start, stop = equal_piece(grid.num_cells, size, rank)
    else:
        start, stop = checked_piece(*piece, grid.num_cells)
    _check_memory(stop - start, degree, grid)
    cells = grid.cells(start, stop)
    elements, vertices = compress_vertices(grid.elements(cells))
    alone = Topology.build(elements, len(vertices))
    outside = grid.at_ends(cells, alone.boundary_faces)
    topology = replace(alone, boundary_faces=alone.boundary_faces[outside])
    numbers = np.arange(start, stop, dtype=np.int64)
    mesh = Mesh.assemble(
        elements,
        grid.coordinates(cells, degree),
        len(vertices),
        boundary=exterior_boundary(elements, topology),
        topology=topology,
        file_elements=numbers,
    )
    mesh = _with_sides(mesh) if mapping is None else _with_sides(mesh).mapped(mapping)
    if size <= _RANKS_WITH_WHOLE:
        mesh = mesh.with_coarser(grid.coarsening(cells))
    interface = ordered_faces(alone.boundary_faces[~outside])
    return Part(mesh, rank, size, numbers, vertices, interface, grid.num_cells, grid.num_vertices)


def _check_memory(count: int, degree: int, grid: Grid) -> None:
    shape = (count, (degree + 1) ** grid.dim, grid.dim)
    check_fits(shape, f"making {count} elements", "take fewer, or more ranks with a part each")


def _with_sides(mesh: Mesh) -> Mesh:
    """Give the boundary attributes 2 d + 1 and 2 d + 2 at the low and high ends of direction d."""
    codes = mesh.topology.boundary_faces[:, 1]
    attributes = np.ones(len(codes), dtype=np.int32)
    for d in range(mesh.dim):
        digit = codes // 3**d % 3
        attributes[digit == 0] = 2 * d + 1
        attributes[digit == 2] = 2 * d + 2
    return mesh.with_attributes(boundary=attributes)
