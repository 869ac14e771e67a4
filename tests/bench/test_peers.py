"""The door to peers: without them, and with one made up here."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

import femops
from femops.bench import run
from femops.bench.peers import child, interface
from femops.bench.peers.interface import PEERS, Peer, why_not
from femops.bench.problems import PROBLEMS, make_space
from femops.errors import OperatorError

QUICK = {"rounds": 1, "seconds": 0.0, "meshes": ("cartesian",), "levels": ("partial",)}


REQUEST = {"problem": "bp1", "mesh": "cartesian", "order": 1, "dofs": 343}


def double(problem, kind, space, factor=1.0, noise=b""):
    """A peer that computes with femops, or twice as much, and that may print."""
    assert kind in interface.PEER_MESHES
    x, v = interface.functions(space)
    operator = problem.operator(space)

    def apply():
        os.write(1, noise)
        return factor * operator @ x

    return interface.PeerOperator("double 1.0", apply, x, v)


def test_without_peers_a_note_says_how_to_install(monkeypatch):
    monkeypatch.setattr(interface, "find_spec", lambda _: None)
    result = run("bp1", (2,), 60, 1, peers=PEERS, **QUICK)
    assert {row["implementation"] for row in result["rows"]} == {"femops"}
    install = "is not installed: pip install"
    assert result["notes"] == [f"{name} {install} {name}" for name in PEERS]


def test_a_peer_that_does_not_load_is_named(monkeypatch):
    monkeypatch.setattr(interface, "find_spec", lambda _: True)
    monkeypatch.setattr(sys, "executable", "false")  # ends with code 1, silently
    result = run("bp1", (1,), 60, 1, peers=("mfem",), **QUICK)
    assert result["notes"] == ["the process of mfem has ended with code 1"]


def test_peers_know_two_problems():
    result = run("bp2", (1,), 60, 1, peers=PEERS, **QUICK)
    assert result["notes"] == ["peers: only on bp1 and bp3, cartesian and multilinear"]


def answers(requests, factor, monkeypatch):
    monkeypatch.setattr(child, "make", lambda _, *given: double(*given, factor))
    out = io.StringIO()
    child.serve("libceed", io.StringIO("\n".join(map(json.dumps, requests))), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("name", interface.PEER_PROBLEMS)
@pytest.mark.parametrize("kind", interface.PEER_MESHES)
def test_the_process_answers_with_energies_and_times(name, kind, monkeypatch):
    space = make_space(PROBLEMS[name], kind, 2, 500.0)
    request = {"problem": name, "mesh": kind, "order": 2, "dofs": space.size}
    first, second = answers([request, {"seconds": 0.0}], 1.0, monkeypatch)
    assert (first["label"], first["level"]) == ("double 1.0", "partial")
    assert second["median"] > 0
    u, v = interface.functions(space)
    y = PROBLEMS[name].operator(space) @ u
    assert first["energies"] == [u @ y, v @ y]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_what_a_library_prints_is_no_answer(monkeypatch, capfd):
    if hasattr(os, "sched_setaffinity"):  # tests stay on all cores
        monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    monkeypatch.setattr(child, "make", lambda _, *given: double(*given, noise=b"noise"))
    request = {"problem": "bp1", "mesh": "cartesian", "order": 1, "dofs": 8}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    child.main("mfem", "serve")
    out, err = capfd.readouterr()
    assert (json.loads(out)["label"], err) == ("double 1.0", "noise")


@pytest.mark.parametrize(("factor", "reported"), [(1.0, True), (1.0 + 1e-9, False)])
def test_a_peer_that_computes_something_else_is_not_reported(factor, reported, monkeypatch):
    (first,) = answers([REQUEST], factor, monkeypatch)
    monkeypatch.setattr(interface, "find_spec", lambda _: True)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Process([first, {"median": 1}]))
    result = run("bp1", (1,), 343, 1, peers=("mfem",), **QUICK)
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

    def wait(self, _):
        return 134


def test_a_peer_that_ends_does_not_end_the_others(monkeypatch):
    """Before its first answer, and between rounds."""
    (first,) = answers([REQUEST], 1.0, monkeypatch)
    lines = iter([[], [first, {"median": 1.0}]])
    monkeypatch.setattr(interface, "find_spec", lambda _: True)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Process(next(lines)))
    result = run("bp1", (1,), 343, 1, peers=("libceed", "mfem"), **(QUICK | {"rounds": 2}))
    assert [row["implementation"] for row in result["rows"]] == ["femops"]
    ended = "the process of {} has ended with code 134"
    assert result["notes"] == [ended.format("libceed"), ended.format("mfem")]


def test_a_process_that_ends_unasked_is_cleared_away(monkeypatch):
    """What could not be written to it must not be in the way of its end."""
    answer = b'{"label": "a", "level": "full", "energies": [1, 1]}\n'
    code = f"import os; os.read(0, 1); os.write(1, {answer!r}); os._exit(3)"
    monkeypatch.setattr(interface, "_command", lambda *_: [sys.executable, "-c", code])
    space = make_space(PROBLEMS["bp1"], "cartesian", 1, 8.0)
    peer = Peer("mfem", PROBLEMS["bp1"], "cartesian", space)
    peer._child._process.wait()
    with pytest.raises(OperatorError, match="mfem has ended with code 3"), closing(peer):
        peer.time(0.0)


def test_an_interrupted_benchmark_leaves_no_process(monkeypatch):
    """Though its process is busy."""
    (first,) = answers([REQUEST], 1.0, monkeypatch)
    code = "import time\ninput()\nprint({!r}, flush=True)\ninput()\ntime.sleep(600)"
    command, children = [sys.executable, "-c", code.format(json.dumps(first))], []

    def interrupted(peer, _):
        children.append(peer._child)
        peer._child._requests.write("{}\n")
        peer._child._requests.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(interface, "find_spec", lambda _: True)
    monkeypatch.setattr(interface, "_command", lambda *_: command)
    monkeypatch.setattr(Peer, "time", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("bp1", (1,), 343, 1, peers=("mfem",), **QUICK)
    assert [child._process.returncode for child in children] == [-signal.SIGTERM]


def test_peers_that_cannot_do_an_order_say_why(monkeypatch):
    monkeypatch.setattr(interface, "find_spec", lambda _: True)
    assert why_not("scikit-fem", 3) == "scikit-fem has hexahedra up to order 2"
    assert why_not("scikit-fem", 2) == why_not("libceed", 8) == ""
    monkeypatch.setattr(interface, "find_spec", lambda module: module != "pyamg")
    assert why_not("scikit-fem", 2) == ""
    assert why_not("scikit-fem", 2, solving=True) == "pyamg is not installed: pip install pyamg"


def test_peers_with_matrices_have_fewer_dofs():
    assert interface.peer_dofs("libceed", 8, 1.8e6) == 1.8e6
    assert interface.peer_dofs("ngsolve", 8, 1.8e6) == pytest.approx(1e4)
    assert interface.peer_dofs("ngsolve", 8, 1e3) == 1e3


def test_the_functions_are_polynomials_of_the_space():
    """Their energies are those of any basis: bp1's are integrals of their products."""
    space = make_space(PROBLEMS["bp1"], "multilinear", 3, 500.0)
    coarse = make_space(PROBLEMS["bp1"], "multilinear", 6, 500.0)
    assert coarse.mesh.num_elements < space.mesh.num_elements
    for V in (space, coarse):
        x, v = interface.functions(V)
        where = V.dof_coordinates().T
        assert np.allclose(x, interface.first_function(where, V.order), rtol=1e-13)
        assert np.allclose(v, interface.second_function(where, V.order), rtol=1e-13)
        points = np.random.default_rng(1).uniform(0.2, 0.8, (5, 3))
        found = femops.Probe(V.mesh, points)(V, x)
        assert np.allclose(found, interface.first_function(points.T, V.order), rtol=1e-11)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("problem", interface.PEER_PROBLEMS)
@pytest.mark.parametrize("kind", interface.PEER_MESHES)
def test_real_peers_agree(name, problem, kind):
    if why_not(name, 2):
        pytest.skip(why_not(name, 2))
    space = make_space(PROBLEMS[problem], kind, 2, 500.0)
    with closing(Peer(name, PROBLEMS[problem], kind, space)) as peer:
        assert peer.difference(PROBLEMS[problem], space) < interface.PEER_TOLERANCE
        assert peer.time(0.0) > 0
