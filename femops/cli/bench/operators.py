"""``femops bench bp1`` to ``bp6``, ``all``, ``cg`` and ``numa``: operators on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    FootprintOption,
    LevelOption,
    MeshesOption,
    OrdersOption,
    PeersOption,
    PlotOption,
    Progress,
    Result,
    RoundsOption,
    check_one_size,
    dofs_of,
    report,
)
from femops.cli.options import JsonOption, ThreadsOption, names, numbers, paragraphs
from femops.cli.output import Column, Output

PROBLEMS = {
    "bp1": "the mass operator",
    "bp2": "the vector mass operator",
    "bp3": "the diffusion operator",
    "bp4": "the vector diffusion operator",
    "bp5": "the collocated diffusion operator",
    "bp6": "the collocated vector diffusion operator",
}
"""CEED's bake-off problems, and what each measures."""

ORDERS, MESHES = "1-8", "cartesian,multilinear,curved"


_HELP = """Measure the speed of {what}.

    Beside it stands what this machine allows, measured in the same rounds: the least bytes of any
    level at the bandwidth for that mix of reads and writes, or the operations at the rate of
    multiply-adds (median time in ms; speed and limit in millions of dofs a second).
    The problems are CEED's: p + 2 Gauss points, or the p + 1 Gauss-Lobatto nodes for bp5 and bp6.

    \b
    Examples:
      femops bench {problem}
      femops bench {problem} --order 2,4,6 --threads 1 --footprint cache
      femops bench {problem} --order 1 --level all --mesh multilinear
      femops bench {problem} --level partial --mesh multilinear,multilinear-reproducible
      femops bench {problem} --order 1-8 --threads 1 --peers --plot {problem}.png
    """


def operator(problem: str, what: str) -> Callable[..., None]:
    """Return the command of a problem."""

    def command(
        order: OrdersOption = ORDERS,
        footprint: FootprintOption = None,
        dofs: DofsOption = None,
        mesh: MeshesOption = MESHES,
        level: Annotated[
            str, typer.Option(metavar="NAMES", help="Levels side by side; all of them: all.")
        ] = "auto",
        threads: ThreadsOption = None,
        rounds: RoundsOption = 5,
        peers: PeersOption = False,
        plot: PlotOption = None,
        json: JsonOption = False,
    ) -> None:
        orders, levels = numbers(order), names(level)
        check_one_size(dofs, footprint)

        def measure(progress: Progress) -> Result:
            from femops import bench
            from femops.operators.execution.host import LEVELS

            return bench.run(
                problem,
                orders,
                dofs,
                threads,
                footprint=footprint or "ram",
                meshes=names(mesh),
                levels=("auto", *LEVELS) if levels == ["all"] else levels,
                peers=_peers(peers),
                rounds=rounds,
                progress=progress,
            )

        report(problem, measure, _show_operators, _draw_operators, plot=plot, json=json)

    command.__doc__ = _HELP.format(problem=problem, what=what)
    return paragraphs(command)


