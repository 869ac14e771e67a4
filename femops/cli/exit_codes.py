"""Exit codes of commands."""

INTERRUPTED = 130
"""Exit code of an interrupted command, as shells have it: 128 and the number of the signal."""
