"""Pictures of a mesh with a field, as PNG files.

Needs Matplotlib, of the extra ``femops[viz]``; this package is its only door. Pictures are drawn
in memory, so neither a display nor OpenGL is needed. What is hidden in 3-D is decided by drawing
the far patches first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import MissingExtraError, SpaceError
from femops.io.atomic import checked_path, replacing
from femops.io.plots.surface import (
    Surface,
    exposed_faces,
    kept_elements,
    magnitude,
    sample_surface,
    view_axes,
)
from femops.parallel.mesh import DistributedMesh
from femops.spaces.h1_l2 import Space
from femops_meshes import Mesh
from femops_meshes.coordinates.interpolation import equispaced
from femops_meshes.coordinates.mapping import positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

VIEW = np.array([1.0, -1.3, 0.9])
"""Viewpoint of 3-D meshes."""

LIGHT = np.array([0.1, -0.7, 1.0])
"""Direction of the light on 3-D meshes, beside an ambient one."""

PATCHES = 60_000
"""About as many flat patches make up a picture."""

LINE_COLOR = "#222222"
EDGE_INK = (0.0, 0.0, 0.0, 0.85)
PLAIN = (0.72, 0.79, 0.88)
"""Colour of elements without a field."""


def picture(
    path: str | os.PathLike[str],
    what: Space | Mesh | DistributedMesh,
    u: Any = None,
    *,
    title: str | None = None,
    cut: bool = False,
    edges: bool = True,
) -> Path:
    """Draw a mesh, and a field on it, into a PNG file.

    Parameters
    ----------
    path : path ending in .png
    what : Space, Mesh or DistributedMesh
        The space of `u`, or a mesh to draw alone.
    u : l_vec, optional
        The field; of a vector field the Euclidean length is drawn.
    title : str, optional
    cut : bool
        In 3-D, leave out the elements in the octant next to the viewer, to show what is inside.
    edges : bool
        Draw the edges of the elements.

    Returns
    -------
    pathlib.Path
        The file, which appears under its name only when complete.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    FileError
        The file cannot be written, or does not end in .png.
    SpaceError
        `what` is neither a space nor a mesh, or shared by many ranks; or a field came without its
        space.
    VectorError
        The field does not fit the space.
    """
    space, mesh = _space_and_mesh(what, u)
    target = checked_path(path, ".png")
    field = None if space is None else space.check_vector(u, "u")
    figure = new_figure()
    axes = figure.add_subplot()
    shades = None
    if mesh.dim == 1:
        _draw_curve(axes, mesh, space, field)
    elif mesh.dim == 2:
        shades = _draw_plane(axes, mesh, space, field, edges)
    else:
        shades = _draw_surface(axes, mesh, space, field, edges, cut)
    if mesh.dim > 1:
        axes.set_aspect("equal")
    if mesh.dim == 3:
        axes.set_axis_off()
    if shades is not None:
        figure.colorbar(shades, ax=axes, shrink=0.8)
    if title:
        axes.set_title(title)
    with replacing(target) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    return target


def _space_and_mesh(what: Any, u: Any) -> tuple[Space | None, Mesh]:
    if isinstance(what, Space | DistributedMesh) and what.comm.size > 1:
        raise SpaceError(
            f"a picture is drawn by one process, the mesh is shared by {what.comm.size}: "
            "femops.save('u.pvtu', V, u=u) writes files for ParaView"
        )
    if isinstance(what, DistributedMesh):
        what = what.mesh
    if isinstance(what, Space):
        return (None if u is None else what), what.mesh
    if not isinstance(what, Mesh):
        raise SpaceError(
            f"picture was given a {type(what).__name__}: give the space of the field, or a mesh"
        )
    if u is not None:
        raise SpaceError("picture was given a field with a mesh: give the space of the field")
    return None, what


def check_matplotlib() -> None:
    """Check that pictures can be drawn; call it before long work that ends in a picture.

    Raises
    ------
    MissingExtraError
        Matplotlib cannot be imported.
    """
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"pictures need Matplotlib, which cannot be imported ({error}): "
            "install it by  pip install matplotlib  (or 'femops[viz]')"
        ) from error


def new_figure(size: tuple[float, float] = (7.5, 6.0)) -> Figure:
    """Return an empty figure drawn by Agg, without pyplot and its global state.

    Raises
    ------
    MissingExtraError
        Matplotlib cannot be imported.
    """
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _points_per_line(count: int, dim: int, order: int) -> int:
    """Sampling points of each of `count` patches of dimension `dim`, so that PATCHES suffice."""
    affordable = int((PATCHES / max(count, 1)) ** (1 / dim))
    return int(np.clip(affordable, 2, 6 * order + 10)) + 1


def _sample(
    mesh: Mesh, space: Space | None, u: Any, count: int, dim: int
) -> tuple[Floats, Floats | None, int]:
    """Positions (ne, n**dim, dim) and values (ne, n**dim) on a grid of n points per direction."""
    n = _points_per_line(count, dim, max(mesh.order, space.order if space else 1))
    if space is None:
        return positions(mesh.coordinates, equispaced(n)), None, n
    where, values = space.sample(u, n)
    return where, magnitude(values), n


def _draw_curve(axes: Axes, mesh: Mesh, space: Space | None, u: Any) -> None:
    where, values, n = _sample(mesh, space, u, mesh.num_elements, 1)
    heights = np.zeros((len(where), n)) if values is None else values
    gap = np.full((len(where), 1), np.nan)  # lifts the pen between elements
    x, y = (np.concatenate([a, gap], axis=1).ravel() for a in (where[..., 0], heights))
    axes.plot(x, y, color="tab:blue")
    ends = where[:, [0, -1], 0]
    axes.plot(ends.ravel(), heights[:, [0, -1]].ravel(), "|", color=LINE_COLOR)
    axes.set_xlabel("x")


def _draw_plane(axes: Axes, mesh: Mesh, space: Space | None, u: Any, edges: bool) -> Any:
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.tri import Triangulation

    where, values, n = _sample(mesh, space, u, mesh.num_elements, 2)
    grid = where.reshape(-1, n, n, 2)
    around = np.concatenate(
        [grid[:, 0], grid[:, 1:, -1], grid[:, -1, -2::-1], grid[:, -2::-1, 0]], 1
    )
    shades = None
    if values is None:
        axes.add_collection(PolyCollection(list(around), facecolors=[PLAIN]))
    else:
        points = where.reshape(-1, 2)
        triangles = Triangulation(points[:, 0], points[:, 1], _triangles(len(where), n))
        shades = axes.tripcolor(triangles, values.ravel(), shading="gouraud", cmap="viridis")
    if edges:
        width = float(np.clip(30 / np.sqrt(mesh.num_elements), 0.15, 1.0))
        axes.add_collection(LineCollection(list(around), colors=LINE_COLOR, linewidths=width))
    axes.autoscale_view()
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    return shades


def _triangles(count: int, n: int) -> NDArray[np.int64]:
    """Two triangles for each cell of `count` grids of n x n points."""
    j, i = np.divmod(np.arange((n - 1) ** 2), n - 1)
    corner = i + n * j
    pair = np.array([[corner, corner + 1, corner + n], [corner + n + 1, corner + n, corner + 1]])
    inside = pair.transpose(2, 0, 1).reshape(-1, 3)
    starts = np.arange(count)[:, None, None] * n**2
    return np.asarray(starts + inside, dtype=np.int64).reshape(-1, 3)


def _draw_surface(
    axes: Axes, mesh: Mesh, space: Space | None, u: Any, edges: bool, cut: bool
) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import Normalize

    faces = exposed_faces(mesh, kept_elements(mesh, VIEW, cut))
    n = _points_per_line(len(faces), 2, max(mesh.order, space.order if space else 1))
    surface = sample_surface(mesh, faces, n, space, u)
    shades = None
    if surface.values is not None:
        scale = Normalize(float(surface.values.min()), float(surface.values.max()))
        shades = ScalarMappable(scale, "viridis")
    shapes, depths, fills = _patches(surface, shades)
    strokes, widths = fills.copy(), np.full(len(fills), 0.4)
    if edges:
        lines, line_depths = _edge_lines(surface)
        shapes = [*shapes, *lines]
        depths = np.concatenate([depths, line_depths])
        nothing = np.zeros((len(lines), 4))
        fills = np.concatenate([fills, nothing])
        strokes = np.concatenate([strokes, np.tile(EDGE_INK, (len(lines), 1))])
        widths = np.concatenate([widths, np.full(len(lines), 0.6)])
    order = np.argsort(depths, kind="stable")
    collection = PolyCollection(
        [shapes[k] for k in order],
        facecolors=fills[order],
        edgecolors=strokes[order],
        linewidths=widths[order],
        closed=False,
    )
    axes.add_collection(collection)
    axes.autoscale_view()
    return shades


def _patches(surface: Surface, shades: Any) -> tuple[list[Floats], Floats, Floats]:
    """Flat quadrilaterals that face the viewer: outlines (4, 2), depths, colours (RGBA)."""
    p = surface.points
    corners = np.stack([p[:, :-1, :-1], p[:, :-1, 1:], p[:, 1:, 1:], p[:, 1:, :-1]], axis=3)
    quads = corners.reshape(-1, 4, 3)
    normals = -np.cross(quads[:, 2] - quads[:, 0], quads[:, 3] - quads[:, 1])
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals /= np.where(lengths > 0, lengths, 1)
    axes = view_axes(VIEW)
    seen = normals @ axes[2] > 0
    projected = quads[seen] @ axes.T
    light = 0.72 + 0.28 * np.clip(normals[seen] @ (LIGHT / np.linalg.norm(LIGHT)), 0, 1)
    if surface.values is None or shades is None:
        colors = np.tile([*PLAIN, 1.0], (len(projected), 1))
    else:
        v = surface.values
        mean = (v[:, :-1, :-1] + v[:, :-1, 1:] + v[:, 1:, 1:] + v[:, 1:, :-1]) / 4
        colors = np.asarray(shades.to_rgba(mean.reshape(-1)[seen]))
    colors[:, :3] *= light[:, None]
    return list(projected[:, :, :2]), projected[:, :, 2].mean(axis=1), colors


def _edge_lines(surface: Surface) -> tuple[list[Floats], Floats]:
    """Short pieces of the element edges, (2, 2) each, a little nearer than the faces."""
    p = surface.points
    sides = np.concatenate([p[:, 0], p[:, -1], p[:, :, 0], p[:, :, -1]])
    pieces = np.stack([sides[:, :-1], sides[:, 1:]], axis=2).reshape(-1, 2, 3)
    projected = pieces @ view_axes(VIEW).T
    step = np.linalg.norm(pieces[:, 1] - pieces[:, 0], axis=1)
    return list(projected[:, :, :2]), projected[:, :, 2].mean(axis=1) + 0.5 * step
