"""Detection of unsupported formats by their first bytes, with advice to convert them."""

from __future__ import annotations

from pathlib import Path

from femops_meshes.formats.scanner import printable

_BYTES = 1024
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
    return (
        text + "convert it by meshio (pip install meshio): meshio convert --output-format gmsh22 "
        f"--ascii {file} {stem}.msh"
    )
