"""All forms on a device beside the host: on a GPU where there is one, some on the host as a GPU."""

from __future__ import annotations

import pytest

from femops import forms
from femops_kernels.device import Device
from support.cuda.forms import FORMS, SIMPLICES, by_tables, cases, difference
from support.cuda.guarded import gpu
from support.cuda.host_device import host_device, plant_a_factor
from support.mixed_meshes import MIXED
from support.refined import REFINED


@pytest.fixture(scope="module")
def device() -> Device:
    return gpu()


@pytest.mark.parametrize(("name", "dim"), cases())
def test_forms_on_a_gpu(device: Device, name: str, dim: int) -> None:
    assert difference(name, dim, device) <= 1.0


@pytest.mark.parametrize(("name", "dim"), [case for case in cases() if case[1] > 1])
def test_refined_meshes_on_a_gpu(device: Device, name: str, dim: int) -> None:
    assert difference(name, dim, device, REFINED) <= 1.0


@pytest.mark.parametrize(("name", "dim"), by_tables())
def test_simplices_on_a_gpu(device: Device, name: str, dim: int) -> None:
    assert difference(name, dim, device, SIMPLICES) <= 1.0


@pytest.mark.parametrize(("name", "dim"), by_tables())
def test_several_shapes_on_a_gpu(device: Device, name: str, dim: int) -> None:
    assert difference(name, dim, device, MIXED) <= 1.0


ON_THE_HOST = [
    *(("diffusion, constrained", 2), ("conjugate gradients", 2), ("residual of two fields", 2)),
    *(("form by eigenvectors", 2), ("form by eigenvectors", 3)),
]


REFINED_ON_THE_HOST = [
    *(("diffusion, constrained", 3), ("residual of two fields", 2), ("multigrid", 2)),
    ("interior_penalty, dirichlet_load", 2),
]


@pytest.mark.parametrize(("name", "dim"), ON_THE_HOST)
def test_forms_on_the_host_as_a_gpu(name: str, dim: int) -> None:
    assert 0.0 <= difference(name, dim, host_device()) <= 1.0


@pytest.mark.parametrize(("name", "dim"), REFINED_ON_THE_HOST)
def test_refined_meshes_on_the_host_as_a_gpu(name: str, dim: int) -> None:
    assert 0.0 <= difference(name, dim, host_device(), REFINED) <= 1.0


OFTEN = [
    *(("diffusion, constrained", 2), ("convection, transposed", 3), ("boundary_mass", 2)),
    *(("boundary form of derivatives", 3), ("interior_penalty, dirichlet_load", 2)),
    *(("residual of two fields", 3), ("multigrid", 3), ("neo_hookean", 2)),
]


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        pytest.param(*case, marks=() if case in OFTEN else pytest.mark.exhaustive)
        for case in by_tables()
    ],
)
def test_simplices_on_the_host_as_a_gpu(name: str, dim: int) -> None:
    assert 0.0 <= difference(name, dim, host_device(), SIMPLICES) <= 1.0


OF_SHAPES = [("upwind_convection", 2), ("divergence, transposed", 3), ("residual of two fields", 2)]


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        pytest.param(*case, marks=() if case in OF_SHAPES else pytest.mark.exhaustive)
        for case in by_tables()
    ],
)
def test_several_shapes_on_the_host_as_a_gpu(name: str, dim: int) -> None:
    assert 0.0 <= difference(name, dim, host_device(), MIXED) <= 1.0


def test_a_wrong_kernel_is_found(monkeypatch) -> None:
    plant_a_factor(monkeypatch)
    assert difference("mass", 2, host_device()) == pytest.approx(1e6, rel=1e-3)


def test_every_form_of_the_library_is_compared() -> None:
    names = " ".join(FORMS).replace("form of two fields", "")
    assert all(name in names for name in set(forms.__all__) - {"residual", "functional"})
