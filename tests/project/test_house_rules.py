"""The rules of CONTRIBUTING.md that can be counted: lengths of files, final or abstract classes."""

import ast

from support.sources import FILES, ROOT, name_of, tree

TESTS = sorted(file for end in ("py", "hpp") for file in (ROOT / "tests").rglob(f"*.{end}"))
MAX_FILE = 900


def test_lengths_of_files():
    files = [*FILES, *TESTS]
    lines = {name_of(file): file.read_text(encoding="utf-8").count("\n") for file in files}
    assert {name: n for name, n in lines.items() if n > MAX_FILE} == {}


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
        for c in ast.walk(tree(file))
        if isinstance(c, ast.ClassDef) and not c.name.startswith("_")
    ]
    assert [(file, c.name) for file, c in public if not is_final_or_abstract(c)] == []
