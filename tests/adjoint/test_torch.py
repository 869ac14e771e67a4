"""femops in PyTorch: gradients in both modes, batches, and a module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, VectorError

torch = pytest.importorskip("torch")
import femops.torch  # noqa: E402
from support.cases.differentiable import (  # noqa: E402
    CONTROLS,
    KAPPA,
    A,
    F,
    J,
    K,
    V,
    complex_product,
    direct,
    problem,
)
from support.cuda.guarded import gpu  # noqa: E402

# PyTorch's own, when it loads forward mode
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.torch.jit.script.:{kind}")
    for kind in ("DeprecationWarning", "FutureWarning")
]


FUNCTIONS = {
    "functional": femops.torch.functional(J, *CONTROLS),
    "residual": femops.torch.residual(F, *CONTROLS),
    "solve": femops.torch.solve(F, *CONTROLS, linear=direct, rtol=1e-13),
}
PRODUCT = femops.torch.operator(A)


def inputs(seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    arrays = 0.2 * random.random(V.size), 1.0 + random.random(K.size), random.random((3,))
    u, kappa, rest = (torch.tensor(array, dtype=torch.float64) for array in arrays)
    return [x.requires_grad_() for x in (u, kappa, rest[0].clone(), rest[1:].clone())]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name: str) -> None:
    def function(u: Any, *controls: Any) -> Any:
        return FUNCTIONS[name](u, **dict(zip(CONTROLS, controls, strict=True)))

    assert torch.autograd.gradcheck(function, inputs(), check_forward_ad=True)


def test_values_at_constrained_dofs() -> None:
    C = femops.diffusion(V, 1.0).constrained(V.boundary_dofs())
    solve = femops.torch.solve(C, rtol=1e-13)
    b = torch.from_numpy(C.rhs(V.zeros(), 1.0)).requires_grad_()
    assert solve(b).detach().numpy() == pytest.approx(np.ones(V.size), rel=1e-9)
    assert torch.autograd.gradcheck(solve, b, check_forward_ad=True)


def test_a_product_and_its_derivatives_of_any_order() -> None:
    u = inputs()[0]
    found = PRODUCT(u)
    assert found.detach().numpy() == pytest.approx(A @ u.detach().numpy(), rel=1e-14)
    assert torch.autograd.gradcheck(PRODUCT, u, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(PRODUCT, u)
    matrix = A.assemble().toarray()
    hessian = torch.func.hessian(lambda u: 0.5 * u @ PRODUCT(u))(u.detach())
    assert hessian.numpy() == pytest.approx(0.5 * (matrix + matrix.T), abs=1e-13)


def test_complex_products() -> None:
    """Derivatives are those of PyTorch for the matrix: conjugated."""
    C = complex_product()
    product, matrix = femops.torch.operator(C), torch.from_numpy(C.assemble().toarray())
    u, v = (torch.complex(inputs(k)[0].detach(), inputs(k + 2)[0].detach()) for k in (0, 1))
    assert torch.autograd.gradcheck(product, u.requires_grad_(), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, u)
    found, exact = (torch.autograd.grad(f(u), u, v)[0] for f in (product, lambda u: matrix @ u))
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(product(v.conj()), matrix @ v.conj(), rtol=1e-12, atol=1e-13)


def test_many_vectors_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    from femops.adjoint.maps import OperatorMap

    shapes, batched = [], OperatorMap.batched

    def counted(self: Any, X: Any, **options: Any) -> Any:
        shapes.append(X.shape)
        return batched(self, X, **options)

    monkeypatch.setattr(OperatorMap, "batched", counted)
    X = torch.stack([inputs(seed)[0].detach() for seed in range(6)]).reshape(2, 3, V.size)
    found = torch.vmap(torch.vmap(PRODUCT))(X)
    assert found[1, 2].numpy() == pytest.approx(A @ X[1, 2].numpy(), rel=1e-12)
    turned = torch.vmap(PRODUCT, in_dims=1, out_dims=1)(X[0].T)
    assert turned.numpy() == pytest.approx(found[0].numpy().T, rel=1e-12)
    assert shapes == [(V.size, 6), (V.size, 3)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name: str) -> None:
    """Batches of some inputs, with derivatives on either side of vmap."""
    u, kappa = (x.detach() for x in inputs()[:2])
    a = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)

    def value(a: Any, kappa: Any) -> Any:
        return (FUNCTIONS[name](u, a=a, kappa=kappa) ** 2).sum()

    def total(a: Any, kappa: Any) -> Any:
        return torch.vmap(value, (0, None))(a, kappa).sum()

    slopes = torch.func.grad(value, (0, 1))
    single = [slopes(one, kappa) for one in a]
    inner, outer = torch.vmap(slopes, (0, None))(a, kappa), torch.func.grad(total, (0, 1))(a, kappa)
    for k, (by_a, by_kappa) in enumerate(single):
        assert float(inner[0][k]) == pytest.approx(float(by_a), rel=1e-9)
        assert float(outer[0][k]) == pytest.approx(float(by_a), rel=1e-9)
        assert inner[1][k].numpy() == pytest.approx(by_kappa.numpy(), rel=1e-8)
    assert outer[1].numpy() == pytest.approx(sum(g.numpy() for _, g in single), rel=1e-8)
    ahead = torch.func.jvp(total, (a, kappa), (torch.ones_like(a), kappa))[1]
    assert float(ahead) == pytest.approx(float(outer[0].sum() + outer[1] @ kappa), rel=1e-8)


def test_tensors_share_memory_with_arrays() -> None:
    seen = []

    def linear(J: Any, b: Any, rtol: float) -> Any:
        seen.append(direct(J, b, rtol))
        return seen[-1]

    solve = femops.torch.solve(femops.mass(V), linear=linear)
    assert solve(inputs()[0]).data_ptr() == seen[-1].ctypes.data


@pytest.mark.parametrize("name", ["product", *FUNCTIONS])
def test_on_a_gpu(name: str) -> None:
    """Values and derivatives of the host. Tensors stay on the GPU."""
    there, values = problem(gpu()), inputs()[: 1 if name == "product" else None]
    functions = {
        "product": femops.torch.operator(there.A),
        "functional": femops.torch.functional(there.J, *CONTROLS),
        "residual": femops.torch.residual(there.F, *CONTROLS),
        "solve": femops.torch.solve(there.F, *CONTROLS, rtol=1e-13),
    }

    def results(function: Any, where: str) -> list[Any]:
        given = [x.detach().to(where if x.ndim else "cpu").requires_grad_() for x in values]

        def value(u: Any, *controls: Any) -> Any:
            return function(u, **dict(zip(CONTROLS[: len(controls)], controls, strict=True)))

        ones = [torch.ones_like(x) for x in given]
        found, ahead = torch.func.jvp(value, tuple(given), tuple(ones))
        back = torch.autograd.grad(value(*given).sin().sum(), given)
        axes = (0, *(None,) * (len(given) - 1))
        many = torch.vmap(value, axes)(torch.stack([given[0]] * 3), *given[1:])
        many = torch.cat([many.ravel(), function(given[0]).ravel()])
        assert all(x.device.type == where for x in (found, ahead, many))
        assert [x.device for x in back] == [x.device for x in given]
        return [x.detach().cpu().numpy() for x in (found, ahead, *back, many)]

    here = {"product": PRODUCT} | FUNCTIONS
    expected = results(here[name], "cpu")
    for mine, host in zip(results(functions[name], "cuda"), expected, strict=True):
        assert mine == pytest.approx(host, rel=1e-8, abs=1e-10)


class Conductivity(torch.nn.Module):  # type: ignore[misc]
    """Exponential of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.log = torch.nn.Parameter(torch.zeros(K.size, dtype=torch.float64))

    def forward(self) -> Any:
        return torch.exp(self.log)


