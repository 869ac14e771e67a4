"""How a mesh is printed."""

from typing import TYPE_CHECKING

from femops_meshes.names import listing

if TYPE_CHECKING:
    from femops_meshes.mesh import Mesh


def table(mesh: "Mesh") -> str:
    """A small table of what the mesh holds."""
    lower, upper = mesh.bounding_box()
    shape = ("segments", "quadrilaterals", "hexahedra")[mesh.dim - 1]
    spans = " x ".join(f"[{a:.6g}, {b:.6g}]" for a, b in zip(lower, upper, strict=True))
    if not mesh.num_elements:
        spans = "nothing"
    inside = listing(mesh.element_attributes, mesh.element_names)
    outside = listing(mesh.boundary_attributes, mesh.boundary_names)
    rows = [
        ("elements", f"{mesh.num_elements} {shape}, attributes {inside}"),
        ("boundary", f"{mesh.num_boundary} faces, attributes {outside}"),
        ("vertices", f"{mesh.num_vertices}"),
        ("geometry", f"degree {mesh.order}, in {spans}"),
    ]
    return "Mesh\n" + "\n".join(f"  {name:<9} {value}" for name, value in rows)
