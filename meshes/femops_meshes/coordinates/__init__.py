"""Nodes of elements: interpolation and the maps from the reference element."""
