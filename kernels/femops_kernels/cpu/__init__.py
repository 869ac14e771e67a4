"""Compiled work of the host."""
