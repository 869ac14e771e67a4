"""Arguments of all types to all that femops offers: each call works, or is refused in one line."""

from itertools import count

import matplotlib as mpl
import pytest

import femops
from support import fixtures
from support.cases.arguments import calls, hostile
from support.public import offered

one_thread = fixtures.one_thread

mpl.use("Agg")

MADE = {  # by functions that are called here
    *("ComplexOperator", "Functional", "Residual", "DistributedMesh", "ElementClass"),
    *("MixedMesh", "Operator", "Partition", "Picture", "Space"),
}
SLOW = {"movie", "picture", "plot", "to_pyvista"}
"""They draw what is right, which takes its time: only their first arguments are replaced."""
EVERY = 8
"""The sharp sample takes one value of so many for each argument."""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return calls(tmp_path_factory.mktemp("arguments"))


def complaint(call, name, value):
    """What is wrong with how a function meets a value of an argument."""
    try:
        call.replaced(name, value)
    except femops.errors.Errors as error:
        return "several lines" if "\n" in str(error) else ""
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return f"{type(error).__name__}: {error!s:.100}"
    return ""


def complaints(good, every):
    """Complaints about all calls with one value of so many, and how many calls these were."""
    found, turn, made = [], count(), 0
    for function, call in good.items():
        for name in list(call.names())[: 2 if function in SLOW else None]:
            first = next(turn)
            for k, (what, value) in enumerate(hostile().items()):
                if (first + k) % every:
                    continue
                made += 1
                wrong = complaint(call, name, value)
                if wrong:
                    found.append(f"{function}({name}={what}): {wrong}")
    return found, made


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_no_error_is_bare(good, tmp_path, monkeypatch, every):
    monkeypatch.chdir(tmp_path)
    found, made = complaints(good, every)
    assert not found
    assert made > 17_000 // every


def test_all_that_is_offered_is_called(good):
    functions = set(offered())
    assert functions - MADE <= good.keys()
    assert functions >= MADE
