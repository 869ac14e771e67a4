"""Sources of compiled sequences of operations."""
