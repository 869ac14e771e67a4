"""Names of the package, imported when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import importlib
import os
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any


def _names() -> dict[str, str]:
    """Module of each name that the stub imports."""
    folder = Path(__file__).parent
    if not folder.is_dir():
        raise ImportError(
            f"femops cannot be imported from the archive '{folder.parent}', because it compiles "
            "files of its folder: unpack the archive"
        )
    stub = (folder / "__init__.pyi").read_text(encoding="utf-8")
    found = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in found for name in node.names}


HOME = _names()
OPTIONAL = "jax", "numba", "petsc", "torch"
"""Modules that need a package which users install themselves. `names` leaves them out."""
_OWNERS = {
    "u.{}, of a field u in a form": ("femops.pointwise.trace", "FieldSymbol"),
    "numpy.{}": ("numpy",),
    "V.{}, of a space V": ("femops.spaces.h1_l2", "H1"),
    "A.{}, of an operator A": ("femops.operators", "Operator"),
}
"""Maps the notation of a hint to a module and a class in it, whose attributes the hint names."""


_LONGEST_WAIT = 10.0  # seconds
_lock = threading.RLock()
_changed = threading.Condition(_lock)
_importing: list[tuple[int, int]] = []  # process and thread that import a part of the package


def _import(module: str) -> Any:
    """Import a module. A fork waits until it is imported: a child would wait for it for ever."""
    _let_forks_wait()
    mine = os.getpid(), threading.get_ident()
    try:
        with _changed:
            _importing.append(mine)
        return importlib.import_module(module)
    finally:
        with _changed, suppress(ValueError):  # an interrupt came before it was noted
            _importing.remove(mine)
            _changed.notify_all()


@cache
def _let_forks_wait() -> None:
    importlib.import_module("logging")  # a fork takes its lock, which imports need, after the wait
    importlib.import_module("femops_kernels.exclusive").held_in_forks(_lock, _wait_for_imports)


def _wait_for_imports() -> None:
    """Wait for other threads. The wait has an end, as they may wait for an import of this one."""
    here, mine = os.getpid(), threading.get_ident()

    def alone() -> bool:
        return not any(process == here and thread != mine for process, thread in _importing)

    _changed.wait_for(alone, _LONGEST_WAIT)


def _version() -> str:
    """Version of the installed package. For a source tree it ends in "+source"."""
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("femops"))
    except metadata.PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        parsed = importlib.import_module("tomllib").loads(project.read_text(encoding="utf-8"))
        return f"{parsed['project']['version']}+source"


def _unknown(name: str) -> str:
    """Message for an unknown attribute. It gives the right place, or a similar name."""
    hints = importlib.import_module("femops_common.hints")
    if name in hints.ELSEWHERE:
        return f"module 'femops' has no attribute {name!r}: {hints.ELSEWHERE[name]}"
    public = not name.startswith("_")
    for module in (module for module, home in HOME.items() if public and home == "femops"):
        if hasattr(importlib.import_module(f"femops.{module}"), name):
            return f"module 'femops' has no attribute {name!r}: it is femops.{module}.{name}"
    if public and (place := _other_place(name)):
        return f"module 'femops' has no attribute {name!r}: {place}"
    return f"module 'femops' has no attribute {name!r}{hints.did_you_mean(name, HOME)}"


def _other_place(name: str) -> str:
    """Advice for a name that belongs to fields, spaces, operators or NumPy; "" for other names."""
    for written, (module, *classes) in _OWNERS.items():
        owner = importlib.import_module(module)
        for name_of_class in classes:
            owner = getattr(owner, name_of_class)
        if hasattr(owner, name):
            return f"write {written.format(name)}"
    return ""


def attribute(name: str) -> Any:
    """Import `name` from its module, and keep it as an attribute of the package."""
    if name == "__version__":
        value: Any = _version()
    elif name in OPTIONAL:
        value = _import(f"femops.{name}")
    elif name in HOME:
        home = HOME[name]
        value = _import(f"femops.{name}") if home == "femops" else getattr(_import(home), name)
    else:
        raise AttributeError(_unknown(name), name=name, obj=None)  # Python would add a second hint
    setattr(sys.modules[__package__], name, value)
    return value


def names() -> list[str]:
    """Names that the package offers, in alphabetical order."""
    return sorted({"__version__", "__doc__", "__file__", "__name__", "__path__", *HOME})
