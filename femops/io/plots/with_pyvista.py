"""Pictures drawn by PyVista, of the extra ``viz``, and conversion of fields to its grids."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import MissingExtraError, SpaceError
from femops.io.plots.picture import Picture
from femops.io.plots.scene import VIEW, Scene, arrows_of, is_flat, view_axes
from femops.io.vtk.vtu import Owner, checked_fields, first_space, lagrange_piece
from femops_common.arguments import checked

if TYPE_CHECKING:
    import pyvista

Floats = NDArray[np.float64]

PLAIN = "#b8c9e0"
"""Colour of elements without a field."""

LOOK: dict[str, Any] = {"cmap": "viridis", "ambient": 0.45, "diffuse": 0.55}
"""Colours, and light with which they stay legible in the shade."""


def check_pyvista() -> None:
    """Raise if PyVista cannot be used."""
    try:
        import pyvista  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"this needs PyVista, which cannot be imported ({error}): "
            "install it by pip install pyvista"
        ) from error


@checked(SpaceError)
def to_pyvista(space: Owner = None, u: Any = None, /, **fields: Any) -> pyvista.UnstructuredGrid:
    """Convert fields and their mesh to a PyVista grid with Lagrange cells of their degree.

    Cells, points and values are those in a file of `save`. On many ranks the grid has this rank's
    elements.

    Parameters
    ----------
    space : Space, Product, Mesh or DistributedMesh, optional
        As for `save`.
    u : (size,) array or GridFunction, optional
        A field, named u in the grid.
    **fields : (size,) array or GridFunction
        Fields by name, as for `save`.

    Returns
    -------
    pyvista.UnstructuredGrid

    Raises
    ------
    MissingExtraError
        PyVista is not installed.
    FileError, SpaceError, VectorError
        See `save`.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.ball(2), order=3)
    >>> grid = femops.io.to_pyvista(V, V.interpolate(lambda x: x[0]))
    >>> grid.clip("x").n_cells > 0
    True
    """
    check_pyvista()
    import pyvista

    if u is not None:
        fields = {"u": u, **fields}
    first = first_space(space, fields, "to_pyvista")
    piece = lagrange_piece(first, checked_fields(first, space, fields), in_memory=True)
    cells, offsets = piece.sections["Cells"], piece.sections["Cells"]["offsets"]
    counts = np.diff(offsets, prepend=0)
    grid = pyvista.UnstructuredGrid(
        np.insert(cells["connectivity"], offsets - counts, counts),  # each count, then its nodes
        cells["types"],
        piece.sections["Points"]["Points"],
    )
    for name, array in piece.sections["PointData"].items():
        _attach(grid.point_data, name, array)
    for name, array in piece.sections["CellData"].items():
        _attach(grid.cell_data, name, array)
    return grid


def _attach(data: Any, name: str, array: NDArray[Any]) -> None:
    """Add an array to the data of a grid. A rank without elements has empty arrays."""
    if array.size:
        data[name] = array
        return
    from vtkmodules.vtkCommonCore import vtkDoubleArray

    empty = vtkDoubleArray()  # PyVista refuses empty arrays of vectors
    empty.SetName(name)
    empty.SetNumberOfComponents(array.shape[1] if array.ndim > 1 else 1)
    data.VTKObject.AddArray(empty)


@final
class PyVistaPicture(Picture):
    """Picture drawn by a PyVista plotter."""

    def __init__(self, scene: Scene, title: str | None, *, interactive: bool) -> None:
        check_pyvista()
        self._scene, self._title, self._interactive = scene, title, interactive

    @cached_property
    def figure(self) -> Any:
        """Plotter of the picture, off screen, made at first use. It takes 90 MB until closed.

        The caller closes it, by ``picture.figure.close()``. Pictures that are only saved or shown
        close theirs.
        """
        return self._plotter(off_screen=True)

    def write_png(self, file: Path | BinaryIO) -> None:
        from matplotlib.image import imsave

        with self._drawn() as plotter:
            image: Any = plotter.screenshot(return_img=True)
        imsave(file, image, format="png")

    def write_html(self, file: BinaryIO) -> None:
        with closing(self._plotter(off_screen=True)) as plotter:
            try:
                # before 0.49, and without its extra, PyVista has no component trame
                content = getattr(plotter, "trame", plotter).export_html(None).getvalue()
            except ImportError as error:
                raise MissingExtraError(
                    f"pages with interactive pictures need PyVista's extra jupyter ({error}): "
                    "pip install 'pyvista[jupyter]'"
                ) from error
        file.write(content.encode())

    def _drawn(self) -> AbstractContextManager[Any]:
        """Plotter of the picture: the caller's, if any, because the caller may have changed it."""
        if "figure" in self.__dict__:
            return nullcontext(self.figure)
        return closing(self._plotter(off_screen=True))

    def show(self) -> None:
        with closing(self._plotter(off_screen=False)) as plotter:
            plotter.show()

    def _repr_html_(self) -> str | None:
        """Return a frame with the page, for notebooks. None lets them show a PNG."""
        if not self._interactive:
            return None
        page = BytesIO()
        self.write_html(page)
        content = escape(page.getvalue().decode(), quote=True)
        return f'<iframe srcdoc="{content}" style="width:100%;height:480px;border:0"></iframe>'

    def _plotter(self, *, off_screen: bool) -> Any:
        import pyvista

        scene, ink = self._scene, "black"
        with pyvista.vtk_verbosity("error"):  # it warns that there is no display
            plotter: Any = pyvista.Plotter(off_screen=off_screen, window_size=[975, 780])
        plotter.set_background("white")
        if off_screen:
            plotter.enable_anti_aliasing("ssaa")
        surface = _polygons(scene.patches[..., :3])
        frame = _Frame.of(scene, plotter.window_size[0] / plotter.window_size[1])
        if scene.has_field:
            shades, bar = scene.shades.ravel(), frame.bar(scene.label, scene.scale)
            look = LOOK | {"scalar_bar_args": bar, "clim": scene.scale}
            plotter.add_mesh(surface, scalars=shades, **look)
        else:
            plotter.add_mesh(surface, color=PLAIN, **LOOK)
        if len(scene.edges):
            plotter.add_mesh(_lines(scene.edges[..., :3]), color=ink, line_width=1.5)
        if scene.arrows:
            plotter.add_arrows(*_arrows(scene), color="white")
        if self._title:
            plotter.add_text(self._title, position="upper_edge", color=ink, font_size=12)
        if scene.dim == 3:
            plotter.add_axes(color=ink)
        frame.look(plotter)
        return plotter


