"""Differentiable functions of arrays, for other libraries; among arrays are moved nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.controls import Control, control_of
from femops.adjoint.lagrangian import Lagrangian
from femops.adjoint.pieces import pieces_of
from femops.element import element_of_maps
from femops.errors import OperatorError, SpaceError, VectorError
from femops.operators import Functional, Operator, Residual
from femops.operators.integrals.state import Field
from femops.operators.matrix_free import MatrixFree
from femops.spaces.base import GridFunction, Space
from femops.spaces.product import Product
from femops_common.arguments import checked, number_of, shown
from femops_kernels.pointwise.qdata import aligned_array
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh


@checked(SpaceError)
def moved(space: Space, displacement: NDArray[Any]) -> Mesh:
    """Return a copy of a space's mesh, its nodes moved by a field of the space.

    Parameters
    ----------
    space : Space
        Space with a component for each dimension, such as ``gradient.spaces["mesh"]``. If its order
        is above the degree of the mesh, the degree of the copy is the order.
    displacement : (space.size,) array

    Returns
    -------
    Mesh or MixedMesh
        It has the elements, the order of the elements and the names of the old mesh.

    Raises
    ------
    SpaceError
        The space has another number of components. Or ranks share the mesh: move the mesh before
        `femops.distribute`.
    MeshGeometryError
        An element is turned over.

    Examples
    --------
    >>> import femops
    >>> X = femops.H1(femops.box((2, 2)), order=1, ncomp=2)
    >>> mesh = femops.adjoint.moved(X, X.interpolate(lambda x: (0.5 * x[0], 0.0 * x[1])))
    >>> mesh.volume()
    1.5
    """
    mesh = cast("Mesh | MixedMesh", space.mesh)
    if space.ncomp != space.dim:
        raise SpaceError(f"displacements have ncomp={space.dim}, this space has {space.ncomp}")
    if space.comm.size > 1:
        raise SpaceError("ranks share the mesh: move the mesh before femops.distribute")
    finer, l_vec = mesh.curved(max(mesh.order, space.order)), space.l_vec(displacement)
    if isinstance(finer, MixedMesh):
        pairs = zip(space.parts, finer.parts, strict=True)
        nodes = {mesh.cell.plural: _moved_nodes(part, mesh, l_vec) for part, mesh in pairs}
        return cast(Mesh, finer.with_nodes(nodes))
    return finer.with_nodes(_moved_nodes(space, finer, l_vec))


def _moved_nodes(space: Space, finer: Mesh, l_vec: NDArray[Any]) -> NDArray[np.float64]:
    """Coordinates of a mesh moved by a field of a space on the same elements."""
    values = space.element_vector(l_vec, slice(None))
    steps = space.element.values(element_of_maps(finer.coordinates).nodes, values)
    return np.asarray(finer.coordinates + steps.reshape(finer.coordinates.shape))


Vector = NDArray[Any]
Values = Mapping[str, Any]
Given = TypeVar("Given", bound=Functional | Residual | Operator)
STATE, LOAD = "u", "load"


class Map(ABC):
    """A differentiable function of arrays: first a state or a load, then controls.

    Arrays of fields are in the memory of the space, NumPy's on the host and CuPy's on a device.
    Constants are NumPy's arrays, or numbers.

    Parameters
    ----------
    space : Space or Product
        Space whose memory holds the arrays.
    dtype : numpy.dtype
        Type of all arrays.
    inputs : dict of shapes
        Shape of each input by name, in order.
    shape : tuple of int
        Shape of the result.

    Attributes
    ----------
    linear : bool
        Whether the map is linear, so that its derivatives do not depend on the values.
    needs_result : bool
        Whether derivatives are cheaper if the result at the values is passed to them.
    """

    linear = needs_result = False

    def __init__(
        self,
        space: Space | Product,
        dtype: np.dtype[Any],
        inputs: Mapping[str, tuple[int, ...]],
        shape: tuple[int, ...],
    ) -> None:
        self.space, self.dtype, self.inputs, self.shape = space, dtype, dict(inputs), shape

    @abstractmethod
    def __call__(self, values: Values) -> Vector:
        """Evaluate the map. The result has the shape ``shape``."""

    @abstractmethod
    def jvp(self, values: Values, tangents: Values, result: Any = None) -> Vector:
        """Derivative along a direction. It has the shape of the result.

        Parameters
        ----------
        values, tangents : dict of arrays
            Inputs and changes of inputs by name. Inputs without a change do not change.
        result : array, optional
            The map's result at the values, if you have it; see `needs_result`.
        """

    @abstractmethod
    def vjp(
        self,
        values: Values,
        cotangent: Any,
        wrt: Sequence[str] | None = None,
        result: Any = None,
    ) -> dict[str, Vector]:
        """Derivatives of the inner product of the result and a cotangent.

        They have the shapes of the inputs.

        Parameters
        ----------
        values : dict of arrays
        cotangent : array
            In the shape of the result.
        wrt : sequence of str, optional
            Inputs by which to differentiate; all by default.
        result : array, optional
            The map's result at the values, if you have it; see `needs_result`.
        """

    def value_of(self, name: str) -> Any:
        """Value of an input that is left out.

        Raises
        ------
        OperatorError
            The input can't be left out.
        """
        raise OperatorError(f"{name} is missing: give an array of shape {self.inputs[name]}")

    def arguments(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Values of all inputs, in order; `value_of` those that are neither in a list nor named.

        Raises
        ------
        OperatorError
            An input is missing or given twice, or there is no such input.
        """
        for name in (name for name in named if name not in self.inputs):
            self.array(name, None)  # raises the error
        given = dict(zip(self.inputs, inputs, strict=False))
        if len(inputs) > len(self.inputs) or given.keys() & named:
            has = ", ".join(self.inputs)
            raise OperatorError(f"{len(inputs)} values by position are too many: there are {has}")
        given |= named
        return {n: given[n] if n in given else self.value_of(n) for n in self.inputs}

    def array(self, name: str, value: Any, what: str = "", *, on_host: bool = False) -> Vector:
        """Check an input, and return it as an array, without a copy if it is contiguous.

        ``what`` stands before the name in errors: "change of ", for example.

        Raises
        ------
        OperatorError
            No input has the name.
        VectorError
            The array has another shape or type, or is in another memory.
        """
        if name not in self.inputs:
            raise OperatorError(f"{shown(name)} is no input: there are {', '.join(self.inputs)}")
        return self._array(value, self.inputs[name], what + name, on_host=on_host)

    def _array(
        self, value: Any, shape: tuple[int, ...], what: str, *, on_host: bool = False
    ) -> Vector:
        memory = self.space.memory
        if number_of(value) is not None:
            value, on_host = np.asarray(value, dtype=self.dtype), True
        found: Vector
        if on_host and isinstance(value, np.ndarray):
            found = value
        else:
            found = memory.factor(value, what)
            found = memory.get(found) if on_host else found
        if found.dtype != self.dtype:
            raise VectorError(f"{what} has type {found.dtype}: convert it to {self.dtype}")
        if found.shape != shape:
            raise VectorError(f"{what} has shape {found.shape}: give {shape or 'a number'}")
        return found if found.flags.c_contiguous else found.copy()

    def _given(self, values: Values) -> dict[str, Vector]:
        """Check all inputs, and add those that are left out."""
        given = {name: self.array(name, value) for name, value in values.items()}
        return {n: given[n] if n in given else self.array(n, self.value_of(n)) for n in self.inputs}

    def _empty(self, size: int) -> Vector:
        """Return a new vector. JAX takes it without a copy if it begins on a cache line."""
        memory = self.space.memory
        if memory.device is None:
            return aligned_array((size,), self.dtype)
        found: Vector = memory.xp.empty(size, dtype=self.dtype)
        return found


