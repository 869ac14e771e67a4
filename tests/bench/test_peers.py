"""The door to peers: without them, and with one made up here."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from femops.bench import run
from femops.bench.peers import PEERS, Peer, child, door, why_not
from femops.bench.problems import PROBLEMS, make_space
from femops.errors import OperatorError

QUICK = {"rounds": 1, "seconds": 0.0, "meshes": ("cartesian",)}


@pytest.fixture(autouse=True)
def _forget():
    why_not.cache_clear()
    yield
    why_not.cache_clear()


class Double(child.PeerOperator):
    """A peer that computes with femops, or twice as much."""

    label = "double 1.0"

    def __init__(self, problem, space, factor=1.0):
        self.x = space.interpolate(door.wave)
        self.y = np.empty_like(self.x)
        self.operator, self.factor = problem.operator(space), factor

    def apply(self):
        self.y = self.factor * self.operator @ self.x


def test_without_peers_a_note_says_how_to_install(monkeypatch):
    monkeypatch.setattr(door, "find_spec", lambda _: None)
    result = run("bp1", (2,), 60, 1, peers=PEERS, **QUICK)
    assert {row["implementation"] for row in result["rows"]} == {"femops"}
    install = "is not installed: pip install 'femops[peers]'"
    assert result["notes"] == [f"{name} {install}" for name in PEERS]


def test_a_peer_that_does_not_load_is_named(monkeypatch):
    monkeypatch.setattr(door, "find_spec", lambda _: True)
    monkeypatch.setattr(sys, "executable", "false")  # ends with code 1, silently
    assert why_not("mfem") == "mfem cannot be used: it ends with code 1"


def test_peers_know_two_problems():
    result = run("bp2", (1,), 60, 1, peers=PEERS, **QUICK)
    assert result["notes"] == ["peers: only on bp1 and bp3, cartesian"]


def answers(requests, factor, monkeypatch):
    monkeypatch.setattr(child, "make", lambda _, *given: Double(*given, factor))
    out = io.StringIO()
    child.serve("libceed", io.StringIO("\n".join(map(json.dumps, requests))), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("name", door.PEER_PROBLEMS)
def test_the_process_answers_with_norms_and_times(name, monkeypatch):
    space = make_space(PROBLEMS[name], "cartesian", 3, 500.0)
    request = {"problem": name, "order": 3, "dofs": space.size}
    first, second = answers([request, {"seconds": 0.0}], 1.0, monkeypatch)
    assert first["label"] == "double 1.0"
    assert second["median"] > 0
    u = space.interpolate(door.wave)
    assert first["norms"] == door.norms(u, PROBLEMS[name].operator(space) @ u)


@pytest.mark.parametrize(("factor", "reported"), [(1.0, True), (1.0 + 1e-9, False)])
def test_a_peer_that_computes_something_else_is_not_reported(factor, reported, monkeypatch):
    request = {"problem": "bp1", "order": 2, "dofs": 343}
    (first,) = answers([request], factor, monkeypatch)
    monkeypatch.setattr(door, "find_spec", lambda _: True)
    monkeypatch.setattr(door.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    monkeypatch.setattr(door.subprocess, "Popen", lambda *_, **__: Process([first, {"median": 1}]))
    result = run("bp1", (2,), 343, 1, peers=("mfem",), **QUICK)
    labels = [row["implementation"] for row in result["rows"]]
    assert labels == (["femops", "double 1.0"] if reported else ["femops"])
    assert bool(result["notes"]) != reported
    if reported:
        assert result["rows"][1]["dofs_per_second"] == 343
        assert result["rows"][1]["limit"] is None
    else:
        assert "off by 1.0e-09, not reported" in result["notes"][0]


class Process:
    """What a child process looks like from outside."""

    def __init__(self, lines):
        self.stdin = io.StringIO()
        self.stdout = io.StringIO("".join(json.dumps(line) + "\n" for line in lines))

    def terminate(self):
        pass

    def wait(self):
        return 134


def test_a_process_that_ends_is_an_error(monkeypatch):
    monkeypatch.setattr(door.subprocess, "Popen", lambda *_, **__: Process([]))
    space = make_space(PROBLEMS["bp1"], "cartesian", 1, 8.0)
    with pytest.raises(OperatorError, match="libceed has ended with code 134"):
        Peer("libceed", PROBLEMS["bp1"], space)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("problem", door.PEER_PROBLEMS)
def test_real_peers_agree(name, problem):
    pytest.importorskip(name)
    if why_not(name):
        pytest.skip(why_not(name))
    space = make_space(PROBLEMS[problem], "cartesian", 3, 500.0)
    with Peer(name, PROBLEMS[problem], space) as peer:
        assert peer.disagreement(PROBLEMS[problem], space) < door.AGREEMENT
        assert peer.time(0.0) > 0
