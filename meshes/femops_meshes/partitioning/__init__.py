"""Ownership of elements by ranks, and the part of a mesh that a rank holds."""
