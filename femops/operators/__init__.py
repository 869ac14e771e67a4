"""Operators, as SciPy's solvers and femops' own take them."""

from femops.operators.block import BlockOperator
from femops.operators.coupled import CoupledForm
from femops.operators.integrals.materials import by_attribute
from femops.operators.levels.cost import Cost
from femops.operators.nonlinear import NonlinearForm
from femops.operators.operator import Operator

__all__ = ["BlockOperator", "Cost", "CoupledForm", "NonlinearForm", "Operator", "by_attribute"]
