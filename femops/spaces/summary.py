"""Summaries of a space: one line of text, and an HTML table for notebooks."""

from typing import Any

from femops_meshes import html


def one_line(space: Any) -> str:
    """One line of text that describes a space, its ``repr``."""
    return (
        f"{type(space).__name__}(order={space.order}, ncomp={space.ncomp}, "
        f"family={space.basis.family!r}: {space.mesh.num_elements} elements in {space.dim}-D, "
        f"{space.ndofs} dofs)"
    )


def as_table(space: Any) -> str:
    """HTML table that describes a space."""
    shape = ("segments", "quadrilaterals", "hexahedra")[space.dim - 1]
    rows = [
        ("order", f"{space.order}, basis {space.basis.family}"),
        ("mesh", f"{space.mesh.num_elements} {shape} of degree {space.mesh.order}"),
        ("dofs", f"{space.ndofs:,} of {space.ncomp} component(s): vectors of {space.size:,}"),
        ("vectors on", space.memory.name),
    ]
    if space.comm.size > 1:
        rows.append(("ranks", f"{space.comm.size}, of all {space.global_ndofs:,} dofs"))
    return html.table(f"{type(space).__name__} space", rows)
