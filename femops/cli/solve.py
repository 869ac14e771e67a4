"""``femops solve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from femops.cli.options import (
    JsonOption,
    Level,
    MeshArgument,
    RefineOption,
    ThreadsOption,
    load_mesh,
    number,
    paragraphs,
    set_threads,
    whole_number,
)
from femops.cli.output import Output, one_line_warnings

if TYPE_CHECKING:
    from femops.space import Space

app = typer.Typer(help="Solve a problem with a known solution.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Solve a problem with a known solution, and say how far off the result is."""


@app.command()
@paragraphs
def poisson(
    mesh: MeshArgument,
    order: Annotated[
        int, typer.Option(parser=whole_number(1), metavar="N", help="Polynomial degree.")
    ] = 4,
    refine: RefineOption = 0,
    rtol: Annotated[
        float,
        typer.Option(
            parser=number(0.0, 1.0),
            metavar="R",
            help="Relative residual, below 1, at which the iteration stops.",
        ),
    ] = 1e-10,
    level: Annotated[
        Level, typer.Option(help="partial: no matrix; full: assemble one, for comparison.")
    ] = Level.partial,
    threads: ThreadsOption = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.vtu", help="Write the solution for ParaView.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the solution.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Solve a Poisson problem on a mesh.

    By conjugate gradients. The exact solution is a product of sines, imposed on the whole
    boundary; a mesh without boundary (periodic) gets the solution of mean zero. Reported are the
    L2 and H1 norms of the error and the seconds from the mesh to the solution, compilation
    included.

    \b
    Examples:
      femops solve poisson ball.mesh --order 4 --refine 1
      femops solve poisson my.mesh --order 6 --save out/u.vtu --picture out/u.png
      femops solve poisson my.mesh --order 2 --level full --json
    """  # noqa: D301  (\b is click's mark for lines to keep)
    from femops.cli.poisson import solve
    from femops.io.atomic import checked_path
    from femops.io.picture import check_matplotlib

    output = Output(json)
    for path, suffix in ((save, ".vtu"), (picture, ".png")):
        if path is not None:
            checked_path(path, suffix)  # before the work, not after it
    if picture is not None:
        check_matplotlib()
    with one_line_warnings():
        set_threads(threads)
        with output.working(f"reading {mesh}"):
            grid = load_mesh(mesh, refine)
        with output.working(f"solving on {grid.num_elements} elements of order {order}"):
            result = solve(grid, order, rtol, level)
        facts = {
            "mesh": mesh,
            "elements": grid.num_elements,
            "order": order,
            "dofs": result.space.size,
            "level": level.value,
            "iterations": result.iterations,
            "l2_error": result.l2_error,
            "h1_error": result.h1_error,
            "seconds": result.seconds,
        }
        output.json(facts)
        shown = {
            **facts,
            "l2_error": f"{result.l2_error:.4e}",
            "h1_error": f"{result.h1_error:.4e}",
        }
        del shown["seconds"]
        shown["time"] = (
            f"{result.seconds:.2f} s, {result.compile_seconds:.2f} s of it for the kernels"
        )
        output.facts("Poisson problem", [(k.replace("_", " "), str(v)) for k, v in shown.items()])
        _write(output, result.space, result.u, save, picture)


def _write(output: Output, space: Space, u: Any, save: Path | None, picture: Path | None) -> None:
    import femops

    if save is not None:
        output.say(f"wrote {femops.save(save, space, u=u)}")
    if picture is not None:
        output.say(f"wrote {femops.picture(picture, space, u, title='u', cut=True)}")
