"""Text files: read with clear errors, and replaced only when the new file is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from femops_meshes.errors import MeshError, MeshFileError, MeshFormatError
from femops_meshes.formats.scanner import printable
from femops_meshes.formats.temporary import regular, temporary_file, unlinked
from femops_meshes.samples import samples

_BYTES = 1024
_HOLE = bytes(1 << 20)
"""More zeros than any file has one after the other, as numbers of nodes lie between them."""

_BEGINNINGS = {
    b"# vtk": "VTK",
    b"<VTKFile": "VTK",
    b"MeshVersionFormatted": "Medit",
    b"*HEADING": "Abaqus",
    b"*NODE": "Abaqus",
    b"ply": "PLY",
    b"solid": "STL",
    b"OFF": "OFF",
    b"CDF": "NetCDF, as Exodus",
    b"\x89HDF": "HDF5, as CGNS, MED and Exodus",
}
_SUFFIXES = {
    ".bdf": "Nastran",
    ".brep": "BREP",
    ".cgns": "CGNS",
    ".e": "Exodus",
    ".exo": "Exodus",
    ".geo": "GEO",
    ".iges": "IGES",
    ".igs": "IGES",
    ".inp": "Abaqus",
    ".med": "MED",
    ".nas": "Nastran",
    ".step": "STEP",
    ".stp": "STEP",
    ".su2": "SU2",
    ".stl": "STL",
    ".unv": "UNV",
    ".vtk": "VTK",
    ".vtu": "VTK",
    ".xdmf": "XDMF",
}
_GEOMETRIES = frozenset({"BREP", "GEO", "IGES", "STEP"})
_GMSH = frozenset({"UNV"})  # meshio has no reader of these
_SURFACES = frozenset({"PLY", "STL", "OFF"})


def foreign_format(path: Path, data: bytes) -> str:
    """Advice to convert a file in another known format; empty if the format is unknown."""
    start = data[:_BYTES].lstrip()
    if start.startswith(b"<?xml") and b"<VTKFile" in start:
        start = start[start.index(b"<VTKFile") :]
    known = (name for first, name in _BEGINNINGS.items() if start.startswith(first))
    by_suffix = "" if b"MFEM" in start else _SUFFIXES.get(path.suffix.lower(), "")
    name = next(known, by_suffix)
    if not name:
        return ""
    file, stem = printable(path.name), printable(path.stem)
    text = f"{printable(str(path))} has the format of {name}, but files of MFEM and Gmsh are read: "
    if name in _GEOMETRIES:
        return text + (
            "it holds a geometry without elements; let Gmsh mesh it, as by gmsh -3 "
            f"{file} -o {stem}.msh, or in Python (docs/meshes.md)"
        )
    if name in _GMSH:
        return text + f"let Gmsh convert it, as by gmsh {file} -save -o {stem}.msh"
    if name in _SURFACES:
        return text + "it holds a surface alone; let Gmsh mesh its inside with hexahedra"
    if name == "VTK":
        return text + (
            f"read it by meshio (pip install meshio): femops.read_mesh(meshio.read({file!r}))"
        )
    return (
        text + "convert it by meshio (pip install meshio): meshio convert --output-format gmsh22 "
        f"--ascii {file} {stem}.msh"
    )


def content_of(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a regular file. Raise at a hole of a sparse file.

    A sparse file of some kilobytes on a disk may take any number of bytes in memory.
    """
    with open(path, "rb", opener=regular) as file:
        while block := file.read(len(_HOLE)):
            if block == _HOLE:
                raise ValueError(f"it has a hole from byte {file.tell() - len(_HOLE)} on")
        file.seek(0)
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a complete text file."""
    name = printable(os.fspath(path))
    try:
        data = content_of(path)
    except FileNotFoundError as error:
        here = ""
        with suppress(OSError):  # the current folder was removed
            here = f" (looked for in {printable(str(Path.cwd()))})"
        raise MeshFileError(f"{name} does not exist{here}: {_cure(path)}") from error
    except (OSError, ValueError) as error:
        raise MeshFileError(
            f"{name} can't be read ({printable(str(error))}): check path and rights"
        ) from error
    if data.startswith(b"\x1f\x8b"):
        raise MeshFormatError(f"{name} is compressed by gzip: unpack it first (gunzip)")
    if advice := foreign_format(Path(path), data):
        raise MeshFormatError(advice)
    try:
        if b"\0" in data:
            raise MeshFormatError(
                f"{name} is a binary file (byte {data.index(0)} is zero): only text can be read"
            )
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MeshFormatError(
            f"{name} is not text (byte {error.start} is not UTF-8): only text can be read"
        ) from error


def _cure(path: str | os.PathLike[str]) -> str:
    """Advice about a file that does not exist, such as the call that reads a sample."""
    name = Path(path).name
    if any(name in (known, known.removesuffix(".mesh")) for known in samples()):
        return f'the sample of that name is read by femops.read_mesh(femops.sample("{name}"))'
    return "correct the path"


def write_text(path: str | os.PathLike[str], chunks: Iterable[str]) -> None:
    """Write a text file. Other programs see the old file or the complete new file.

    The text goes to a temporary file in the same folder, which is renamed when complete. A symbolic
    link is replaced, not followed: who can write to the folder could lead it to any file.
    """
    try:
        target = Path(path)
        with temporary_file(target) as part:
            with open(part, "w", encoding="utf-8", newline="\n", opener=unlinked) as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
    except MeshError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MeshFileError(
            f"{printable(os.fspath(path))} can't be written ({reason}): check that its folder "
            "exists, is writable and has room"
        ) from error
