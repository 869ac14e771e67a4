"""The commands, and how errors become one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from femops.cli import bench, cost, demo, info, meshes, solve, warmup

ERROR = 1
"""Exit code of an error that femops explains; usage errors have 2, as everywhere."""


def build() -> typer.Typer:
    """Return the application; help is laid out for a terminal only where there is one."""
    app = typer.Typer(
        name="femops",
        help="High-order finite element operators, applied without matrices.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def options(
        version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True),
    ) -> None:
        if version:
            import femops

            typer.echo(f"femops {femops.__version__}")
            raise typer.Exit

    app.command("demo")(demo.demo)
    app.add_typer(solve.app, name="solve")
    app.add_typer(meshes.app, name="mesh")
    app.command("bench")(bench.bench)
    app.command("cost")(cost.cost)
    app.command("info")(info.info)
    app.command("warmup")(warmup.warmup)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        ``sys.argv[1:]`` if omitted.

    Raises
    ------
    SystemExit
        0 done, 1 an error that is explained in one line on stderr, 2 wrong usage, 130 interrupted.
    """
    try:
        typer.main.get_command(build()).main(
            args=None if arguments is None else list(arguments), prog_name="femops"
        )
    except Exception as error:
        line = explained(error)
        if line is None:
            raise
        print(f"femops: {line}", file=sys.stderr)  # noqa: T201  (this is the command line)
        sys.exit(ERROR)


def explained(error: Exception) -> str | None:
    """Return the one line for an error that femops raised on purpose; None for a defect."""
    from femops.errors import Errors

    if isinstance(error, MemoryError):
        return "not enough memory: take a coarser mesh, a lower order or fewer refinements"
    return " ".join(str(error).split()) if isinstance(error, Errors) else None
