"""Text is written for readers: how docstrings begin, and how long lines of documentation are."""

import ast
import re

from support.sources import FILES, ROOT, name_of, tree

FOLDERS = ".", "docs", "docs/api", "docs/coming_from"
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))
MAX_LINE = 100

UNCLEAR = re.compile(r"(Of|What|How|Whether|Which|Who|Whose)\b")
"""First words that hide the subject."""


def docstrings(parsed):
    """(line, text) of the docstrings of modules, classes, functions, attributes and constants."""
    for node in ast.walk(parsed):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        before = [isinstance(node, documented)]
        before += [isinstance(child, (ast.Assign, ast.AnnAssign)) for child in body]
        for child, counts in zip(body, before, strict=False):
            match child:
                case ast.Expr(ast.Constant(str(text))) if counts:
                    yield child.lineno, text


def unclear(parsed):
    return [line for line, text in docstrings(parsed) if UNCLEAR.match(text)]


def test_docstrings_begin_with_what_the_thing_is_or_does():
    found = {name_of(file): unclear(tree(file)) for file in FILES}
    wrong = {name: lines for name, lines in found.items() if lines}
    assert wrong == {}, "say 'Number of ...', 'Return ...', 'True if ...'"


def test_all_kinds_of_docstrings_are_seen():
    source = '''"""Of a module."""

SIZE = 1
"""Of a constant."""


class Thing:
    """What it is."""

    size: int
    """How many."""

    def method(self):
        """Whether it works."""
        "Of no docstring."
'''
    assert sorted(unclear(ast.parse(source))) == [1, 4, 8, 11, 14]


def long_lines(text):
    """Lines of prose that are too long; tables, code and what holds a link or picture may be."""
    found, fenced = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        excepted = fenced or line.startswith(("|", "    ")) or "](" in line or "://" in line
        if len(line) > MAX_LINE and not excepted:
            found.append(number)
    return found


def test_lines_of_documentation_are_wrapped():
    found = {name_of(page): long_lines(page.read_text()) for page in PAGES}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_long_lines_are_seen_outside_tables_and_code():
    long = "word " * 21
    text = f"{long}\n| {long} |\n```text\n{long}\n```\n    {long}\n[{long}](page.md)\n{long}\n"
    assert long_lines(text) == [1, 8]
