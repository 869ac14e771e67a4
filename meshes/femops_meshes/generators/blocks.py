"""Meshes of round domains from a few large blocks. Each block is cut into a grid and mapped.

A round domain is the image of the cube [-1, 1]**dim. Each of the cube's 2 dim sides has a frame:
its tangents and its outer normal, a right-handed system in this order.
"""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coarsening import Coarsening
from femops_meshes.coordinates.mapping import gauss_lobatto
from femops_meshes.mesh import Mesh
from femops_meshes.refinement import check_fits, split_elements
from femops_meshes.topology.ordering import hilbert_order
from femops_meshes.topology.topology import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def side_frames(dim: int) -> Floats:
    """Frames (2 dim, dim, dim) of the cube's sides: rows are the tangents, then the normal."""
    frames = []
    for normal, sign in product(range(dim), (-1, 1)):
        axes = [(normal + 1 + k) % dim for k in range(dim - 1)]
        frame = np.zeros((dim, dim))
        frame[range(dim - 1), axes] = 1.0
        frame[dim - 1, normal] = sign
        if np.linalg.det(frame) < 0:
            frame[0] = -frame[0]
        frames.append(frame)
    return np.array(frames)


def cube_corner(positions: Floats) -> Ints:
    """Lexicographic numbers (...) of the corners of [-1, 1]**dim at positions (..., dim)."""
    return (positions > 0) @ 2 ** np.arange(positions.shape[-1])


def grid(dim: int, n: int, nodes: Floats) -> Floats:
    """Reference positions (n**dim, m**dim, dim) of the m nodes (m,) of each part of a block."""
    cells = np.indices((n,) * dim).reshape(dim, -1)[::-1].T
    local = nodes[np.indices((len(nodes),) * dim).reshape(dim, -1)[::-1].T]
    return (cells[:, None, :] + local) / n


def on_sphere(cube: Floats) -> Floats:
    """Project the cube's surface (..., dim) to the unit sphere, with equal angles."""
    # rounding must not move the rim of one side off that of its neighbour
    bent = np.where(np.abs(cube) == 1, cube, np.tan(np.pi / 4 * cube))
    bent /= np.linalg.norm(bent, axis=-1, keepdims=True)
    return bent


def extruded(elements: Ints, num_vertices: int, layers: int) -> Ints:
    """Vertex numbers (ne * layers, 2 m) of elements (ne, m) extruded along a new last direction."""
    level = num_vertices * np.arange(layers + 1)
    low, high = (elements[:, None, :] + level[at, None] for at in (slice(-1), slice(1, None)))
    return np.concatenate([low, high], axis=2).reshape(-1, 2 * elements.shape[1])


def assembled(
    elements: Ints, coordinates: Floats, num_vertices: int, coarser: Coarsening | None = None
) -> Mesh:
    """Make a mesh from arrays, with its elements ordered along a Hilbert curve."""
    order = hilbert_order(coordinates.mean(axis=1))
    mesh = Mesh.assemble(elements[order], coordinates[order], num_vertices)
    return mesh.with_coarser(None if coarser is None else coarser.reordered(order))


def halved_blocks(topology: Topology, n: int) -> Coarsening | None:
    """Coarsening of blocks with n cells along each side to n / 2 cells. None if n is odd."""
    if n % 2:
        return None
    dim, half = topology.dim, n // 2
    cells = np.indices((n,) * dim).reshape(dim, -1)[::-1].T
    parent = cells // 2 @ half ** np.arange(dim)
    low = (cells % 2).astype(np.int8)
    blocks = len(topology.entity)
    parents = (np.arange(blocks)[:, np.newaxis] * half**dim + parent).reshape(-1)
    return Coarsening(
        split_elements(topology, half),
        topology.lattice_size(half),
        parents,
        np.tile(low, (blocks, 1)),
        np.tile(low + np.int8(1), (blocks, 1)),
        halved_blocks(topology, half),
    )


