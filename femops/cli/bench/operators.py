"""Commands ``femops bench bp1`` to ``bp6``, ``all`` and ``cg``: operators on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from femops.cli.bench.report import (
    DofsOption,
    FootprintOption,
    LevelOption,
    Measure,
    MeshesOption,
    OrdersOption,
    PeersOption,
    RoundsOption,
    benchmark,
    check_one_size,
    dofs_of,
    limit_lines,
)
from femops.cli.options import ThreadsOption, name_list
from femops.cli.output import Column, columns

PROBLEMS = {
    "bp1": "the mass operator",
    "bp2": "the vector mass operator",
    "bp3": "the diffusion operator",
    "bp4": "the vector diffusion operator",
    "bp5": "the collocated diffusion operator",
    "bp6": "the collocated vector diffusion operator",
}
"""CEED's bake-off problems, with the text about each."""

ORDERS, MESHES = "1-8", "cartesian,multilinear,curved"


def _level(row: dict[str, Any]) -> str:
    if row["implementation"] != "femops":
        return str(row["implementation"])
    return f"{row['level']} (auto)" if row["asked"] == "auto" else str(row["level"])


def _by_dof(heading: str, name: str) -> Column:
    return Column(heading, lambda row: row[f"seconds_{name}"] / row["dofs"], ".2f", 1e9)


_SPEED = "dofs; threads; ms: seconds_median .3g 1e3; Mdofs/s: dofs_per_second .4g 1e-6"
OPERATORS = (
    *columns("problem; mesh"),
    Column("level", _level),
    *columns(f"p: order; q: q1d; {_SPEED}; limit: limit .4g 1e-6; of it: fraction_of_limit .0%"),
    *columns("of FMA: fraction_of_fma_peak .0%; B/dof: bytes_per_dof .3g"),
    *columns("least: least_bytes_per_dof .3g"),
)
AUTO = columns("problem; mesh; chosen; best; p: order; dofs; threads; slower by: loss .1%")
CG = (
    *columns("mesh; level; p: order; dofs; threads"),
    *(_by_dof(name, name) for name in ("apart", "merged", "operator")),
    *columns("ratio: ratio .2f; by bytes: ratio_by_bytes .2f"),
    *(_by_dof("saved", "saved"), _by_dof("by bytes", "saved_by_bytes")),
)
_TABLES = ("", "rows", OPERATORS), ("Level auto beside the best of all levels", "auto", AUTO)
_SHOWN: dict[str, Any] = {"lines": limit_lines, "picture": "operators"}
_CG_TITLE = "An iteration in ns a dof: vector updates apart, and in the operator's sweep"

_HELP = """Measure the speed of {what}.

    The limits of this machine, measured in the same rounds, stand beside the speeds. A limit is the
    time of the least bytes of any level at the bandwidth for that mix of reads and writes, or of
    the operations at the rate of multiply-adds. Median times are in ms, speeds and limits in
    millions of dofs a second.

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
    """Return the command for a benchmark problem."""

    def command(
        order: OrdersOption = ORDERS,
        footprint: FootprintOption = None,
        dofs: DofsOption = None,
        mesh: MeshesOption = MESHES,
        level: Annotated[Any, name_list("Levels side by side; all of them: all.")] = "auto",
        threads: ThreadsOption = None,
        rounds: RoundsOption = 5,
        peers: PeersOption = False,
    ) -> Measure:
        check_one_size(dofs, footprint)
        from femops import bench
        from femops.operators.levels.dispatch import LEVELS

        levels = ("auto", *LEVELS) if level == ["all"] else level
        often: dict[str, Any] = {"meshes": mesh, "levels": levels, "rounds": rounds}
        often |= {"footprint": footprint or "ram", "peers": _peers(peers)}
        return partial(bench.run, problem, order, dofs, threads, **often)

    command.__doc__ = _HELP.format(problem=problem, what=what)
    return benchmark(problem, *_TABLES, **_SHOWN)(command)


@benchmark("all", *_TABLES, **_SHOWN)
def all_problems(
    order: OrdersOption = ORDERS,
    threads: ThreadsOption = None,
    rounds: RoundsOption = 3,
    peers: PeersOption = False,
) -> Measure:
    """Measure bp1 to bp6 on every mesh, in and out of cache, on one core and on all.

    At p = 1 all levels are measured on one core. It takes some 15 minutes.

    \b
    Examples:
      femops bench all --json --plot
      femops bench all --order 2,4 --threads 1 --plot all.png
    """
    from femops import bench

    return partial(bench.run_all, order, threads, peers=_peers(peers), rounds=rounds)


@benchmark("cg", (_CG_TITLE, "rows", CG), lines=limit_lines, picture="cg")
def cg(
    order: OrdersOption = ORDERS,
    footprint: FootprintOption = None,
    dofs: DofsOption = None,
    mesh: MeshesOption = MESHES,
    level: LevelOption = "auto",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure conjugate gradients on bp1, with vector updates merged into the sweep or separate.

    \b
    Examples:
      femops bench cg --order 3,6 --threads 1 --mesh cartesian,multilinear
      femops bench cg --order 1-8 --footprint cache --plot cg.png
    """
    from femops import bench

    often: dict[str, Any] = {"meshes": mesh, "level": level, "rounds": rounds}
    return partial(bench.run_cg, order, dofs_of(dofs, footprint), threads, **often)


def _peers(wanted: bool) -> tuple[str, ...]:
    from femops.bench.peers.interface import PEERS

    return PEERS if wanted else ()
