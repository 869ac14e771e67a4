"""``femops bench``."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from math import inf
from typing import Annotated, Any, final

import typer
from typer.core import TyperCommand

from femops.cli import gpu, scaling
from femops.cli.gpu import SweepOption
from femops.cli.options import (
    JsonOption,
    ThreadsOption,
    names,
    number,
    numbers,
    paragraphs,
    whole_number,
)
from femops.cli.output import Output, one_line_warnings
from femops.cli.scaling import (
    BandwidthOption,
    LatencyOption,
    MemoryOption,
    ModelOption,
    ProblemsOption,
    RanksOption,
    WeakOption,
)

PICTURE = "bench.png"
"""What ``--plot`` draws into where no file is named."""


@final
class Bench(TyperCommand):
    """The command, whose ``--plot`` may stand alone; typer has no options of that kind."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the file of a ``--plot`` that names none."""
        given = []
        for word, following in pairwise([*args, "--"]):
            given += [word, PICTURE] if word == "--plot" and following[:1] == "-" else [word]
        return super().parse_args(ctx, given)


class Problem(StrEnum):
    """CEED's bake-off problems, and what else can be measured."""

    bp1 = "bp1"
    bp2 = "bp2"
    bp3 = "bp3"
    bp4 = "bp4"
    bp5 = "bp5"
    bp6 = "bp6"
    all = "all"
    cg = "cg"
    numa = "numa"
    scaling = "scaling"
    gpu = "gpu"


