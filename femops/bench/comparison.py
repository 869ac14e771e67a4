"""Comparison of libraries on one machine, its file, and tables of the files of a folder."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from femops.bench.operators import Bench
from femops.bench.peers.interface import PEER_MESHES, PEER_PROBLEMS, PEERS, SOLVERS
from femops.bench.problems import PROBLEMS, Progress, check_asked, default_dofs
from femops.bench.solvers.multigrid import run_beside
from femops.errors import FileError
from femops.io.atomic import fill, replacing
from femops_common.arguments import number_of
from femops_meshes.formats.files import content_of

FORMAT = 1
"""Number of the format of files, which changes when their keys change."""

SOLVES = {2: 3e4, 4: 2.27e5}
"""Approximate number of dofs of the measured solves, by order."""

_KEYS = ("format", "date", "versions", "machine", "limits", "rows", "solves", "notes")
_LIMITS = ("triad_gbytes_per_second", "fma_gflops_per_second")
_ROW_KEYS = {"problem", "mesh", "order", "dofs", "implementation", "dofs_per_second"}
_SOLVE_KEYS = {"label", "order", "dofs", "iterations", "seconds_setup", "seconds_solve"}
_TEXTS = {"problem", "mesh", "implementation", "label", "processor", "date"}
_PACKAGES = ("numpy", "scipy", "llvmlite", "pyamg", *PEERS)

Document = dict[str, Any]


def run_comparison(
    orders: Sequence[int] = (2, 4, 6, 8),
    dofs: float | None = None,
    solves: Mapping[int, float] = SOLVES,
    *,
    rounds: int = 3,
    seconds: float = 0.1,
    progress: Progress | None = None,
) -> Document:
    """Measure femops and all installed peers on one core: bp1, bp3 and solves.

    The operators run on Cartesian and multilinear meshes, all libraries in turns with the limits
    of the machine.

    Parameters
    ----------
    orders : sequence of int
    dofs : float, optional
        Approximate number of dofs of an operator. If omitted, `femops.bench.problems.default_dofs`
        out of cache. Peers that assemble matrices have fewer.
    solves : mapping
        Approximate number of dofs of a solve, by order.
    rounds : int
    seconds : float
        Time of a round for one operator.
    progress : callable, optional
        Called with a line of text before each step.

    Returns
    -------
    dict
        ``format``, ``date`` and ``versions``; ``machine``, ``limits``, ``rows`` and ``notes`` as in
        `femops.bench.run`; ``solves``: the rows of `femops.bench.solvers.multigrid.run_beside`.

    Raises
    ------
    OperatorError
        No order, an order or number of dofs that is out of range, or fewer than one round.
    """
    check_asked(orders=orders, dofs=[*([] if dofs is None else [dofs]), *solves.values()])
    begin = {"format": FORMAT, "date": date.today().isoformat(), "versions": _versions()}
    show = progress or (lambda _: None)
    bench = Bench((1,), PEER_MESHES, peers=PEERS, rounds=rounds, seconds=seconds)
    for order in dict.fromkeys(orders):
        for name in PEER_PROBLEMS:
            show(f"{name}, order {order}")
            size = (default_dofs("ram", order), "ram") if dofs is None else (dofs, "given")
            bench.measure(PROBLEMS[name], order, size)
    found, notes = list[Document](), list[str]()
    for order, count in solves.items():
        show(f"solve, order {order}")
        rows, said = run_beside(order, count, SOLVERS, rounds)
        found, notes = found + rows, notes + said
    result = bench.result()
    kept = {key: result[key] for key in ("machine", "limits", "rows")}
    return begin | kept | {"solves": found, "notes": [*result["notes"], *notes]}


def _versions() -> dict[str, str]:
    import femops

    found = {"femops": femops.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


# --- files ----------------------------------------------------------------------------------------


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder."""
    path = Path(folder)
    if not path.is_dir():
        raise FileError(f"there is no folder '{path}': make it first, or give another")
    return path


def save_comparison(folder: str | os.PathLike[str], document: Document) -> Path:
    """Save the result of `run_comparison` in a folder, named by processor and date.

    A file of the same processor and date is replaced.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    FileError
        There is no such folder, or the file cannot be written.
    """
    words = re.sub(r"[^a-z0-9]+", "-", document["machine"]["processor"].lower()).strip("-")
    target = check_folder(folder) / f"{words or 'unknown'}_{document['date']}.json"
    with replacing(target) as temporary:
        fill(temporary, json.dumps(document, indent=1) + "\n")
    return target


