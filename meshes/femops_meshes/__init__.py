"""Meshes of segments, quadrilaterals and hexahedra."""
