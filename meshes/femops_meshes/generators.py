"""Meshes of simple domains. Elements come out along a Hilbert curve."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from femops_meshes import blocks
from femops_meshes.checks import compress_vertices
from femops_meshes.errors import MeshArgumentError
from femops_meshes.interpolation import gauss_lobatto
from femops_meshes.mesh import Mesh, PointMap
from femops_meshes.ordering import hilbert_index

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def whole(value: object, name: str, least: int = 1) -> int:
    """Return a whole number >= least.

    Raises
    ------
    MeshArgumentError
        If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise MeshArgumentError(f"{name} is a whole number >= {least}, got {value!r}")
    return int(value)


def positive(value: object, name: str) -> float:
    """Return a positive, finite number.

    Raises
    ------
    MeshArgumentError
        If it is none.
    """
    number = value if isinstance(value, int | float | np.integer | np.floating) else -1
    if isinstance(value, bool) or not 0 < number < np.inf:
        raise MeshArgumentError(f"{name} is a positive number, got {value!r}")
    return float(number)


def _corners(value: float | Sequence[float], dim: int, name: str) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (dim,)) or not np.isfinite(array).all():
        raise MeshArgumentError(f"{name} is a finite number or {dim} of them, got {value!r}")
    return np.broadcast_to(array, (dim,)).copy()


def _cells(counts: tuple[int, ...]) -> Ints:
    """Grid indices (ne, dim) of all cells along a Hilbert curve."""
    grid = np.indices(counts[::-1], dtype=np.int64).reshape(len(counts), -1)[::-1].T
    index = hilbert_index(grid, max(1, (max(counts) - 1).bit_length()))
    return np.ascontiguousarray(grid[np.argsort(index, kind="stable")])


def box(
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: int = 1,
) -> Mesh:
    """Mesh of an interval, rectangle or box by a grid of elements.

    Parameters
    ----------
    counts
        Elements in each direction; as many as there are dimensions (a number alone: 1-D).
    lower, upper
        Corners of the box, a number for all directions or one each; any unit of length.
    periodic
        Whether opposite sides are one, for all directions or each. Such a direction needs at least
        3 elements.
    mapping
        Function of positions (dim, n) that returns the ones to use instead, at the nodes.
    order
        Degree of the coordinates.

    Returns
    -------
    mesh
        Boundary attributes are 1 and 2 at the low and high end of x, 3 and 4 of y, 5 and 6 of z;
        periodic directions have none.

    Raises
    ------
    MeshArgumentError
        If counts, corners or order make no sense.
    MeshGeometryError
        If the mapping inverts elements.
    """
    given = counts if isinstance(counts, Iterable) else (counts,)
    number = tuple(whole(n, "each of counts") for n in given)
    dim = len(number)
    if not 1 <= dim <= 3:
        raise MeshArgumentError(f"counts must be one to three numbers, got {len(number)}")
    ends = periodic if isinstance(periodic, Iterable) else (periodic,) * dim
    wraps = tuple(bool(end) for end in ends)
    if len(wraps) != dim or any(w and n < 3 for w, n in zip(wraps, number, strict=True)):
        raise MeshArgumentError(
            f"periodic is one truth value or {dim}, and such a direction needs at least 3 "
            f"elements; got {periodic!r} for {number} elements"
        )
    low, high = _corners(lower, dim, "lower"), _corners(upper, dim, "upper")
    if not (low < high).all():
        raise MeshArgumentError(f"lower must be below upper, got {low.tolist()}, {high.tolist()}")
    nodes = gauss_lobatto(whole(order, "order") + 1)[0]
    cells = _cells(number)
    coordinates = _grid_coordinates(cells, number, low, high, nodes)
    elements, vertices = _grid_elements(cells, number, wraps)
    mesh = _with_sides(Mesh.assemble(elements, coordinates, vertices))
    return mesh if mapping is None else mesh.mapped(mapping)


def _grid_elements(
    cells: Ints, counts: tuple[int, ...], wraps: tuple[bool, ...]
) -> tuple[Ints, int]:
    """Vertex numbers (ne, 2**dim) of the cells of a grid, lexicographic, and how many there are."""
    dim = len(counts)
    sizes = [n if wrap else n + 1 for n, wrap in zip(counts, wraps, strict=True)]
    elements = np.zeros((len(cells), 2**dim), dtype=np.int64)
    for corner in range(2**dim):
        stride = 1
        for d, size in enumerate(sizes):
            elements[:, corner] += stride * ((cells[:, d] + (corner >> d & 1)) % size)
            stride *= size
    return elements, int(np.prod(sizes))


def _grid_coordinates(
    cells: Ints, counts: tuple[int, ...], low: Floats, high: Floats, nodes: Floats
) -> Floats:
    """Coordinates (ne, len(nodes)**dim, dim) of the cells of a grid."""
    dim, p1d = len(counts), len(nodes)
    result = np.empty((len(cells), *[p1d] * dim, dim))
    for d, n in enumerate(counts):
        parts = (np.arange(n)[:, None] + nodes) / n
        # low (1 - s) + high s hits both ends exactly
        line = (low[d] * (1 - parts) + high[d] * parts)[cells[:, d]]
        shape = [len(cells)] + [1] * dim
        shape[dim - d] = p1d
        result[..., d] = line.reshape(shape)
    return result.reshape(len(cells), p1d**dim, dim)


