"""Options that several commands share, with one spelling and one help text."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from femops.parallel import Communicator, DistributedMesh
    from femops_meshes import Mesh

INTERRUPTED = 130
"""Exit code of an interrupted command, as in shells: 128 plus the number of the signal."""


# The texts that float() may read here: no underscores, and no digits but ASCII's.
_PLAIN = re.compile(r"[0-9A-Za-z+. -]*")

WrongUsage: Any = typer.BadParameter.__base__
"""Errors of wrong usage. Typer has them from click, or has its own."""

Command = TypeVar("Command", bound=Callable[..., Any])


def whole_number(
    least: int, most: int | None = None, hint: str | None = None
) -> Callable[[Any], int]:
    """Return a parser of whole numbers from `least` to `most`. It refuses other text.

    ``hint`` is the option that errors name. Parsers that typer calls need none.
    """
    wish = f">= {least}" if most is None else f"from {least} to {most}"

    def read(value: Any) -> int:
        text = str(value).strip()
        result = int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else least - 1
        if result < least or (most is not None and result > most):
            raise typer.BadParameter(f"got '{value}': give a whole number {wish}", param_hint=hint)
        return result

    return read


def number(least: float, below: float = inf, above: bool = False) -> Callable[[Any], float]:
    """Return a parser of numbers with least <= number < below. It refuses other text.

    With ``above`` the number itself is larger than `least`.
    """
    wish = f"{'>' if above else '>='} {least:g}" + (f" and < {below:g}" if below < inf else "")

    def read(value: Any) -> float:
        result = nan
        with suppress(ValueError):
            result = float(value) if _PLAIN.fullmatch(str(value)) else nan
        if not least <= result < below or (above and result == least):
            raise typer.BadParameter(f"got '{value}': give a number {wish}")
        return result

    return read


COUNT, NATURAL, POSITIVE = whole_number(1), whole_number(0), number(0.0, above=True)
"""Parsers of whole numbers from 1 on and from 0 on, and of numbers above 0."""


def option(reader: Callable[[Any], Any] | None, metavar: str, text: str, *names: str) -> Any:
    """Return an option with a parser, a placeholder and a help text."""
    return typer.Option(*names, parser=reader, metavar=metavar, help=text)


def given_options(context: typer.Context) -> set[str]:
    """Names of the parameters whose values are set on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def refuse(names: set[str], why: str) -> None:
    """Raise if options are set that a command would ignore."""
    if names:
        hints = ", ".join("--" + name.replace("_", "-") for name in sorted(names))
        raise typer.BadParameter(f"{why}: leave it out", param_hint=hints)


def level_name(value: Any) -> str:
    """Read the name of a level of assembly. If it is unknown, raise an error with all names."""
    from femops.errors import OperatorError
    from femops.operators.levels.dispatch import check_level

    try:
        check_level(str(value))
    except OperatorError as error:
        raise typer.BadParameter(str(error)) from error
    return str(value)


Method = StrEnum("Method", ["CURVE", "METIS"])
Method.__doc__ = "Methods to partition a mesh."
Preconditioner = StrEnum("Preconditioner", ["MULTIGRID", "JACOBI"])
Preconditioner.__doc__ = "Preconditioners of `femops solve`."

_MESH = "A mesh file, the name of a sample (ball.mesh), or the elements of a box (8x8x8)."
_REFINE = "Split every element in two along each direction, N times."
_LEVELS = (
    "What operators keep: full (a matrix), element, partial (numbers at the quadrature points), "
    "matrix-free, or auto (measured)."
)
_PARTITION = "Under mpiexec, how ranks share the mesh: by the order along a curve, or by METIS."
_SAME = "The same bits on 1 to 8 ranks, with or without mpiexec, and for any lanes."
_THREADS = "Threads; all cores of this machine if omitted."

