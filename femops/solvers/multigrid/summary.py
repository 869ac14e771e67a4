"""Summary of a multigrid preconditioner: an HTML table for notebooks."""

from __future__ import annotations

from typing import Any

from femops_meshes import html


def as_table(M: Any, coarsest: str) -> str:
    """HTML table that describes a `Multigrid`, whose coarsest solver has the name ``coarsest``."""
    levels = [
        (f"order {size.order}", f"{size.elements:,} elements, {size.dofs:,} dofs")
        for size in M.sizes
    ]
    rows = [
        ("shape", " x ".join(f"{n:,}" for n in M.shape)),
        *levels,
        ("coarsest level", coarsest),
        ("dofs of all levels over the finest's", f"{M.complexity:.2f}"),
        ("computes in", f"{M.precision}: {M.reason}"),
        ("relaxation", f"{M.relaxation}: {M.relaxation_reason}"),
    ]
    return html.table("Multigrid", rows)
