"""The state of a solve on a device: what the host's has, and the places of what only it has."""

from __future__ import annotations

from femops_kernels.skeletons.cg import cg_state

_HOSTS = (
    *("ITERATIONS", "RHO", "RESIDUAL", "STATUS", "DROP", "FAR", "BETA", "GOAL", "LIMIT", "NATURAL"),
    *("CONVERGED", "BREAKDOWN", "S_RHO", "S_RR", "S_PV", "S_RV", "S_VV", "S_RMV", "S_VMV", "NSUMS"),
)
STOPPED, BEHIND = cg_state.STATE_SIZE, cg_state.STATE_SIZE + 1
"""The end has come; x += BEHIND times the p before is due beside the rest."""

SUMS = cg_state.STATE_SIZE + 2
"""Sums over a rank's entries, where there are many ranks."""

DEVICE_STATE = SUMS + cg_state.NSUMS
"""Size of the state."""

STATE_CONSTANTS: dict[str, int] = {
    **{name: getattr(cg_state, name) for name in _HOSTS},
    "STOPPED": STOPPED,
    "BEHIND": BEHIND,
    "SUMS": SUMS,
}
"""Constants of ``cg_state.cuh``."""
