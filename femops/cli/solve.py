"""Command ``femops solve``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from femops.cli.options import (
    POSITIVE,
    JsonOption,
    LevelOption,
    MeshArgument,
    Method,
    OrderOption,
    PartitionOption,
    Preconditioner,
    RefineOption,
    ReproducibleOption,
    ThreadsOption,
    documentation,
    number,
    option,
    paragraphs,
    set_threads,
    share_mesh,
)
from femops.cli.output import Output, check_files, one_line_warnings
from femops.cli.problems.make import Make
from femops.cli.record import record_of

if TYPE_CHECKING:
    from femops.cli.problems.base import Result
    from femops.parallel import Communicator

app = typer.Typer(help="Solve a problem with a known solution.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Solve a problem with a known solution, and say how far off the result is."""


_RTOL = "Relative residual, below 1, at which the iteration stops."
_BY = "Multigrid if omitted, where it has all that it needs; or the diagonal."
_SAVE = "Write the solution for ParaView: u.vtu, or u.pvtu with a file of each rank."
_WAVE = "Wave number, 1 / length; 8 over the mesh's longest side if omitted."


def _solve(
    make: Make,
    words: list[str],
    options: dict[str, Any],
    mesh: MeshArgument,
    order: OrderOption = 4,
    refine: RefineOption = 0,
    rtol: Annotated[float, option(number(0.0, 1.0), "R", _RTOL)] = 1e-10,
    level: LevelOption = "partial",
    preconditioner: Annotated[Preconditioner | None, typer.Option(help=_BY)] = None,
    threads: ThreadsOption = None,
    partition: PartitionOption = Method.CURVE,
    reproducible: ReproducibleOption = False,
    save: Annotated[Path | None, option(None, "FILE", _SAVE)] = None,
    picture: Annotated[Path | None, option(None, "FILE.png", "Draw the solution.")] = None,
    json: JsonOption = False,
) -> None:
    """Make a problem and solve it; ``words`` are the command's, ``options`` all that it has."""
    from femops.cli.problems.base import solve
    from femops.fields.vector_hash import vector_hash
    from femops.parallel import world

    output, comm = Output(json), world()
    _check_paths(save, picture, comm)
    with one_line_warnings():
        set_threads(threads)
        with output.working(f"reading {mesh}"):
            grid = share_mesh(mesh, refine, comm, partition.value, reproducible)
        title = f"solving on {grid.num_elements} elements of order {order}"
        with output.iterating(title) as progress:
            chosen = None if preconditioner is None else preconditioner.value
            result = solve(make, grid, order, rtol, level, progress, chosen)
        facts = {"mesh": mesh, "elements": grid.num_elements, "order": order, **result.facts()}
        if comm.size > 1:
            facts["ranks"] = comm.size
        if json:
            hashed = vector_hash(result.problem.space, result.u)
            run = record_of(words, options, grid, comm, hashed)
            output.json(facts | {"run": run})
        title = result.problem.title
        output.facts(title[0].upper() + title[1:], _shown(facts, result))
        _write(output, result, save, picture)


def problem(own: Callable[..., Make]) -> Callable[..., None]:
    """Make a command from a function that takes the options of one problem."""
    _, _, _, *shared = inspect.signature(_solve, eval_str=True).parameters.values()
    options = inspect.signature(own, eval_str=True).parameters

    def command(**given: Any) -> None:
        named = {name: value for name, value in given.items() if name != "mesh"}
        make = own(**{name: given.pop(name) for name in options})
        _solve(make, ["solve", own.__name__, given["mesh"]], named, **given)

    command.__name__, command.__doc__ = own.__name__, documentation(own)
    command.__annotations__ = {}
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in (shared[0], *options.values(), *shared[1:])
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return app.command()(paragraphs(command))


LamOption = Annotated[float, option(number(0.0), "L", "Lame's first, stress.")]
MuOption = Annotated[float, option(POSITIVE, "M", "Shear modulus, stress.")]


