"""Results of tracing a form, kept on disk beside the compiled kernels.

The graph itself is the key, with the sources of this package: a form that is traced to other
expressions, or another femops, finds nothing.  So nothing stale can be found, whatever a function
closes over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from femops.pointwise.expressions.graph import Graph, Node, ancestors
from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.private import read_private
from femops_kernels.errors import CacheError

Encoded = dict[str, Any]


def encode(nodes: Iterable[Node]) -> Encoded:
    """Nodes, and all that they are made of, as numbers and text.

    Parameters
    ----------
    nodes : iterable of Node
        Nodes of one graph.

    Returns
    -------
    dict
        ``rows``: of each node its operation, the rows of its arguments and its data, each after
        what it needs; ``nodes``: the rows of those asked for.
    """
    wanted = list(nodes)
    order = ancestors(wanted)
    row = {node.number: k for k, node in enumerate(order)}
    rows = [[node.op, [row[a.number] for a in node.args], _data(node)] for node in order]
    return {"rows": rows, "nodes": [row[node.number] for node in wanted]}


def _data(node: Node) -> str | None:
    if node.op == "const":
        return node.value.hex()
    return str(node.data) if node.op == "input" else None


def decode(graph: Graph, encoded: Encoded) -> list[Node]:
    """Nodes that were encoded, in a graph that may have some of them already.

    Parameters
    ----------
    graph : Graph
    encoded : dict
        See `encode`.
    """
    made: list[Node] = []
    for op, args, data in encoded["rows"]:
        if op == "const":
            made.append(graph.constant(float.fromhex(data)))
        elif op == "input":
            made.append(graph.input(data))
        else:
            made.append(graph.make(op, tuple(made[k] for k in args), None))
    return [made[k] for k in encoded["nodes"]]


def remembered(question: Any, compute: Callable[[], Any]) -> Any:
    """The answer to a question, from disk or computed and then kept there.

    Parameters
    ----------
    question : anything that JSON can hold
        All that the answer depends on.
    compute : callable
        Returns the answer, which JSON can hold.

    Raises
    ------
    CacheError
        The folder cannot be written, or others can write what it holds.
    """
    text = json.dumps([_sources(), question])
    name, answer = f"trace_{_sum(text)[:24]}.json", cache(lambda: json.dumps(compute()))

    def look_up(folder: Path) -> Any:
        found = _read(folder / name)
        if found is None:
            kept = {"sum": _sum(answer()), "answer": answer()}
            kernel_cache.write_once(folder / name, json.dumps(kept))
            found = json.loads(answer())
        return found

    return kernel_cache.keep(look_up)


def _read(path: Path) -> Any:
    """Contents of a file, of which code is made; None if there is none, or it is damaged."""
    try:
        kept = json.loads(read_private(path))
        answer = kept["answer"]
        return json.loads(answer) if kept["sum"] == _sum(answer) else None
    except CacheError:
        raise
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _sources() -> str:
    """Hash of this package's sources."""
    folder = Path(__file__).parent
    parts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    return _sum("\0".join(parts))
