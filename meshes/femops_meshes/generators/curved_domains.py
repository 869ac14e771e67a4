"""Meshes of round and re-entrant domains, with elements ordered along a Hilbert curve."""

from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from femops_common.arguments import Degree, checked
from femops_meshes.checks import compress_vertices, positive, whole
from femops_meshes.coarsening import Coarsening
from femops_meshes.errors import MeshArgumentError
from femops_meshes.generators import blocks
from femops_meshes.generators.grids import Grid
from femops_meshes.mesh import Mesh
from femops_meshes.refinement import check_fits
from femops_meshes.topology.entities import Cells, wants_simplices


@checked(MeshArgumentError)
def l_shape(n: int = 2, dim: int = 2, order: Degree = 1, cells: Cells | None = None) -> Mesh:
    """Mesh of [-1, 1]**dim without the part where all coordinates are positive.

    In 2-D this is the L-shape, in 3-D the Fichera corner; the edges at the origin make solutions
    singular.

    Parameters
    ----------
    n
        Elements along a side of length 1.
    dim
        2 or 3.
    order
        Degree of the coordinates.
    cells
        "triangles" or "tetrahedra": each element is split into two, or six. None for no split.

    Returns
    -------
    Mesh
        Boundary attribute 1 outside, 2 on the sides that meet at the origin.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    if whole(dim, "dim", 2) > 3:
        raise MeshArgumentError(f"dim is 2 or 3, got {dim}")
    split = wants_simplices(cells, dim)
    grid = Grid.checked((2 * whole(n, "n"),) * dim, -1.0, 1.0, False)
    degree = whole(order, "order")
    count = grid.num_cells
    check_fits((count, (degree + 1) ** dim, dim), f"making {count} elements", "take fewer")
    index = grid.cells()
    index = index[(index < n).any(axis=1)]
    coordinates = grid.coordinates(index, degree)
    elements, used = compress_vertices(grid.elements(index))
    mesh = Mesh.assemble(elements, coordinates, len(used))
    owner, code = mesh.topology.boundary_faces.T
    attributes = np.ones(len(code), dtype=np.int32)
    for d in range(dim):
        attributes[(code // 3**d % 3 == 2) & (index[owner, d] == n - 1)] = 2
    mesh = mesh.with_attributes(boundary=attributes)
    return mesh.simplices() if split else mesh.with_coarser(_notched(index, n))


def _notched(cells: NDArray[np.int64], n: int) -> Coarsening | None:
    """Coarsening of cells (m, dim) to a grid with half as many cells along each side.

    If a side has an odd number of cells, its last cell is not merged. Each half of a direction is
    paired from its own start, so that the re-entrant corner is a corner of coarse cells.
    """
    if n == 1:
        return None
    half, dim = -(-n // 2), cells.shape[1]
    side, within = np.divmod(cells, n)
    low = (within % 2).astype(np.int8)
    high = np.where((within == n - 1) & (low == 0), 2, low + 1).astype(np.int8)
    every = np.indices((2 * half,) * dim).reshape(dim, -1)[::-1].T
    powers, inside = (2 * half) ** np.arange(dim), (every < half).any(axis=1)
    number = np.cumsum(inside) - 1
    coarse = every[inside]
    grid = Grid.checked((2 * half,) * dim, -1.0, 1.0, False)
    elements, used = compress_vertices(grid.elements(coarse))
    parent = number[(side * half + within // 2) @ powers]
    return Coarsening(elements, len(used), parent, low, high, _notched(coarse, half))


@checked(MeshArgumentError)
def disc(n: int = 4, radius: float = 1.0, order: Degree = 3, cells: Cells | None = None) -> Mesh:
    """Mesh of a disc around the origin: a square in the middle, four curved blocks around it.

    Parameters
    ----------
    n
        Elements along each side of each block. The mesh has 5 n**2 elements.
    radius
        Any unit of length.
    order
        Degree of the coordinates.
    cells
        "triangles": each element is split into two. None for no split.

    Returns
    -------
    Mesh
        Boundary attribute 1.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    size = positive(radius, "radius")
    split = wants_simplices(cells, 2)
    mesh = blocks.solid_ball(2, whole(n, "n"), size, 0.5, whole(order, "order"))
    return mesh.simplices() if split else mesh