def test_a_module_learns() -> None:
    b = torch.from_numpy(femops.load(V, 1.0))
    wanted = FUNCTIONS["solve"](b, kappa=torch.from_numpy(KAPPA.vector)).detach()
    weight = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    sources = {"kappa": Conductivity(), "a": weight}
    module = femops.torch.Solve(F, *CONTROLS, sources=sources, linear=direct)
    assert [n for n, _ in module.named_parameters()] == ["sources.a", "sources.kappa.log"]
    steps = torch.optim.LBFGS(module.sources.kappa.parameters(), line_search_fn="strong_wolfe")

    def loss() -> Any:
        steps.zero_grad()
        error = ((module(b) - wanted) ** 2).sum()
        error.backward()
        return error

    first = steps.step(loss).item()
    assert loss().item() < 1e-3 * first
    assert weight.grad is not None
    given = module(b, kappa=torch.from_numpy(KAPPA.vector))
    assert given.detach().numpy() == pytest.approx(wanted.numpy(), rel=1e-8, abs=1e-12)


def test_controls_that_are_left_out_or_numbers() -> None:
    f, u = FUNCTIONS["functional"], torch.from_numpy(V.interpolate(lambda x: x[0]))
    assert float(f(u)) == pytest.approx(J(u.numpy()), rel=1e-15)
    assert float(f(u, a=2)) == pytest.approx(J.update(a=2.0)(u.numpy()), rel=1e-15)
    assert float(f(u.numpy(), c=np.ones(2))) > 0.0


