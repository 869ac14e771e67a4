"""The rules of CONTRIBUTING.md that can be counted: lengths, docstrings, final or abstract."""

import ast

from support.sources import FILES, ROOT, name_of, tree

TESTS = sorted(file for end in ("py", "hpp") for file in (ROOT / "tests").rglob(f"*.{end}"))
MAX_FUNCTION, MAX_FILE = 80, 900

LONG_FILES: dict[str, str] = {}
"""Files that may be longer, with the reason."""

LONG_FUNCTIONS: dict[str, str] = {}
"""Functions ("file:name") that may be longer, with the reason."""


def definitions(node, kind):
    return [child for child in ast.walk(node) if isinstance(child, kind)]


def code_lines(function):
    """Lines of a function from its first statement on, the docstring not counted."""
    body = function.body
    has_docstring = ast.get_docstring(function, clean=False) is not None
    first = body[1:] if has_docstring else body
    return function.end_lineno - first[0].lineno + 1 if first else 0


def test_lengths_of_files():
    lines = {
        name_of(file): len(file.read_text(encoding="utf-8").splitlines())
        for file in [*FILES, *TESTS]
    }
    long = {name: n for name, n in lines.items() if n > MAX_FILE}
    assert set(long) <= set(LONG_FILES), long


def long_functions(file):
    """Functions of a file that are too long, with their lines; those within another count there."""
    functions = definitions(tree(file), (ast.FunctionDef, ast.AsyncFunctionDef))
    nested = {id(inner) for f in functions for inner in definitions(f, type(f)) if inner is not f}
    return {
        f"{name_of(file)}:{f.name}": code_lines(f)
        for f in functions
        if code_lines(f) > MAX_FUNCTION and id(f) not in nested
    }


def test_lengths_of_functions():
    long = {name: n for file in FILES for name, n in long_functions(file).items()}
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


def test_a_class_is_abstract_or_final():
    public = [
        (name_of(file), c)
        for file in FILES
        for c in definitions(tree(file), ast.ClassDef)
        if not c.name.startswith("_")
    ]
    assert [(file, c.name) for file, c in public if not is_final_or_abstract(c)] == []
