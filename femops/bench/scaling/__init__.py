"""Benchmark of scaling: operators on one rank and on many."""

from femops.bench.scaling.study import MEMORY_RANKS, Settings, run_scaling

__all__ = ["MEMORY_RANKS", "Settings", "run_scaling"]
