"""Sources of compiled work of multigrid methods."""
