"""Errors of the mesh package.

Each is a `MeshError` and at the same time the Python error it is closest to, so both
``except MeshError`` and ``except ValueError`` work. A message says what is wrong, what was got, and
how to mend it.
"""


class MeshError(Exception):
    """Base of all errors that femops_meshes raises on purpose."""


class MeshFileError(MeshError, OSError):
    """A mesh file that cannot be opened, read or written."""


class MeshFormatError(MeshError, ValueError):
    """A mesh file that breaks its format, or uses a part of it that is not supported."""


class MeshTopologyError(MeshError, ValueError):
    """Elements that don't fit together: dangling vertex numbers, a face of three elements."""


class MeshGeometryError(MeshError, ValueError):
    """Coordinates that are no geometry: not finite, or elements that are inverted."""


class MeshArgumentError(MeshError, ValueError):
    """An argument out of range: a count below one, an unknown name, a degree below one."""


__all__ = [
    "MeshArgumentError",
    "MeshError",
    "MeshFileError",
    "MeshFormatError",
    "MeshGeometryError",
    "MeshTopologyError",
]