@final
@checked(OperatorError)
class OperatorMap(Map):
    """Product of an operator and a vector. The input is called "u".

    Parameters
    ----------
    A : Operator
        Any operator of femops.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> product = femops.adjoint.OperatorMap(femops.mass(V))
    >>> u = V.interpolate(lambda x: x[0])
    >>> bool(abs(product({"u": u}) - femops.mass(V) @ u).max() < 1e-15)
    True
    """

    linear = True

    def __init__(self, A: MatrixFree) -> None:
        super().__init__(A.space, A.dtype, {STATE: (A.space.size,)}, (A.test_space.size,))
        self._A, self._adjoint = A, A.H  # complex operators have products with A.H, not with A.T

    def __call__(self, values: Values) -> Vector:
        return self._A.apply(self._given(values)[STATE], self._empty(self.shape[0]))

    def jvp(self, values: Values, tangents: Values, result: Any = None) -> Vector:  # noqa: ARG002
        return self(tangents)

    def vjp(
        self,
        values: Values,  # noqa: ARG002
        cotangent: Any,
        wrt: Sequence[str] | None = None,
        result: Any = None,  # noqa: ARG002
    ) -> dict[str, Vector]:
        if wrt is not None and STATE not in wrt:
            return {}
        y, out = self._array(cotangent, self.shape, "y"), self._empty(self._A.space.size)
        return {STATE: self._adjoint.apply(y.conj(), out).conj()}

    def batched(self, X: Any, *, transposed: bool = False) -> Vector:
        """Product with many vectors, the columns of X (size, nvec)."""
        found: Vector = (self._adjoint @ X.conj()).conj() if transposed else self._A @ X
        return found


