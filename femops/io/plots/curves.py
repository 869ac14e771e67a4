"""Curves on logarithmic axes, as PNG files. Needs Matplotlib, of the extra ``viz``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from femops.io.atomic import checked_path, writing
from femops.io.plots.with_matplotlib import new_figure


@final
@dataclass(frozen=True)
class Panel:
    """Pair of logarithmic axes with curves."""

    title: str
    # {label: values} of each curve. NaN stands for a missing value.
    curves: Mapping[str, Sequence[float]]
    # {label: bounds} of some curves, drawn as dashed lines in the curve's colour
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)


def curves(
    path: str | os.PathLike[str],
    x: Sequence[float],
    label: str,
    panels: Sequence[Panel],
    columns: int | None = None,
) -> Path:
    """Draw panels of curves over the same variable, to a PNG file."""
    target = checked_path(path, ".png")
    across = min(columns or len(panels), len(panels))
    down = -(-len(panels) // across)
    figure = new_figure((4.2 * across, 4.2 * down))
    for k, panel in enumerate(panels):
        axes: Any = figure.add_subplot(down, across, k + 1)
        for name, values in panel.curves.items():
            (line,) = axes.loglog(x, values, marker="o", markersize=3.5, label=name)
            if name in panel.limits:
                axes.loglog(x, panel.limits[name], linestyle="--", color=line.get_color())
        axes.set_title(panel.title, parse_math=False)  # a file may have dollar signs in its names
        axes.set_xlabel(label)
        axes.set_xticks(list(x), [f"{value:g}" for value in x])
        axes.minorticks_off()
        axes.grid(True, alpha=0.3)
    for text in figure.axes[0].legend().get_texts():
        text.set_parse_math(False)
    with writing(target) as file:
        figure.savefig(file, format="png", dpi=130)
    return target
