"""Functions of a space on the elements of a domain: what integrals and sweeps use of a space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Basis1D, Quadrature1D
from femops.geometry.domain import Domain
from femops.spaces.memory import Memory
from femops.spaces.restriction import ElementRestriction
from femops_kernels.cuda.device.device import Device


class DomainSpace(ABC):
    """Functions of a space on the elements of a domain; vectors are those of the space.

    Attributes
    ----------
    domain : Domain
        Elements, or faces of the boundary.
    restriction : ElementRestriction
        Between the space's nodes and those of the domain's elements.
    dim : int
        Directions of the nodes of an element.
    basis : Basis1D
    order, p1d : int
        Degree in each direction, and nodes.
    ncomp, ndofs, size : int
        Components, nodes and entries of a vector.
    shape : (size,)
    memory : Memory
        Where vectors are.
    """

    domain: Domain
    restriction: ElementRestriction
    dim: int
    basis: Basis1D
    order: int
    p1d: int
    ncomp: int
    ndofs: int
    size: int
    shape: tuple[int, ...]
    memory: Memory

    @property
    def device(self) -> Device | None:
        """Where its vectors are; None for the host."""
        return self.memory.device

    @property
    @abstractmethod
    def volume(self) -> Any:
        """The `Space` whose vectors hold the nodes."""

    @property
    def touched(self) -> int:
        """Number of nodes that the elements have."""
        return self.ndofs

    @property
    @abstractmethod
    def have_slopes(self) -> bool:
        """True if the functions have derivatives."""

    @abstractmethod
    def with_slopes(self, slopes: bool) -> DomainSpace:
        """The functions on the same elements, with or without derivatives where both exist."""

    @abstractmethod
    def on(self, volume: Any) -> DomainSpace:
        """The functions of another space on the same mesh, on the same elements."""

    @property
    def has_end(self) -> bool:
        """True if elements have points at the low end of their last direction alone."""
        return self.have_slopes and not self.domain.covers

    @abstractmethod
    def quadrature(self, q1d: int | Quadrature1D | None = None) -> Quadrature1D:
        """Return a 1-D rule for the elements."""

    @abstractmethod
    def zeros(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """A new vector of zeros."""

    @abstractmethod
    def sum_elements(self, e_vec: NDArray[Any]) -> NDArray[Any]:
        """The vector of sums over all elements of all ranks."""

    def num_points(self, rule: Quadrature1D) -> int:
        """Quadrature points of an element, by a rule in each direction."""
        return int(rule.q1d ** (self.dim - self.has_end))

    def points_along(self, rule: Quadrature1D) -> list[NDArray[np.float64]]:
        """Coordinates of the quadrature points of an element in each direction."""
        return [rule.points] * (self.dim - self.has_end) + [np.zeros(1)] * self.has_end
