"""Operators, which work with the solvers of SciPy and femops."""

from femops.operators.complex_operator import ComplexOperator
from femops.operators.functional import Functional
from femops.operators.integrals.history import History
from femops.operators.integrals.materials import by_attribute
from femops.operators.levels.level_data import Cost
from femops.operators.operator import Operator
from femops.operators.residual import Residual

__all__ = [
    "ComplexOperator",
    "Cost",
    "Functional",
    "History",
    "Operator",
    "Residual",
    "by_attribute",
]
