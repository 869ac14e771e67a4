"""Meshes of meshio and of Gmsh's Python interface, written to files that `read_gmsh` reads.

Neither package is imported: an object comes with its own.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_meshes import MeshFormatError

_TAGS = ("gmsh:physical", "medit:ref", "cell_tags")
"""Data of meshio's cells that are attributes; the first that a mesh has is taken."""


def is_mesh_object(source: Any) -> bool:
    """True for a ``meshio.Mesh`` and for ``gmsh.model``."""
    return _of_meshio(source) or _of_gmsh(source)


def _of_meshio(source: Any) -> bool:
    mine = type(source).__module__.split(".")[0] == "meshio"
    return mine and hasattr(source, "points") and hasattr(source, "cells")


def _of_gmsh(source: Any) -> bool:
    return getattr(source, "__module__", None) == "gmsh" and source is sys.modules["gmsh"].model


@contextmanager
def gmsh_file(source: Any) -> Iterator[Path]:
    """Write a mesh object to a temporary file of Gmsh's.

    Parameters
    ----------
    source : meshio.Mesh or gmsh.model
        Of ``gmsh.model`` the elements that ``gmsh.write`` saves: those in physical groups, if there
        are groups.

    Raises
    ------
    MeshFormatError
        The package cannot write the mesh, or sets of meshio overlap.
    """
    name = "gmsh.model" if _of_gmsh(source) else "the meshio.Mesh"
    with tempfile.TemporaryDirectory(prefix="femops-mesh-") as folder:
        file = Path(folder, "mesh.msh")
        try:
            if _of_gmsh(source):
                _write_model(sys.modules["gmsh"], file)
            else:
                _write_meshio(source, file)
        except MeshFormatError:
            raise
        except Exception as error:  # both raise errors of their own, and Gmsh plain ones
            raise MeshFormatError(f"{name} can't be written as a Gmsh file: {error}") from error
        try:
            yield file
        except MeshFormatError as error:  # the user knows no such file
            raise MeshFormatError(str(error).replace(str(file), name)) from error


def _write_model(gmsh: Any, file: Path) -> None:
    """Write the current model, in version 4.1. Options are as before afterwards.

    Raises
    ------
    MeshFormatError
        If Gmsh has no model, because the program has not begun to use Gmsh or has ended it, or a
        model without elements.
    """
    if not gmsh.isInitialized():
        raise MeshFormatError(
            "gmsh.model is empty: call read_mesh between gmsh.initialize() and gmsh.finalize()"
        )
    if not len(gmsh.model.mesh.getElementTypes()):
        raise MeshFormatError(
            "gmsh.model has no mesh: call gmsh.model.mesh.generate(2), or (3) in 3-D, before"
        )
    wanted = {"Mesh.MshFileVersion": 4.1, "Mesh.Binary": 1.0, "Mesh.SaveParametric": 0.0}
    before = {name: gmsh.option.getNumber(name) for name in wanted}
    try:
        for name, value in wanted.items():
            gmsh.option.setNumber(name, value)
        gmsh.write(str(file))
    finally:
        for name, value in before.items():
            gmsh.option.setNumber(name, value)


def _write_meshio(source: Any, file: Path) -> None:
    """Write a mesh of meshio, with its attributes and their names, in version 2.2."""
    tags, names = _tags(source)
    points = np.zeros((len(source.points), 3))
    points[:, : source.points.shape[1]] = source.points
    data = {"gmsh:physical": tags, "gmsh:geometrical": tags}
    copy = type(source)(points, source.cells, cell_data=data, field_data=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about data that this file does not need
        copy.write(file, file_format="gmsh22")


def _tags(source: Any) -> tuple[list[NDArray[np.int32]], dict[str, NDArray[np.int64]]]:
    """Attribute of each cell, by block, and number and dimension of each name."""
    for name in _TAGS:
        if name in source.cell_data:
            tags = [np.asarray(block, dtype=np.int32) for block in source.cell_data[name]]
            return tags, dict(source.field_data)
    tags = [np.zeros(len(block.data), dtype=np.int32) for block in source.cells]
    names: dict[str, NDArray[np.int64]] = {}
    for number, (name, parts) in enumerate(source.cell_sets.items(), 1):
        for block, mine, part in zip(source.cells, tags, parts, strict=True):
            if part is None or not len(part):
                continue
            if mine[part].any():
                raise MeshFormatError(
                    f"cells of the set {name!r} of the meshio.Mesh are in another set: keep one"
                )
            mine[part] = number
            names[name] = np.array([number, block.dim])
    return tags, names