@paragraphs
def bench(
    problem: Annotated[
        Problem,
        typer.Argument(
            help="bp1, bp2: mass, scalar and vector; bp3, bp4: diffusion; bp5, bp6: diffusion, "
            "collocated; all of them; cg: conjugate gradients on bp1, vector updates in the "
            "operator's sweep or apart; numa: placement of data; "
            "scaling: one rank of MPI and several; gpu: kernels of a GPU, compared with the CPU's "
            "and measured."
        ),
    ],
    order: Annotated[
        str | None,
        typer.Option(help="Polynomial degrees: 4, 1-8 (default; scaling has 4) or 2,4,6."),
    ] = None,
    footprint: Annotated[
        str | None, typer.Option(metavar="NAME", help="ram: 1.8 M dofs (default); cache: 0.12 M.")
    ] = None,
    dofs: Annotated[
        float | None,
        typer.Option(parser=number(8, inf), metavar="N", help="About how many dofs instead."),
    ] = None,
    mesh: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Of cartesian, multilinear, curved.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Levels side by side; all of them: all.")
    ] = None,
    threads: ThreadsOption = None,
    rounds: Annotated[
        int | None, typer.Option(parser=whole_number(1), metavar="N", help="Turns of each.")
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Run libceed and mfem beside, if installed.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="[FILE]",
            help=f"Draw it into this PNG file (default: {PICTURE}); gpu keeps all results in a "
            ".json file beside it, from the first on.",
        ),
    ] = None,
    ranks: RanksOption = None,
    problems: ProblemsOption = None,
    weak: WeakOption = False,
    memory: MemoryOption = False,
    model: ModelOption = False,
    latency: LatencyOption = None,
    bandwidth: BandwidthOption = None,
    sweep: SweepOption = False,
    json: JsonOption = False,
) -> None:
    """Measure how fast operators are applied.

    Beside it stands what this machine allows, measured in the same rounds: the least bytes of any
    level at the bandwidth for that mix of reads and writes, or the operations at the rate of
    multiply-adds (median time in ms; speed and limit in millions of dofs a second).
    The problems are CEED's: p + 2 Gauss points, or the p + 1 Gauss-Lobatto nodes for bp5 and bp6.

    \b
    Examples:
      femops bench bp1
      femops bench bp3 --order 2,4,6 --threads 1 --footprint cache
      femops bench bp1 --order 1 --level all --mesh multilinear
      femops bench bp1 --order 1-8 --threads 1 --peers --plot bp1.png
      femops bench all --json --plot
      femops bench cg --order 3,6 --threads 1 --mesh cartesian,multilinear
      femops bench numa --plot numa.png
      femops bench gpu --json --plot
      femops bench gpu --sweep --order 3,6 --problem bp3
      femops bench scaling --ranks 1,2 --json --plot scaling.png
      femops bench scaling --ranks 1,2,4,8 --problem bp1 --mesh multilinear --memory
      femops bench scaling --model --latency 1.5e-6 --bandwidth 1e10 --plot model.png
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders = numbers(order or ("4" if problem is Problem.scaling else "1-8"))
    given = {"footprint": footprint, "dofs": dofs, "mesh": mesh, "level": level, "threads": threads}
    given |= {"rounds": rounds, "peers": peers or None, "sweep": sweep or None}
    given |= {"ranks": ranks, "problem": problems, "weak": weak or None, "memory": memory or None}
    given |= {"model": model or None, "latency": latency, "bandwidth": bandwidth}
    _check_plot(plot, sweep=sweep)
    for name in _UNUSED.get(problem, _OF_OTHERS):
        if given[name] is not None:
            raise typer.BadParameter(f"'bench {problem.value}' takes no --{name}")
    output = Output(json)
    on_gpu = problem is Problem.gpu  # where what is measured so far must not be lost
    working = output.telling() if on_gpu else output.working(f"measuring {problem.value}")
    with one_line_warnings(), working as show:
        result = _measured(problem, orders, given | {"plot": plot}, show)
    output.json(result)
    _print(output, problem, result)
    if plot is not None and problem is Problem.scaling:
        scaling.draw(plot, result)
    elif plot is not None and result["rows"]:
        _draw(problem, plot, result["rows"])
    if result.get("failures") or not result.get("agrees", True):
        raise typer.Exit(1)


_STUDY = ("ranks", "weak", "memory", "model", "latency", "bandwidth")
_OF_OTHERS = (*_STUDY, "problem", "sweep")
_UNUSED = {
    Problem.all: (*_OF_OTHERS, "footprint", "dofs", "mesh", "level"),
    Problem.cg: (*_OF_OTHERS, "peers"),
    Problem.gpu: (*_STUDY, "footprint", "threads", "rounds", "peers"),
    Problem.numa: (*_OF_OTHERS, "footprint", "mesh", "level", "threads", "peers"),
    Problem.scaling: ("sweep", "threads", "peers"),
}
"""Options that a benchmark has no use for."""


def _measured(
    problem: Problem, orders: list[int], given: dict[str, Any], show: Callable[[str], None]
) -> dict[str, Any]:
    common: dict[str, Any] = {"progress": show}
    if given["rounds"]:
        common["rounds"] = given["rounds"]
    if problem is Problem.numa:
        return _numa(orders, given["dofs"], common)
    if problem is Problem.scaling:
        return scaling.measured(orders, given, common)
    if problem is Problem.gpu:
        return gpu.measured(orders, given, show)
    if problem is Problem.cg:
        return _cg(orders, given["threads"], given, common)
    common["peers"] = _peers(bool(given["peers"]))
    if problem is Problem.all:
        return _all(orders, given["threads"], common)
    return _one(problem, orders, given["threads"], given, common)


def _check_plot(plot: str | None, *, sweep: bool) -> None:
    """Refuse a path before anything is measured, not after."""
    if sweep and plot is not None:
        raise typer.BadParameter("give --sweep or --plot, not both")
    if plot is not None:
        from femops.io.atomic import check_writable, checked_path
        from femops.io.plots.picture import check_matplotlib

        check_writable(checked_path(plot, ".png"))
        check_matplotlib()


def _peers(wanted: bool) -> tuple[str, ...]:
    from femops.bench.peers import PEERS

    return PEERS if wanted else ()


def _one(
    problem: Problem,
    orders: list[int],
    threads: int | None,
    given: dict[str, Any],
    common: dict[str, Any],
) -> dict[str, Any]:
    from femops import bench as benchmarks
    from femops.operators.execution.host import LEVELS

    _one_size(given)
    options = dict(common)
    if given["footprint"] is not None:
        options["footprint"] = given["footprint"]
    if given["mesh"] is not None:
        options["meshes"] = names(given["mesh"])
    if given["level"] is not None:
        levels = names(given["level"])
        options["levels"] = ("auto", *LEVELS) if levels == ["all"] else levels
    return benchmarks.run(problem.value, orders, given["dofs"], threads, **options)


def _one_size(given: dict[str, Any]) -> None:
    if given["dofs"] is not None and given["footprint"] is not None:
        raise typer.BadParameter("give --dofs or --footprint, not both")


def _cg(
    orders: list[int], threads: int | None, given: dict[str, Any], common: dict[str, Any]
) -> dict[str, Any]:
    from femops import bench as benchmarks
    from femops.bench.problems import check_names

    _one_size(given)
    options = dict(common)
    if given["mesh"] is not None:
        options["meshes"] = names(given["mesh"])
    if given["level"] is not None:
        options["level"] = given["level"]
    footprint = given["footprint"] or "ram"
    check_names((), (), (footprint,))
    dofs = given["dofs"] or benchmarks.FOOTPRINTS[footprint]
    return benchmarks.run_cg(orders, dofs, threads, **options)


def _all(orders: list[int], threads: int | None, common: dict[str, Any]) -> dict[str, Any]:
    from femops import bench as benchmarks

    return benchmarks.run_all(orders, threads, **common)


def _numa(orders: list[int], dofs: float | None, common: dict[str, Any]) -> dict[str, Any]:
    from femops.bench.numa import run_numa

    options: dict[str, Any] = {} if dofs is None else {"dofs": dofs}
    return run_numa(orders, **options, **common)


def _draw(problem: Problem, plot: str, rows: list[dict[str, Any]]) -> None:
    if problem is Problem.numa:
        from femops.bench.numa import draw_numa

        draw_numa(plot, rows)
    elif problem is Problem.gpu:
        from femops.bench.gpu import draw_gpu

        draw_gpu(plot, rows)
    elif problem is Problem.cg:
        from femops.bench.solver import draw_cg

        draw_cg(plot, rows)
    else:
        from femops.bench.drawing import draw

        draw(plot, rows)


# --- tables ---------------------------------------------------------------------------------------

HEADINGS = (
    *("problem", "mesh", "level", "p", "q", "dofs", "threads", "ms", "Mdofs/s"),
    *("limit", "of it", "of FMA", "B/dof", "least"),
)
AUTO_HEADINGS = ("problem", "mesh", "chosen", "best", "p", "dofs", "threads", "slower by")
CG_HEADINGS = (
    *("mesh", "level", "p", "dofs", "threads", "apart", "merged", "operator"),
    *("ratio", "by bytes", "saved", "by bytes"),
)
NUMA_HEADINGS = ("placement", "p", "dofs", "threads", "ms", "Mdofs/s", "GB/s")


def _print(output: Output, problem: Problem, result: dict[str, Any]) -> None:
    output.say(f"{problem.value} on {result['machine']['processor']}")
    if problem is Problem.scaling:
        scaling.show(output, result)
        return
    if problem is Problem.gpu:
        gpu.show(output, result)
        return
    for limits in result.get("limits", ()):
        output.say(
            f"threads {limits['threads']}: "
            f"triad {limits['triad_gbytes_per_second']:.3g} GB/s, "
            f"multiply-adds {limits['fma_gflops_per_second']:.3g} GFlop/s"
        )
    rows = result["rows"]
    if problem is Problem.numa:
        output.rows("", NUMA_HEADINGS, [_numa_row(row) for row in rows], 1)
    elif problem is Problem.cg:
        title = "An iteration in ns a dof: vector updates apart, and in the operator's sweep"
        output.rows(title, CG_HEADINGS, [_cg_row(row) for row in rows], 2)
    else:
        output.rows("", HEADINGS, [_row(row) for row in rows], 3)
    if result.get("auto"):
        title = "Level auto beside the best of all levels"
        output.rows(title, AUTO_HEADINGS, [_auto_row(row) for row in result["auto"]], 4)
    for note in result["notes"]:
        output.say(note)


def _row(row: dict[str, Any]) -> list[str]:
    ours = row["implementation"] == "femops"
    level = f"{row['level']} (auto)" if row["asked"] == "auto" else row["level"]
    return [
        row["problem"],
        row["mesh"],
        level if ours else row["implementation"],
        str(row["order"]),
        str(row["q1d"]),
        str(row["dofs"]),
        str(row["threads"]),
        f"{1e3 * row['seconds_median']:.3g}",
        f"{row['dofs_per_second'] / 1e6:.4g}",
        *(
            [
                f"{row['limit'] / 1e6:.4g}",
                f"{row['fraction_of_limit']:.0%}",
                f"{row['fraction_of_fma_peak']:.0%}",
                f"{row['bytes_per_dof']:.3g}",
                f"{row['least_bytes_per_dof']:.3g}",
            ]
            if ours
            else ["-"] * 5
        ),
    ]


def _auto_row(row: dict[str, Any]) -> list[str]:
    words = [row["problem"], row["mesh"], row["chosen"], row["best"]]
    return [*words, str(row["order"]), str(row["dofs"]), str(row["threads"]), f"{row['loss']:.1%}"]


def _numa_row(row: dict[str, Any]) -> list[str]:
    return [
        row["placement"],
        str(row["order"]),
        str(row["dofs"]),
        str(row["threads"]),
        f"{1e3 * row['seconds_median']:.3g}",
        f"{row['dofs_per_second'] / 1e6:.4g}",
        f"{row['gbytes_per_second']:.3g}",
    ]


def _cg_row(row: dict[str, Any]) -> list[str]:
    def by_dof(name: str) -> str:
        return f"{1e9 * row[f'seconds_{name}'] / row['dofs']:.2f}"

    return [
        *(row["mesh"], row["level"], str(row["order"]), str(row["dofs"]), str(row["threads"])),
        *(by_dof("apart"), by_dof("merged"), by_dof("operator")),
        *(f"{row['ratio']:.2f}", f"{row['ratio_by_bytes']:.2f}"),
        *(by_dof("saved"), by_dof("saved_by_bytes")),
    ]
