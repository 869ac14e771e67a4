"""Exit codes of commands."""

INTERRUPTED = 130
"""Exit code of an interrupted command, as in shells: 128 plus the number of the signal."""
