"""Gmsh's mesh files."""