class ControlledMap(Map, ABC, Generic[Given]):
    """A map with controls: coefficients whose values are inputs.

    ``first`` names the first input, a vector of the space. ``factor`` multiplies the integrals in
    the Lagrangian.
    """

    def __init__(
        self,
        given: Given,
        first: str,
        controls: str | Sequence[str],
        shape: tuple[int, ...],
        factor: float = 1.0,
    ) -> None:
        names = [controls] if isinstance(controls, str) else list(controls)
        pieces = [piece.times(factor) for piece in pieces_of(given)]
        known = dict.fromkeys(name for piece in pieces for name in piece.coefficients)
        _check_names(names, [*known], first)
        self._controls: dict[str, Control] = {n: control_of(n, pieces, None) for n in names}
        self._fields = {
            n: next(p.coefficients[n].value for p in pieces if n in p.coefficients) for n in names
        }
        self._lagrangian = Lagrangian(pieces, self._controls, given.space)
        self._first, self._object = first, given
        self._last: tuple[dict[str, Vector], Given] | None = None
        inputs = {name: control.own_shape for name, control in self._controls.items()}
        super().__init__(given.space, given.dtype, {first: given.space.shape} | inputs, shape)

    def array(self, name: str, value: Any, what: str = "", *, on_host: bool = False) -> Vector:
        """See `Map.array`. Constants are on the host."""
        control = self._controls.get(name)
        on_host |= control is not None and control.kind == "constant"
        return super().array(name, value, what, on_host=on_host)

    def value_of(self, name: str) -> Any:
        """Value that a control has in the functional or residual."""
        if name == self._first:
            return super().value_of(name)
        control, memory = self._controls[name], self.space.memory
        assert control.given is not None
        given = control.given.reshape(control.own_shape)
        xp = np if control.kind == "constant" else memory.xp
        return xp.asarray(given, dtype=self.dtype)

    def _at(self, values: Mapping[str, Vector]) -> Given:
        """Return the functional or residual at values of the controls. The last one is kept."""
        controls = {name: values[name] for name in self._controls}
        if not controls:
            return self._object
        old = None if self._last is None else self._last[0]
        changed = old is None or any(bool((old[n] != v).any()) for n, v in controls.items())
        if self._last is None or self.space.comm.max(int(changed)):  # ranks decide together
            new = {name: self._coefficient(name, value) for name, value in controls.items()}
            made = cast(Given, self._object.update(**new))
            self._last = {name: value.copy() for name, value in controls.items()}, made
        return self._last[1]

    def _coefficient(self, name: str, value: Vector) -> Any:
        """Coefficient as `Residual.update` takes it."""
        control, field, memory = self._controls[name], self._fields[name], self.space.memory
        if not isinstance(field, Field):
            return value if control.kind == "constant" else memory.get(value)
        space = field.space.whole
        return GridFunction(space, value if space is control.space else memory.get(value))

    def _vectors(self, values: Mapping[str, Vector]) -> dict[str, Vector]:
        """Values of the controls as vectors of their spaces."""
        return {n: c.vector(values[n], self.dtype) for n, c in self._controls.items()}

    def _directions(self, tangents: Values) -> dict[str, Vector]:
        """Convert changes of inputs to directions of the Lagrangian's variables."""
        given = {name: self.array(name, value, "change of ") for name, value in tangents.items()}
        found = {n: self._controls[n].vector(v, self.dtype) for n, v in given.items() if n != STATE}
        L = self._lagrangian
        return found | (L.parts(given[STATE], L.states) if STATE in given else {})

    def _derivatives(
        self,
        wrt: Sequence[str],
        values: Mapping[str, Vector],
        state: Vector,
        adjoint: Vector | None = None,
    ) -> dict[str, Vector]:
        """Derivatives of the Lagrangian by the state and by controls, as arrays of the inputs."""
        L = self._lagrangian
        by = [name for name in wrt if name != STATE]
        raw = L.derivative(
            [*(L.states if STATE in wrt else ()), *by],
            state,
            adjoint,
            values=self._vectors(values),
        )
        found = {n: self._controls[n].derivative(raw[n]).astype(self.dtype, copy=False) for n in by}
        if STATE in wrt:
            found[STATE] = L.whole(raw, L.states)
        return {name: found[name] for name in wrt}

    def _pushed(self, tangents: Values, values: Mapping[str, Vector], state: Vector) -> Vector:
        """Derivative of factor times residual along changes. Constrained dofs are not zeroed."""
        L = self._lagrangian
        along = self._directions(tangents)
        return L.whole(
            L.derivative(L.adjoints, state, None, along, self._vectors(values)), L.adjoints
        )

    def _wrt(self, wrt: Sequence[str] | None) -> list[str]:
        names = [*self.inputs] if wrt is None else list(wrt)
        for name in names:
            if name not in self.inputs:
                raise OperatorError(
                    f"{shown(name)} is no input: there are {', '.join(self.inputs)}"
                )
        return names