def all_problems(
    order: OrdersOption = ORDERS,
    threads: ThreadsOption = None,
    rounds: RoundsOption = 3,
    peers: PeersOption = False,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure bp1 to bp6 on every mesh, in and out of cache, on one core and on all.

    At p = 1 all levels are measured on one core. It takes some 15 minutes.

    \b
    Examples:
      femops bench all --json --plot
      femops bench all --order 2,4 --threads 1 --plot all.png
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders = numbers(order)

    def measure(progress: Progress) -> Result:
        from femops import bench

        peer_names = _peers(peers)
        return bench.run_all(orders, threads, peers=peer_names, rounds=rounds, progress=progress)

    report("all", measure, _show_operators, _draw_operators, plot=plot, json=json)


def cg(
    order: OrdersOption = ORDERS,
    footprint: FootprintOption = None,
    dofs: DofsOption = None,
    mesh: MeshesOption = MESHES,
    level: LevelOption = "auto",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 5,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure conjugate gradients on bp1, vector updates in the operator's sweep or apart.

    \b
    Examples:
      femops bench cg --order 3,6 --threads 1 --mesh cartesian,multilinear
      femops bench cg --order 1-8 --footprint cache --plot cg.png
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders = numbers(order)

    def measure(progress: Progress) -> Result:
        from femops import bench

        return bench.run_cg(
            orders,
            dofs_of(dofs, footprint),
            threads,
            meshes=names(mesh),
            level=level,
            rounds=rounds,
            progress=progress,
        )

    def draw(path: str, result: Result) -> None:
        from femops.bench.drawing import draw_cg

        draw_cg(path, result["rows"])

    report("cg", measure, _show_cg, draw, plot=plot, json=json)


def numa(
    order: OrdersOption = ORDERS,
    dofs: DofsOption = None,
    rounds: RoundsOption = 5,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure what the placement of data on several memories (NUMA nodes) is worth.

    \b
    Examples:
      femops bench numa
      femops bench numa --order 2,4,6 --plot numa.png
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders = numbers(order)

    def measure(progress: Progress) -> Result:
        from femops.bench.numa import run_numa

        return run_numa(orders, dofs_of(dofs, None), rounds=rounds, progress=progress)

    def draw(path: str, result: Result) -> None:
        from femops.bench.drawing import draw_numa

        draw_numa(path, result["rows"])

    def show(output: Output, result: Result) -> None:
        output.records("", NUMA, result["rows"])

    report("numa", measure, show, draw, plot=plot, json=json)


def _peers(wanted: bool) -> tuple[str, ...]:
    from femops.bench.peers import PEERS

    return PEERS if wanted else ()


def _draw_operators(path: str, result: Result) -> None:
    from femops.bench.drawing import draw

    draw(path, result["rows"])


# --- tables ---------------------------------------------------------------------------------------


def _level(row: dict[str, Any]) -> str:
    if row["implementation"] != "femops":
        return str(row["implementation"])
    return f"{row['level']} (auto)" if row["asked"] == "auto" else str(row["level"])


def _by_dof(heading: str, name: str) -> Column:
    return Column(heading, lambda row: row[f"seconds_{name}"] / row["dofs"], ".2f", 1e9)


_CASE = (Column("problem", "problem"), Column("mesh", "mesh"))
_SIZE = (Column("dofs", "dofs"), Column("threads", "threads"))
_SPEED = (
    Column("ms", "seconds_median", ".3g", 1e3),
    Column("Mdofs/s", "dofs_per_second", ".4g", 1e-6),
)
OPERATORS = (
    *(*_CASE, Column("level", _level), Column("p", "order"), Column("q", "q1d"), *_SIZE, *_SPEED),
    Column("limit", "limit", ".4g", 1e-6),
    Column("of it", "fraction_of_limit", ".0%"),
    Column("of FMA", "fraction_of_fma_peak", ".0%"),
    Column("B/dof", "bytes_per_dof", ".3g"),
    Column("least", "least_bytes_per_dof", ".3g"),
)
AUTO = (
    *(*_CASE, Column("chosen", "chosen"), Column("best", "best"), Column("p", "order"), *_SIZE),
    Column("slower by", "loss", ".1%"),
)
CG = (
    *(Column("mesh", "mesh"), Column("level", "level"), Column("p", "order"), *_SIZE),
    *(_by_dof(name, name) for name in ("apart", "merged", "operator")),
    Column("ratio", "ratio", ".2f"),
    Column("by bytes", "ratio_by_bytes", ".2f"),
    *(_by_dof("saved", "saved"), _by_dof("by bytes", "saved_by_bytes")),
)
NUMA = (
    *(Column("placement", "placement"), Column("p", "order"), *_SIZE, *_SPEED),
    Column("GB/s", "gbytes_per_second", ".3g"),
)


def _show_operators(output: Output, result: Result) -> None:
    _show_limits(output, result)
    output.records("", OPERATORS, result["rows"])
    output.records("Level auto beside the best of all levels", AUTO, result["auto"])


def _show_cg(output: Output, result: Result) -> None:
    _show_limits(output, result)
    title = "An iteration in ns a dof: vector updates apart, and in the operator's sweep"
    output.records(title, CG, result["rows"])


def _show_limits(output: Output, result: Result) -> None:
    for limits in result.get("limits", ()):
        output.say(
            f"threads {limits['threads']}: "
            f"triad {limits['triad_gbytes_per_second']:.3g} GB/s, "
            f"multiply-adds {limits['fma_gflops_per_second']:.3g} GFlop/s"
        )
