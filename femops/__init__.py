"""Matrix-free high-order finite element operators.

Everything a user needs is an attribute of this package; it is imported when first used, so that
``import femops`` itself takes no time and loads neither compilers nor plotting.  The stub beside
this file, ``__init__.pyi``, lists what there is, for Python as for type checkers.

>>> import femops
>>> V = femops.H1(femops.box((2, 2)), order=2)
>>> V.ndofs
25
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any


def _names() -> dict[str, str]:
    """The module of each name that the stub imports."""
    stub = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    found = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in found for name in node.names}


_HOME = _names()

__all__ = list(_HOME)


def _version() -> str:
    """The version that is installed; of a source tree, what it would be installed as."""
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("femops"))
    except metadata.PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        parsed = importlib.import_module("tomllib").loads(project.read_text(encoding="utf-8"))
        return f"{parsed['project']['version']}+source"


def _unknown(name: str) -> str:
    """Say that there is no such attribute, and which one may be meant."""
    hints = importlib.import_module("femops_meshes.hints")
    return f"module 'femops' has no attribute {name!r}{hints.did_you_mean(name, _HOME)}"


def __getattr__(name: str) -> Any:
    """Import `name` from its module when it is first used (PEP 562)."""
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME:
        home = _HOME[name]
        value = (
            importlib.import_module(f"femops.{name}")
            if home == "femops"
            else getattr(importlib.import_module(home), name)
        )
    else:
        raise AttributeError(_unknown(name), name=name, obj=None)  # Python would add a second hint
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *globals(), *_HOME})
