"""Animated pictures of fields in time. Needs Matplotlib and Pillow, of the extra ``viz``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from femops.errors import FileError, SpaceError
from femops.io.atomic import checked_path, writing
from femops.io.plots.gathering import gathered, shared
from femops.io.plots.plot import nodal_limits, part_of_field, plot
from femops.io.plots.sampling import Sampler
from femops.io.plots.scene import magnitude
from femops.parallel.comm import check, communicator
from femops.spaces.h1_l2 import Space
from femops_common.arguments import checked, shown, type_name

_MILLISECONDS = 1000.0
_LONGEST = 600  # most seconds that a GIF can show a picture
_SHORTEST = 20  # fewest milliseconds that programs show a picture of a GIF


@checked(FileError)
def movie(
    path: str | os.PathLike[str],
    frames: Sequence[tuple[str, Space, Any]],
    *,
    seconds: float = 6.0,
    **options: Any,
) -> Path:
    """Draw a field at several times to an animated GIF, with Matplotlib and Pillow.

    All pictures have the same colours for the same values. Collective if ranks share the meshes.
    Then rank 0 draws.

    Parameters
    ----------
    path : path ending in .gif
    frames : sequence of (title, space, u)
        Title and field at each time. Meshes may differ.
    seconds : float
        Duration of the movie.
    **options
        Options of `plot`.

    Returns
    -------
    pathlib.Path
        The file, which appears under its name only when complete.

    Raises
    ------
    FileError
        There are no frames, the duration is not positive, the suffix is not .gif, or the file
        cannot be written.
    MissingExtraError, SpaceError, VectorError
        See `plot`.

    Examples
    --------
    >>> import femops, tempfile
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> frames = [(f"t = {t}", V, V.interpolate(lambda x: t * x[0])) for t in (0.5, 1.0)]
    >>> femops.io.movie(tempfile.mkdtemp() + "/u.gif", frames, name="u").suffix
    '.gif'
    """
    target = checked_path(path, ".gif")
    _check(frames, seconds)
    first = frames[0][1]
    meshes = [shared(space) for _, space, _ in frames]
    drawn = [
        (title, (space, u) if mesh is None else gathered(mesh, space, u))
        for (title, space, u), mesh in zip(frames, meshes, strict=True)
    ]
    comm = communicator() if meshes[0] is None else first.comm
    with check(comm):
        if comm.rank == 0:
            _write(target, [(title, *whole) for title, whole in drawn if whole], seconds, options)
    return target


def _check(frames: Any, seconds: float) -> None:
    if not isinstance(frames, list | tuple) or not frames:
        raise FileError(f"frames are {shown(frames)}: give a list of one or more")
    for frame in frames:
        if not isinstance(frame, tuple | list) or len(frame) != 3:
            raise FileError(f"a frame is {shown(frame)}: give (title, space, u)")
    if not 0.0 < seconds <= _LONGEST * len(frames):
        raise FileError(
            f"{len(frames)} frames last {seconds:g} seconds: give more than 0 and at most "
            f"{_LONGEST * len(frames)}"
        )


def _write(
    target: Path, frames: list[tuple[str, Space, Any]], seconds: float, options: dict[str, Any]
) -> None:
    limits = _limits(frames, options.get("part", "real"))
    pictures = {"backend": "matplotlib", "limits": limits, **options}
    images = []
    for title, space, u in frames:
        buffer = BytesIO()
        plot(space, u, title=title, **pictures).write_png(buffer)
        images.append(buffer)
    from PIL import Image  # Matplotlib has loaded it already

    first, *others = [Image.open(buffer).convert("RGB") for buffer in images]
    each = max(_SHORTEST, round(_MILLISECONDS * seconds / len(images)))
    with writing(target) as file:
        first.save(file, format="GIF", save_all=True, append_images=others, duration=each, loop=0)


def _limits(frames: list[tuple[str, Space, Any]], part: Any) -> tuple[float, float] | None:
    """Return the lowest and the highest value in all frames. None if they are equal."""
    ends: list[float] = []
    for _, space, u in frames:
        if not isinstance(space, Space):
            raise SpaceError(f"a frame has {type_name(type(space))}: give (title, space, u)")
        field = part_of_field(space, u, part)
        for sampler in Sampler(space.mesh, field).parts:
            everywhere = np.arange(sampler.mesh.num_elements)
            values = magnitude(sampler.lattice(everywhere, 2 * space.order + 3)[..., 3:])
            ends += nodal_limits(field) or (float(values.min()), float(values.max()))
    low, high = min(ends), max(ends)
    return (low, high) if low < high else None
