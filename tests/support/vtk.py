"""VTK by way of PyVista, imported at its first use.

No test module has PyVista in its namespace: pytest asks each object there for attributes, and
PyVista then imports all of VTK, which takes seconds in each process.
"""

from importlib.util import find_spec
from typing import Any

import pytest

needs_vtk = pytest.mark.skipif(find_spec("pyvista") is None, reason="needs the extra viz")


def read_vtk(path: Any) -> Any:
    """Read a file of VTK's formats as PyVista's data set."""
    import pyvista

    return pyvista.read(path)
