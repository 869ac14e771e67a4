"""``femops bench scaling``: its options, tables and pictures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from femops.cli.options import names, numbers, positive
from femops.cli.output import Output, quantity

RanksOption = Annotated[
    str | None,
    typer.Option(
        metavar="N,N",
        help="scaling: numbers of ranks (default: 1,2). With more than there are cores messages "
        "are counted and nothing is timed.",
    ),
]
ProblemsOption = Annotated[
    str | None,
    typer.Option(
        "--problem", metavar="NAMES", help="scaling, gpu: of bp1 to bp6 (default: bp1,bp3; all)."
    ),
]
WeakOption = Annotated[bool, typer.Option("--weak", help="scaling: --dofs are of each rank.")]
MemoryOption = Annotated[
    bool, typer.Option("--memory", help="scaling: memory on 1, 2, 4 and 8 ranks.")
]
ModelOption = Annotated[
    bool, typer.Option("--model", help="scaling: predict it up to 100,000 ranks.")
]
LatencyOption = Annotated[
    float | None,
    typer.Option(parser=positive, metavar="S", help="Of the model's messages; else measured."),
]
BandwidthOption = Annotated[
    float | None,
    typer.Option(parser=positive, metavar="B/S", help="Of the model's messages; else measured."),
]

HEADINGS = (
    *("problem", "mesh", "level", "p", "dofs", "ranks", "ms", "Mdofs/s", "speed-up", "efficiency"),
    *("wait, ms", "no overlap", "messages", "kB", "least"),
)
MEMORY_HEADINGS = ("problem", "mesh", "ranks", "MB a rank", "all", "of 1/ranks")
MODEL_HEADINGS = ("ranks", "elements", "ms", "efficiency", "wait, ms", "no overlap", "halo")


def measured(orders: list[int], given: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """Run the study.

    Parameters
    ----------
    orders : list of int
        One.
    given : dict
        What options say; None where they do not.
    common : dict
        ``progress``, and ``rounds`` if given.

    Raises
    ------
    typer.BadParameter
        Options that do not go together.
    """
    from femops.bench import FOOTPRINTS
    from femops.bench.problems import check_names
    from femops.bench.scaling import MEMORY_RANKS, Settings, run_scaling

    if len(orders) != 1:
        raise typer.BadParameter("'bench scaling' takes one --order")
    if given["dofs"] is not None and given["footprint"] is not None:
        raise typer.BadParameter("give --dofs or --footprint, not both")
    if given["model"] is None and (given["latency"], given["bandwidth"]) != (None, None):
        raise typer.BadParameter("--latency and --bandwidth are the model's: add --model")
    footprint = given["footprint"] or "ram"
    check_names((), (), (footprint,))
    asked: dict[str, Any] = {"order": orders[0], "dofs": given["dofs"] or FOOTPRINTS[footprint]}
    asked["weak"] = bool(given["weak"])
    if given["ranks"] is not None:
        asked["ranks"] = numbers(given["ranks"], "numbers of ranks")
    for option, name in (("problem", "problems"), ("mesh", "meshes")):
        if given[option] is not None:
            asked[name] = names(given[option])
    if given["level"] is not None:
        asked["level"] = given["level"]
    settings = Settings(**asked, **{k: v for k, v in common.items() if k == "rounds"})
    return run_scaling(
        settings,
        model=bool(given["model"]),
        latency=given["latency"],
        bandwidth=given["bandwidth"],
        memory_ranks=MEMORY_RANKS if given["memory"] else (),
        progress=common["progress"],
    )


def draw(path: str, result: dict[str, Any]) -> None:
    """Draw the model with what was measured, if there is one, else the speed over the ranks."""
    from femops.bench.scaling import draw_model, draw_speedup

    if result["model"]:
        draw_model(path, result["model"], result["rows"])
    elif any(row["timed"] for row in result["rows"]):
        draw_speedup(path, result["rows"])


def show(output: Output, result: dict[str, Any]) -> None:
    """Print tables."""
    words = ("left",) * 3 + ("right",) * len(HEADINGS[3:])
    columns = list(zip(HEADINGS, words, strict=True))
    output.table("", columns, [_row(row) for row in result["rows"]])
    if result["memory"]:
        columns = [(name, "left" if k < 2 else "right") for k, name in enumerate(MEMORY_HEADINGS)]
        title = "Memory of mesh, space and operator, at its peak"
        output.table(title, columns, [_memory_row(row) for row in result["memory"]])
    for table in result["model"]:
        _show_model(output, table)


def _show_model(output: Output, table: dict[str, Any]) -> None:
    columns = [(name, "right") for name in MODEL_HEADINGS]
    name = f"Model of {table['problem']}, {table['mesh']}"
    links = f"{1e6 * table['latency']:.3g} us, {quantity(table['bandwidth'], 'B/s')}"
    kinds = [(f"strong, {each['dofs']:.3g} dofs", each["rows"]) for each in table["strong"]]
    kinds.append((f"weak, {table['strong'][0]['dofs']:.3g} dofs a rank", table["weak"]))
    for kind, rows in kinds:
        output.table(f"{name}: {kind}; {links}", columns, [_model_row(row) for row in rows])


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3g}"


def _row(row: dict[str, Any]) -> list[str]:
    timed, least = row["timed"], row["least_bytes"]
    return [
        *(row["problem"], row["mesh"], row["level"], str(row["order"])),
        *(str(row["dofs"]), str(row["ranks"]), _ms(row["seconds"])),
        f"{row['dofs_per_second'] / 1e6:.4g}" if timed else "-",
        f"{row['speedup']:.3f}" if timed else "-",
        f"{row['efficiency']:.1%}" if timed else "-",
        *(_ms(row["wait"]), _ms(row["wait_without_overlap"])),
        *(f"{row['messages']:g}", f"{row['bytes'] / 1e3:.4g}"),
        "-" if least is None else f"{least / 1e3:.4g}",
    ]


def _memory_row(row: dict[str, Any]) -> list[str]:
    return [
        *(row["problem"], row["mesh"], str(row["ranks"])),
        *(f"{row['bytes'] / 1e6:.4g}", f"{row['sum'] / 1e6:.4g}", f"{row['times_share']:.2f}"),
    ]


def _model_row(row: dict[str, Any]) -> list[str]:
    return [
        *(str(row["ranks"]), str(row["elements"]), _ms(row["seconds"])),
        f"{row['efficiency']:.1%}",
        *(_ms(row["wait"]), _ms(row["wait_without_overlap"]), row["halo"]),
    ]
