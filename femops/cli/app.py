"""Commands of the command line. Errors become one line and an exit code."""

from __future__ import annotations

import _thread
import errno
import io
import mmap
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import typer
import typer.core

from femops.cli import cost, demo, info, meshes, solve, tune, verify, warmup
from femops.cli.bench import group as bench
from femops.cli.hydro.command import hydro
from femops.cli.options import INTERRUPTED, WrongUsage
from femops.cli.output import printable, tell
from femops.cli.ranks import one_voice, refuse_ranks
from femops.cli.remap import remap

ERROR = 1
"""Exit code of an error that femops explains. Wrong usage has exit code 2."""

_LIBRARIES = 400 * 2**20  # bytes of addresses for NumPy, SciPy and LLVM with two threads


class _Commands(typer.core.TyperGroup):
    """The commands. What they quote in their errors is made fit for a terminal."""

    def make_context(self, *given: Any, **options: Any) -> Any:
        with _printable_errors():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        with _printable_errors():
            return super().invoke(ctx)


@contextmanager
def _printable_errors() -> Iterator[None]:
    try:
        yield
    except WrongUsage as error:
        error.message = printable(error.message)
        raise


def build() -> typer.Typer:
    """Return the application. On a terminal, help has a layout for terminals."""
    app = typer.Typer(
        name="femops",
        cls=_Commands,
        help="High-order finite element operators, applied without matrices.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def options(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True),
    ) -> None:
        if version:
            import femops

            typer.echo(f"femops {femops.__version__}")
            raise typer.Exit
        if context.invoked_subcommand is not None:
            refuse_ranks(context.invoked_subcommand)

    app.command("demo")(demo.demo)
    app.add_typer(solve.app, name="solve")
    app.add_typer(meshes.app, name="mesh")
    app.add_typer(bench.app, name="bench")
    app.command("hydro")(hydro)
    app.command("remap")(remap)
    app.command("cost")(cost.cost)
    app.command("info")(info.info)
    app.command("tune")(tune.tune)
    app.command("verify")(verify.verify)
    app.command("warmup")(warmup.warmup)
    return app


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; see `femops.cli.main`."""
    _open_closed()
    _tell_errors_of_output()
    _check_memory()
    command = typer.main.get_command(build())
    given = sys.argv[1:] if arguments is None else list(arguments)
    before, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        with one_voice(given):
            command.main(args=given, prog_name="femops")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer turns the interrupt into a silent exit
            raise KeyboardInterrupt from stop
        raise
    except Exception as error:
        line = explained(error)
        if line is None:
            raise
        if isinstance(error, _UNWRITTEN):
            _drop_output()  # first: standard error may be full as well
        _tell(error, line)
        sys.exit(ERROR)
    finally:
        sys.unraisablehook = before


def _open_closed() -> None:
    """Open standard output and error if they were closed. Writing to standard output then fails.

    So no other file gets the descriptors of these streams, to which a C library might write.
    """
    for number, name, how in ((1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, how)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


class _OutputError(Exception):
    """The system refuses to write to standard output."""


_UNWRITTEN = (_OutputError, BrokenPipeError)


@final
class _StandardOutput(io.RawIOBase):
    """Standard output. Its errors have another type than those of files."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__()
        self._stream = stream  # the only reference: its end closes the file
        self._raw: Any = getattr(stream.buffer, "raw", stream.buffer)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def write(self, data: Any) -> int | None:
        try:
            return self._raw.write(data)  # type: ignore[no-any-return]
        except BrokenPipeError:  # typer ends silently then
            raise
        except OSError as error:
            raise _OutputError(error.strerror or error) from error


def _tell_errors_of_output() -> None:
    """Replace standard output, unless a program has done so, by a `_StandardOutput`.

    Characters that its encoding lacks are written as escapes.
    """
    given: Any = sys.stdout
    if sys.__stdout__ in (None, given) and isinstance(given, io.TextIOWrapper):
        given.flush()
        raw = _StandardOutput(given)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=given.encoding,
            errors="backslashreplace",
            line_buffering=raw.isatty(),
        )


def _has_room(nbytes: int) -> bool:
    """True if the system gives this process more memory, in addresses."""
    try:
        mmap.mmap(-1, nbytes).close()
    except OSError:
        return False
    return True


def _check_memory() -> None:
    """End this process if it cannot load its libraries. OpenBLAS would wait for ever."""
    if not _has_room(_LIBRARIES):
        tell("not enough memory to load the libraries of femops: raise the limit (ulimit -v)")
        sys.exit(ERROR)


def _tell(error: Exception, line: str) -> None:
    """Write the line for an error. End other ranks, because they may wait for this rank."""
    launch = sys.modules.get("femops.parallel.launch")

    def write() -> None:
        tell(line)

    if launch is None:
        write()
    else:
        launch.end_all(error, write)


def _interrupt_again(lost: Any) -> None:
    """Repeat an interrupt that C code (a callback of LLVM) has swallowed."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(lost)


def _drop_output() -> None:
    """Redirect standard output to the null device. Else Python's flush at exit would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def explained(error: Exception) -> str | None:
    """Return one line for an error that femops raised on purpose. None for a defect."""
    from femops.errors import Errors

    if isinstance(error, Errors):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return "not enough memory: take a coarser mesh, a lower order or fewer refinements"
    if isinstance(error, _UNWRITTEN):
        return f"cannot write to standard output: {getattr(error, 'strerror', None) or error}"
    if not _has_room(_LIBRARIES):  # libraries and threads that cannot start raise anything
        return f"not enough memory ({type(error).__name__}: {' '.join(str(error).split())})"
    return None