def _check_names(names: list[Any], known: list[str], first: str) -> None:
    """Raise unless each control is the name of a coefficient and is given once."""
    for name in names:
        if name == "mesh" and name not in known:
            raise OperatorError("the mesh is no control of a map: femops.gradient has wrt='mesh'")
        if name not in known:
            has = ", ".join(known) or "none"
            raise OperatorError(f"nothing depends on {shown(name)}: there are coefficients {has}")
        if name in (first, STATE):
            raise OperatorError(f"an input is called {name!r}: rename the coefficient")
    if len({*names}) < len(names):
        raise OperatorError(f"controls {shown(names)} have a name twice: give each once")


@final
@checked(OperatorError)
class FunctionalMap(ControlledMap[Functional]):
    """Value of a functional J(u, m), a number. Inputs are "u" and the controls.

    Parameters
    ----------
    J : Functional
    controls : str or sequence of str
        Names of coefficients: fields, constants or arrays at quadrature points.

    Raises
    ------
    OperatorError
        J has no such coefficient, or the coefficient is a function of x.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> J = femops.functional(lambda u, k: k * u**2, V, k=2.0)
    >>> energy = femops.adjoint.FunctionalMap(J, "k")
    >>> u = V.interpolate(lambda x: 1.0)
    >>> slopes = energy.vjp({"u": u, "k": 3.0}, 1.0)
    >>> round(float(energy({"u": u, "k": 3.0})), 12), round(float(slopes["k"]), 12)
    (3.0, 1.0)
    """

    def __init__(self, J: Functional, controls: str | Sequence[str] = ()) -> None:
        super().__init__(J, STATE, controls, ())

    def __call__(self, values: Values) -> Vector:
        given = self._given(values)
        return np.asarray(self._at(given)(given[STATE]), dtype=self.dtype)

    def jvp(self, values: Values, tangents: Values, result: Any = None) -> Vector:  # noqa: ARG002
        """See `Map.jvp`. Collective."""
        given = self._given(values)
        changes = {name: self.array(name, value, "change of ") for name, value in tangents.items()}
        slopes = self._slopes([*changes], given)
        products = {n: float((slopes[n] * change).sum()) for n, change in changes.items()}
        constants = {n for n, control in self._controls.items() if control.kind == "constant"}
        own = sum(product for n, product in products.items() if n in constants)
        # each rank has its part of a vector
        parts = float(sum(product for n, product in products.items() if n not in constants))
        return np.asarray(own + self.space.comm.sum(parts), dtype=self.dtype)

    def vjp(
        self,
        values: Values,
        cotangent: Any,
        wrt: Sequence[str] | None = None,
        result: Any = None,  # noqa: ARG002
    ) -> dict[str, Vector]:
        given = self._given(values)
        factor = float(self._array(cotangent, (), "the cotangent", on_host=True))
        slopes = self._slopes(self._wrt(wrt), given)
        return {name: np.multiply(factor, slope, out=slope) for name, slope in slopes.items()}

    def _slopes(self, wrt: list[str], given: Mapping[str, Vector]) -> dict[str, Vector]:
        if wrt == [STATE]:  # needs no kernel but that of the functional's own derivative
            return {STATE: self._at(given).derivative.residual(given[STATE])}
        return self._derivatives(wrt, given, given[STATE])


