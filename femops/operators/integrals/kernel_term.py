"""Terms that kernels are built from: a q-function, its arguments and its data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D
from femops.geometry.domain import Domain
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import chunk_batches
from femops.pointwise import QFunction
from femops.spaces.domain_space import DomainSpace
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.lanes import WIDEST


@dataclass(frozen=True, eq=False)
class KernelTerm(ABC):
    """A q-function between fields and test functions, with data for it."""

    name: str
    fields: Arguments
    tests: Arguments
    quadrature: Quadrature1D
    qfunction: QFunction
    dtype: np.dtype[Any]  # type of vectors and arithmetic
    width: int  # number of lanes
    # type of the numbers stored at points. None if it is ``dtype``.
    data_dtype: np.dtype[Any] | None
    # minima and sums: number of minima and of integrals among a residual's functionals. Their
    # components of the q-function follow those of the test functions.
    minima: int
    sums: int

    @property
    def trial(self) -> DomainSpace:
        """Space of the first field."""
        return self.fields.first

    @property
    def test(self) -> DomainSpace:
        """Space of the first test function."""
        return self.tests.first

    @property
    def domain(self) -> Domain:
        """Domain of the sweep: elements, faces of the boundary, or faces between elements."""
        return self.fields.first.domain

    @property
    def spaces(self) -> tuple[Any, Any]:
        """Trial and test space: the spaces of the input and output vectors."""
        return self.fields.whole, self.tests.whole

    @property
    def several(self) -> bool:
        """True if the term has several fields or test functions, or functionals."""
        return len(self.fields.spaces) + len(self.tests.spaces) + self.minima + self.sums > 2

    @property
    def any_width(self) -> bool:
        """True if the bits of results on the host do not depend on the number of lanes."""
        return any(space.any_width for space in self.spaces)

    @property
    def row_width(self) -> int:
        """Number of lanes in which a row of a matrix is summed."""
        return WIDEST if self.any_width else self.width

    @property
    def data_bytes(self) -> tuple[int, int]:
        """Bytes of the data in lanes without geometry modes, and bytes of the modes."""
        numbers, domain, dim = self.qfunction.numbers, self.domain, self.trial.dim
        slots = -(-domain.num_elements // self.width) * self.width
        at_points = slots * self.trial.num_points(self.quadrature) * numbers.point
        stored = at_points * (self.data_dtype or self.dtype).itemsize
        stored += (slots * numbers.element + numbers.constant) * self.dtype.itemsize
        modes = slots * dim * (domain.order + 1) ** dim if numbers.mapped else 0
        return stored, modes * self.dtype.itemsize

    @property
    def chunk_batches(self) -> NDArray[np.int64]:
        """First batch of each chunk of a sweep, and the number of batches: (chunks + 1,)."""
        return chunk_batches(self.fields, self.tests, self.dtype, self.width)

    @property
    @abstractmethod
    def data(self) -> Data:
        """Data that a kernel reads besides vectors and indices."""

    @property
    @abstractmethod
    def data_without_points(self) -> Data:
        """Data of the kernel without the numbers at points."""

    @property
    @abstractmethod
    def looked_at(self) -> bool:
        """True if a device computes or checks data of the term, instead of the host."""

    @property
    @abstractmethod
    def parts(self) -> Any:
        """All summands (factor, term) if a device computes or checks data; else empty."""


@final
@dataclass(frozen=True, eq=False)
class GivenTerm(KernelTerm):
    """Term that gets its data when it is made. Fused sums and data programs are such terms."""

    given: Data  # the data. They have no numbers at points if ``parts`` is not empty.
    parts: Any = ()

    @property
    def data(self) -> Data:
        return self.given

    @property
    def looked_at(self) -> bool:
        return bool(self.parts)

    @property
    def data_without_points(self) -> Data:
        return replace(self.data, points=self.data.points[:, :, :0])
