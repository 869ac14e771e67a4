"""No two modules import each other: in functions and for type checkers neither."""

import ast
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import pytest

from support.sources import PACKAGES


def modules() -> dict[str, str]:
    """Text of each module, by its name."""
    found = {}
    for package in PACKAGES:
        for file in package.rglob("*.py"):
            parts = file.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file.read_text()
    return found


def imported(text: str, known: Iterable[str]) -> set[str]:
    """Modules that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                names.add(module if module in known else str(node.module))
    return names & set(known)


def order(texts: dict[str, str]) -> list[str]:
    """Modules, each behind those that it imports."""
    graph = {name: imported(text, texts.keys()) for name, text in texts.items()}
    return list(TopologicalSorter(graph).static_order())


def test_no_two_modules_import_each_other():
    texts = modules()
    assert len(order(texts)) == len(texts) > 500


def test_circles_are_seen():
    texts = {"a": "", "a.first": "from a.second import y", "a.second": "from a import third"}
    assert order(texts | {"a.third": ""})[-1] == "a.first"
    for back in (
        "import a.first",
        "def f():\n    from a.first import x",
        "if TYPE_CHECKING:\n    from a import first",
    ):
        with pytest.raises(CycleError):
            order(texts | {"a.third": back})
