"""Makers of problems. A problem's module is imported when the problem is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from femops.cli.problems.base import Problem
    from femops.cli.problems.manufactured import AnyMesh

Make = Callable[["AnyMesh", int, str], "Problem"]
"""Makes a problem from mesh, order and level. The other parameters of the class are bound."""