def test_arrays_of_numpy_may_be_overwritten_before_the_derivative() -> None:
    u, kappa = V.interpolate(lambda x: 1.0 + x[0]), KAPPA.vector.copy()
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    value = FUNCTIONS["functional"](u, kappa=kappa, a=a)
    (before,) = torch.autograd.grad(value, a, retain_graph=True)
    u[:] = kappa[:] = 3.0
    assert torch.autograd.grad(value, a)[0] == before


def test_controls_by_position() -> None:
    u, *values = inputs()
    by_name = FUNCTIONS["residual"](u, **dict(zip(CONTROLS, values, strict=True)))
    assert (FUNCTIONS["residual"](u, *values) == by_name).all()


def test_single_precision() -> None:
    f = femops.torch.functional(
        femops.functional(lambda u, k: k * u**2, V, k=1.0, dtype="float32"), "k"
    )
    k = torch.tensor(2.0, requires_grad=True)
    f(torch.ones(V.size), k=k).backward()
    assert float(k.grad) == pytest.approx(1.0, rel=1e-5)


def second(u: Any) -> Any:
    u.requires_grad_()
    slope = torch.autograd.grad(FUNCTIONS["functional"](u), u, create_graph=True)[0]
    return torch.autograd.grad(slope.sum(), u)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda u: PRODUCT(u[1:]), r"u has shape \(34,\): give \(35,\)"),
        (lambda u: PRODUCT(u.float()), "u has type torch.float32: convert it by"),
        (lambda u: PRODUCT(u.to("meta")), r"u is on meta, the space on cpu: move it by .to"),
        (lambda u: PRODUCT(u, k=1.0), "'k' is no input: there are u"),
        (lambda u: PRODUCT(u, u), "2 values by position are too many: there are u"),
        (lambda u: FUNCTIONS["solve"](u, u, kappa=u), "too many: there are load, kappa, a, c"),
        (lambda _: FUNCTIONS["solve"](), "load is missing: give an array"),
        (lambda u: FUNCTIONS["residual"](u, c="text"), "c has type"),
        (second, "second derivatives of FunctionalMap are not computed"),
        (lambda u: femops.torch.Solve(F, "a", sources={"c": u}), "a source for 'c', which is no"),
        (lambda u: femops.torch.Solve(F, "a", sources={"a": u}), "the source of a is"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises((OperatorError, VectorError), match=message):
        call(torch.from_numpy(V.zeros()))


def test_a_goal_that_is_no_scalar() -> None:
    with pytest.raises(RuntimeError, match="scalar"):
        FUNCTIONS["residual"](inputs()[0]).backward()
