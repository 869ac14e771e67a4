"""Meshes made here: boxes, and round and re-entrant domains."""
