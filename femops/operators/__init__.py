"""Operators: what SciPy's solvers and ours take."""

from femops.operators.coefficients import GridFunction
from femops.operators.operator import Cost, Operator

__all__ = ["Cost", "GridFunction", "Operator"]
