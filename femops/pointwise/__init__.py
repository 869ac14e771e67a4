"""Physics at one quadrature point: trace, derivative, data split, and printed q-function."""

from femops.pointwise.linear import LinearQFunction
from femops.pointwise.qdata_split import Known, QDataSplit, linear_split, nonlinear_split
from femops.pointwise.qfunction import QFunction, fuse
from femops.pointwise.trace import CoefficientShape, Trace, trace

__all__ = [
    "CoefficientShape",
    "Known",
    "LinearQFunction",
    "QDataSplit",
    "QFunction",
    "Trace",
    "fuse",
    "linear_split",
    "nonlinear_split",
    "trace",
]
