"""Boxes: whole meshes, and one rank's part made without the whole mesh."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from femops_common.arguments import Degree, checked
from femops_meshes.checks import compress_vertices, whole
from femops_meshes.errors import MeshArgumentError
from femops_meshes.generators.grids import Grid
from femops_meshes.mesh import Mesh, PointMap, check_conforming, check_cubes
from femops_meshes.partitioning.parts import Part, ordered_faces
from femops_meshes.partitioning.pieces import checked_piece, checked_rank, equal_piece
from femops_meshes.refinement import check_fits
from femops_meshes.topology.entities import Cells, wants_simplices
from femops_meshes.topology.topology import Topology, exterior_boundary

Ints = NDArray[np.int64]


@lru_cache
def rotations(dim: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """All 1, 4 or 24 rotations (axes, flips) of the reference element, the identity first.

    Old coordinate d is new coordinate axes[d], or one minus new coordinate axes[d] if flips[d] is
    1.
    """

    def keeps_handedness(axes: tuple[int, ...], flips: tuple[int, ...]) -> bool:
        swaps = sum(axes[i] > axes[j] for j in range(dim) for i in range(j))
        return (swaps + sum(flips)) % 2 == 0

    pairs = product(permutations(range(dim)), product((0, 1), repeat=dim))
    return tuple(pair for pair in pairs if keeps_handedness(*pair))


def turned_lattice(dim: int, p: int, axes: tuple[int, ...], flips: tuple[int, ...]) -> Ints:
    """Index ((p + 1)**dim,) of the old lexicographic node at the position of each new node."""
    new = np.indices((p + 1,) * dim).reshape(dim, -1)[::-1]
    old = np.zeros(new.shape[1], dtype=np.int64)
    for d in range(dim):
        along = new[axes[d]]
        old += (p - along if flips[d] else along) * (p + 1) ** d
    return old


def scrambled(mesh: Mesh, seed: int) -> Mesh:
    """Turn each element by a random rotation, and number the vertices at random.

    The domain, the elements, their order, and the geometry stay the same. Neighbours see shared
    edges and faces in other orientations: in 3-D all eight orientations of faces occur, as in
    meshes of other programs.
    """
    check_cubes(mesh, "femops_meshes.scrambled")
    check_conforming(mesh, "halves of turned elements belong to no trees")
    rng = np.random.default_rng(seed)
    dim, p = mesh.dim, mesh.order
    turns = rotations(dim)
    chosen = rng.integers(len(turns), size=mesh.num_elements)
    nodes = np.array([turned_lattice(dim, p, *turn) for turn in turns])[chosen]
    corners = np.array([turned_lattice(dim, 1, *turn) for turn in turns])[chosen]
    number = rng.permutation(mesh.num_vertices)
    return Mesh(
        number[np.take_along_axis(mesh.elements, corners, axis=1)],
        np.take_along_axis(mesh.coordinates, nodes[:, :, None], axis=1),
        mesh.element_attributes,
        number[mesh.boundary],
        mesh.boundary_attributes,
        mesh.num_vertices,
        mesh.file_elements,
    )


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
    cells: Cells | None = None,
) -> Mesh:
    """Mesh of an interval, rectangle or box by a grid of elements, which may be split."""
    grid, degree = Grid.checked(counts, lower, upper, periodic), whole(order, "order")
    split = wants_simplices(cells, grid.dim, prisms=True)
    _check_memory(grid.num_cells, degree, grid)
    index = grid.cells()
    coordinates = grid.coordinates(index, degree)
    mesh = _with_sides(Mesh.assemble(grid.elements(index), coordinates, grid.num_vertices))
    mesh = mesh.split(cells) if split else mesh.with_coarser(grid.coarsening(index))
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
