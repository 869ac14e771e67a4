"""Command ``femops cost``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from femops.cli.options import COUNT, JsonOption, PngOption, numbers, option, whole_number
from femops.cli.output import Output, check_files, one_line_warnings, quantity

Form = StrEnum("Form", ["MASS", "DIFFUSION", "CONVECTION", "ELASTICITY"])
Form.__doc__ = "Forms for which the command can make its table."

NAMES = {"flops_assembly": "assembly", "flops_apply": "application", "stored_bytes": "stored"}
_Q1D = "Quadrature points per direction: p1d (= p + 1), p1d+1, ..."


def cost(
    form: Annotated[Form, typer.Argument(help="The integral.")],
    dim: Annotated[int, option(whole_number(1, 3), "D", "Dimensions.")] = 3,
    order: Annotated[str, option(None, "LIST", "Polynomial degrees: 2-10 or 2,4,6.")] = "2-6",
    q1d: Annotated[str, option(None, "Q", _Q1D)] = "p1d",
    elements: Annotated[int, option(COUNT, "N", "Elements per direction.")] = 2,
    plot: PngOption = None,
    json: JsonOption = False,
) -> None:
    """Print what each level of assembly costs as the order grows.

    The floating-point operations of assembly and of one application are counted. Stored bytes and
    the seconds of an application are measured. Below stand their exponents of growth in p + 1,
    beside those of Table 1 of the tensor report. Two rows are not femops' own. At "full" element
    matrices are formed naively. "decomposed" stores dense bases, one for all elements, and NumPy
    applies it. The mesh is isoparametric: as curved as the order allows.

    \b
    Examples:
      femops cost mass --dim 3 --order 2-10
      femops cost diffusion --dim 2 --order 2-12 --q1d p1d+1 --plot cost.png
      femops cost elasticity --order 1-4 --json
    """
    orders, more = numbers(order), _more(q1d)
    from femops.bench.cost import expected, table

    check_files((plot, ".png"))
    output = Output(json)
    with one_line_warnings(), output.working(f"counting {form.value}") as show:
        result = table(form.value, dim, orders, more=more, elements=elements, progress=show)
    output.json(result)
    right = "right"
    columns = [("level", "left"), ("p", right), ("assembly", right), ("application", right)]
    columns += [("stored", right), ("seconds", right)]
    output.table(f"{form.value}, {dim}-D, q1d = {q1d}", columns, _lines(result["rows"]))
    output.table(
        "Growth in p1d, and what Table 1 says",
        [("level", "left"), *((name, right) for name in NAMES.values())],
        _exponents(result["exponents"], expected(dim)),
    )
    if plot is not None:
        _draw(plot, orders, result["rows"])


def _more(text: str) -> int:
    match = re.fullmatch(r"p1d(?:\+([0-9]{1,2}))?", text.replace(" ", ""))
    if match is None:
        wrong = f"'{text}' is no number of points: write p1d, p1d+1, ..."
        raise typer.BadParameter(wrong, param_hint="--q1d")
    return int(match[1] or 0)


def _lines(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            row["level"],
            str(row["order"]),
            quantity(row["flops_assembly"], "flop"),
            quantity(row["flops_apply"], "flop"),
            quantity(row["stored_bytes"], "B"),
            f"{1e3 * row['seconds']:.3g} ms",
        ]
        for row in sorted(rows, key=lambda row: row["order"])
    ]


def _exponents(fitted: dict[str, Any], table: dict[str, Any]) -> list[list[str]]:
    return [
        [
            level,
            *("-" if v is None else f"{v:z.2f} ({table[level][name]})" for name, v in of.items()),
        ]
        for level, of in fitted.items()
    ]


def _draw(path: str, orders: Sequence[int], rows: Sequence[dict[str, Any]]) -> None:
    from femops.io.plots.curves import Panel, curves

    levels = list(dict.fromkeys(row["level"] for row in rows))
    titles = {**NAMES, "seconds": "seconds of an application"}
    titles["flops_assembly"] = "flops of assembly"
    titles["flops_apply"] = "flops of an application"
    titles["stored_bytes"] = "stored bytes"
    panels = [
        Panel(title, {level: [r[name] for r in rows if r["level"] == level] for level in levels})
        for name, title in titles.items()
    ]
    curves(path, [p + 1.0 for p in orders], "p1d", panels)
