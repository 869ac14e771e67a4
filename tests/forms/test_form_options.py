"""Options that forms share: seen by help(), passed on, and refused where there is no such one."""

import inspect

import numpy as np
import pytest

import femops
from femops.forms.form import FormOptions, NonlinearOptions, Options

BILINEAR = {
    femops.mass: (),
    femops.diffusion: (),
    femops.helmholtz: (),
    femops.convection: ((1.0, 2.0),),
    femops.boundary_mass: (),
}
NONLINEAR = {femops.p_laplacian: (3.0,)}


@pytest.fixture(scope="module")
def V():
    """On elements that are not affine, so that numbers are stored at points."""
    return femops.H1(femops.box((2, 2), mapping=lambda x: x + 0.1 * x[::-1] ** 2, order=2), 2)


@pytest.mark.parametrize("make", [*BILINEAR, femops.elasticity, femops.divergence, femops.form])
def test_help_shows_all_options_of_a_form(make):
    check_shown(make, FormOptions)


@pytest.mark.parametrize("make", [*NONLINEAR, femops.neo_hookean, femops.residual])
def test_help_shows_all_options_of_a_residual(make):
    check_shown(make, NonlinearOptions)
    assert "level" not in inspect.signature(make).parameters
    assert "\nlevel :" not in inspect.getdoc(make)


def check_shown(make, kind):
    parameters, text = inspect.signature(make).parameters, inspect.getdoc(make)
    assert "options" not in parameters
    assert "**options" not in text
    for name in kind.__annotations__:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == getattr(Options(), name)
        assert text.count(f"\n{name} : ") == 1


@pytest.mark.parametrize(("make", "given"), BILINEAR.items())
def test_options_are_passed_on(V, make, given):
    A = make(V, *given, dtype="float32", lanes=4, level="matrix-free")
    (width,) = {sweep.kernel.width for sweep in A.compiled.sweeps if hasattr(sweep, "kernel")}
    assert (A.dtype, A.level, width) == (np.float32, "matrix-free", 4)
    plain, half, more = (
        make(V, *given, **options).cost().stored_bytes
        for options in ({"quadrature": 3}, {"quadrature": 3, "data_dtype": "float32"}, {})
    )
    assert half < plain < more


@pytest.mark.parametrize(("make", "given"), [*BILINEAR.items(), *NONLINEAR.items()])
def test_another_option_is_one_clear_error(V, make, given):
    words = rf"^{make.__name__}\(\) got an unexpected .* 'lane': did you mean lanes\?$"
    with pytest.raises(TypeError, match=words):
        make(V, *given, lane=4)


def test_nonlinear_forms_have_no_level(V):
    with pytest.raises(TypeError, match=r"keyword argument 'level': .* quadrature, dtype, lanes$"):
        femops.p_laplacian(V, 3.0, level="matrix-free")
