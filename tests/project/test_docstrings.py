"""What docstrings promise: examples run, and public functions are documented as numpydoc asks."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import femops
import femops_kernels
import femops_meshes
from support.public import offered

PACKAGES = [femops, femops_kernels, femops_meshes]
MODULES = [
    info.name
    for package in PACKAGES
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if "skeletons" not in info.name  # sources of kernels: complete only when specialised
] + [package.__name__ for package in PACKAGES]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        loaded = importlib.import_module(module)
    except femops.errors.MissingExtraError as error:
        pytest.skip(str(error))
    assert doctest.testmod(loaded).failed == 0


PUBLIC = offered()


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    """Parameters named in the signature stand in the docstring, and no others."""
    thing = PUBLIC[name]
    documentation = inspect.getdoc(thing) or ""
    assert documentation.strip(), f"{name} has no docstring"
    if inspect.isclass(thing):
        return
    for parameter in inspect.signature(thing).parameters:
        assert parameter in documentation, f"{name} does not document {parameter}"


def test_all_names_are_there_and_listed():
    assert sorted(set(femops.__all__)) == sorted(femops.__all__)
    assert set(femops.__all__) <= set(dir(femops))
