"""Operators, functionals, residuals and solves as functions of JAX arrays.

JAX can transform the functions by ``jit``, ``grad``, ``jvp``, ``vjp`` and ``vmap``. femops computes
their values and derivatives. Code that JAX has compiled calls back to the host for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.calls import Call
from femops.adjoint.maps import FunctionalMap, Map, OperatorMap, ResidualMap
from femops.adjoint.solve_map import SolveMap
from femops.errors import MissingExtraError, OperatorError, VectorError
from femops.operators import Functional, Operator, Residual
from femops.operators.matrix_free import MatrixFree
from femops.solvers.newton_steps import Linear, Preconditioning
from femops_common.arguments import Fraction, checked, number_of

try:
    import jax
    import jax.numpy as jnp
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
except ImportError as error:
    raise MissingExtraError(f"femops.jax needs JAX ({error}): pip install jax") from error

__all__ = ["functional", "operator", "residual", "solve"]

_PLATFORMS = {False: "cpu", True: "gpu"}
_ALIGNMENT = 16  # bytes, of arrays that JAX takes on a GPU; on the host it copies others


@checked(OperatorError)
def operator(A: MatrixFree) -> Callable[[Any], Any]:
    """Product with an operator, as a function of a JAX array.

    ``jax.vmap`` of it is one product with many vectors.

    Parameters
    ----------
    A : Operator

    Returns
    -------
    callable
        ``f(u)`` is ``A @ u``.

    Raises
    ------
    OperatorError
        A is not an operator. In a call: A is in float64, but JAX has no 64-bit numbers now.
    VectorError
        In a call: the array has another shape or type, or is on another device.

    Examples
    --------
    >>> import jax, femops, femops.jax
    >>> jax.config.update("jax_enable_x64", True)
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> product = femops.jax.operator(femops.diffusion(V))
    >>> energy = lambda u: 0.5 * u @ product(u)
    >>> u = jax.numpy.asarray(V.interpolate(lambda x: x[0] ** 2))
    >>> bool(abs(jax.grad(energy)(u) - product(u)).max() < 1e-12)
    True
    """
    return _function(OperatorMap(A))


@checked(OperatorError)
def functional(J: Functional, *controls: str) -> Callable[..., Any]:
    """Value of a functional, as a function of JAX arrays.

    Parameters
    ----------
    J : Functional
    *controls : str
        Names of coefficients: fields, constants or arrays at quadrature points.

    Returns
    -------
    callable
        ``f(u, kappa=k)`` is a number. A control is the vector of a field, a constant, or an array
        at the quadrature points. A control that is left out has its value in J. Controls may be
        given by position too, ``f(u, k)``, in the order of their names.

    Raises
    ------
    OperatorError
        J has no such coefficient, or the coefficient is a function of x. In a call: see `operator`.
    VectorError
        In a call: see `operator`.

    Examples
    --------
    >>> import jax, femops, femops.jax
    >>> jax.config.update("jax_enable_x64", True)
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> J = femops.functional(lambda u, k: k * u**2, V, k=1.0)
    >>> f = femops.jax.functional(J, "k")
    >>> u = jax.numpy.ones(V.size)
    >>> slope = jax.grad(lambda k: f(u, k=k))(3.0)
    >>> round(float(f(u)), 12), round(float(slope), 12)
    (1.0, 1.0)
    """
    return _function(FunctionalMap(J, controls))


@checked(OperatorError)
def residual(F: Residual | Operator, *controls: str) -> Callable[..., Any]:
    """Residual of an equation, zero at its constrained dofs, as a function of JAX arrays.

    Parameters
    ----------
    F : Residual or Operator
    *controls : str
        See `functional`.

    Returns
    -------
    callable
        ``f(u, kappa=k)`` is a vector. Values of u at constrained dofs are not replaced.

    Raises
    ------
    OperatorError
        See `functional`.
    VectorError
        See `functional`.
    """
    return _function(ResidualMap(F, controls))


@checked(OperatorError)
def solve(
    F: Residual | Operator,
    *controls: str,
    linear: Linear = "auto",
    preconditioner: Preconditioning = "jacobi",
    rtol: Fraction = 1e-10,
    u0: NDArray[Any] | None = None,
    level: str = "partial",
) -> Callable[..., Any]:
    """Solution of an equation F(u) = b, as a function of JAX arrays.

    Derivatives are implicit: each solves one linear equation. ``jax.vmap`` over loads solves all
    equations at once if `femops.cg` solves them. Other batches are solved one after the other, with
    one preconditioner.

    Parameters
    ----------
    F : Residual or Operator
        The equation, with its constrained dofs.
    *controls : str
        See `functional`.
    linear, preconditioner, rtol, u0, level
        See `femops.adjoint.SolveMap`.

    Returns
    -------
    callable
        ``f(b, kappa=k)`` or ``f(b, k)`` is a vector; b is the load. For an operator b is the
        right-hand side of `femops.cg`, as `Operator.rhs` makes it: at constrained dofs it has the
        solution's values. If you give u0, see `femops.adjoint.SolveMap`.

    Raises
    ------
    OperatorError
        See `functional`.
    VectorError
        See `functional`.
    SolverError
        In a call: the equation can't be solved. A compiled function of JAX raises JAX's own error,
        whose message contains this one.

    Examples
    --------
    >>> import jax, femops, femops.jax
    >>> jax.config.update("jax_enable_x64", True)
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.diffusion(V, 1.0).constrained(V.boundary_dofs())
    >>> solve = femops.jax.solve(A, "kappa")
    >>> b = jax.numpy.asarray(A.rhs(femops.load(V, 1.0)))
    >>> compliance = jax.jit(lambda kappa: b @ solve(b, kappa=kappa))
    >>> slope = jax.grad(compliance)(2.0)
    >>> bool(abs(slope + compliance(2.0) / 2.0) < 1e-9)
    True
    """
    options: dict[str, Any] = {"linear": linear, "preconditioner": preconditioner, "level": level}
    return _function(SolveMap(F, controls, rtol=rtol, u0=u0, **options))


def _function(function: Map) -> Callable[..., Any]:
    """Wrap a map into a function of JAX arrays."""
    call = Call.of(function)

    def apply(*inputs: Any, **named: Any) -> Any:
        given = function.arguments(inputs, named)
        operands = [_operand(function, name, value) for name, value in given.items()]
        return _primitive().bind(*operands, call=call)[0]

    return apply


def _operand(function: Map, name: str, value: Any) -> Any:
    """Check an input, which may be traced."""
    dtype, shape = function.dtype, function.inputs[name]
    if not jax.config.jax_enable_x64 and dtype in (np.float64, np.complex128):
        short = "float32" if dtype == np.float64 else "complex64"
        raise OperatorError(
            f"JAX has no {dtype} now, in which femops computes here: write "
            f'jax.config.update("jax_enable_x64", True), or make forms with dtype="{short}"'
        )
    if number_of(value) is not None or getattr(value, "weak_type", False):
        value = jnp.asarray(value, dtype=dtype)
    wanted = _PLATFORMS[function.space.memory.device is not None]
    if not isinstance(value, jax.Array):
        value = jnp.asarray(function.array(name, value), device=jax.devices(wanted)[0])
    if value.dtype != dtype:
        raise VectorError(f"{name} has type {value.dtype}: convert it by .astype({str(dtype)!r})")
    if value.shape != shape:
        raise VectorError(f"{name} has shape {value.shape}: give {shape}")
    if not isinstance(value, jax.core.Tracer) and value.ndim:
        found = {device.platform for device in value.devices()}
        if found != {wanted}:
            raise VectorError(
                f"{name} is on {', '.join(sorted(found))}, the space on {wanted}: "
                f'move it by jax.device_put({name}, jax.devices("{wanted}")[0])'
            )
    return value


# --- the primitive -------------------------------------------------------------------------------


@cache
def _primitive() -> Any:
    """JAX's primitive for all calls, with its rules."""
    primitive = Primitive("femops")
    primitive.multiple_results = True
    primitive.def_impl(_evaluated)
    primitive.def_abstract_eval(_abstract)
    ad.primitive_jvps[primitive] = _pushed
    ad.primitive_transposes[primitive] = _pulled
    batching.primitive_batchers[primitive] = _batched
    mlir.register_lowering(primitive, mlir.lower_fun(_called_back, multiple_results=True))
    return primitive


