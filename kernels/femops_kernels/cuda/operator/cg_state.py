"""State of a solve on a device: the entries of the host's state, and further entries."""

from __future__ import annotations

from femops_kernels.skeletons.cg import cg_state

_HOSTS = (
    *("ITERATIONS", "RHO", "RESIDUAL", "STATUS", "DROP", "FAR", "BETA", "GOAL", "LIMIT", "NATURAL"),
    *("CONVERGED", "BREAKDOWN", "S_RHO", "S_RR", "S_PV", "S_RV", "S_VV", "S_RMV", "S_VMV", "NSUMS"),
)
STOPPED, BEHIND = cg_state.STATE_SIZE, cg_state.STATE_SIZE + 1
"""Entries: 1 after the end of the solve; factor of an update x += BEHIND * (last p) that is due."""

SUMS = cg_state.STATE_SIZE + 2
"""First entry of the sums over a rank's part of the vectors, used with many ranks."""

DEVICE_STATE = SUMS + cg_state.NSUMS
"""Number of entries of the state."""

STATE_CONSTANTS: dict[str, int] = {
    **{name: getattr(cg_state, name) for name in _HOSTS},
    "STOPPED": STOPPED,
    "BEHIND": BEHIND,
    "SUMS": SUMS,
}
"""Constants of ``cg_state.cuh``."""
