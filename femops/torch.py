"""Operators, functionals, residuals and solves as functions of PyTorch's tensors.

PyTorch can differentiate the functions in reverse and forward mode, and transform them by
``torch.func`` and ``torch.vmap``. `Solve` is a ``torch.nn.Module``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.calls import Call
from femops.adjoint.maps import FunctionalMap, Map, OperatorMap, ResidualMap
from femops.adjoint.solve_map import SolveMap
from femops.errors import MissingExtraError, OperatorError, VectorError
from femops.operators import Functional, Operator, Residual
from femops.operators.matrix_free import MatrixFree
from femops.solvers.newton_steps import Linear, Preconditioning
from femops_common.arguments import Fraction, checked, number_of, shown

try:
    import torch
except ImportError as error:
    raise MissingExtraError(f"femops.torch needs PyTorch ({error}): pip install torch") from error

__all__ = ["Solve", "functional", "operator", "residual", "solve"]


@checked(OperatorError)
def operator(A: MatrixFree) -> Callable[[Any], Any]:
    """Product with an operator, as a function of a tensor.

    ``torch.vmap`` of it is one product with many vectors.

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
        A is not an operator.
    VectorError
        In a call: the tensor has another shape or type, or is on another device.

    Examples
    --------
    >>> import torch, femops, femops.torch
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> product = femops.torch.operator(femops.diffusion(V))
    >>> u = torch.from_numpy(V.interpolate(lambda x: x[0] ** 2)).requires_grad_()
    >>> (0.5 * u @ product(u)).backward()
    >>> bool(abs(u.grad - product(u)).max() < 1e-12)
    True
    """
    return _function(OperatorMap(A))


@checked(OperatorError)
def functional(J: Functional, *controls: str) -> Callable[..., Any]:
    """Value of a functional, as a function of tensors.

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
        J has no such coefficient, or the coefficient is a function of x. In a call: no control has
        the name.
    VectorError
        In a call: see `operator`.

    Examples
    --------
    >>> import torch, femops, femops.torch
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> J = femops.functional(lambda u, k: k * u**2, V, k=1.0)
    >>> f = femops.torch.functional(J, "k")
    >>> k = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    >>> f(torch.ones(V.size, dtype=torch.float64), k=k).backward()
    >>> round(float(k.grad), 12)
    1.0
    """
    return _function(FunctionalMap(J, controls))


@checked(OperatorError)
def residual(F: Residual | Operator, *controls: str) -> Callable[..., Any]:
    """Residual of an equation, zero at its constrained dofs, as a function of tensors.

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
    """Solution of an equation F(u) = b, as a function of tensors.

    Derivatives are implicit: each solves one linear equation. ``torch.vmap`` over loads solves all
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
        In a call: the equation can't be solved.

    Examples
    --------
    >>> import torch, femops, femops.torch
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.diffusion(V, 1.0).constrained(V.boundary_dofs())
    >>> solve = femops.torch.solve(A, "kappa")
    >>> b = torch.from_numpy(A.rhs(femops.load(V, 1.0)))
    >>> kappa = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    >>> compliance = b @ solve(b, kappa=kappa)
    >>> compliance.backward()
    >>> bool(abs(kappa.grad + compliance / kappa) < 1e-9)
    True
    """
    options: dict[str, Any] = {"linear": linear, "preconditioner": preconditioner, "level": level}
    return _function(SolveMap(F, controls, rtol=rtol, u0=u0, **options))


