"""Numbers of dofs, by compiled code: those of the nodes of elements, and those of chunks.

``skeletons/chunk/numbering.py`` is the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.simd.runs import DofRuns

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]

_TOGETHER = 512  # elements that a thread works on at a time
PARALLEL_ENTRIES = 2**15
"""Entries of a table from which several threads work on it."""


@final
@dataclass(frozen=True)
class EntityNodes:
    """Nodes of an element that are inside one of its entities.

    Attributes
    ----------
    code : int
        Column of the entity in tables of elements.
    offset : int
        Number of the first entity of the same dimension.
    nodes : (n,) int64
    orders : (k, k, n) int64
        Place of each node's dof among those of the entity, if an element with the first orientation
        orders the dofs, and the nodes are those of an element with the second. With k = 1 elements
        do not turn it.
    """

    code: int
    offset: int
    nodes: Ints
    orders: Ints

    def row(self, node: int, order: int) -> tuple[int, ...]:
        """Row of the kernel's table. Its lists end at ``node`` and ``order`` in those of all."""
        first, begin = node - self.nodes.size, order - self.orders.size
        turns = len(self.orders) if len(self.orders) > 1 else 0
        return self.code, self.offset, first, self.nodes.size, turns, begin


@cache
def _compiled() -> CompiledKernel:
    return specialize(("numbering",), {"TOGETHER": _TOGETHER})


def _team(table: Ints) -> int:
    """Address of the threads that fill a table, or read it."""
    return machine.team_of(1 if table.size < PARALLEL_ENTRIES else machine.get_threads())


def node_dofs(
    entities: Sequence[EntityNodes],
    elements: Ints,
    turned: Codes,
    starts: Ints,
    seen: Codes,
    width: int,
) -> Ints:
    """Dofs (ne, width) of the nodes of elements, if those of each entity are consecutive.

    Parameters
    ----------
    entities : sequence of EntityNodes
        The entities of an element that have nodes.
    elements : (ne, n) int64
        Entities of elements, which count from zero in each dimension.
    turned : (ne, n) uint8
        How elements see their entities.
    starts : (k,) int64
        First dof of each entity.
    seen : (k,) uint8
        How the element sees an entity that orders its dofs.
    width : int
        Number of nodes of an element.
    """
    dofs = np.empty((len(elements), width), dtype=np.int64)
    nodes, orders = (
        [vars(each)[name].ravel() for each in entities] for name in ("nodes", "orders")
    )
    lists = [np.concatenate(parts) for parts in (nodes, orders)]
    ends = [np.cumsum([part.size for part in parts]) for parts in (nodes, orders)]
    rows = np.array([each.row(*places) for each, *places in zip(entities, *ends, strict=True)])
    sizes = np.array([*dofs.shape, elements.shape[1]], dtype=np.int64)
    given = [np.ascontiguousarray(a) for a in (elements, sizes, turned, starts, seen, *lists)]
    with LAUNCH:
        addresses = [table.ctypes.data for table in (*given, dofs)]
        _compiled().fill_nodes(_team(dofs), rows.ctypes.data, len(rows), *addresses)
    return dofs


def set_local_numbers(
    indices: Ints, element_start: Ints, owned_start: Ints, runs: DofRuns, local: Ints
) -> None:
    """Set ``local`` to the number of each run's first dof among those that its chunk owns.

    The number is negative for the runs that a chunk copies: those of dofs that another chunk owns,
    and those whose dofs do not follow each other. Layers of an element are read where they are, or
    are copied without the nodes between. Their dofs need not follow each other.

    Parameters
    ----------
    indices : (ne, n) int64
        Dofs of each element's nodes. Those of an element lie side by side.
    element_start, owned_start : (nchunks + 1,) int64
        First element of each chunk, and first dof that it owns.
    runs : DofRuns
    local : (ne, runs) int64
        C-contiguous.
    """
    sizes = [0, *accumulate(nodes.size for nodes in runs.nodes)]
    lists = element_start, owned_start, sizes, np.concatenate(runs.nodes)
    given = [np.ascontiguousarray(a, dtype=np.int64) for a in lists]
    stride = indices.strides[0] // indices.itemsize
    sides = len(element_start) - 1, indices.ctypes.data, stride, len(runs.nodes), not runs.layers
    with LAUNCH:
        addresses = [table.ctypes.data for table in (*given, local)]
        _compiled().local_numbers(_team(indices), *sides, *addresses)