def read_comparisons(folder: str | os.PathLike[str]) -> list[Document]:
    """Read all files of a folder that `save_comparison` has written, in the order of their names.

    Raises
    ------
    FileError
        There is no such folder, it has no such files, or a file is damaged or has another format.
    """
    files = sorted(check_folder(folder).glob("*.json"))
    if not files:
        raise FileError(f"'{folder}' has no .json files: femops bench machine --save '{folder}'")
    return [_read(file) for file in files]


def _read(file: Path) -> Document:
    try:
        document = json.loads(content_of(file).decode())
    except OSError as error:
        raise FileError(f"cannot read '{file}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no JSON, or no text
        raise FileError(f"'{file}' is no JSON document: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise FileError(f"'{file}' is not of femops bench machine: move it to another folder")
    if document["format"] != FORMAT:
        raise FileError(
            f"'{file}' has format {document['format']}, this femops reads {FORMAT}: measure again"
        )
    if missing := [*_missing(document)]:
        raise FileError(f"'{file}' is damaged: it lacks {', '.join(missing)}, or has another type")
    return document


def _missing(document: Document) -> Iterable[str]:
    """Names of keys that a document lacks."""
    yield from (key for key in _KEYS if key not in document)
    for name, keys in (("rows", _ROW_KEYS), ("solves", _SOLVE_KEYS)):
        rows = document.get(name, ())
        if not isinstance(rows, Sequence) or not all(isinstance(row, dict) for row in rows):
            yield f"a list of {name}"
            continue
        lost = {key for row in rows for key in keys if not _fits(key, row.get(key))}
        yield from sorted(f"{key} in {name}" for key in lost)
    machine = document.get("machine")
    known = machine if isinstance(machine, dict) else {}
    named = known | {"date": document.get("date")}
    facts = ("processor", "date", *_LIMITS)
    yield from (f"{key} of the machine" for key in facts if not _fits(key, named.get(key)))


def _fits(key: str, value: Any) -> bool:
    """True if a value of a file is a text that is not blank, or a finite number >= 0."""
    if key in _TEXTS:
        return isinstance(value, str) and bool(value.strip())
    number = number_of(value)
    return number is not None and 0 <= number < math.inf


def machine_name(document: Document) -> str:
    """Name of a machine in pictures and tables: its processor, and the date."""
    return f"{document['machine']['processor']}, {document['date']}"


def speed_rows(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Rows to draw from all documents. Each row also names its ``machine`` and ``library``."""
    return [
        row | {"machine": machine_name(document), "library": row["implementation"].split()[0]}
        for document in documents
        for row in document["rows"]
    ]


# --- tables in Markdown ---------------------------------------------------------------------------


def markdown(documents: Iterable[Document]) -> list[str]:
    """Lines of Markdown: for each machine a table of operators and one of solves."""
    lines = []
    for document in documents:
        triad, peak = (document["machine"][key] for key in _LIMITS)
        limits = f"One core: triad {triad:.3g} GB/s, multiply-adds {peak:.3g} GFlop/s."
        lines += [f"### {machine_name(document)}", "", limits, ""]
        lines += [*_operator_table(document["rows"]), "", *_solve_table(document["solves"]), ""]
    return lines[:-1]


def _operator_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Table of GDoF/s, with a column for each order."""
    orders = sorted({row["order"] for row in rows})
    speeds: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        case = row["problem"], row["mesh"], row["implementation"].split(" (")[0]
        # libraries may take another way at another order
        speeds.setdefault(case, {})[row["order"]] = row["dofs_per_second"]
    heading = ["problem", "mesh", "library, GDoF/s", *(f"p = {order}" for order in orders)]
    body = [
        [*case, *(f"{of[order] / 1e9:.3g}" if order in of else "" for order in orders)]
        for case, of in sorted(speeds.items(), key=lambda entry: entry[0][:2])
    ]
    return _table(heading, body)


def _solve_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Table of solves of Poisson's equation."""
    heading = ["p", "dofs", "library", "iterations", "setup s", "solve s", "times as long"]
    own: dict[int, float] = {}
    body = []
    for row in rows:
        seconds = row["seconds_setup"] + row["seconds_solve"]
        first = own.setdefault(row["order"], seconds)  # femops comes first
        cells = [str(row[key]) for key in ("order", "dofs", "label", "iterations")]
        times = row["seconds_setup"], row["seconds_solve"], seconds / (first or math.nan)
        body.append([*cells, *(f"{value:.2g}" for value in times)])
    return _table(heading, body)


def _table(heading: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (heading, *body))
    return [first, "|" + "---|" * len(heading), *others]
