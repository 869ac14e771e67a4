"""Pages, docstrings, comments and messages name no file, function or option that is not there."""

import ast
import builtins
import importlib
import io
import re
import tokenize
from functools import cache

import pytest
import typer

import femops
from femops.cli.app import build
from support.sources import FILES as SOURCES
from support.sources import PACKAGES, ROOT, name_of, tree

CUDA = sorted(file for package in PACKAGES for file in package.rglob("*.cuh"))
PAGES = sorted(
    page for folder in (".", "docs", "docs/coming_from") for page in (ROOT / folder).glob("*.md")
)

FILE = re.compile(r"(?<![\w./*<{-])((?:[\w-]+/)*[\w-]+\.(?:py|pyi|md|cuh|cu|toml))\b")
DOTTED = re.compile(r"(?<![\w./])(femops(?:_kernels|_meshes)?(?:\.[A-Za-z_]\w*)+)(?![\w/]*\.py)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")
MEMBER = re.compile(r"`(?:[a-z_]+\.)*([A-Z]\w*)\.([a-z_]\w*)")
REFERENCE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")
VARIABLE = re.compile(r"FEMOPS_[A-Z_]+[A-Z]")

EXCEPTIONS = {
    *("program.py", "name.cuh"),  # stand for any name
    "kernel.cu",  # what the compiler calls a source without a path
    *("--output-format", "--ascii"),  # meshio
    *("--strict", "--system-site-packages", "--force-reinstall", "--upgrade"),  # mypy, venv, pip
    *("--cpu-bind", "--mpi", "--interleave"),  # srun, numactl
    *("--tool", "--set", "--query-gpu", "--format"),  # NVIDIA's tools
    *("--ptxas-options", "--gpu-architecture", "--std"),  # NVIDIA's compiler
    "--probe",  # what a benchmark tells its own process
    *("f_i", "F_i", "is"),  # of formulas and of Python
}


@cache
def known_files():
    """Paths of all files from any of their folders on."""
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    paths = (path.relative_to(ROOT).parts for top in tops for path in (top, *top.rglob("*.*")))
    return {"/".join(parts[k:]) for parts in paths for k in range(len(parts))}


@cache
def identifiers():
    """Names that occur in the code, also as attributes, arguments or parts of an import."""
    found = {*dir(builtins)}
    for node in (node for file in SOURCES for node in ast.walk(tree(file))):
        names = (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "asname"))
        found.update(part for name in names if isinstance(name, str) for part in name.split("."))
    return found


@cache
def classes():
    """Names of the members of each class, and of its bases; classes of one name are one."""
    found = {}
    for node in (node for file in SOURCES for node in ast.walk(tree(file))):
        if isinstance(node, ast.ClassDef):
            members, bases = found.setdefault(node.name, (set(), set()))
            bases |= {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
            members |= {
                getattr(inner, field)
                for inner in ast.walk(node)
                for field in ("name", "id", "attr")
                if isinstance(getattr(inner, field, None), str)
            }
    return found


def has_member(owner, name, seen=frozenset()):
    """True if a class has a member, or a base of another package that may have it."""
    if owner in seen or owner in ("object", "ABC", "Protocol", "Generic"):
        return False
    if owner not in classes():
        return True
    members, bases = classes()[owner]
    return name in members or any(has_member(base, name, {*seen, owner}) for base in bases)


@cache
def exists(dotted):
    """True of a module, or of what is found in one."""
    parts = dotted.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except femops.errors.MissingExtraError:
            return k == len(parts) or parts[-1] in identifiers()
        except ImportError:
            continue
        for part in parts[k:]:
            if part in getattr(found, "__annotations__", {}):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@cache
def options():
    """Options of all commands."""

    def of(command):
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for inner in getattr(command, "commands", {}).values():
            yield from of(inner)

    return {"--help", *of(typer.main.get_command(build()))}


@cache
def variables():
    """Names of environment variables that the code looks up."""
    nodes = (node for file in SOURCES for node in ast.walk(tree(file)))
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and VARIABLE.fullmatch(str(node.value))
    }


def missing(text, *, references=False):
    """Names in a text that stand for nothing."""
    found = [name for name in FILE.findall(text) if name not in known_files()]
    found += [name for name in DOTTED.findall(text) if not exists(name)]
    found += [name for name in OPTION.findall(text) if name not in options()]
    found += [name for name in VARIABLE.findall(text) if name not in variables()]
    members = ((owner, name) for owner, name in MEMBER.findall(text) if owner in classes())
    found += [f"{owner}.{name}" for owner, name in members if not has_member(owner, name)]
    if references:
        found += [
            name
            for name in REFERENCE.findall(text)
            if not {*name.split(".")} <= identifiers() and not exists(name)
        ]
    return [name for name in found if name not in EXCEPTIONS]


def texts(file):
    """(line, text, whether it is a docstring) of all strings and comments of a module."""
    for node in ast.walk(tree(file)):
        alone = isinstance(node, ast.Expr)
        value = node.value if alone else node
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield node.lineno, value.value, alone
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False


def lines_of(file):
    """(number, text) of the lines of a page, or of the comments of a CUDA source."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        yield number, line.partition("//")[2] if file in CUDA else line


def test_pages_and_cuda_sources():
    found = [
        (name_of(file), number, name)
        for file in [*PAGES, *CUDA]
        for number, line in lines_of(file)
        for name in missing(line)
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_modules(package):
    found = {
        (name_of(file), line, name)
        for file in SOURCES
        if package in file.parents
        for line, text, alone in texts(file)
        for name in missing(text, references=alone)
    }
    assert sorted(found) == []


def test_what_is_not_there_is_seen():
    wrong = (
        *("skeletons/no_such.py", "femops.no_such", "femops.H1.no_such", "--no-such"),
        *("FEMOPS_NO_SUCH", "`Mesh.no_such`"),
    )
    for name in wrong:
        assert missing(f"See {name}, please.") == [name.strip("`")]
    assert missing("`no_such`", references=True) == ["no_such"]
    right = "femops.H1 and `Mesh.coarser` in conftest.py, `femops mesh info --json`, FEMOPS_CACHE"
    assert missing(right, references=True) == []
