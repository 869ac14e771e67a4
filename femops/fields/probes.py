"""Values of finite element functions at points in space."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.element import element_of_maps
from femops.errors import GeometryError, OperatorError, ProbeError, SpaceError
from femops.geometry.domain import element_blocks
from femops.geometry.jacobians import physical_gradient
from femops.geometry.location import NEAR, NOWHERE, locate
from femops.parallel.comm import check, check_same, communicator
from femops.parallel.mesh import DistributedMesh
from femops.spaces.base import Space
from femops.spaces.functions import parts_of
from femops.spaces.vectors import as_doubled, has_complex, is_complex, vector_type
from femops_common.arguments import checked, dtype_of, numbers_of, refuse_masked, type_name
from femops_meshes.coordinates.mapping import adjugates, determinants
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Outside = Literal["error", "nan"]


@final
@checked(ProbeError)
class Probe:
    """Evaluates functions at points in space. The points are located in elements once.

    On a mesh that ranks share, all ranks pass the same points and get the values at all points.
    Then it is collective to make or evaluate a probe.

    Parameters
    ----------
    mesh : Mesh, MixedMesh or DistributedMesh
        Mesh of any dimension, curved or not. On a periodic mesh, points must lie where the elements
        are.
    points : (n, dim) or (dim,) numbers
        Positions in the mesh's unit of length; (dim,) is one point, n = 1.
    outside : {"error", "nan"}
        Treatment of points outside all elements: raise an error, or return NaN.

    Attributes
    ----------
    mesh : Mesh or MixedMesh
        The mesh, or this rank's part of a distributed mesh.
    distributed : DistributedMesh or None
        The mesh of all ranks; None if the mesh is not distributed.
    points : (n, dim) float64
    elements : (n,) int64
        Number of the element in the global mesh that contains each point; -1 for no element. In a
        `MixedMesh` they are counted part by part. For a
        point on a face, up to round-off, the lowest number. A point outside all elements counts as
        inside those that are within 1e-10 of their size. Functions of an L2 space are evaluated in
        this element.
    reference : (n, dim) float64
        Reference coordinates of each point in its element, in [0, 1]; NaN for no element.

    Raises
    ------
    ProbeError
        If points have another shape, are not finite, or are outside the mesh.
    CommunicatorError
        If ranks pass different points.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.disc(2), order=4)
    >>> u = V.interpolate(lambda x: x[0] * x[1])
    >>> probe = femops.Probe(V.mesh, [[0.1, 0.2], [0.5, -0.5]])
    >>> probe(V, u).round(12).tolist()
    [0.02, -0.25]
    """

    def __init__(
        self,
        mesh: Mesh | MixedMesh | DistributedMesh,
        points: ArrayLike,
        outside: Outside = "error",
    ) -> None:
        self.distributed = mesh if isinstance(mesh, DistributedMesh) else None
        self.mesh = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
        self._comm = mesh.comm if isinstance(mesh, DistributedMesh) else communicator()
        with check(self._comm):
            self.points = _checked(self.mesh, points, outside)
            self._held, self.reference, near = locate(self.mesh, self.points)
        facts = {"number of points": len(self.points), "outside": outside}
        checksum = zlib.crc32(self.points.tobytes())
        check_same(self._comm, "a probe", {**facts, "checksum of the points": checksum})
        self.elements = self._held
        if self.distributed is not None:
            self._share_out(self.distributed, near)
        for array in (self.points, self.elements, self.reference):
            array.setflags(write=False)
        if outside == "error" and not self.found.all():
            raise self._outside()

    def _share_out(self, mesh: DistributedMesh, near: Flags) -> None:
        """Assign each point to the rank that has the lowest-numbered element containing it.

        Elements that a point (n,) is only near to go behind all others.
        """
        held = np.flatnonzero(self._held >= 0)
        whole = np.full(len(self.points), NOWHERE)
        whole[held] = mesh.part.elements[self._held[held]] + NEAR * near[held]
        lowest = -mesh.comm.max(-whole)
        self._held[whole != lowest] = -1
        self.elements = np.where(lowest == NOWHERE, -1, lowest % NEAR)
        self.reference = self._of_all(self.reference)

    def _of_all(self, values: Floats) -> Floats:
        """Collect the values of all points from the ranks that have them. NaN outside the mesh."""
        if self.distributed is not None:
            values[self._held < 0] = 0.0
            # bits are added as integers: only one rank has a nonzero value, which is not rounded
            values = self._comm.sum(values.view(np.uint64)).view(np.float64)
        values[~self.found] = np.nan
        return values

    @property
    def found(self) -> Flags:
        """True (n,) for points that an element contains."""
        return np.asarray(self.elements >= 0)

    def __call__(self, space: Space, u: Any) -> NDArray[Any]:
        """Evaluate a function at the points.

        Shapes: `u` (space.size,), returned (n,).
        """
        if has_complex(u):
            return self._of_complex(self.__call__, space, u)
        u = self._l_vec(space, u)
        result = np.zeros((len(self.points), *u.shape[1:]))
        for part, i, elements in self._blocks(space, space.ncomp):
            e_vec = part.element_vector(u, elements)
            result[i] = part.element.values_at(self.reference[i], e_vec)
        return self._of_all(result)

    def gradient(self, space: Space, u: Any) -> NDArray[Any]:
        """Evaluate the gradient of a function in space at the points.

        A gradient jumps across faces. If several elements contain a point, the element with the
        lowest number gives the gradient.

        Parameters
        ----------
        space : Space
        u : (space.size,) array, real or complex

        Returns
        -------
        (n, dim) float64 for one component, else (n, ncomp, dim); complex128 if u is complex
            NaN at points outside the mesh.

        Raises
        ------
        SpaceError, VectorError
            See `__call__`.
        GeometryError
            If the Jacobian determinant is not positive at a point.
        """
        if has_complex(u):
            return self._of_complex(self.gradient, space, u)
        u = self._l_vec(space, u)
        result = np.zeros((len(self.points), *u.shape[1:], space.dim))
        with check(self._comm):
            for part, i, elements in self._blocks(space, space.ncomp + space.dim):
                e_vec = part.element_vector(u, elements)
                along = part.element.slopes_at(self.reference[i], e_vec)
                inverse = self._inverse_jacobians(i, part.mesh.coordinates[elements])
                slopes = np.stack(along, axis=-1)
                result[i] = physical_gradient(slopes[:, np.newaxis], inverse[:, np.newaxis])[:, 0]
        return self._of_all(result)

    def _of_complex(
        self, evaluate: Callable[[Space, Any], Floats], space: Space, u: Any
    ) -> NDArray[np.complex128]:
        """Evaluate a complex function at the points: both parts of its components at a time."""
        with check(self._comm):
            self._check_space(space)
            both = as_doubled(space, u)
        values = evaluate(space.doubled, both)
        result = np.empty((len(values), space.ncomp, *values.shape[2:]), dtype=np.complex128)
        result.real, result.imag = values[:, ::2], values[:, 1::2]
        return result if space.ncomp > 1 else result[:, 0]

    def load(
        self, space: Space, values: ArrayLike = 1.0, *, dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Return the load vector (size,) of sources at the points: the transpose of evaluation.

        ``probe.load(V, f) @ u`` is the sum of f times ``probe(V, u)``. Points outside the mesh add
        nothing. Collective if ranks share the mesh.

        Parameters
        ----------
        space : Space
            Test space.
        values, dtype
            See `point_load`. With a complex dtype values may be complex.

        Raises
        ------
        SpaceError
            If the space is on another mesh.
        OperatorError
            If values have the wrong shape or are not finite.
        CommunicatorError
            If ranks pass different values.
        """
        if is_complex(dtype):
            real, imag = (self.load(space, part) for part in parts_of(values))
            return (real + 1j * imag).astype(dtype_of(dtype), copy=False)
        with check(self._comm):
            self._check_space(space)
            shape = () if space.ncomp == 1 else (space.ncomp,)
            kind = vector_type(dtype)
            sources = _checked_sources(values, (len(self.points), *shape))
        check_same(self._comm, "a load at points", {"the values": sources.tolist()})
        parts = {
            part: np.zeros((part.mesh.num_elements, part.element.size, *shape))
            for part in space.parts
        }
        for part, i, elements in self._blocks(space, space.ncomp):
            weights = part.element.weights_at(self.reference[i])
            weights = weights.reshape(*weights.shape, *(1,) * len(shape))
            np.add.at(parts[part], elements, weights * sources[i, np.newaxis])
        total = sum(part.sum_elements(e_vec) for part, e_vec in parts.items())
        return space.memory.put(np.asarray(total).astype(kind, copy=False))

    def _l_vec(self, space: Space, u: Any) -> NDArray[Any]:
        with check(self._comm):
            self._check_space(space)
            space.check_vector(u)
        return space.l_vec(u)

    def _check_space(self, space: Any) -> None:
        if not isinstance(space, Space):
            raise SpaceError(
                f"a probe was given {type_name(type(space))} for a space: call probe(V, u)"
            )
        if space.mesh is not self.mesh or space.distributed is not self.distributed:
            mesh = "V.mesh" if space.distributed is None else "V.distributed"
            raise SpaceError(
                f"the space is on another mesh than the probe: make a femops.Probe({mesh}, points)"
            )

    def _blocks(self, space: Space, numbers: int) -> Iterator[tuple[Space, Ints, Ints]]:
        """Blocks (k,) of this rank's points, of a size for ``numbers`` numbers per node.

        With each comes the part of the space on their elements, and the elements (k,) there.
        """
        first = 0
        for part in space.parts:
            stop = first + part.mesh.num_elements
            inside = np.flatnonzero((self._held >= first) & (self._held < stop))
            for start, end in element_blocks(len(inside), numbers * part.element.size):
                some = inside[start:end]
                yield part, some, self._held[some] - first
            first = stop

    def _inverse_jacobians(self, i: Ints, nodes: Floats) -> Floats:
        """Inverse Jacobians (n, dim, dim) at the points i: [..., j, k] = dxi_j / dx_k.

        Shapes: `nodes` (n, nodes, dim), the coordinates of the points' elements.
        """
        element = element_of_maps(nodes)
        jacobian = np.stack(element.slopes_at(self.reference[i], nodes), axis=-1)
        det = determinants(jacobian)
        size = det if element.cell.cube else np.abs(det)  # simplices may be mirrored
        if not np.all(size > 0.0):
            bad = i[np.argmin(size)]
            raise GeometryError(
                f"det J is {size.min():.3g} in element {self.elements[bad]} at point {bad}, "
                f"{_position(self.points[bad])}: there is no gradient; move the point or repair "
                "the element"
            )
        return np.asarray(adjugates(jacobian) / det[:, None, None])

    def _outside(self) -> ProbeError:
        missing = np.flatnonzero(~self.found)
        lower, upper = self.mesh.bounding_box()
        lower, upper = -self._comm.max(-lower), self._comm.max(upper)
        return ProbeError(
            f"{len(missing)} of {len(self.points)} points are outside the mesh, the first is "
            f"number {missing[0]}, {_position(self.points[missing[0]])}: the mesh's nodes lie from "
            f"{_position(lower)} to {_position(upper)}; move the points, or make a Probe with "
            "outside='nan'"
        )

    def __repr__(self) -> str:
        missing = len(self.points) - np.count_nonzero(self.found)
        ne = self.mesh.num_elements if self.distributed is None else self.distributed.num_elements
        return (
            f"Probe({len(self.points)} points in {ne} elements in "
            f"{self.mesh.dim}-D, {missing} outside)"
        )


