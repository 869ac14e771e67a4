"""Warnings of solvers and estimates, which rank 0 issues."""

from __future__ import annotations

import sys
import warnings

from femops.errors import ConvergenceWarning
from femops.parallel.comm import Communicator, check

_PACKAGES = frozenset({"femops", "femops_kernels", "femops_meshes", "femops_common"})


def warn_on_first_rank(
    text: str, comm: Communicator, category: type[UserWarning] = ConvergenceWarning
) -> None:
    """Issue a warning on rank 0, at the line of the user's program. Collective."""
    with check(comm):  # a warning may be an error
        if comm.rank == 0:
            warnings.warn(text, category, stacklevel=_user_level())


def _user_level() -> int:
    """Value of ``stacklevel`` with which a warning points to the user's line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in _PACKAGES:
        frame, level = frame.f_back, level + 1
    return level