def _arrows(scene: Scene) -> tuple[Floats, Floats]:
    """Starts and directions (k, 3) of arrows."""
    if scene.dim == 3:
        return arrows_of(*scene.middles())
    starts, vectors = (np.pad(one, ((0, 0), (0, 1))) for one in scene.plane_arrows())
    return starts, vectors


@final
@dataclass(frozen=True, eq=False)
class _Frame:
    """Layout of the window: the picture, with the colour bar on the right or below."""

    turn: Floats  # (3, 3): rows of directions: right, up, toward the viewer
    # middle and size are (3,): centre and side lengths of the box around the picture, along the
    # rows of ``turn``
    middle: Floats
    size: Floats
    aspect: float  # width of the window divided by its height
    # right and below: fraction of the window's width, and of its height, for the colour bar
    right: float
    below: float

    @staticmethod
    def of(scene: Scene, aspect: float) -> _Frame:
        """Make the layout for the patches and arrows of a scene."""
        turn = view_axes(VIEW) if scene.dim == 3 else np.eye(3)
        points = scene.patches[..., :3].reshape(-1, 3)
        if scene.arrows:
            points = np.concatenate([points, np.add(*_arrows(scene))])
        points = points @ turn.T
        lower, upper = points.min(axis=0), points.max(axis=0)
        flat = scene.has_field and is_flat(points[:, :2])
        right, below = (0.0, 0.2) if flat else (0.18 * scene.has_field, 0.0)
        return _Frame(turn, (lower + upper) / 2, upper - lower, aspect, right, below)

    @property
    def half(self) -> float:
        """Half of the window's height, in units of the mesh."""
        width, height = self.size[:2] / 2
        return float(max(height / (0.9 - self.below), width / (0.94 - self.right) / self.aspect))

    def look(self, plotter: Any) -> None:
        """Set the camera so that the picture fills the window beside the colour bar."""
        camera = plotter.camera
        camera.focal_point = self.middle @ self.turn
        camera.position = self.middle @ self.turn + 2 * self.size.max() * self.turn[2]
        camera.up = self.turn[1]
        camera.enable_parallel_projection()
        camera.parallel_scale = self.half
        camera.SetWindowCenter(self.right, 0)
        plotter.renderer.reset_camera_clipping_range()

    def bar(self, label: str, scale: tuple[float, float]) -> dict[str, Any]:
        """Options of PyVista for the colour bar."""
        width, height = self.size[0] / (2 * self.half * self.aspect), self.size[1] / (2 * self.half)
        left = (1 - self.right - width) / 2
        where = {"position_x": 0.85, "position_y": (1 - height) / 2, "height": height}
        if self.below:
            where = {"position_x": left, "width": width, "height": 0.12}
            where |= {"position_y": (1 - height) / 2 - 0.17}
        digits = _digits(*scale)
        style = {"color": "black", "title_font_size": 16, "fmt": f"%.{digits}g"}
        style |= {"label_font_size": 18 if digits < 7 else 13}  # long numbers have to fit
        # the empty line separates the title from the numbers
        return {"title": f"{label}\n", "vertical": not self.below, **style, **where}


def _digits(low: float, high: float) -> int:
    """Number of digits that the labels of a colour bar need to differ from each other."""
    span, largest = abs(high - low), max(abs(low), abs(high))
    more = np.ceil(np.log10(largest / span)) if span > 0 else 0
    return 3 + int(np.clip(more, 0, 12))


def _polygons(corners: NDArray[np.float64]) -> pyvista.PolyData:
    import pyvista

    m, k, _ = corners.shape
    faces = np.hstack([np.full((m, 1), k), np.arange(m * k).reshape(m, k)])
    return pyvista.PolyData(corners.reshape(-1, 3), faces.ravel())


def _lines(ends: NDArray[np.float64]) -> pyvista.PolyData:
    import pyvista

    n = len(ends)
    lines = np.hstack([np.full((n, 1), 2), np.arange(2 * n).reshape(n, 2)])
    return pyvista.PolyData(ends.reshape(-1, 3), lines=lines.ravel())