def _shapes(operands: Any, call: Call) -> list[tuple[int, ...]]:
    batch = call.batch([operand.shape for operand in operands])
    return [(*batch, *shape) for shape in call.shapes]


def _abstract(*operands: Any, call: Call) -> list[Any]:
    return [jax.core.ShapedArray(shape, call.map.dtype) for shape in _shapes(operands, call)]


def _evaluated(*operands: Any, call: Call) -> list[Any]:
    """Evaluate without a compiled function. Neither operands nor aligned results are copied."""
    device = call.map.space.memory.device
    place = next((d for x in operands if isinstance(x, jax.Array) for d in x.devices()), None)

    def given(x: Any) -> Any:
        """Array in the memory where it lies, the host's for some constants."""
        there = isinstance(x, jax.Array) and device is not None and x.device.platform != "cpu"
        return jax.block_until_ready(x) if there else np.asarray(x)

    def result(x: Any) -> Any:
        if x.ndim and isinstance(x, np.ndarray) == (device is None):
            aligned = device is None or device.address(x) % _ALIGNMENT == 0
            return jax.dlpack.from_dlpack(x if aligned else x.copy())
        return jax.device_put(x, place)  # derivatives by constants come from the host

    return [result(x) for x in call(*map(given, operands))]


def _called_back(*operands: Any, call: Call) -> Any:
    """Evaluate in a compiled function."""
    results = [jax.ShapeDtypeStruct(s, call.map.dtype) for s in _shapes(operands, call)]
    return jax.pure_callback(partial(_on_host, call), results, *operands)


