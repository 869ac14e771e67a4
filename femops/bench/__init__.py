"""Speed, measured beside the machine's limits."""

from femops.bench.problems import PROBLEMS
from femops.bench.run import run

__all__ = ["PROBLEMS", "run"]
