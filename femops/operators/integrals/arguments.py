"""Arguments of an integral: its fields, or its test functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.product import Product

FIELD = "u"
"""Name of the field, and of the test function, of a form that has one."""


@final
@dataclass(frozen=True, eq=False)
class Arguments:
    """The fields of an integral, or its test functions.

    Attributes
    ----------
    spaces : dict of Space or BoundarySpace
        By name, on one mesh or on the same faces of its boundary.
    whole : Space or Product
        Space of the vectors that hold them.
    """

    spaces: Mapping[str, DomainSpace]
    whole: Space | Product

    @staticmethod
    def of(space: DomainSpace | Product) -> Arguments:
        """The argument of a space, or all arguments of a product."""
        if isinstance(space, Product):
            return Arguments(space.spaces, space)
        return Arguments({FIELD: space}, space.volume)

    def only(self, names: Iterable[str]) -> Arguments:
        """The arguments of these names, in the same vectors."""
        return replace(self, spaces={name: self.spaces[name] for name in names})

    @property
    def have_slopes(self) -> bool:
        """True if there are derivatives: everywhere but on faces where values suffice."""
        return self.first.have_slopes

    def with_slopes(self, slopes: bool) -> Arguments:
        """The arguments on the same elements, with or without derivatives.

        All have derivatives if one must.
        """
        made = {name: space.with_slopes(slopes) for name, space in self.spaces.items()}
        if any(space.have_slopes for space in made.values()):
            made = {name: space.with_slopes(True) for name, space in self.spaces.items()}
        return replace(self, spaces=made)

    @property
    def first(self) -> DomainSpace:
        """Space of the first argument. All arguments have one mesh and one dimension."""
        return next(iter(self.spaces.values()))

    @property
    def on_product(self) -> bool:
        """True if they are in vectors of a product, perhaps with others."""
        return isinstance(self.whole, Product)

    @property
    def components(self) -> dict[str, int]:
        """Components of each."""
        return {name: space.ncomp for name, space in self.spaces.items()}

    def origin(self, name: str) -> int:
        """Entry of the vectors at which an argument begins."""
        return self.whole.offsets[name] if isinstance(self.whole, Product) else 0

    def within(self, name: str, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of ascending entries of a vector that are an argument's; see `Product.within`."""
        return self.whole.within(name, entries) if isinstance(self.whole, Product) else entries

    def same(self, other: Arguments) -> bool:
        """True if names and spaces are the same."""
        return self.whole is other.whole and self.spaces == other.spaces