MeshArgument = Annotated[str, typer.Argument(metavar="MESH", help=_MESH)]
RefineOption = Annotated[int, option(NATURAL, "N", _REFINE)]
OrderOption = Annotated[int, option(COUNT, "N", "Polynomial degree.")]
LevelOption = Annotated[str, option(level_name, "LEVEL", _LEVELS)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
ThreadsOption = Annotated[int | None, option(COUNT, "N", _THREADS)]
DeviceOption = Annotated[str | None, option(None, "NAME", "cuda: compute on a GPU.")]
PngOption = Annotated[str | None, option(None, "FILE", "Draw it into this PNG file.")]
PartitionOption = Annotated[Method, typer.Option(help=_PARTITION)]
ReproducibleOption = Annotated[bool, typer.Option("--reproducible", help=_SAME)]


def paragraphs(command: Command) -> Command:
    r"""Join the lines of each paragraph of a docstring. The terminal wraps them again.

    Paragraphs that begin with click's mark \b do not change.
    """
    parts = inspect.cleandoc(documentation(command)).split("\n\n")
    command.__doc__ = "\n\n".join(
        part if part.startswith("\b") else " ".join(part.split()) for part in parts
    )
    return command


def documentation(command: Callable[..., Any]) -> str:
    """Return the docstring of a command, its help: from the source under ``python -OO``."""
    if command.__doc__ is not None:
        return command.__doc__
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(command))).body
    assert isinstance(function, ast.FunctionDef)
    return ast.get_docstring(function) or ""


def load_mesh(name: str, refine: int = 0, *, split: bool = False) -> Mesh:
    """Read a mesh file. If there is no file, use the sample of that name, or make a box.

    For ``split`` see `femops.read_mesh`.
    """
    from femops.io import read_mesh
    from femops_meshes import box

    source = _source(name, refine)
    if not isinstance(source, Path):
        return box(source)
    return read_mesh(source, refine=refine, split=split)


def share_mesh(
    name: str, refine: int, comm: Communicator, method: str = "curve", reproducible: bool = False
) -> Mesh | DistributedMesh:
    """Load a mesh like `load_mesh`, and distribute it over several ranks. Collective."""
    from femops.io import read_mesh
    from femops.parallel import box, check, distribute
    from femops_meshes import box as whole_box

    if comm.size == 1 and method == "curve" and not reproducible:
        return load_mesh(name, refine)
    with check(comm):
        found = _source(name, refine) if comm.rank == 0 else None
    source = comm.broadcast(found)
    if isinstance(source, Path):
        return read_mesh(source, refine, comm=comm, method=method, reproducible=reproducible)
    if method == "curve":
        return box(source, comm=comm, reproducible=reproducible)
    with check(comm):
        mesh = whole_box(source) if comm.rank == 0 else None
    return distribute(mesh, comm, method=method, reproducible=reproducible)


def _source(name: str, refine: int) -> Path | list[int]:
    """Return the path of a mesh file, or the numbers of elements of a refined box."""
    from femops_meshes import MeshFileError, sample, samples

    if not name:
        raise MeshFileError(
            "the name of the mesh is empty: give the path of a mesh file, the elements of a box "
            "(8x8x8), or a sample"
        )
    path = Path(name)
    if _there(path):
        return path
    if re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){0,2}", name):
        return [int(count) * 2 ** min(refine, 60) for count in name.split("x")]
    if re.fullmatch(r"[0-9x]*x[0-9x]*", name):
        raise MeshFileError(
            f"'{name}' is no box: give its elements, 1 or more in each of one to three directions, "
            "as 8x8x8"
        )
    if name not in samples():
        known = ", ".join(samples())
        raise MeshFileError(
            f"'{name}' does not exist: give the path of a mesh file, the elements of a box "
            f"(8x8x8), or a sample: {known}"
        )
    return sample(name)


def _there(path: Path) -> bool:
    """True if the path exists, or if the system does not tell. Then reading raises the reason."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        pass
    return True


def set_threads(count: int | None) -> None:
    """Set the number of threads, unless ``count`` is None."""
    if count is not None:
        from femops_kernels.cpu import machine

        machine.set_threads(count)


def names(text: str) -> list[str]:
    """Split names at commas, and drop repeated names."""
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def name_list(help_text: str, *names_: str) -> Any:
    """Return an option that takes names separated by commas."""
    return option(names, "NAMES", help_text, *names_)


def number_list(help_text: str, what: str, name: str, digits: int = 3) -> Any:
    """Return an option that takes a list of whole numbers; see `numbers`."""
    return option(lambda text: numbers(text, what, digits, name), "LIST", help_text, name)


def numbers(text: str, what: str = "orders", digits: int = 3, option: str = "--order") -> list[int]:
    """Convert a list as '3', '1-8' or '2,4,6-8' to whole numbers, in order, without repeats."""
    result: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(rf"\s*([0-9]{{1,{digits}}})\s*(?:-\s*([0-9]{{1,{digits}}})\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 1 <= first <= last:
            wrong = f"'{text}' is no list of {what}: write 4, 1-8 or 2,4,6"
            raise typer.BadParameter(wrong, param_hint=option)
        result += range(first, last + 1)
    return list(dict.fromkeys(result))
