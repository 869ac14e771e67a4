"""Pictures of meshes and fields: check of the options, and choice of the library."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from femops.errors import FileError, MissingExtraError, SpaceError
from femops.io.atomic import checked_path
from femops.io.plots.gathering import gathered, shared
from femops.io.plots.picture import Picture
from femops.io.plots.sampling import Sampler
from femops.io.plots.scene import magnitude, make_scene
from femops.io.plots.with_matplotlib import MatplotlibPicture
from femops.io.plots.with_pyvista import PyVistaPicture, check_pyvista
from femops.parallel.comm import check
from femops.parallel.mesh import DistributedMesh
from femops.spaces.base import GridFunction
from femops.spaces.h1_l2 import Space
from femops.spaces.vectors import as_doubled, has_complex
from femops_common.arguments import checked, number_of, type_name
from femops_meshes import Mesh, MixedMesh

Backend = Literal["pyvista", "matplotlib"]
Part = Literal["real", "imag", "abs"]


@checked(SpaceError)
def plot(
    what: Space | GridFunction | Mesh | MixedMesh | DistributedMesh,
    u: Any = None,
    *,
    name: str = "u",
    part: Part = "real",
    cut: bool | str | None = None,
    deform: float | GridFunction | None = None,
    arrows: bool | None = None,
    edges: bool = True,
    limits: tuple[float, float] | None = None,
    title: str | None = None,
    interactive: bool = False,
    backend: Backend | None = None,
) -> Picture:
    """Draw a mesh, and a field on it. Notebooks show the returned picture.

    In 3-D PyVista draws, if it is installed. Otherwise Matplotlib draws, which needs neither a
    display nor OpenGL. Elements are drawn curved, and fields with the accuracy of their
    polynomials.

    Parameters
    ----------
    what : Space, GridFunction, Mesh, MixedMesh or DistributedMesh
        Space of `u`, a field, or a mesh to draw without a field.
    u : (size,) array, optional
        Vector of the field, real or complex. For several components colours show the Euclidean
        length.
    name : str
        Name of the field, for the colour bar.
    part : {"real", "imag", "abs"}
        What is drawn of a complex field: its real or imaginary part, or its absolute value.
    cut : bool or str, optional
        In 3-D, the part on the viewer's side to remove, so that the inside is visible: "x" for a
        half of the mesh, "xy" for a quarter, "xyz" or True for an octant, False for nothing. By
        default an octant is removed if the boundary hides most of the field.
    deform : float or GridFunction, optional
        Factor of `u`, or a displacement. The mesh is drawn at the displaced positions.
    arrows : bool, optional
        Whether to draw arrows along a vector field with as many components as the mesh has
        dimensions. By default they are drawn unless the mesh is deformed.
    edges : bool
        Whether to draw the edges of the elements.
    limits : (float, float), optional
        Lowest and highest value of the colour scale, or of a curve's axis. By default those of the
        field; of a space whose nodes are Gauss points, those at the nodes.
    title : str, optional
    interactive : bool
        Whether a notebook shows the picture in a viewer, in which it can be turned. PyVista draws
        it, with the extra ``interactive``.
    backend : {"pyvista", "matplotlib"}, optional
        Library that draws.

    Returns
    -------
    Picture
        Picture with ``save("u.png")``, ``save("u.html")`` if PyVista draws, ``show()`` and
        ``figure``, the library's object for your own changes.

    Raises
    ------
    MissingExtraError
        The library is not installed.
    SpaceError
        `what` is no space, field or mesh, or is shared by many ranks. The space of the field is
        missing. The cut, displacement, arrows or backend are not possible, or a picture by
        Matplotlib was to be interactive. The part is not real, but the field is.
    VectorError
        The field does not fit the space.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.disc(2), order=3)
    >>> picture = femops.plot(V, V.interpolate(lambda x: x[0] * x[1]), name="xy")
    """
    what, u = _unpacked(what, u)
    space, mesh = _space_and_mesh(what, u)
    field = None if space is None else part_of_field(space, u, part)
    name, vector = _label(name, u, part), None if part == "abs" else field
    sampler = Sampler(mesh, field, *_displacement(mesh, vector, deform))
    limits = _limits(limits, field) or nodal_limits(field)
    axes, along = _axes(cut, mesh.dim), _along(vector, arrows, deformed=deform is not None)
    by_pyvista = _by_pyvista(_backend(backend, interactive=interactive), mesh.dim)
    if mesh.dim == 1:
        return MatplotlibPicture(sampler, name, title, limits)
    single = part == "abs" or field is None or field.space.ncomp == 1
    label = name if single else f"length of {name}"
    scene = replace(make_scene(sampler, label, axes, along, edges), limits=limits)
    if by_pyvista:
        return PyVistaPicture(scene, title, interactive=interactive)
    return MatplotlibPicture(scene, name, title)


@checked(SpaceError, path=FileError)
def picture(
    path: str | os.PathLike[str],
    what: Space | GridFunction | Mesh | MixedMesh | DistributedMesh,
    u: Any = None,
    **options: Any,
) -> Path:
    """Draw a mesh, and a field on it, to a PNG file with Matplotlib.

    Collective if ranks share the mesh. Then rank 0 draws the global mesh.

    Parameters
    ----------
    path : path ending in .png
    what : Space, GridFunction, Mesh, MixedMesh or DistributedMesh
    u : (size,) array, optional
    **options
        Options of `plot`.

    Returns
    -------
    pathlib.Path
        The file, which appears under its name only when complete.

    Raises
    ------
    MissingExtraError, SpaceError, VectorError
        See `plot`.
    FileError
        The file cannot be written, or does not end in .png.
    """
    target = checked_path(path, ".png")
    options = {"backend": "matplotlib", **options}
    what, u = _unpacked(what, u)
    mesh = shared(what)
    if mesh is None:
        return plot(what, u, **options).save(target)
    whole = gathered(mesh, what, u)
    with check(mesh.comm):
        if whole is not None:
            plot(*whole, **options).save(target)
    return target


def _unpacked(what: Any, u: Any) -> tuple[Any, Any]:
    """Replace a GridFunction by its space and vector."""
    if not isinstance(what, GridFunction):
        return what, u
    if u is not None:
        raise SpaceError("a picture was asked of a GridFunction and of u: give one of them")
    return what.space, what.vector


def part_of_field(space: Space, u: Any, part: Part) -> GridFunction:
    """Return the real field to draw.

    The absolute value is the Euclidean length of the parts of all components, in `Space.doubled`.
    """
    if not has_complex(u):
        if part != "real":
            raise SpaceError(f"part is {part!r}, but u is real: omit it")
        return GridFunction(space, space.check_vector(u, "u"))
    both = as_doubled(space, u)
    if part == "abs":
        return GridFunction(space.doubled, both)
    return GridFunction(space, both[part == "imag" :: 2].copy())


def _label(name: str, u: Any, part: Part) -> str:
    """Name of the drawn field, for the colour bar."""
    if not has_complex(u):
        return name
    return {"real": f"Re {name}", "imag": f"Im {name}", "abs": f"|{name}|"}[part]


def nodal_limits(field: GridFunction | None) -> tuple[float, float] | None:
    """Lowest and highest value at the nodes, if these are Gauss points; else None.

    At the ends of elements the polynomials are extrapolated, far beyond the values at the nodes.
    """
    if field is None or field.space.families != "gauss":
        return None
    values = magnitude(field.space.components(field.vector))
    low, high = float(values.min()), float(values.max())
    return (low, high) if low < high else None


def _space_and_mesh(what: Any, u: Any) -> tuple[Space | None, Mesh]:
    if isinstance(what, Space | DistributedMesh) and what.comm.size > 1:
        raise SpaceError(
            f"a picture is shown by one process, the mesh is shared by {what.comm.size}: "
            "femops.io.picture('u.png', V, u) draws it into a file"
        )
    if isinstance(what, DistributedMesh):
        what = what.mesh
    if isinstance(what, Space):
        return (None if u is None else what), what.mesh
    if not isinstance(what, Mesh | MixedMesh):
        raise SpaceError(
            f"a picture was asked of {type_name(type(what))}: give the space of the field, or a "
            "mesh"
        )
    if u is not None:
        raise SpaceError("a picture was asked of a field with a mesh: give the space of the field")
    return None, cast(Mesh, what)


def _displacement(
    mesh: Mesh, field: GridFunction | None, deform: Any
) -> tuple[GridFunction | None, float]:
    """Return the displacement of the mesh, or None, and its factor."""
    if deform is None:
        return None, 1.0
    moved, factor = (deform, 1.0) if isinstance(deform, GridFunction) else (field, deform)
    if moved is None or moved.space.mesh is not mesh or moved.space.ncomp != mesh.dim:
        raise SpaceError(
            f"deform takes a displacement on the mesh, a GridFunction of {mesh.dim} component(s): "
            "give one, or a number if u itself is the displacement"
        )
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number):
        raise SpaceError(f"deform is {factor!r}: give a number or a GridFunction")
    if not np.isfinite(factor):
        raise SpaceError(f"deform is {factor}: give a finite number")
    return moved, float(factor)


def _axes(cut: Any, dim: int) -> str | None:
    """Return the axes of a cut. None if the field decides."""
    if cut is None or isinstance(cut, bool):
        return {None: None, True: "xyz", False: ""}[cut]
    if not isinstance(cut, str) or not cut or not set(cut) <= set("xyz"):
        raise SpaceError(f"cut is {cut!r}: take True, False, or axes as in 'x' or 'xy'")
    if dim < 3:
        raise SpaceError(f"cut is {cut!r}, but the mesh has dim {dim}: leave it out, or give True")
    return "".join(sorted(set(cut)))


def _along(field: GridFunction | None, arrows: bool | None, *, deformed: bool) -> bool:
    """True if arrows are drawn. Raise if they are requested but the field has no direction."""
    fits = field is not None and 1 < field.space.ncomp == field.space.dim
    if arrows and not fits:
        raise SpaceError("arrows show a vector field with as many components as dimensions, 2 or 3")
    return fits and not deformed if arrows is None else bool(arrows)


def _limits(given: Any, field: GridFunction | None) -> tuple[float, float] | None:
    if given is None:
        return None
    if field is None:
        raise SpaceError("limits are those of a field's colours, but only a mesh is drawn: give u")
    pair = given if isinstance(given, tuple | list) else []
    ends = [end for end in map(number_of, pair) if end is not None]
    if len(pair) != 2 or len(ends) != 2 or not -np.inf < ends[0] < ends[1] < np.inf:
        raise SpaceError(f"limits are {given!r}: give two numbers, the lower first")
    return ends[0], ends[1]


def _backend(given: Any, *, interactive: bool) -> Any:
    """Backend that was asked for: PyVista, if the picture is interactive."""
    if interactive and given not in (None, "pyvista"):
        raise SpaceError(f"{given!r} draws no interactive pictures: leave out backend")
    return "pyvista" if interactive else given


def _by_pyvista(backend: Any, dim: int) -> bool:
    if backend not in (None, "pyvista", "matplotlib"):
        raise SpaceError(f"backend is {backend!r}: take 'pyvista' or 'matplotlib'")
    if backend == "pyvista" and dim == 1:
        raise SpaceError("PyVista draws no curves: leave out backend and interactive")
    if backend is not None or dim < 3:
        return bool(backend == "pyvista")
    try:
        check_pyvista()
    except MissingExtraError:
        return False
    return True