@final
@checked(OperatorError)
class ResidualMap(ControlledMap[Residual | Operator]):
    """Residual F(u, m), zero at its constrained dofs. Inputs are "u" and the controls.

    Values of u at constrained dofs are not replaced.

    Parameters
    ----------
    F : Residual or Operator
    controls : str or sequence of str
        Names of coefficients: fields, constants or arrays at quadrature points.

    Raises
    ------
    OperatorError
        F has no such coefficient, or the coefficient is a function of x.
    """

    def __init__(self, F: Residual | Operator, controls: str | Sequence[str] = ()) -> None:
        self._fixed = F.space.memory.put(F.constrained_dofs)
        free = F.unconstrained if isinstance(F, Operator) else F
        super().__init__(free, STATE, controls, F.space.shape)

    def __call__(self, values: Values) -> Vector:
        given = self._given(values)
        F, out = self._at(given), self._empty(self.shape[0])
        apply = F.apply if isinstance(F, Operator) else F.residual
        return self._freed(apply(given[STATE], out))

    def _freed(self, vector: Vector) -> Vector:
        vector[self._fixed] = 0.0
        return vector

    def jvp(self, values: Values, tangents: Values, result: Any = None) -> Vector:  # noqa: ARG002
        given = self._given(values)
        return self._freed(self._pushed(tangents, given, given[STATE]))

    def vjp(
        self,
        values: Values,
        cotangent: Any,
        wrt: Sequence[str] | None = None,
        result: Any = None,  # noqa: ARG002
    ) -> dict[str, Vector]:
        given = self._given(values)
        weights = self._freed(self._array(cotangent, self.shape, "the cotangent").copy())
        return self._derivatives(self._wrt(wrt), given, given[STATE], weights)