@checked(MeshArgumentError)
def ball(n: int = 2, radius: float = 1.0, order: Degree = 3, cells: Cells | None = None) -> Mesh:
    """Mesh of a ball around the origin: a cube in the middle, six curved blocks around it.

    Parameters
    ----------
    n
        Elements along each edge of each block. The mesh has 7 n**3 elements.
    radius
        Any unit of length.
    order
        Degree of the coordinates.
    cells
        "tetrahedra": each element is split into six. None for no split.

    Returns
    -------
    Mesh
        Boundary attribute 1.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    size = positive(radius, "radius")
    split = wants_simplices(cells, 3)
    mesh = blocks.solid_ball(3, whole(n, "n"), size, 0.4, whole(order, "order"))
    return mesh.simplices() if split else mesh


@overload
def cylinder(
    n: int = 2,
    layers: int = 4,
    radius: float = 1.0,
    height: float = 2.0,
    order: Degree = 3,
    cells: None = None,
) -> Mesh: ...


@overload
def cylinder(
    n: int = 2,
    layers: int = 4,
    radius: float = 1.0,
    height: float = 2.0,
    order: Degree = 3,
    cells: Cells | None = None,
) -> Mesh | Any: ...  # of prisms a `MixedMesh`


@checked(MeshArgumentError)
def cylinder(
    n: int = 2,
    layers: int = 4,
    radius: float = 1.0,
    height: float = 2.0,
    order: Degree = 3,
    cells: Cells | None = None,
) -> Mesh | Any:
    """Mesh of a cylinder around the z axis, from z = 0 to z = height: an extruded `disc`.

    Parameters
    ----------
    n
        Elements along each side of each block of the disc.
    layers
        Elements along z. The mesh has 5 n**2 layers elements.
    radius, height
        Any unit of length.
    order
        Degree of the coordinates.
    cells
        "tetrahedra" or "prisms": each element is split into six, or two. None for no split.

    Returns
    -------
    Mesh, or MixedMesh of prisms
        Boundary attribute 1 around, 2 at the bottom, 3 at the top.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    wants_simplices(cells, 3, prisms=True)
    base = disc(n, radius, order)
    mesh = blocks.drawn_out(base, whole(layers, "layers"), positive(height, "height"))
    end = mesh.topology.boundary_faces[:, 1] // 9
    return mesh.with_attributes(boundary=np.array([2, 1, 3])[end]).split(cells)


@checked(MeshArgumentError)
def shell(
    n: int = 2,
    layers: int = 2,
    inner: float = 0.5,
    outer: float = 1.0,
    order: Degree = 3,
    dim: int = 3,
    cells: Cells | None = None,
) -> Mesh:
    """Mesh of the space between two spheres (dim = 3) or circles (dim = 2) around the origin.

    Parameters
    ----------
    n
        Elements along each edge of the six (four) blocks.
    layers
        Elements along the radius. The mesh has 6 n**2 layers elements (4 n layers in 2-D).
    inner, outer
        Radii, any unit of length.
    order
        Degree of the coordinates.
    dim
        2 or 3.
    cells
        "triangles" or "tetrahedra": each element is split into two, or six. None for no split.

    Returns
    -------
    Mesh
        Boundary attribute 1 inside, 2 outside.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    if whole(dim, "dim", 2) > 3:
        raise MeshArgumentError(f"dim is 2 or 3, got {dim}")
    split = wants_simplices(cells, dim)
    if not positive(inner, "inner") < positive(outer, "outer"):
        raise MeshArgumentError(f"inner must be below outer, got {inner} and {outer}")
    mesh = blocks.hollow_ball(
        dim, whole(n, "n"), whole(layers, "layers"), inner, outer, whole(order, "order")
    )
    outside = mesh.topology.boundary_faces[:, 1] // 3 ** (dim - 1) == 2
    mesh = mesh.with_attributes(boundary=1 + outside)
    return mesh.simplices() if split else mesh
