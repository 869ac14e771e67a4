"""Generators of meshes: boxes, and round and re-entrant domains."""
