"""Table of how the elements behind faces lie, as kernels read it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cpu.plan import Plan
from femops_kernels.simd.runs import DofRuns


def turn_table(turns: NDArray[np.int64] | None, plan: Plan) -> NDArray[np.int64] | int:
    """Entries (nbatch, 7 + 5 * width) that ``batch/face_nodes.py`` reads; 0 without ``turns``.

    Where all elements of a batch lie alike, their strides are its strides. Else the batch has those
    of elements that are turned to the face, and each slot has its own.
    """
    if turns is None:
        return 0
    width, runs = plan.width, plan.runs
    slots = -(-len(turns) // width) * width
    each = np.concatenate([turns, np.repeat(turns[-1:], slots - len(turns), axis=0)])
    inwards = _direction(np.abs(each[:, 3]), runs)
    steps, apart = np.zeros_like(inwards), np.zeros(slots, dtype=np.bool_)
    mixed = _differ(each.reshape(-1, width, 4))
    packed = each
    if runs.layers:
        apart = _copied(plan)
        each, packed, steps = _layer_turns(each, inwards, apart, runs)
    first, second = (runs.p1d if runs.dim > d else 1 for d in (1, 2))  # nodes along the face
    turned = np.array([0, 1, first, first * second])
    strides = np.where(mixed[:, np.newaxis], turned, packed[::width])
    some = np.any(apart.reshape(-1, width), axis=1)
    words = mixed[:, np.newaxis], strides, inwards[::width, np.newaxis], some[:, np.newaxis]
    by_slot = each.reshape(len(mixed), -1), steps.reshape(len(mixed), -1)
    return np.concatenate([*words, *by_slot], axis=1)


def _differ(each: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for each batch (nbatch,) whose elements lie differently; (nbatch, width, 4) turns."""
    return np.asarray(np.any(each != each[:, :1], axis=(1, 2)))


def _direction(stride: NDArray[np.int64], runs: DofRuns) -> NDArray[np.int64]:
    """Direction (n,) of an element in which its nodes have a stride (n,)."""
    return np.searchsorted(runs.p1d ** np.arange(1, runs.dim), stride, side="right")


def _copied(plan: Plan) -> NDArray[np.bool_]:
    """True for each slot (nbatch * width,) whose run is a copy, or that belongs to no element."""
    owned = np.repeat(np.diff(plan.owned_start), np.diff(plan.first_batch))
    return np.asarray((plan.starts[:, 0] >= owned[:, np.newaxis]).reshape(-1))


def _layer_turns(
    turns: NDArray[np.int64],
    inwards: NDArray[np.int64],
    copied: NDArray[np.bool_],
    runs: DofRuns,
) -> tuple[NDArray[np.int64], ...]:
    """Turns (n, 4) of the layers that are read: in memory, and where they are read to.

    Nodes count from the first one of the layers. Copies have no other nodes between them, and
    neither have the lane vectors. The third result are the steps (n,) between blocks in memory.
    """
    p, dim, layers = runs.p1d, runs.dim, runs.layers
    dense = turns.copy()
    for d in range(dim):  # strides of directions above the one inwards are shorter
        below = p**d
        shorter = below // p * layers if d else below
        here = (np.abs(turns[:, 1:]) == below) & (d > inwards)[:, np.newaxis]
        dense[:, 1:] = np.where(here, np.sign(turns[:, 1:]) * shorter, dense[:, 1:])
    lengths = [p if dim > 1 else 1, p if dim > 2 else 1, layers]
    for each in (turns, dense):
        each[:, 0] = -sum(np.minimum(0, each[:, k + 1]) * (lengths[k] - 1) for k in range(3))
    in_memory = np.where(copied[:, np.newaxis], dense, turns)
    steps = np.where(copied, layers * p**inwards, p ** (inwards + 1))
    return in_memory, dense, steps
