"""Products of spaces: several fields on one mesh in one flat vector."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.errors import SpaceError
from femops.parallel.mesh import DistributedMesh
from femops.spaces.base import Space
from femops.spaces.functions import Function
from femops.spaces.memory import check_shape, memory_of
from femops.spaces.restriction import Vector, check_float_array, positions
from femops.spaces.vectors import any_vector, zeros
from femops_common import html
from femops_common.arguments import checked, names_checked


@final
@checked(SpaceError)
class Product:
    """Product of several named spaces on one mesh, for forms on several fields.

    A vector of the product is the concatenation of the vectors of the spaces.

    Parameters
    ----------
    **spaces : Space
        Two or more spaces by name, in the order of their parts. Two names may have the same space.

    Attributes
    ----------
    spaces : dict of Space
    mesh : Mesh
    dim : int
        Dimension of the mesh.
    comm : Communicator
        The ranks that hold the spaces.
    device : Device or None
        Device that stores the vectors; None for the host.
    memory : Memory
        Memory that stores the vectors, with its operations on arrays.
    size : int
        Length of a vector.
    shape : (size,)
        Shape of a vector.
    offsets : dict of int
        First entry of each space's part in a vector.

    Raises
    ------
    SpaceError
        If there are fewer than two spaces, an argument is not a space, the spaces are on different
        meshes, or a space is named x, the name of the position in a form.

    Examples
    --------
    >>> import femops
    >>> mesh = femops.box((2, 2))
    >>> W = femops.Product(u=femops.H1(mesh, order=2, ncomp=2), p=femops.H1(mesh, order=1))
    >>> x = W.zeros()
    >>> u, p = W.split(x)
    >>> x.shape, u.shape, p.shape
    ((59,), (50,), (9,))
    """

    _given_as = "a product, as femops.Product(u=V, p=Q)"
    _aside = (
        "W.spaces['u'] is a space of a product, W.split(x)[0] a vector of it, and W.join makes "
        "vectors of the product"
    )

    def __init__(self, /, **spaces: Space) -> None:
        _check_spaces(spaces)
        self.spaces = dict(spaces)
        first = next(iter(spaces.values()))
        self.mesh, self.dim, self.comm = first.mesh, first.dim, first.comm
        self.memory = memory_of(list(spaces.values()))
        self.device = self.memory.device
        ends = list(accumulate((space.size for space in spaces.values()), initial=0))
        self.offsets = dict(zip(spaces, ends, strict=False))
        self.size = ends[-1]
        self.global_size = sum(space.global_size for space in spaces.values())
        self.shape = (self.size,)

    if not TYPE_CHECKING:  # for type checkers there are no other attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says where an attribute of spaces is."""
            if name in self.__dict__.get("spaces", ()):
                raise AttributeError(
                    f"a Product has no attribute {name!r}: W.spaces[{name!r}] is the space, and "
                    f"{', '.join(self.names)} = W.split(x) are the parts of a vector"
                )
            if not name.startswith("_") and hasattr(Space, name):
                raise AttributeError(
                    f"a Product has no attribute {name!r}: take that of one space, as "
                    f"W.spaces[{self.names[0]!r}].{name}; W.positions(u=dofs) converts its dofs, "
                    "W.split(x) a vector"
                )
            return object.__getattribute__(self, name)  # the error, also of a property

    @property
    def any_width(self) -> bool:
        return any(space.any_width for space in self.spaces.values())

    @property
    def mixed(self) -> bool:
        """True if the mesh has elements of several shapes, or prisms; see `Space.mixed`."""
        return any(space.mixed for space in self.spaces.values())

    @property
    def signed(self) -> bool:
        return any(space.signed for space in self.spaces.values())

    @property
    def distributed(self) -> DistributedMesh | None:
        return next(iter(self.spaces.values())).distributed

    @property
    def reproducible(self) -> bool:
        """True if any space has a fixed order of sums over elements; see `Space.reproducible`."""
        return any(space.reproducible for space in self.spaces.values())

    @cached_property
    def doubled(self) -> Product:
        """Product of the doubled spaces; see `Space.doubled`."""
        return Product(**{name: space.doubled for name, space in self.spaces.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the spaces, in order."""
        return tuple(self.spaces)

    @checked(SpaceError)
    def slice(self, name: str) -> slice:
        """Range of a space's part in a vector.

        Raises
        ------
        SpaceError
            No space has this name.
        """
        if name not in self.spaces:
            raise SpaceError(f"{self!r} has no space {name!r}: it has {', '.join(self.names)}")
        start = self.offsets[name]
        return slice(start, start + self.spaces[name].size)

    def within(self, name: str, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Select the positions that belong to a space's part of a vector.

        Parameters
        ----------
        name : str
            Name of the space.
        entries : (n,) int64
            Ascending positions in a vector of the product.

        Returns
        -------
        (m,) int64
            Positions in the vector of the space.
        """
        part = self.slice(name)
        first, last = np.searchsorted(entries, [part.start, part.stop])
        inside: NDArray[np.int64] = entries[first:last] - part.start
        return inside

    # --- vectors ---------------------------------------------------------------------------------

    def zeros(self, dtype: DTypeLike = np.float64) -> Vector:
        """Return a new vector (size,) of zeros, float64, float32, complex128 or complex64.

        Raises
        ------
        VectorError
            The type is another one.
        """
        return zeros(self, dtype)

    def check_vector(self, x: Any, what: str = "vector") -> Vector:
        """Return x (size,) if it is a vector of the product.

        Raises
        ------
        VectorError
            x is no NumPy array, its type is not float64 or float32, or its shape is wrong.
        """
        return check_shape(self, check_float_array(x, what), what)

    def split(self, x: Vector) -> tuple[Vector, ...]:
        """Split a real or complex vector (size,) into views: the vectors of the spaces, in order.

        Raises
        ------
        VectorError
            See `check_vector`.
        """
        vector = any_vector(self, x, "vector")
        return tuple(vector[self.slice(name)] for name in self.spaces)

    @names_checked
    def join(self, /, **parts: Vector) -> Vector:
        """Join vectors of the spaces to a new vector (size,) of the product.

        Parameters
        ----------
        **parts : arrays
            Vectors of the spaces, by name. Parts of omitted spaces are zero.

        Returns
        -------
        (size,) array
            float32 if all parts are float32, complex if a part is complex, else float64.

        Raises
        ------
        SpaceError
            No space has the name, or there are no parts.
        VectorError
            A part is not a vector of its space.
        """
        given = {
            name: any_vector(self.spaces[name], part, name) for name, part in self._known(parts)
        }
        result = self.zeros(np.result_type(*(part.dtype for part in given.values())))
        for name, part in given.items():
            result[self.slice(name)] = part
        return result

    @names_checked
    def interpolate(self, /, **functions: Function) -> NDArray[np.float64]:
        """Interpolate functions at the nodes of the spaces. Return a vector of the product.

        Parameters
        ----------
        **functions : callable or number(s)
            Functions by name, see `Space.interpolate`. Parts of omitted spaces are zero.

        Returns
        -------
        (size,) float64

        Raises
        ------
        SpaceError
            No space has the name, there are no functions, or a function returns another shape.
        """
        named = self._known(functions)
        return self.join(**{name: self.spaces[name].interpolate(f) for name, f in named})

    @names_checked
    def positions(self, /, **dofs: ArrayLike) -> NDArray[np.int64]:
        """Convert positions in vectors of the spaces to positions in a vector of the product.

        Parameters
        ----------
        **dofs : (k,) integers
            Positions in a vector of each space, by name, as `Space.boundary_dofs` returns them.

        Returns
        -------
        (n,) int64
            Ascending.

        Raises
        ------
        SpaceError
            No space has the name, or there are no dofs.
        OperatorError
            A position is no whole number, or is outside the vector of its space.
        """
        found = [
            self.offsets[name] + positions(given, self.spaces[name].size)
            for name, given in self._known(dofs)
        ]
        return np.sort(np.concatenate(found))

    def _known(self, named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Check the names in ``named``, and iterate over its items."""
        if not named:
            raise SpaceError(f"nothing is given: name one or more of {', '.join(self.names)}")
        for name in named:
            self.slice(name)
        return iter(named.items())

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={space.size}" for name, space in self.spaces.items())
        return f"Product({parts}: {self.size} unknowns)"

    def _repr_html_(self) -> str:
        rows = [(name, repr(space)) for name, space in self.spaces.items()]
        return html.table("Product", [*rows, ("unknowns", f"{self.size:,}")])


def _check_spaces(spaces: dict[str, Space]) -> None:
    if len(spaces) < 2:
        raise SpaceError(
            f"a product has two spaces or more, got {len(spaces)}: a form on one takes the space "
            "itself"
        )
    first = next(iter(spaces.values()))
    for name, space in spaces.items():
        if (space.mesh, space.distributed) != (first.mesh, first.distributed):
            raise SpaceError(f"{name} is on another mesh than the first: make all on one mesh")
    if "x" in spaces:
        raise SpaceError("'x' is the position in a form: rename the field")
