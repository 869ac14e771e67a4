"""The rules of CONTRIBUTING.md that can be counted: lengths, docstrings, final or abstract."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "femops", ROOT / "kernels" / "femops_kernels", ROOT / "meshes" / "femops_meshes"]
FILES = sorted(file for package in PACKAGES for file in package.rglob("*.py"))
TESTS = sorted(file for end in ("py", "hpp") for file in (ROOT / "tests").rglob(f"*.{end}"))
MAX_FUNCTION, MAX_FILE = 40, 500

LONG_FILES: dict[str, str] = {}
"""Files that may be longer, with the reason."""

LONG_FUNCTIONS: dict[str, str] = {}
"""Functions ("file:name") that may be longer, with the reason."""


def tree(file):
    return ast.parse(file.read_text())


def definitions(node, kind):
    return [child for child in ast.walk(node) if isinstance(child, kind)]


def code_lines(function):
    """Lines of a function from its first statement on, the docstring not counted."""
    body = function.body
    has_docstring = ast.get_docstring(function, clean=False) is not None
    first = body[1:] if has_docstring else body
    return function.end_lineno - first[0].lineno + 1 if first else 0


def name_of(file):
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("file", [*FILES, *TESTS], ids=name_of)
def test_length_of_a_file(file):
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE or name_of(file) in LONG_FILES, f"{lines} lines"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_lengths_of_functions(file):
    functions = definitions(tree(file), (ast.FunctionDef, ast.AsyncFunctionDef))
    nested = {id(inner) for f in functions for inner in definitions(f, type(f)) if inner is not f}
    long = {
        f"{name_of(file)}:{f.name}": code_lines(f)
        for f in functions
        if code_lines(f) > MAX_FUNCTION and id(f) not in nested
    }
    assert set(long) <= set(LONG_FUNCTIONS), long


def test_excuses_are_still_needed():
    present = {name_of(file) for file in [*FILES, *TESTS]}
    excused = set(LONG_FILES) | {entry.split(":")[0] for entry in LONG_FUNCTIONS}
    assert excused <= present


def is_final_or_abstract(node):
    marks = [ast.unparse(d) for d in node.decorator_list]
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    abstract = "ABC" in bases or "Protocol" in bases
    # Enumerations cannot be extended; errors and warnings are a hierarchy, meant to be.
    other = {"Enum", "IntEnum", "StrEnum", "TypedDict", "NamedTuple"} & bases
    error = node.name.endswith(("Error", "Warning"))
    return any(mark.endswith("final") for mark in marks) or abstract or other or error


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_class_is_abstract_or_final(file):
    public = [c for c in definitions(tree(file), ast.ClassDef) if not c.name.startswith("_")]
    assert [c.name for c in public if not is_final_or_abstract(c)] == []
