"""Vertices, edges and faces, how elements see them, and the order of elements."""
