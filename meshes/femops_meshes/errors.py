"""Errors of the mesh package.

Each error is both a `MeshError` and the closest Python error, so
``except MeshError`` and ``except ValueError`` both work. A message has the fault, the value, and
the remedy.
"""

from typing import final


class MeshError(Exception):
    """Base of all errors that femops_meshes raises on purpose."""


@final
class MeshFileError(MeshError, OSError):
    """A mesh file that cannot be opened, read or written."""


@final
class MeshFormatError(MeshError, ValueError):
    """A mesh file that breaks its format, or uses a part of the format that is not supported."""


@final
class MeshTopologyError(MeshError, ValueError):
    """Elements that don't fit together: dangling vertex numbers, a face of three elements."""


@final
class MeshGeometryError(MeshError, ValueError):
    """Coordinates that are not finite, or that invert elements."""


@final
class MeshArgumentError(MeshError, ValueError):
    """An argument out of range: a count below one, an unknown name, a degree below one."""


@final
class MeshExtraError(MeshError, ImportError):
    """A call that needs an optional package, which is not installed."""


__all__ = [
    "MeshArgumentError",
    "MeshError",
    "MeshExtraError",
    "MeshFileError",
    "MeshFormatError",
    "MeshGeometryError",
    "MeshTopologyError",
]