def halved_layers(base: Coarsening | None, layers: int) -> Coarsening | None:
    """Coarsening of an extruded mesh, which merges pairs of layers.

    ``base`` is the coarsening of the mesh that was extruded. If the number of layers is odd, the
    last layer is not merged. Return None if ``base`` is None, because elements merged in layers
    alone would become long and thin.
    """
    if base is None:
        return None
    half, layer = -(-layers // 2), np.arange(layers)
    low = (layer % 2).astype(np.int8)
    alone = (layer == layers - 1) & (low == 0)
    high, count = np.where(alone, 2, low + 1).astype(np.int8), len(base.parent)
    lows, highs = (
        np.hstack([np.repeat(flat, layers, axis=0), np.tile(along[:, np.newaxis], (count, 1))])
        for flat, along in ((base.low, low), (base.high, high))
    )
    return Coarsening(
        extruded(base.elements, base.num_vertices, half),
        base.num_vertices * (half + 1),
        (base.parent[:, np.newaxis] * half + layer // 2).reshape(-1),
        lows,
        highs,
        halved_layers(base.coarser, half),
    )


def solid_ball(dim: int, n: int, radius: float, core: float, order: int) -> Mesh:
    """Mesh of a ball or disc.

    A block of half-width core * radius is in the middle, and one block on each side of it.
    """
    _check_fits((2 * dim + 1) * n**dim, dim, order)
    corners = np.array(list(product((-1.0, 1.0), repeat=dim)))[:, ::-1]
    blocks = [cube_corner(corners)]
    frames = side_frames(dim)
    for frame in frames:
        at = corners.copy()
        at[:, -1] = 1.0
        outside = corners[:, -1] > 0
        blocks.append(cube_corner(at @ frame) + outside * 2**dim)
    topology = Topology.build(np.array(blocks, dtype=np.int64), 2 ** (dim + 1))
    elements = split_elements(topology, n)
    reference = 2 * grid(dim, n, gauss_lobatto(order + 1)[0]) - 1
    parts = [core * reference]
    for frame in frames:
        cube = np.concatenate([reference[..., :-1], np.ones_like(reference[..., :1])], axis=-1)
        cube = cube @ frame
        depth = (reference[..., -1:] + 1) / 2
        parts.append((1 - depth) * core * cube + depth * on_sphere(cube))
    coarser = halved_blocks(topology, n)
    return assembled(elements, radius * np.concatenate(parts), topology.lattice_size(n), coarser)


def hollow_ball(dim: int, n: int, layers: int, inner: float, outer: float, order: int) -> Mesh:
    """Mesh of a spherical shell or ring: the cube's surface on a sphere, extruded radially."""
    _check_fits(2 * dim * n ** (dim - 1) * layers, dim, order)
    corners = np.array(list(product((-1.0, 1.0), repeat=dim - 1)))[:, ::-1]
    flat = np.concatenate([corners, np.ones_like(corners[:, :1])], axis=1)
    frames = side_frames(dim)
    blocks = np.array([cube_corner(flat @ frame) for frame in frames], dtype=np.int64)
    topology = Topology.build(blocks, 2**dim)
    num_vertices = topology.lattice_size(n)
    elements = extruded(split_elements(topology, n), num_vertices, layers)
    nodes = gauss_lobatto(order + 1)[0]
    side = 2 * grid(dim - 1, n, nodes) - 1
    cube = np.concatenate([side, np.ones_like(side[..., :1])], axis=-1)
    directions = on_sphere(np.concatenate([cube @ frame for frame in frames]))
    radii = inner + (outer - inner) * grid(1, layers, nodes)[..., 0]
    coordinates = directions[:, None, None, :, :] * radii[None, :, :, None, None]
    shape = (len(elements), len(nodes) ** dim, dim)
    coarser = halved_layers(halved_blocks(topology, n), layers)
    return assembled(elements, coordinates.reshape(shape), num_vertices * (layers + 1), coarser)


def drawn_out(base: Mesh, layers: int, height: float) -> Mesh:
    """Extrude a plane mesh along z from 0 to `height`."""
    _check_fits(base.num_elements * layers, 3, base.order)
    elements = extruded(base.elements, base.num_vertices, layers)
    heights = height * grid(1, layers, gauss_lobatto(base.order + 1)[0])[..., 0]
    plane = base.coordinates[:, None, None, :, :]
    count, levels = (base.num_elements, layers), heights.shape[1]
    coordinates = np.empty((*count, levels, plane.shape[3], 3))
    coordinates[..., :2] = plane
    coordinates[..., 2] = heights[None, :, :, None]
    flat, count_all = coordinates.reshape(len(elements), -1, 3), base.num_vertices * (layers + 1)
    return assembled(elements, flat, count_all, halved_layers(base.whole_coarser, layers))


def _check_fits(count: int, dim: int, order: int) -> None:
    check_fits((count, (order + 1) ** dim, dim), f"making {count} elements", "take fewer")
