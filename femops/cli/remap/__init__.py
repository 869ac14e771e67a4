"""Command ``femops remap``: options, runs, and the published runs of Remhos."""
