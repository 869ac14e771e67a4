"""Functions of a space on elements or boundary faces: the interface for integrals and sweeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Basis1D, Quadrature1D, Rule
from femops.element import Element, Grid, TensorElement
from femops.errors import SpaceError
from femops.geometry.domain import Domain
from femops.parallel.halo import Halo
from femops.parallel.numbering import RankNumbering
from femops.spaces.memory import Memory
from femops.spaces.restriction import ElementRestriction
from femops_kernels.device import Device
from femops_meshes.coordinates import simplices


class DomainSpace(ABC):
    """Functions of a space on the elements of a domain. Their vectors are vectors of the space.

    Attributes
    ----------
    domain : Domain
        Elements, or faces of the boundary.
    restriction : ElementRestriction
        Map between the space's nodes and the nodes of the domain's elements.
    dim : int
        Number of directions of an element's nodes.
    element : Element
    order : int
        Highest degree in a direction.
    ncomp, ndofs, size : int
        Number of components, number of nodes, and length of a vector.
    shape : (size,)
    memory : Memory
        Memory that stores the vectors.
    numbering : RankNumbering or None
        Global numbers of the dofs of this rank's elements; None if the mesh is not distributed.
    halo : Halo or None
        Exchange of these dofs between ranks; None if no rank has dofs of another rank.
    """

    domain: Domain
    restriction: ElementRestriction
    dim: int
    element: Element
    order: int
    ncomp: int
    ndofs: int
    size: int
    shape: tuple[int, ...]
    memory: Memory
    numbering: RankNumbering | None
    halo: Halo | None

    @property
    def basis(self) -> Basis1D:
        """The functions along each direction, where all directions have the same."""
        first, *others = self.tensor.bases
        if any(basis != first for basis in others):
            raise SpaceError(
                f"directions of an element have the bases {self.tensor.bases}: "
                "this is done where all have one, as in H1 and L2"
            )
        return first

    @property
    def tensor(self) -> TensorElement:
        """The element, if its functions are products of functions of one direction."""
        if not isinstance(self.element, TensorElement):
            raise SpaceError(
                f"functions of this element of {self.element.cell.plural} are no products of "
                "functions of one direction: this is done for such as H1 and L2 have on "
                "quadrilaterals and hexahedra"
            )
        return self.element

    @property
    def p1d(self) -> int:
        """Nodes in each direction, if all directions have the same number."""
        return self.basis.p1d

    @property
    @abstractmethod
    def device(self) -> Device | None:
        """Device that stores the vectors; None for the host."""

    @property
    @abstractmethod
    def volume(self) -> Any:
        """The `Space` on the elements of the mesh, whose vectors are used."""

    @property
    def touched(self) -> int:
        """Number of nodes of the domain's elements, each counted once."""
        return self.ndofs

    @property
    @abstractmethod
    def have_slopes(self) -> bool:
        """True if the functions have derivatives."""

    @abstractmethod
    def with_slopes(self, slopes: bool) -> DomainSpace:
        """Return the functions on the same elements with or without derivatives, if they exist."""

    @abstractmethod
    def on(self, volume: Any) -> DomainSpace:
        """Return the functions of another space of the mesh on the same elements."""

    @property
    def has_end(self) -> bool:
        """True if points are only at the low end of the last direction, as on faces."""
        return self.have_slopes and not self.domain.on_elements and not self._by_tables

    @property
    def _by_tables(self) -> bool:
        """True if tables tell where the points are, as on elements that are no cubes."""
        return self.domain.by_tables

    @property
    def at_list(self) -> bool:
        """True if points are a list at the end of elements behind faces."""
        return self._by_tables and self.dim > self.domain.cell.dim

    @abstractmethod
    def quadrature(self, q1d: int | Rule | None = None) -> Rule:
        """Return a rule for the elements."""

    @abstractmethod
    def zeros(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return a new vector (size,) of zeros."""

    def sum_elements(self, e_vec: NDArray[Any], *, signs: bool = True) -> NDArray[Any]:
        """Sum element values into a vector: (ne, nodes[, ncomp]) -> (size,).

        Each dof gets the sum over all elements of all ranks that share it. This is the transpose of
        `restriction.gather`, and of the exchange between ranks. Sums are formed in float64, on a
        reproducible mesh in the order of the elements of the global mesh. Collective if ranks share
        dofs.
        """
        restriction, owned = self.restriction, self.ndofs
        if self.halo is None:
            return restriction.summed(e_vec, signs=signs).reshape(-1)
        wide = e_vec.astype(np.float64, copy=False)
        total = restriction.summed(wide, signs=signs)
        if not self.volume.any_width:
            return self._summed(total).astype(e_vec.dtype, copy=False)
        wide, table = restriction.at_dofs(wide) if signs else wide, total[:owned].copy()
        nodes = restriction.indices.ravel()
        theirs = np.flatnonzero(nodes >= owned)
        entries = wide.reshape(restriction.indices.size, *wide.shape[2:])[theirs]
        self.halo.reverse_add_each(nodes[theirs] - owned, entries, table)
        return np.asarray(table.astype(e_vec.dtype, copy=False).reshape(-1))

    def sum_blocks(
        self, blocks: Iterable[tuple[int, NDArray[Any]]], shape: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Sum element values, block by block, into a vector (size,) of float64; see `sum_elements`.

        Parameters
        ----------
        blocks, shape
            See `ElementRestriction.sum_blocks`. The blocks cover all elements.
        """
        if self.halo is None or not self.volume.any_width:
            return self._summed(self.restriction.sum_blocks(blocks, shape))
        parts = [np.empty((0, self.restriction.indices.shape[1], *shape))]
        return self.sum_elements(np.concatenate([*parts, *(values for _, values in blocks)]))

    def _summed(self, l_vec: NDArray[Any]) -> NDArray[Any]:
        """Send the ghosts of a sum over this rank's elements to their owners. Return (size,)."""
        if self.halo is None:
            return l_vec.reshape(-1)
        table = l_vec[: self.ndofs].copy()
        self.halo.reverse_add(l_vec[self.ndofs :], table)
        return table.reshape(-1)

    def multiplicity(self) -> NDArray[np.float64]:
        """Number (ndofs,) of elements, of all ranks, at each node; see `sum_elements`."""
        free = self.restriction.free
        shape = self.domain.num_elements, self.restriction.num_nodes
        ones = np.ones(shape) if free is None else free.astype(np.float64)
        return self.sum_elements(ones, signs=False)

    def pattern(self) -> NDArray[np.int64]:
        """Positions (ne, ncomp * nodes) in an l_vec of each element's dofs, by components."""
        nodes = self.restriction.indices[:, np.newaxis, :]
        flat = nodes * self.ncomp + np.arange(self.ncomp)[:, np.newaxis]
        return flat.reshape(len(nodes), self.restriction.num_nodes * self.ncomp)

    def pattern_signs(self) -> NDArray[np.float64]:
        """1 or -1 (ne, ncomp * nodes) at the positions of `pattern`: signs in the element."""
        shape = len(self.restriction.indices), self.restriction.num_nodes
        return np.tile(self.restriction.with_signs(np.ones(shape)), (1, self.ncomp))

    def num_points(self, rule: Rule) -> int:
        """Number of quadrature points of an element."""
        return rule.count(self.domain.cell.dim if self._by_tables else self.dim - self.has_end)

    def places(self, rule: Rule) -> Grid:
        """Quadrature points of an element: for each direction (q1d,), or a list (n, dim)."""
        if self.at_list:
            return simplices.at_end(rule.listed(self.domain.cell.dim))
        return self.points_along(rule) if isinstance(rule, Quadrature1D) else rule.places

    def points_along(self, rule: Quadrature1D) -> list[NDArray[np.float64]]:
        """Coordinates (q1d,) of an element's quadrature points, for each direction."""
        return [rule.points] * (self.dim - self.has_end) + [np.zeros(1)] * self.has_end
