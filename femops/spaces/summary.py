"""Summaries of a space: one line of text, and an HTML table for notebooks."""

from typing import Any

from femops_meshes import html


def one_line(space: Any) -> str:
    """One line of text that describes a space, its ``repr``."""
    comm = space.comm
    whole = f", of {space.global_ndofs} on {comm.size} ranks" if comm.size > 1 else ""
    return (
        f"{type(space).__name__}(order={space.order}, ncomp={space.ncomp}, "
        f"family={space.basis.family!r}: {space.mesh.num_elements} elements in {space.dim}-D, "
        f"{space.ndofs} dofs{whole})"
    )


def field_table(field: Any) -> str:
    """HTML table that describes a GridFunction."""
    space, vector = field.space, field.vector
    rows = [("space", repr(space)), ("type", str(vector.dtype))]
    if space.size:
        values = space.components(vector)
        columns = zip(values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
        ranges = [f"{low:.6g} to {high:.6g}" for low, high in columns]
        rows.append(
            (
                "nodal values" if space.basis.is_nodal else "coefficients",
                ", ".join(ranges),
            )
        )
    return html.table("GridFunction", rows)


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
