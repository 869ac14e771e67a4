"""Command ``femops verify``: repeat a run, and compare the bits of the results."""

from __future__ import annotations

import json as json_format
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.options import JsonOption, ThreadsOption, WrongUsage, paragraphs
from femops.cli.output import Output, tell, unwinding
from femops.cli.record import OUTPUTS, file_hashes

OTHER = 1
"""Exit code if bits differ, or if the run cannot be repeated."""

_KEYS: dict[str, type] = {
    "arguments": list,
    "files": dict,
    "functions": dict,
    "machine": dict,
    "mesh": str,
}
_KEYS |= {"ranks": int, "reproducible": bool, "result": str, "versions": dict}

_LONGEST = 2**24
"""Most characters of a record that are read."""

_CURE = "give the output of `femops solve ... --json` or `femops hydro ... --json`"


@paragraphs
def verify(
    context: typer.Context,
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN.json", help="What `femops solve` or `femops hydro` printed with --json."
        ),
    ],
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Repeat a run, and say whether the result has the same bits here.

    The JSON document of a run has its command, the checksum of its mesh and a hash of its result.
    The exit code is 0 if the repeated run has the same hash. Otherwise it is 1, and the command
    lists the differences between the two runs. Make the run with --reproducible: without it results
    depend on the width of lanes and on the number of ranks.

    \b
    Examples:
      femops solve poisson ball.mesh --reproducible --json > run.json
      femops verify run.json
    """
    output = Output(json)
    before = _read(run)
    _check_options(context, before["run"]["arguments"], run)
    _check_files(before["run"], run)
    with output.working(f"femops {' '.join(before['run']['arguments'])}"):
        here = _repeated(before["run"], threads)
    result, result_here = (document["run"]["result"] for document in (before, here))
    same = result == result_here
    found = list(_differences(before, here))
    facts = {"same": same, "result": result, "result_here": result_here}
    output.json(facts | {"differences": found})
    if same:
        output.say(f"The same bits: the result has the hash {result_here} here too.")
        raise typer.Exit
    output.say(f"Other bits: the result had the hash {result},")
    output.say(f"            here it is        {result_here}.")
    output.facts("Between the two runs differ:", [(line, "") for line in found])
    raise typer.Exit(OTHER)


def _read(path: Path) -> dict[str, Any]:
    """Read the document of a run."""
    try:
        with path.open(encoding="utf-8") as file:  # a pipe, perhaps; a device would never end
            document = json_format.loads(file.read(_LONGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(f"{path} cannot be read ({error}): {_CURE}") from error
    if not isinstance(document, dict) or not _is_record(document.get("run")):
        raise _wrong(f"{path} has no record of a run: {_CURE}")
    return document


def _wrong(what: str) -> Exception:
    return typer.BadParameter(what, param_hint="RUN.json")


def _is_record(record: Any) -> bool:
    """True if ``record`` has all entries needed to repeat a run."""
    if not isinstance(record, dict):
        return False
    if not all(isinstance(record.get(name), kind) for name, kind in _KEYS.items()):
        return False
    words = record["arguments"]
    files = all(f"--{name}" in words[:-1] for name in record["files"])
    return files and words[:1] in (["solve"], ["hydro"]) and {*map(type, words)} == {str}


def _check_options(context: typer.Context, words: list[str], path: Path) -> None:
    """Raise unless the words are a command with options that shape its result alone.

    A record has no others. They could overwrite files.
    """
    command: Any = context.find_root().command
    left = list(words)
    while left and (found := getattr(command, "commands", {}).get(left[0])):
        command = found
        del left[0]
    try:
        named = {parameter.name for parameter in command.make_parser(context).parse_args(left)[2]}
    except WrongUsage:
        named = set()
    if not named or hasattr(command, "commands"):
        raise _wrong(f"{path} has no record of a run: {_CURE}")
    for other in sorted(named & {*OUTPUTS, "help", "verify"}):
        option = f"--{other.replace('_', '-')}"
        raise _wrong(f"{path} has {option}, which does not shape the result of a run: {_CURE}")


def _check_files(record: dict[str, Any], path: Path) -> None:
    """Raise if a run needs ranks, or its checkpoint is missing or has changed."""
    if record["ranks"] > 1 and not record["reproducible"]:
        command = " ".join(record["arguments"])
        raise _wrong(
            f"{path} is of {record['ranks']} ranks without --reproducible, whose sums depend on "
            f"their number: run `mpiexec -n {record['ranks']} femops {command} --json`, and "
            "compare the results in both documents"
        )
    given = record["arguments"]
    for name, before in record["files"].items():
        file = given[given.index(f"--{name}") + 1]
        try:
            found = file_hashes(file=file)
        except OSError as error:
            raise _wrong(f"{file} cannot be read ({error}): correct its rights") from error
        if found.get("file") != before:
            raise _wrong(
                f"{file} is missing, or has changed since the run went on from it: restore it, or "
                "verify the run from its beginning"
            )


def _repeated(record: dict[str, Any], threads: int | None) -> dict[str, Any]:
    """Repeat the run in a separate process, and return its document."""
    from femops.io.atomic import temporary_folder
    from femops_kernels.codegen.ahead import same_imports

    more = [] if threads is None else ["--threads", str(threads)]
    with unwinding(), ExitStack() as stack:
        if record["arguments"][0] == "hydro":  # a run that fails writes its last good state
            state = stack.enter_context(temporary_folder()) / "last.state"
            more += ["--checkpoint", str(state), "--checkpoint-every", str(10**17)]
        command = [sys.executable, "-m", "femops", *record["arguments"], *more, "--json"]
        environment = os.environ | same_imports()
        try:
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, text=True, check=False
            )
        except (OSError, ValueError) as error:  # words that the system passes to no program
            raise typer.BadParameter(
                f"the run cannot be started ({error}): {_CURE}", param_hint="RUN.json"
            ) from error
    if done.returncode:
        tell("the run cannot be repeated here, see above")
        raise typer.Exit(OTHER)
    return dict(json_format.loads(done.stdout))


def _differences(before: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """Yield lines about the differences between two runs: first causes, then results."""
    causes = list(_causes(before["run"], here["run"]))
    yield from causes
    harmless = "processor", "llvm cpu", "lanes"
    if before["run"]["result"] != here["run"]["result"] and all(
        line.startswith(harmless) for line in causes
    ):
        yield "none of that should change bits: this is a defect of femops, please report it"
    for name in ("iterations", "steps", "t", "e_norm", "l2_error", "h1_error"):
        if before.get(name) != here.get(name):
            yield f"{name.replace('_', ' ')}: was {before.get(name)}, here {here.get(name)}"


def _causes(one: dict[str, Any], two: dict[str, Any]) -> Iterator[str]:
    """Yield lines about differences in mesh, versions, machine and functions of two records."""
    if one["mesh"] != two["mesh"]:
        yield f"the mesh: its checksum was {one['mesh']}, here it is {two['mesh']}"
    for kind in ("versions", "machine"):
        for name in one[kind] | two[kind]:
            old, new = one[kind].get(name, "absent"), two[kind].get(name, "absent")
            if old != new:
                yield f"{name.replace('_', ' ')}: was {old}, here it is {new}"
    for name, hashed in one["functions"].items():
        if two["functions"].get(name) != hashed:
            yield f"{name}: they give other bits here"
    if not one["reproducible"]:
        yield "the run is not --reproducible: other lanes and tuned settings round otherwise"
