"""The process in which a peer runs: requests and answers are lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from femops.bench.peers.interface import PEER_MESH, PeerOperator, norms
from femops.bench.problems import PROBLEMS, Problem, make_space
from femops.bench.timing import median_seconds
from femops.spaces.h1_l2 import H1


def make(name: str, problem: Problem, space: H1) -> PeerOperator:
    """Make the operator of a peer, on the peer's own copy of the mesh.

    Raises
    ------
    ImportError
        The peer does not load.
    """
    if name == "libceed":
        from femops.bench.peers.with_libceed import LibceedOperator

        return LibceedOperator(problem, space)
    from femops.bench.peers.with_mfem import MfemOperator

    return MfemOperator(problem, space)


def serve(name: str, requests: TextIO, answers: TextIO) -> None:
    """Make the operator of the first request, and time it for each further request."""
    operator: PeerOperator | None = None
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        if operator is None:
            problem = PROBLEMS[request["problem"]]
            space = make_space(problem, PEER_MESH, request["order"], request["dofs"])
            operator = make(name, problem, space)
            operator.apply()
            answer: dict[str, Any] = {"label": operator.label}
            answer["norms"] = norms(operator.x, operator.y)
        else:
            answer = {"median": median_seconds(operator.apply, request["seconds"])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def solve(name: str, order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation by a peer; see `femops.bench.peers.interface.peer_solve`."""
    if name == "ngsolve":
        from femops.bench.peers.with_ngsolve import solve
    else:
        from femops.bench.peers.with_mfem import solve
    return solve(order, n)


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