@final
class Solve(torch.nn.Module):  # type: ignore[misc]
    """Solution of an equation as a module, whose controls may come from other modules.

    Parameters
    ----------
    F : Residual or Operator
        The equation, with its constrained dofs.
    *controls : str
        See `solve`.
    sources : dict, optional
        Sources of controls by name: a ``torch.nn.Parameter``, or a module that returns the control
        when it is called without arguments. They become parameters and modules of this module.
    **options
        See `solve`.

    Raises
    ------
    OperatorError
        See `solve`. Or a source is for no control, or it is neither a module nor a parameter.

    Examples
    --------
    >>> import torch, femops, femops.torch
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.diffusion(V, 1.0).constrained(V.boundary_dofs())
    >>> kappa = torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    >>> module = femops.torch.Solve(A, "kappa", sources={"kappa": kappa})
    >>> module(torch.from_numpy(A.rhs(femops.load(V, 1.0)))).sum().backward()
    >>> [name for name, _ in module.named_parameters()], bool(kappa.grad < 0.0)
    (['sources.kappa'], True)
    """

    def __init__(
        self,
        F: Residual | Operator,
        *controls: str,
        sources: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._solve, self.sources = solve(F, *controls, **options), torch.nn.Module()
        for name, source in (sources or {}).items():
            if name not in controls:
                has = ", ".join(controls) or "none"
                raise OperatorError(f"a source for {shown(name)}, which is no control: {has} are")
            if not isinstance(source, torch.nn.Module | torch.nn.Parameter):
                raise OperatorError(
                    f"the source of {name} is {shown(source)}: give a module or a parameter of "
                    "torch.nn"
                )
            setattr(self.sources, name, source)
        self._sourced = (*(sources or {}),)

    def forward(self, load: Any, **controls: Any) -> Any:
        """Solve for a load. Controls that are given replace their sources.

        Parameters
        ----------
        load : (size,) tensor
        **controls : tensors
            Values by name. A control without a value and without a source has its value in F.
        """
        for name in self._sourced:
            if name not in controls:
                source = getattr(self.sources, name)
                controls[name] = source() if isinstance(source, torch.nn.Module) else source
        return self._solve(load, **controls)


def _function(function: Map) -> Callable[..., Any]:
    """Wrap a map into a function of tensors."""
    call = Call.of(function)

    def apply(*inputs: Any, **named: Any) -> Any:
        given = function.arguments(inputs, named)
        operands = [_operand(function, name, value) for name, value in given.items()]
        return _Function.apply(call, *operands)[0]

    return apply


def _operand(function: Map, name: str, value: Any) -> Any:
    """Check an input, and make it a tensor."""
    wanted = "cpu" if function.space.memory.device is None else "cuda"
    if not isinstance(value, torch.Tensor):
        on_host = number_of(value) is not None
        # a copy: vectors saved for derivatives must not change with the user's array
        value = _tensor(function.array(name, value, on_host=on_host).copy())
        value = value.to(wanted) if value.ndim else value
    dtype = str(function.dtype)
    if value.dtype != getattr(torch, dtype):
        raise VectorError(f"{name} has type {value.dtype}: convert it by .to(torch.{dtype})")
    if tuple(value.shape) != function.inputs[name]:
        raise VectorError(f"{name} has shape {tuple(value.shape)}: give {function.inputs[name]}")
    if value.device.type != wanted and value.ndim:
        raise VectorError(
            f"{name} is on {value.device}, the space on {wanted}: move it by .to({wanted!r})"
        )
    return value


def _tensor(array: Any) -> Any:
    """Tensor that shares the memory of a new array of NumPy or CuPy."""
    if not isinstance(array, np.ndarray):
        return torch.from_dlpack(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _array(call: Call, tensor: Any) -> Any:
    """Array that shares the memory of a tensor; a copy if the tensor is not contiguous."""
    tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    if tensor.device.type == "cpu":
        return tensor.numpy()
    return call.map.space.memory.adopt(tensor, "the tensor")


class _Function(torch.autograd.Function):  # type: ignore[misc]
    """All calls, with their derivatives, which are calls too."""

    @staticmethod
    def forward(call: Call, *operands: Any) -> tuple[Any, ...]:
        found = call(*(_array(call, operand) for operand in operands))
        # derivatives by constants come from the host
        return tuple(_tensor(x).to(operands[0].device) for x in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *operands = inputs
        needs = call.kind == "value" and call.map.needs_result
        known = [*operands[: call.num_residuals], *(output if needs else ())]
        ctx.call, ctx.devices = call, [operand.device for operand in operands]
        ctx.save_for_backward(*known)
        ctx.save_for_forward(*known)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        call, count = ctx.call, ctx.call.num_residuals
        needed = [k for k in range(len(ctx.devices)) if ctx.needs_input_grad[k + 1]]
        result: list[Any] = [None] * (1 + len(ctx.devices))
        if call.kind == "value":
            names = [[*call.map.inputs][k] for k in needed]
        else:
            if any(k < count for k in needed):
                call.refuse_second()
            names = call.names if call.kind == "vjp" else [call.names[k - count] for k in needed]
        # derivatives by complex numbers are conjugated, as PyTorch's are
        given = [cotangent.conj() for cotangent in cotangents]
        found = _Function.apply(call.transposed(names), *ctx.saved_tensors, *given)
        for k, x in zip(needed, found, strict=True):
            axes = call.extra_axes(k)
            result[k + 1] = (x.sum(dim=axes) if axes else x).to(ctx.devices[k]).conj()
        return tuple(result)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> tuple[Any, ...]:
        call, count = ctx.call, ctx.call.num_residuals
        if call.kind == "value":
            names = [n for n, t in zip(call.map.inputs, tangents, strict=True) if t is not None]
            given = [tangent for tangent in tangents if tangent is not None]
            found = _Function.apply(call.along(names), *ctx.saved_tensors, *given)
        else:
            if any(tangent is not None for tangent in tangents[:count]):
                call.refuse_second()
            found = _Function.apply(call, *ctx.saved_tensors, *tangents[count:])
        return tuple(found)

    @staticmethod
    def vmap(_: Any, in_dims: Any, call: Call, *operands: Any) -> tuple[Any, Any]:
        axes = in_dims[1:]
        moved = [
            x if axis is None else x.movedim(axis, 0)
            for x, axis in zip(operands, axes, strict=True)
        ]
        batched = call.batched(tuple(axis is not None for axis in axes))
        found = _Function.apply(batched, *moved)
        return found, (0,) * len(found)
