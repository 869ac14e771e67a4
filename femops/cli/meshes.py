"""Command ``femops mesh``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from femops.cli.options import (
    COUNT,
    NATURAL,
    JsonOption,
    MeshArgument,
    Method,
    RefineOption,
    load_mesh,
    option,
    paragraphs,
)
from femops.cli.output import Output, one_line_warnings, tell

if TYPE_CHECKING:
    from femops_meshes import Mesh, MixedMesh, Partition

app = typer.Typer(help="Look at meshes, refine, convert and partition them.", no_args_is_help=True)
_SPLIT = "Split triangles into 3 quadrilaterals, tetrahedra into 4 hexahedra, prisms into 6."
_METHOD = "Cut the order along a Hilbert curve, or let METIS look for small cuts."
_DOFS = "Count the dofs of H1 spaces of this degree too."
OutArgument = Annotated[
    Path, typer.Argument(metavar="OUT", help="A file ending in .mesh, .vtu or .png.")
]


@app.command()
@paragraphs
def info(mesh: MeshArgument, json: JsonOption = False) -> None:
    """Print the size, the geometry, the attributes and the names of a mesh.

    \b
    Examples:
      femops mesh info ball.mesh
      femops mesh info my.mesh --json
    """
    output = Output(json)
    facts = describe(load_mesh(mesh))
    output.json({"mesh": mesh, **facts})
    output.say(mesh)  # a line of its own: a path can be longer than a table is wide
    output.named("", facts)


@app.command()
@paragraphs
def refine(
    mesh: MeshArgument,
    out: OutArgument,
    times: Annotated[int, option(NATURAL, "N", "How often every element is split.")] = 1,
) -> None:
    """Split every element along each direction.

    Curved geometry stays exactly as it is.

    \b
    Examples:
      femops mesh refine ball.mesh finer.mesh
      femops mesh refine ball.mesh finest.vtu --times 2
    """
    _write(mesh, out, times)


@app.command()
@paragraphs
def convert(
    mesh: MeshArgument,
    out: OutArgument,
    split: Annotated[bool, typer.Option("--split", help=_SPLIT)] = False,
) -> None:
    """Write a mesh in another format.

    The formats are MFEM (.mesh), ParaView (.vtu), and a picture (.png). A format may lose
    information, such as names of attributes in .vtu files. Standard error lists the losses.

    \b
    Examples:
      femops mesh convert ball.mesh ball.vtu
      femops mesh convert my.mesh my.png
      femops mesh convert --split tetrahedra.msh hexahedra.mesh
    """
    _write(mesh, out, split=split)


@app.command()
@paragraphs
def partition(
    mesh: MeshArgument,
    parts: Annotated[int, option(COUNT, "N", "Number of parts.")],
    method: Annotated[Method, typer.Option(help=_METHOD)] = Method.CURVE,
    order: Annotated[int | None, option(COUNT, "N", _DOFS)] = None,
    refine: RefineOption = 0,
    json: JsonOption = False,
) -> None:
    """Partition a mesh, and print load balance and surface.

    The balance is the largest number of elements in a part over the mean. The surface of a
    part consists of the faces (edges in 2-D) where it meets other parts. Vertices, edges and
    dofs are shared if several parts touch them. The first of these parts owns them. Totals
    count shared entities once.

    \b
    Examples:
      femops mesh partition ball.mesh --parts 4 --refine 1
      femops mesh partition 32x32x32 --parts 8 --method metis --order 4
      femops mesh partition my.mesh --parts 100 --json
    """
    import femops

    output = Output(json)
    with output.working("partitioning"):
        cut = femops.partition(load_mesh(mesh, refine), parts, method.value)
    facts = describe_partition(cut, order)
    output.json({"mesh": mesh, "method": method.value, **facts})
    output.say(f"{mesh}: {parts} parts by {method.value}, balance {cut.balance:.4g}")
    headings = ("total", "least", "mean", "most")
    output.table("", [("", "left"), *((h, "right") for h in headings)], _partition_rows(facts))
    if order is not None:
        output.say(f"to exchange dofs: {facts['messages']} messages, {facts['numbers']} numbers")
    if cut.empty:
        output.say(f"{cut.empty} parts are empty: the mesh has {facts['elements']} elements")


def describe_partition(cut: Partition, order: int | None) -> dict[str, Any]:
    """Facts about a partition for JSON output. With an order also facts about H1 dofs."""
    dim = cut.shared.shape[1]
    lower = [f"shared_{kind}" for kind in ("vertices", "edges")[: dim - 1]]
    facts: dict[str, Any] = {
        "parts": cut.size,
        "empty": cut.empty,
        "balance": cut.balance,
        "elements": int(cut.total[dim]),
        "surface": int(cut.total_shared[-1]),
        **{name: int(count) for name, count in zip(lower, cut.total_shared, strict=False)},
    }
    per_part = {
        "elements": cut.elements,
        "surface": cut.shared[:, -1],
        **dict(zip(lower, cut.shared.T, strict=False)),
        "neighbours": cut.neighbours,
    }
    if order is not None:
        per_part |= {"owned_dofs": cut.owned_dofs(order), "shared_dofs": cut.shared_dofs(order)}
        facts |= {"order": order, "owned_dofs": int(per_part["owned_dofs"].sum())}
        facts["messages"], facts["numbers"] = cut.exchange(order)
    return {**facts, "per_part": {name: each.tolist() for name, each in per_part.items()}}


def _partition_rows(facts: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, each in facts["per_part"].items():
        figures = [str(min(each)), f"{sum(each) / len(each):.6g}", str(max(each))]
        rows.append([name.replace("_", " "), str(facts.get(name, "")), *figures])
    return rows


def describe(mesh: Mesh | MixedMesh) -> dict[str, Any]:
    """Facts about a mesh for JSON output."""
    import numpy as np

    import femops
    from femops.geometry.bodies import bodies, unjoined_faces
    from femops.geometry.boundary import listed_are_inner, outer_faces
    from femops_meshes import MixedMesh

    lower, upper = mesh.bounding_box()
    parts = mesh.parts
    classes = np.concatenate([femops.geometry.classify(part) for part in parts])
    mixed = isinstance(mesh, MixedMesh)
    return {
        "dimension": mesh.dim,
        "elements": mesh.num_elements,
        "cells": mesh.plural if isinstance(mesh, MixedMesh) else mesh.cell.plural,
        **{part.cell.plural: part.num_elements for part in parts if mixed},
        **{
            f"{kind.name.lower()}_elements": int(np.count_nonzero(classes == kind))
            for kind in femops.geometry.ElementClass
        },
        **({} if isinstance(mesh, MixedMesh) else _levels(mesh)),
        "geometry_degree": mesh.order,
        "vertices": mesh.num_vertices,
        "outer_faces": sum(len(outer_faces(part)) for part in parts),
        "boundary_faces": mesh.num_boundary,
        "boundary_faces_inside": sum(int(listed_are_inner(part).sum()) for part in parts),
        "bodies": int(bodies(mesh).max(initial=-1)) + 1,
        "unjoined_faces": unjoined_faces(mesh),
        "element_attributes": np.unique(mesh.element_attributes).tolist(),
        "boundary_attributes": np.unique(mesh.boundary_attributes).tolist(),
        "element_names": {name: list(group) for name, group in mesh.element_names.items()},
        "boundary_names": {name: list(group) for name, group in mesh.boundary_names.items()},
        "volume": mesh.volume(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "continuous": mesh.continuous,
    }


def _levels(mesh: Mesh) -> dict[str, Any]:
    """Number of elements of each level of a locally refined mesh, and whether none hangs."""
    if mesh.forest is None:
        return {}
    import numpy as np

    return {"levels": np.bincount(mesh.forest.level).tolist(), "conforming": mesh.conforming}


def _write(name: str, out: Path, times: int = 0, *, split: bool = False) -> None:
    import femops
    from femops.io.atomic import check_writable, checked_path
    from femops.io.mesh_files import not_kept

    if out.suffix not in (".mesh", ".vtu", ".png"):
        raise typer.BadParameter(f"'{out}' must end in .mesh, .vtu or .png")
    check_writable(checked_path(out, out.suffix))  # or the mesh would be read in vain
    with one_line_warnings():
        mesh = load_mesh(name, times, split=split)
        if out.suffix == ".png":
            femops.io.picture(out, mesh)
        else:
            femops.save(out, mesh)
        for lost in not_kept(mesh, out.suffix):
            tell(f"note: {out} does not keep {lost}")
        Output().say(f"wrote {out}: {mesh.num_elements} elements")
