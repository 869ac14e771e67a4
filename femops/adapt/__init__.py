"""Adaptive meshes: estimates of errors, marks of elements, transfer of fields, and the loop."""

from femops.adapt.goals import goal
from femops.adapt.loop import Estimate, change, loop
from femops.adapt.marking import mark
from femops.adapt.recovery import recovered
from femops.adapt.residuals import residual
from femops.adapt.transfer import transfer

__all__ = [
    "Estimate",
    "change",
    "goal",
    "loop",
    "mark",
    "recovered",
    "residual",
    "transfer",
]
