"""Group of the commands ``femops bench``."""

from __future__ import annotations

import typer

from femops.cli.bench.adaptive import adaptive
from femops.cli.bench.comparison import compare, machine
from femops.cli.bench.eigen import eigen
from femops.cli.bench.faces import faces
from femops.cli.bench.gemm import gemm
from femops.cli.bench.gpu import gpu
from femops.cli.bench.multivector import multivector
from femops.cli.bench.operators import PROBLEMS, all_problems, cg, operator
from femops.cli.bench.report import PlotCommand
from femops.cli.bench.scaling import scaling
from femops.cli.bench.soak import soak
from femops.cli.bench.solve import solve
from femops.cli.options import paragraphs

app = typer.Typer(no_args_is_help=True)


@app.callback()
@paragraphs
def group() -> None:
    """Measure the speed of operators.

    The limits of this machine, measured in the same rounds, stand beside the speeds.

    \b
    Examples:
      femops bench bp1
      femops bench bp3 --order 2,4,6 --threads 1 --footprint cache
      femops bench all --json --plot
    """


for _name, _what in PROBLEMS.items():
    app.command(_name, cls=PlotCommand)(operator(_name, _what))
app.command("all", cls=PlotCommand)(all_problems)
for _command in (cg, solve, scaling, multivector, gemm, eigen, gpu):
    app.command(cls=PlotCommand)(_command)
for _plain in (adaptive, faces, machine, compare, soak):
    app.command()(_plain)