@problem
def poisson() -> Make:
    """Solve a Poisson problem on a mesh.

    The solver is conjugate gradients with multigrid. The exact solution is a product of sines, and
    is imposed on the whole boundary. On a mesh without boundary (periodic) it has mean zero. The
    report has the L2 and H1 norms of the error, and the seconds from the mesh to the solution, with
    compilation.

    \b
    Examples:
      femops solve poisson ball.mesh --order 4 --refine 1
      femops solve poisson my.mesh --order 6 --save out/u.vtu --picture out/u.png
      femops solve poisson my.mesh --order 2 --level full --json
      femops solve poisson my.mesh --preconditioner jacobi
    """
    from femops.cli.problems.poisson import Poisson

    return Poisson


@problem
def helmholtz(k: Annotated[float | None, option(POSITIVE, "K", _WAVE)] = None) -> Make:
    """Solve a Helmholtz problem on a mesh.

    The equation is -div grad u - k^2 u = f, which is indefinite. The solver is MINRES, with a
    preconditioner of the equation with a plus. Each wave, 2 pi / k long, should span an element or
    more of order 4. The exact solution is a product of sines, and is imposed on the whole boundary.

    \b
    Examples:
      femops solve helmholtz disc.mesh --order 4 --refine 1
      femops solve helmholtz disc.mesh --order 6 --refine 1 --k 12 --json
    """
    from femops.cli.problems.helmholtz import Helmholtz

    return partial(Helmholtz, k=k)


@problem
def elasticity(lam: LamOption = 1.0, mu: MuOption = 1.0) -> Make:
    """Solve a problem of linear elasticity on a mesh, 2-D (plane strain) or 3-D.

    The solver is conjugate gradients with multigrid. The exact displacement is a product of sines
    in each component, and is imposed on the whole boundary.

    \b
    Examples:
      femops solve elasticity ball.mesh --order 3
      femops solve elasticity disc.mesh --order 4 --lam 10 --mu 0.5 --save u.vtu
    """
    from femops.cli.problems.elasticity import Elasticity

    return partial(Elasticity, lam=lam, mu=mu)


@problem
def neohookean(lam: LamOption = 1.0, mu: MuOption = 1.0) -> Make:
    """Solve a problem of nonlinear elasticity on a mesh, 2-D (plane strain) or 3-D.

    The solid is compressible and neo-Hookean. The solver is Newton's method with matrix-free
    Jacobians. The exact displacement stretches by up to a fifth along each axis, and is imposed on
    the whole boundary. The report has Newton's iterations, and the sum of linear iterations.

    \b
    Examples:
      femops solve neohookean ball.mesh --order 2
      femops solve neohookean disc.mesh --order 4 --lam 5 --picture u.png
    """
    from femops.cli.problems.neo_hookean import NeoHookean

    return partial(NeoHookean, lam=lam, mu=mu)


@problem
def stokes() -> Make:
    """Solve a Stokes problem on a mesh, 2-D or 3-D.

    Taylor-Hood elements have velocities of the given order, 2 or more, and pressures of one order
    less. The solver is GMRES, with a preconditioner of the velocity and multigrid for the mass of
    the pressure. The exact velocity is the curl of products of sines, and is imposed on the whole
    boundary. Errors are those of the velocity. The pressure has an error of its own.

    \b
    Examples:
      femops solve stokes disc.mesh --order 3 --refine 1
      femops solve stokes ball.mesh --order 2 --json
    """
    from femops.cli.problems.stokes import Stokes

    return Stokes


def _check_paths(save: Path | None, picture: Path | None, comm: Communicator) -> None:
    """Check, before the work starts, that all files can be written. Collective."""
    from femops.parallel import check

    with check(comm):
        check_files((save, ".vtu", ".pvtu"), (picture, ".png"))


def _shown(facts: dict[str, Any], result: Result) -> list[tuple[str, str]]:
    shown = {
        name: f"{value:.4e}" if name.endswith("_error") else f"{value}"
        for name, value in facts.items()
        if name != "seconds"
    }
    shown["time"] = f"{result.seconds:.2f} s, {result.compile_seconds:.2f} s of it for the kernels"
    return [(name.replace("_", " "), value) for name, value in shown.items()]


def _write(output: Output, result: Result, save: Path | None, picture: Path | None) -> None:
    import femops

    space, u = result.problem.space, result.u
    if save is not None:
        output.say(f"wrote {femops.save(save, space, **result.problem.fields(u))}")
    if picture is not None:
        output.say(f"wrote {femops.io.picture(picture, space, u, title='u', cut=True)}")
