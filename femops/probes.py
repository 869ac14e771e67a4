"""Values of finite element functions at points in space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.abstract_space import Space
from femops.basis import Basis1D
from femops.blocks import element_blocks
from femops.errors import GeometryError, ProbeError, SpaceError
from femops.evaluation import physical_gradient, point_gradient, point_values
from femops.geometry import adjugates
from femops.location import locate
from femops_meshes.mapping import determinants
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Outside = Literal["error", "nan"]


@final
class Probe:
    """Points in space, each found in its element once, at which functions are then evaluated.

    Parameters
    ----------
    mesh : Mesh
        Curved or not, of any dimension; of a periodic one, the points as its elements lie.
    points : (n, dim) or (dim,) numbers
        Positions in the mesh's unit of length; (dim,) is one point, n = 1.
    outside : {"error", "nan"}
        What points of no element are: an error, or such whose values are NaN.

    Attributes
    ----------
    mesh : Mesh
    points : (n, dim) float64
    elements : (n,) int64
        The element that holds each point. Of several (the point is on their face, within 1e-10
        of their size) it is the lowest number; functions of an L2 space have its value there.
        -1 where there is none.
    reference : (n, dim) float64
        The place in that element, in [0, 1]; NaN where there is none.

    Raises
    ------
    ProbeError
        Points of another shape, points that are not finite, or points outside the mesh.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.disc(2), order=4)
    >>> u = V.interpolate(lambda x: x[0] * x[1])
    >>> probe = femops.Probe(V.mesh, [[0.1, 0.2], [0.5, -0.5]])
    >>> probe(V, u).round(12).tolist()
    [0.02, -0.25]
    """

    def __init__(self, mesh: Mesh, points: ArrayLike, outside: Outside = "error") -> None:
        if not isinstance(mesh, Mesh):
            raise ProbeError(
                f"a probe was given a {type(mesh).__name__} for a mesh: give that of the space, "
                "V.mesh"
            )
        if outside not in get_args(Outside):
            raise ProbeError(f"outside is {outside!r}: take 'error' or 'nan'")
        self.mesh = mesh
        self.points = _checked(points, mesh.dim)
        self.elements, self.reference = locate(mesh, self.points)
        for array in (self.points, self.elements, self.reference):
            array.setflags(write=False)
        if outside == "error" and not self.found.all():
            raise _outside(mesh, self.points, self.found)

    @property
    def found(self) -> Flags:
        """Whether an element holds the point, (n,)."""
        return np.asarray(self.elements >= 0)

    def __call__(self, space: Space, u: Any) -> Floats:
        """Values of a function at the points.

        Parameters
        ----------
        space : Space
            On the mesh of the probe; of any order and family.
        u : l_vec of it

        Returns
        -------
        (n,) float64 for one component, else (n, ncomp)
            NaN at points outside the mesh.

        Raises
        ------
        SpaceError
            The space is on another mesh.
        VectorError
            See `Space.check_vector`.
        """
        u = self._checked_vector(space, u)
        result = np.full((len(self.points), *u.shape[1:]), np.nan)
        for i in self._blocks(u[0].size * space.p1d**space.dim):
            e_vec = _element_vectors(space, u, self.elements[i])
            result[i] = point_values(space.basis, self.reference[i], e_vec)
        return result

    def gradient(self, space: Space, u: Any) -> Floats:
        """Gradients in space of a function at the points.

        Where several elements hold a point, the gradient is that in the element of the lowest
        number: across a face it jumps.

        Parameters
        ----------
        space : Space
        u : l_vec of it

        Returns
        -------
        (n, dim) float64 for one component, else (n, ncomp, dim)
            NaN at points outside the mesh.

        Raises
        ------
        SpaceError, VectorError
            As for values.
        GeometryError
            The Jacobian determinant is not positive at a point.
        """
        u = self._checked_vector(space, u)
        result = np.full((len(self.points), *u.shape[1:], space.dim), np.nan)
        for i in self._blocks((u[0].size + space.dim) * space.p1d**space.dim):
            e_vec = _element_vectors(space, u, self.elements[i])
            slopes = point_gradient(space.basis, self.reference[i], e_vec)
            inverse = self._inverse_jacobians(i)
            result[i] = physical_gradient([du[:, None] for du in slopes], inverse[:, None])[:, 0]
        return result

    def _checked_vector(self, space: Space, u: Any) -> NDArray[Any]:
        if not isinstance(space, Space):
            raise SpaceError(
                f"a probe was given a {type(space).__name__} for a space: call probe(V, u)"
            )
        if space.mesh is not self.mesh:
            raise SpaceError(
                "the space is on another mesh than the probe: make a femops.Probe(V.mesh, points)"
            )
        return space.check_vector(u)

    def _blocks(self, numbers: int) -> Iterator[Ints]:
        """The points in the mesh, some at a time, where each needs so many numbers."""
        inside = np.flatnonzero(self.found)
        return (inside[start:stop] for start, stop in element_blocks(len(inside), numbers))

    def _inverse_jacobians(self, i: Ints) -> Floats:
        """[..., j, k] = dxi_j / dx_k at the points i, (k, dim, dim)."""
        basis = Basis1D("gll", self.mesh.order)
        nodes = self.mesh.coordinates[self.elements[i]]
        jacobian = np.stack(point_gradient(basis, self.reference[i], nodes), axis=-1)
        det = determinants(jacobian)
        if not np.all(det > 0.0):
            bad = i[np.argmin(det)]
            raise GeometryError(
                f"det J is {det.min():.3g} in element {self.elements[bad]} at point {bad}, "
                f"{_position(self.points[bad])}: there is no gradient; move the point or repair "
                "the element"
            )
        return np.asarray(adjugates(jacobian) / det[:, None, None])

    def __repr__(self) -> str:
        missing = len(self.points) - np.count_nonzero(self.found)
        return (
            f"Probe({len(self.points)} points in {self.mesh.num_elements} elements in "
            f"{self.mesh.dim}-D, {missing} outside)"
        )


def _element_vectors(space: Space, u: NDArray[Any], elements: Ints) -> Floats:
    """Dofs of any elements, (n, p1d**dim[, ncomp])."""
    return np.asarray(u[space.restriction.indices[elements]], dtype=np.float64)


def _checked(points: ArrayLike, dim: int) -> Floats:
    """A copy of the points, (n, dim)."""
    try:
        array = np.array(points)
    except ValueError as error:
        raise ProbeError(f"points are no array: give shape (n, {dim}); {error}") from error
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


def _outside(mesh: Mesh, points: Floats, found: Flags) -> ProbeError:
    missing = np.flatnonzero(~found)
    lower, upper = mesh.bounding_box()
    return ProbeError(
        f"{len(missing)} of {len(points)} points are outside the mesh, the first is number "
        f"{missing[0]}, {_position(points[missing[0]])}: the mesh's nodes lie from "
        f"{_position(lower)} to {_position(upper)}; move the points, or take outside='nan'"
    )


def _position(x: Floats) -> str:
    return "(" + ", ".join(f"{c:.6g}" for c in x) + ")"
