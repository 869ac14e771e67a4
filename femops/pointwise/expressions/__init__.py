"""Expressions of forms: the graph, its operations, and what is decided on it."""
