"""What docstrings promise: examples run, and public functions are documented as numpydoc asks."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import femops
import femops_common
import femops_kernels
import femops_meshes
from support import fixtures
from support.public import offered

one_thread = fixtures.one_thread

PACKAGES = [femops, femops_kernels, femops_meshes, femops_common]
FILES = [file for package in PACKAGES for file in Path(package.__path__[0]).rglob("*.py")]
WITH_EXAMPLES = sorted(file for file in FILES if ">>> " in file.read_text())


def module_of(file):
    (package,) = (p for p in PACKAGES if Path(p.__path__[0]) in file.parents)
    parts = file.relative_to(package.__path__[0]).with_suffix("").parts
    return ".".join([package.__name__, *(part for part in parts if part != "__init__")])


@pytest.mark.parametrize("module", [*map(module_of, WITH_EXAMPLES)])
def test_examples(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        loaded = importlib.import_module(module)
    except femops.errors.MissingExtraError as error:
        pytest.skip(str(error))
    found = doctest.testmod(loaded)
    assert found.failed == 0 < found.attempted


def test_public_names_are_documented():
    """Parameters named in the signature stand in the docstring."""
    for name, thing in offered().items():
        documentation = inspect.getdoc(thing) or ""
        assert documentation.strip(), f"{name} has no docstring"
        if not inspect.isclass(thing):
            unnamed = [p for p in inspect.signature(thing).parameters if p not in documentation]
            assert not unnamed, f"{name} does not document {unnamed}"


def test_functions_that_raise_say_so():
    for name, thing in offered().items():
        if inspect.isfunction(thing) and "    raise " in inspect.getsource(inspect.unwrap(thing)):
            assert "aise" in (inspect.getdoc(thing) or ""), f"{name} does not say that"