def _on_host(call: Call, *operands: Any) -> list[NDArray[Any]]:
    """Evaluate with operands and results on the host."""
    memory = call.map.space.memory
    found = call(*(memory.put(np.asarray(operand)) for operand in operands))
    return [x if isinstance(x, np.ndarray) else memory.get(x) for x in found]


def _pushed(primals: Any, tangents: Any, *, call: Call) -> tuple[Any, Any]:
    """Values, and their change along tangents."""
    bind = partial(_primitive().bind)
    results, count = bind(*primals, call=call), call.num_residuals
    zero = [isinstance(tangent, ad.Zero) for tangent in tangents]
    if call.kind == "value":
        names = [name for name, none in zip(call.map.inputs, zero, strict=True) if not none]
        given = [tangent for tangent, none in zip(tangents, zero, strict=True) if not none]
        known = [*primals, *(results if call.map.needs_result else ())]
        return results, bind(*known, *given, call=call.along(names))
    if not all(zero[:count]):
        call.refuse_second()
    linear = [ad.instantiate_zeros(tangent) for tangent in tangents[count:]]
    return results, bind(*primals[:count], *linear, call=call)


def _pulled(cotangents: Any, *operands: Any, call: Call) -> list[Any]:
    """Cotangents of the operands in which a call is linear."""
    count = call.num_residuals
    known, linear = operands[:count], operands[count:]
    wanted = [count + k for k, x in enumerate(linear) if ad.is_undefined_primal(x)]
    names = call.names if call.kind == "vjp" else [call.names[k - count] for k in wanted]
    given = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    found = _primitive().bind(*known, *given, call=call.transposed(names))
    result: list[Any] = [None] * len(operands)
    for k, x in zip(wanted, found, strict=True):
        result[k] = x.sum(axis=call.extra_axes(k))
    return result


def _batched(operands: Any, axes: Any, *, call: Call) -> tuple[list[Any], list[int]]:
    """Values for one more batch axis."""
    moved = [
        x if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    batched = call.batched(tuple(axis is not None for axis in axes))
    found = _primitive().bind(*moved, call=batched)
    return found, [0] * len(found)
