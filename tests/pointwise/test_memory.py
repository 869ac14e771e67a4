"""What is kept of traced forms on disk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from femops.errors import TraceError
from femops.forms.elasticity import _elasticity
from femops.pointwise import CoefficientShape, LinearQFunction, linear_split, trace
from femops.pointwise import linear as disk
from femops.pointwise.expressions.graph import Graph
from femops.pointwise.expressions.operations import BINARY, UNARY
from support import fixtures

folder = fixtures.empty_cache


def elasticity():
    shapes = {"lam": CoefficientShape(()), "mu": CoefficientShape(())}
    return LinearQFunction(trace(_elasticity, 3, {"u": 3}, {"u": 3}, shapes))


def text(nodes):
    return [repr(node) for node in nodes]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), max_size=30))
def test_nodes_come_back(choices):
    graph = Graph()
    pool = [graph.input("a"), graph.input("q[1]"), graph.constant(-0.0), graph.constant(1 / 3)]
    operations = [*UNARY, *BINARY, "where"]
    for which, i, j in choices:
        op, a, b = operations[which % len(operations)], pool[i % len(pool)], pool[j % len(pool)]
        if op == "where":
            pool.append(graph.where(a < b, a, b))
        else:
            pool.append(graph.unary(op, a) if op in UNARY else graph.binary(op, a, b))
    other = Graph()
    again = disk.decode(other, disk.encode(pool))
    assert text(again) == text(pool)
    assert all(node.graph is other for node in again)
    assert disk.encode(again) == disk.encode(pool)


def test_a_form_is_examined_once(folder, monkeypatch):
    first = elasticity()
    assert len(list(folder.glob("trace_*.json"))) == 1
    monkeypatch.setattr(LinearQFunction, "_examine", lambda *_: pytest.fail("examined again"))
    again = elasticity()
    np.testing.assert_array_equal(again.structure, first.structure)
    assert text(again.distinct) == text(first.distinct)
    assert text(list(again.entries.flat)) == text(list(first.entries.flat))
    for transpose in (False, True):
        programs = [
            linear_split(s, "partial", transpose=transpose).qfunction for s in (first, again)
        ]
        assert programs[0] == programs[1]  # the same kernel: nothing is compiled for it


@pytest.mark.parametrize(
    "other",
    [
        lambda u, a: {"value": a * u, "grad": 2.0 * u.grad},
        lambda u, a: {"value": a * u, "grad": np.nextafter(1.0, 2.0) * u.grad},
        lambda u, a: {"value": (a + 1.0) * u, "grad": u.grad},
        lambda u, a: {"grad": a * u.grad},
        lambda u, a: {"value": a * u},
    ],
)
def test_another_form_finds_nothing(folder, other):
    shapes = {"a": CoefficientShape(())}
    for function in (lambda u, a: {"value": a * u, "grad": u.grad}, other):
        LinearQFunction(trace(function, 2, {"u": 1}, {"u": 1}, shapes))
    assert len(list(folder.glob("trace_*.json"))) == 2


@pytest.mark.parametrize("damage", ["", "{", '{"sum": 1}', '{"sum": "x", "answer": "[]"}', "[]"])
def test_a_damaged_file_is_written_again(folder, damage):
    first = elasticity()
    (path,) = folder.glob("trace_*.json")
    whole = path.read_text()
    path.write_text(damage)
    assert text(elasticity().distinct) == text(first.distinct)
    assert path.read_text() == whole


def test_refusals_are_not_kept(folder):
    for _ in range(2):
        with pytest.raises(TraceError, match="not linear"):
            LinearQFunction(trace(lambda u: {"value": u * u}, 2, {"u": 1}, {"u": 1}, {}))
    assert not list(folder.glob("*"))