def _checked(mesh: Any, points: ArrayLike, outside: Any) -> Floats:
    """Check a user's arguments, and copy the points to an array (n, dim)."""
    if not isinstance(mesh, Mesh | MixedMesh):
        raise ProbeError(
            f"a probe was given {type_name(type(mesh))} for a mesh: give V.mesh of the space V"
        )
    if outside not in get_args(Outside):
        raise ProbeError(f"outside is {outside!r}: take 'error' or 'nan'")
    dim = mesh.dim
    refuse_masked(points, "points", ProbeError)
    try:
        array = np.array(points)
    except ValueError as error:
        raise ProbeError(f"points are not an array: give shape (n, {dim}); {error}") from error
    if array.dtype.kind not in "fiu" or array.shape[-1:] != (dim,) or array.ndim > 2:
        raise ProbeError(
            f"points have shape {array.shape} and type {array.dtype}: in {dim}-D give real numbers "
            f"of shape (n, {dim}), or ({dim},) for one point"
        )
    result = np.atleast_2d(array.astype(np.float64))
    bad = np.flatnonzero(~np.isfinite(result).all(axis=1))
    if len(bad):
        raise ProbeError(
            f"{len(bad)} of {len(result)} points are not finite, the first is number {bad[0]}, "
            f"{_position(result[bad[0]])}: leave them out"
        )
    return result


def _checked_sources(values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Check the sources at the points, and return them in an array of a shape."""
    array = numbers_of(values, "values", OperatorError)
    try:
        sources = np.broadcast_to(array, shape)
    except ValueError:
        sources = np.full((), np.nan)
    if not np.isfinite(sources).all():
        raise OperatorError(
            f"values have shape {array.shape} and type {array.dtype}: give finite numbers of shape "
            f"{shape}, or of a shape that NumPy broadcasts to it"
        )
    return np.asarray(sources)


def _position(x: Floats) -> str:
    return "(" + ", ".join(f"{c:.6g}" for c in x) + ")"
