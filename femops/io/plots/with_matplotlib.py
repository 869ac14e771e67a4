"""Pictures drawn by Matplotlib, of the extra ``viz``.

Pictures are drawn in memory, so neither a display nor OpenGL is needed. In 3-D far patches are
drawn first, so that near patches hide them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import FileError, MissingExtraError
from femops.io.plots.picture import Picture
from femops.io.plots.sampling import Sampler
from femops.io.plots.scene import (
    VIEW,
    Scene,
    arrows_of,
    fans,
    is_flat,
    magnitude,
    points_per_line,
    view_axes,
)
from femops_meshes.coordinates.mapping import equispaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

Floats = NDArray[np.float64]
Limits = tuple[float, float] | None

LIGHT = np.array([0.1, -0.7, 1.0])
"""Direction of the light on 3-D meshes, in addition to ambient light."""

LINE_COLOR = "#222222"
EDGE_INK = (0.0, 0.0, 0.0, 0.85)
BAR, BAR_GAP = 0.2, 0.15
"""Thickness of a colour bar, and gap between bar and picture, in inches."""

PLAIN = (0.72, 0.79, 0.88)
"""Colour of elements without a field."""


@final
class MatplotlibPicture(Picture):
    """Picture in a Matplotlib figure."""

    figure: Figure

    def __init__(
        self, what: Scene | Sampler, name: str, title: str | None, limits: Limits = None
    ) -> None:
        self.figure = new_figure()
        axes = self.figure.add_subplot()
        if isinstance(what, Sampler):
            _draw_curve(axes, what, name)
            if limits is not None:
                axes.set_ylim(*limits)
        elif what.dim == 2:
            _draw_plane(axes, what)
        else:
            _draw_space(axes, what)
        if title:
            axes.set_title(title)

    def write_png(self, file: Path | BinaryIO) -> None:
        self.figure.savefig(file, format="png", dpi=130)

    def write_html(self, file: BinaryIO) -> None:  # noqa: ARG002
        """Refuse: Matplotlib draws pictures that do not turn."""
        raise FileError(
            "'.html' is a page with a picture that turns, Matplotlib's does not: draw it "
            "by femops.plot(..., interactive=True)"
        )

    def show(self) -> None:
        import matplotlib.pyplot as plt

        manager = plt.figure().canvas.manager
        if manager is None or plt.get_backend().lower() == "agg":
            plt.close()
            raise MissingExtraError(
                "there is no window to show the picture in: save it by picture.save('u.png')"
            )
        manager.canvas.figure = self.figure
        self.figure.set_canvas(manager.canvas)
        plt.show()


def check_matplotlib() -> None:
    """Raise if Matplotlib cannot draw. Call this function before long work for a picture."""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"pictures need Matplotlib, which cannot be imported ({error}): "
            "install it by pip install matplotlib"
        ) from error


def new_figure(size: tuple[float, float] = (7.5, 6.0)) -> Figure:
    """Return an empty figure that Agg draws, without pyplot and its global state."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_curve(axes: Axes, sampler: Sampler, name: str) -> None:
    mesh = sampler.mesh
    n = points_per_line(mesh.num_elements, 1, sampler.degree)
    found = sampler(np.arange(mesh.num_elements), equispaced(n))
    where = found[..., 0]
    heights = np.zeros_like(where) if sampler.field is None else magnitude(found[..., 3:])
    gap = np.full((len(where), 1), np.nan)  # lifts the pen between elements
    x, y = (np.concatenate([a, gap], axis=1).ravel() for a in (where, heights))
    axes.plot(x, y, color="tab:blue")
    axes.plot(where[:, [0, -1]].ravel(), heights[:, [0, -1]].ravel(), "|", color=LINE_COLOR)
    axes.set_xlabel("x")
    if sampler.field is not None:
        axes.set_ylabel(name)


def _draw_plane(axes: Axes, scene: Scene) -> None:
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.tri import Triangulation

    patches = scene.patches
    if scene.has_field:
        x, y = patches[..., :2].reshape(-1, 2).T
        numbers = np.arange(patches.shape[0] * patches.shape[1]).reshape(*patches.shape[:2], 1)
        triangles = fans(numbers).reshape(-1, 3)
        grid, (low, high) = Triangulation(x, y, triangles), scene.scale
        look: dict[str, Any] = {"shading": "gouraud", "cmap": "viridis", "vmin": low, "vmax": high}
        shades = axes.tripcolor(grid, scene.shades.ravel(), **look)
        _color_bar(axes, shades, scene.label, flat=is_flat(patches[..., :2]))
    else:
        flat = PolyCollection(list(patches[..., :2]), facecolors=[PLAIN], edgecolors=[PLAIN])
        axes.add_collection(flat)
    width = float(np.clip(400 / np.sqrt(max(len(scene.edges), 1)) / 6, 0.15, 1.0))
    axes.add_collection(
        LineCollection(list(scene.edges[..., :2]), colors=LINE_COLOR, linewidths=width)
    )
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    if scene.arrows:
        _draw_arrows(axes, *scene.plane_arrows())


