"""Expressions of forms: the graph, its operations, derivatives, and tests of equality."""
