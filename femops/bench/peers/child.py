"""The process in which a peer runs: requests and answers are lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO

from femops.bench.peers.interface import PeerOperator, energies
from femops.bench.problems import PROBLEMS, Problem, make_space
from femops.bench.timing import median_seconds
from femops.spaces.h1_l2 import H1


def make(name: str, problem: Problem, kind: str, space: H1) -> PeerOperator:
    """Make the operator of a peer, on the peer's own copy of the mesh."""
    found: PeerOperator = _module(name).operator(problem, kind, space)
    return found


def _module(name: str) -> ModuleType:
    """Module of a peer, with its ``operator`` and ``solve``. Only the peer's process imports it."""
    module = name.removesuffix("-lang").replace("-", "_")
    return import_module(f"{__package__}.with_{module}")


def serve(name: str, requests: TextIO, answers: TextIO) -> None:
    """Make the operator of the first request, and time it for each further request."""
    operator: PeerOperator | None = None
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        if operator is None:
            problem = PROBLEMS[request["problem"]]
            kind = request["mesh"]
            space = make_space(problem, kind, request["order"], request["dofs"])
            operator = make(name, problem, kind, space)
            answer: dict[str, Any] = {"label": operator.label, "level": operator.level}
            answer["energies"] = energies(operator)
        else:
            answer = {"median": median_seconds(operator.apply, request["seconds"])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def solve(name: str, order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation by a peer; see `femops.bench.peers.interface.peer_solve`."""
    found: dict[str, Any] = _module(name).solve(order, n)
    return found


def main(name: str, what: str, *numbers: str) -> None:
    """Run the process on one core: answer requests on standard input, or solve once."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    # output of the library must not mix with the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if what == "solve":
        answers.write(json.dumps(solve(name, *map(int, numbers))) + "\n")
        answers.flush()
    else:
        serve(name, sys.stdin, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
