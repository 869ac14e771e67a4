"""Physics at one quadrature point: traced, differentiated, cut and printed."""

from femops.pointwise.cut import Cut, Known, linear_cut, nonlinear_cut
from femops.pointwise.linear import LinearStep
from femops.pointwise.program import Program, fuse
from femops.pointwise.trace import CoefficientShape, Trace, trace

__all__ = [
    "CoefficientShape",
    "Cut",
    "Known",
    "LinearStep",
    "Program",
    "Trace",
    "fuse",
    "linear_cut",
    "nonlinear_cut",
    "trace",
]
