"""Paths of solutions of nonlinear equations: by arc length, and by loads in steps."""

from femops.nonlinear.continuation import Continuation, PathPoint, continuation
from femops.nonlinear.load_steps import LoadStep, LoadSteps, load_steps

__all__ = ["Continuation", "LoadStep", "LoadSteps", "PathPoint", "continuation", "load_steps"]
