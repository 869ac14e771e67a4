"""The examples in docstrings run, and every public function says what it raises."""

import doctest
import importlib
import inspect

import pytest

MODULES = [
    "femops",
    "femops.spaces.base",
    "femops.basis",
    "femops.errors",
    "femops.geometry.evaluation",
    "femops.fields.norms",
    "femops.spaces.functions",
    "femops.geometry.jacobians",
    "femops.geometry.location",
    "femops.numbering",
    "femops.fields.probes",
    "femops.spaces.restriction",
    "femops.spaces.h1_l2",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    for name in ("femops", "femops.geometry.jacobians", "femops.spaces.h1_l2"):
        assert any(test.examples for test in finder.find(importlib.import_module(name)))


@pytest.mark.parametrize(
    "name", ["fields.norms", "basis", "spaces.restriction", "spaces.functions"]
)
def test_functions_that_raise_say_so(name):
    module = importlib.import_module(f"femops.{name}")
    for key, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not key.startswith("_"):
            source = inspect.getsource(function)
            doc = inspect.getdoc(function) or ""
            assert doc
            if "    raise " in source:
                assert "aise" in doc, f"{key} raises and does not say so"