def _draw_space(axes: Axes, scene: Scene) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import Normalize

    shades, turn = None, view_axes(VIEW)
    if scene.has_field and len(scene.patches):
        shades = ScalarMappable(Normalize(*scene.scale), "viridis")
        flat_on = is_flat((scene.patches[..., :3] @ turn.T)[..., :2])
        _color_bar(axes, shades, scene.label, flat=flat_on)
    seen = _normals(scene.patches) @ turn[2] > 0
    fills = _colors(scene, seen, shades)
    flat = scene.patches[seen][..., :3] @ turn.T
    lines = scene.edges[..., :3] @ turn.T
    # edges are a little nearer than the patches around them
    lift = np.linalg.norm(flat[:, 2] - flat[:, 0], axis=1).mean() if len(flat) else 0.0
    depths = np.concatenate([flat[..., 2].mean(axis=1), lines[..., 2].mean(axis=1) + lift])
    order = np.argsort(depths, kind="stable")
    closed = np.concatenate([flat, flat[:, :1]], axis=1)  # strokes then leave no seams
    shapes = [*closed[..., :2], *lines[..., :2]]
    ink = np.tile(EDGE_INK, (len(lines), 1))
    widths = np.repeat([0.7, 0.6], [len(flat), len(lines)])
    axes.add_collection(
        PolyCollection(
            [shapes[k] for k in order],
            facecolors=np.concatenate([fills, np.zeros_like(ink)])[order],
            edgecolors=np.concatenate([fills, ink])[order],
            linewidths=widths[order],
            closed=False,
        )
    )
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_axis_off()
    if scene.arrows:
        points, vectors = (part[seen] @ turn.T for part in scene.middles())
        starts, along = arrows_of(points[:, :2], vectors[:, :2], depth=points[:, 2])
        _draw_arrows(axes, starts, along)
        axes.update_datalim(starts + along)
        axes.autoscale_view()


def _normals(patches: Floats) -> Floats:
    spokes = patches[:, 1:, :3] - patches[:, :1, :3]
    normals = np.cross(spokes[:, :-1], spokes[:, 1:]).sum(axis=1)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.asarray(normals / np.where(lengths > 0, lengths, 1))


def _colors(scene: Scene, seen: NDArray[np.bool_], shades: Any) -> Floats:
    """RGBA colours (n, 4) of the visible patches, from the field and the light."""
    normals = _normals(scene.patches[seen])
    light = 0.72 + 0.28 * np.clip(normals @ (LIGHT / np.linalg.norm(LIGHT)), 0, 1)
    if shades is None:
        colors = np.tile([*PLAIN, 1.0], (len(normals), 1))
    else:
        colors = np.asarray(shades.to_rgba(magnitude(scene.middles()[1][seen])))
    colors[:, :3] *= light[:, None]
    return colors


def _draw_arrows(axes: Axes, points: Floats, vectors: Floats) -> None:
    axes.quiver(
        *points.T,
        *vectors.T,
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.0035,
        color="white",
        edgecolor="black",
        linewidth=0.5,
    )


def _color_bar(axes: Axes, shades: Any, label: str, *, flat: bool) -> None:
    """Draw a colour bar: on the right of the picture, or below a flat picture."""
    place = axes.inset_axes((0.0, 0.0, 1.0, 1.0))
    place.set_axes_locator(partial(_beside, axes, flat))
    where = "horizontal" if flat else "vertical"
    bar = axes.figure.colorbar(shades, cax=place, orientation=where)
    if flat or len(label) > 3:
        bar.set_label(label)
    else:
        bar.set_label(label, rotation=0, ha="left", va="center")


def _beside(axes: Axes, flat: bool, bar: Axes, renderer: Any) -> Bbox:
    """Box of a colour bar, in fractions of the figure. Matplotlib calls it to draw."""
    from matplotlib.transforms import Bbox

    figure: Any = bar.figure  # some versions of Matplotlib declare it as a figure or a part of one
    width, height = figure.get_size_inches()
    picture = axes.get_position()
    if not flat:
        left = picture.x1 + BAR_GAP / width
        return Bbox.from_bounds(left, picture.y0, BAR / width, picture.height)
    labels = axes.xaxis.get_tightbbox(renderer) if axes.axison else None
    low = picture.y0 if labels is None else labels.y0 / figure.bbox.height
    bottom = low - (BAR_GAP + BAR) / height
    return Bbox.from_bounds(picture.x0, bottom, picture.width, BAR / height)
