"""Arguments of an integral: all its fields, or all its test functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D, Rule
from femops.element import TensorElement
from femops.geometry.domain import Domain
from femops.pointwise.sides import base_name, sided
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.product import Product
from femops.spaces.side_space import side_spaces

FIELD = "u"
"""Name of the field, and of the test function, of a form with a single field."""


@final
@dataclass(frozen=True, eq=False)
class Arguments:
    """All fields of an integral, or all its test functions."""

    # space of each argument, by name. All spaces have the same domain. On faces between elements
    # both sides of a field are arguments, see `femops.pointwise.sides`.
    spaces: Mapping[str, DomainSpace]
    whole: Space | Product  # space of the vectors that contain the arguments

    @staticmethod
    def of(space: DomainSpace | Product) -> Arguments:
        """Make the argument of a single space, or all arguments of a product."""
        if isinstance(space, Product):
            return Arguments(space.spaces, space)
        return Arguments({FIELD: space}, space.volume.whole)

    @staticmethod
    def over(space: DomainSpace | Product) -> list[Arguments]:
        """Make the arguments on each part of a mesh of several shapes; else those of `of`."""
        if isinstance(space, Product):
            named = {name: one.parts for name, one in space.spaces.items()}
            return [
                Arguments(dict(zip(named, each, strict=True)), space)
                for each in zip(*named.values(), strict=True)
            ]
        parts = space.parts if isinstance(space, Space) else (space,)
        return [Arguments.of(part) for part in parts]

    @staticmethod
    def on_sides(whole: Space | Product) -> list[Arguments]:
        """Make both sides of all fields of a space or product on the faces between elements.

        There is one list entry, but on a mesh of several shapes one for each of `shared_faces`.
        """
        spaces = whole.spaces if isinstance(whole, Product) else {FIELD: whole}
        sides = {
            side: side_spaces(space, k)
            for name, space in spaces.items()
            for k, side in enumerate(sided(name))
        }
        return [
            Arguments(dict(zip(sides, each, strict=True)), whole)
            for each in zip(*sides.values(), strict=True)
        ]

    @staticmethod
    def on_faces(whole: Space | Product, domain: Domain) -> Arguments:
        """Those of `on_sides` on one of the domains."""
        return next(each for each in Arguments.on_sides(whole) if each.first.domain is domain)

    @property
    def complete(self) -> Arguments:
        """All arguments of the vectors on the domain. `only` may have left out some of them."""
        if self.two_sided:
            return Arguments.on_faces(self.whole, self.first.domain)
        return Arguments.of(self.whole) if self.on_product else self

    @property
    def two_sided(self) -> bool:
        """True if the arguments are sides of fields on faces between elements."""
        return any(base_name(name) != name for name in self.spaces)

    @property
    def parts(self) -> Arguments:
        """The arguments by the names of the fields, as parts of the vectors that contain them."""
        if not self.two_sided:
            return self
        return replace(self, spaces={base_name(n): space for n, space in self.spaces.items()})

    def only(self, names: Iterable[str]) -> Arguments:
        """Restrict the arguments to ``names``. The vectors that contain them do not change."""
        return replace(self, spaces={name: self.spaces[name] for name in names})

    @property
    def have_slopes(self) -> bool:
        """True if arguments have derivatives. Arguments on faces may have values only."""
        return self.first.have_slopes

    @property
    def tabulated(self) -> bool:
        """True if functions are no products of functions of one direction, or points a list."""
        return not all(
            isinstance(V.element, TensorElement) and not V.at_list for V in self.spaces.values()
        )

    def with_slopes(self, slopes: bool) -> Arguments:
        """Copy of the arguments with or without derivatives.

        If one space needs derivatives, all arguments have derivatives.
        """
        made = {name: space.with_slopes(slopes) for name, space in self.spaces.items()}
        if any(space.have_slopes for space in made.values()):
            made = {name: space.with_slopes(True) for name, space in self.spaces.items()}
        return replace(self, spaces=made)

    @property
    def first(self) -> DomainSpace:
        """Space of the first argument. All arguments have the same mesh and dimension."""
        return next(iter(self.spaces.values()))

    @property
    def on_product(self) -> bool:
        """True if the arguments are parts of vectors of a product."""
        return isinstance(self.whole, Product)

    @property
    def components(self) -> dict[str, int]:
        """Number of components of each argument by name."""
        return {name: space.ncomp for name, space in self.spaces.items()}

    def origin(self, name: str) -> int:
        """First entry of an argument in the vectors."""
        return self.whole.offsets[base_name(name)] if isinstance(self.whole, Product) else 0

    def within(self, name: str, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert ascending positions (n,) in the vector to positions (k,) in an argument's part.

        See `Product.within`.
        """
        if not isinstance(self.whole, Product):
            return entries
        return self.whole.within(base_name(name), entries)

    def same(self, other: Arguments) -> bool:
        """True if names and spaces are the same."""
        return self.whole is other.whole and self.spaces == other.spaces


def tabulated(fields: Arguments, tests: Arguments, rule: Rule) -> bool:
    """True if kernels multiply by tables: functions are no products, or the points no grid."""
    return fields.tabulated or tests.tabulated or not isinstance(rule, Quadrature1D)
