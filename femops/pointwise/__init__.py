"""What a form does at one quadrature point: traced, differentiated, cut and printed."""

from femops.pointwise.cut import Cut, LinearStep
from femops.pointwise.program import Program, fuse
from femops.pointwise.trace import CoefficientShape, Trace, trace

__all__ = ["CoefficientShape", "Cut", "LinearStep", "Program", "Trace", "fuse", "trace"]