def _with_sides(mesh: Mesh) -> Mesh:
    """Give the boundary attributes 2 d + 1 and 2 d + 2 at the low and high ends of direction d."""
    codes = mesh.topology.boundary_faces[:, 1]
    attributes = np.ones(len(codes), dtype=np.int32)
    for d in range(mesh.dim):
        digit = codes // 3**d % 3
        attributes[digit == 0] = 2 * d + 1
        attributes[digit == 2] = 2 * d + 2
    return mesh.with_attributes(boundary=attributes)


def l_shape(n: int = 2, dim: int = 2, order: int = 1) -> Mesh:
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

    Returns
    -------
    mesh
        Boundary attribute 1 outside, 2 on the sides that meet at the origin.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    if whole(dim, "dim", 2) > 3:
        raise MeshArgumentError(f"dim is 2 or 3, got {dim}")
    counts = (2 * whole(n, "n"),) * dim
    nodes = gauss_lobatto(whole(order, "order") + 1)[0]
    cells = _cells(counts)
    cells = cells[(cells < n).any(axis=1)]
    coordinates = _grid_coordinates(cells, counts, -np.ones(dim), np.ones(dim), nodes)
    elements, used = compress_vertices(_grid_elements(cells, counts, (False,) * dim)[0])
    mesh = Mesh.assemble(elements, coordinates, len(used))
    owner, code = mesh.topology.boundary_faces.T
    attributes = np.ones(len(code), dtype=np.int32)
    for d in range(dim):
        attributes[(code // 3**d % 3 == 2) & (cells[owner, d] == n - 1)] = 2
    return mesh.with_attributes(boundary=attributes)


def disc(n: int = 4, radius: float = 1.0, order: int = 3) -> Mesh:
    """Mesh of a disc around the origin: a square in the middle, four curved blocks around it.

    Parameters
    ----------
    n
        Elements along each side of each block: 5 n**2 in all.
    radius
        Any unit of length.
    order
        Degree of the coordinates.

    Returns
    -------
    mesh
        Boundary attribute 1.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    size = positive(radius, "radius")
    return blocks.solid_ball(2, whole(n, "n"), size, 0.5, whole(order, "order"))


def ball(n: int = 2, radius: float = 1.0, order: int = 3) -> Mesh:
    """Mesh of a ball around the origin: a cube in the middle, six curved blocks around it.

    Parameters
    ----------
    n
        Elements along each edge of each block: 7 n**3 in all.
    radius
        Any unit of length.
    order
        Degree of the coordinates.

    Returns
    -------
    mesh
        Boundary attribute 1.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    size = positive(radius, "radius")
    return blocks.solid_ball(3, whole(n, "n"), size, 0.4, whole(order, "order"))


def cylinder(
    n: int = 2, layers: int = 4, radius: float = 1.0, height: float = 2.0, order: int = 3
) -> Mesh:
    """Mesh of a cylinder around the z axis, from z = 0 to z = height: a `disc` drawn out.

    Parameters
    ----------
    n
        Elements along each side of each block of the disc.
    layers
        Elements along z: 5 n**2 layers in all.
    radius, height
        Any unit of length.
    order
        Degree of the coordinates.

    Returns
    -------
    mesh
        Boundary attribute 1 around, 2 at the bottom, 3 at the top.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    base = disc(n, radius, order)
    mesh = blocks.drawn_out(base, whole(layers, "layers"), positive(height, "height"))
    end = mesh.topology.boundary_faces[:, 1] // 9
    return mesh.with_attributes(boundary=np.array([2, 1, 3])[end])


def shell(
    n: int = 2,
    layers: int = 2,
    inner: float = 0.5,
    outer: float = 1.0,
    order: int = 3,
    dim: int = 3,
) -> Mesh:
    """Mesh of the space between two spheres (dim = 3) or circles (dim = 2) around the origin.

    Parameters
    ----------
    n
        Elements along each edge of the six (four) blocks.
    layers
        Elements along the radius: 6 n**2 layers (4 n layers) in all.
    inner, outer
        Radii, any unit of length.
    order
        Degree of the coordinates.
    dim
        2 or 3.

    Returns
    -------
    mesh
        Boundary attribute 1 inside, 2 outside.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    """
    if whole(dim, "dim", 2) > 3:
        raise MeshArgumentError(f"dim is 2 or 3, got {dim}")
    if not positive(inner, "inner") < positive(outer, "outer"):
        raise MeshArgumentError(f"inner must be below outer, got {inner} and {outer}")
    mesh = blocks.hollow_ball(
        dim, whole(n, "n"), whole(layers, "layers"), inner, outer, whole(order, "order")
    )
    outside = mesh.topology.boundary_faces[:, 1] // 3 ** (dim - 1) == 2
    return mesh.with_attributes(boundary=1 + outside)
