"""Level auto: chosen by measurement on a sample, when it is first needed."""

import logging
from functools import cache

import numpy as np
import pytest

import femops
from femops.operators.assembly import csr as assembly
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.levels import auto
from femops.operators.levels.auto import first_terms
from femops.operators.levels.dispatch import LEVELS
from femops_kernels.compiled import ONE, Panels
from femops_kernels.cpu import machine
from support.cases.kernels import bend, random_vector, smooth, turned, wave
from support.cases.levels import bulge, own, wind


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch):
    """As many elements as there are lanes, of meshes that have more; nothing is chosen yet."""
    monkeypatch.setattr(auto, "_choices", {})
    monkeypatch.setattr(auto, "_SAMPLE", 1)
    monkeypatch.setattr(auto, "_ROUNDS", 1)


@pytest.fixture
def measured(monkeypatch):
    """What has been chosen, one entry for each measurement."""
    chosen = []

    def watched(*given):
        chosen.append(choose(*given))
        return chosen[-1]

    choose = auto.choose_level
    monkeypatch.setattr(auto, "choose_level", watched)
    return chosen


@cache
def mesh(kind):
    return {
        "curved": lambda: turned(femops.box((6, 5), order=2, mapping=bend)),
        "affine": lambda: turned(femops.box((6, 5))),
        # affine where the sample is, curved elsewhere
        "mixed": lambda: femops.box((6, 5), order=2, mapping=lambda x: x + 0.2 * ramp(x)),
        "periodic": lambda: femops.box((6, 5), order=2, periodic=(True, True), mapping=wave),
    }[kind]()


def ramp(x):
    return np.maximum(x[::-1] - 0.6, 0.0) ** 2


@cache
def space(kind="curved", ncomp=1, order=1):
    return femops.H1(mesh(kind), order, ncomp=ncomp)


def field(order, ncomp, function):
    V = femops.H1(mesh("curved"), order, ncomp=ncomp)
    return femops.GridFunction(V, V.interpolate(function))


def array(*shape):
    """Values at the points, different at each."""
    values = np.random.default_rng(2).uniform(1.0, 2.0, (30, 9, *shape))
    return values + 3.0 * np.eye(*shape) if len(shape) == 2 else values


def jacobian(make, ncomp, **given):
    V = space("curved", ncomp)
    return make(V, **given).jacobian(V.interpolate(bulge(ncomp)))


def around():
    return femops.boundary_mass(space(), smooth)


OPERATORS = {
    "diffusion, mixed": lambda: femops.diffusion(space("mixed"), 2.0),
    "mass, periodic, float32": lambda: femops.mass(space("periodic"), smooth, dtype="float32"),
    "convection, transposed": lambda: femops.convection(space(), field(1, 2, wind)).T,
    "materials": lambda: femops.mass(
        space(), femops.GridFunction(femops.L2(mesh("curved"), 0), np.linspace(1.0, 2.0, 30))
    ),
    "divergence, transposed": lambda: (
        femops.divergence(space("curved", 2), femops.L2(mesh("curved"), 0)).T
    ),
    "neo-Hookean": lambda: jacobian(femops.neo_hookean, 2, mu=field(1, 1, smooth)),
    "p-Laplacian": lambda: jacobian(femops.p_laplacian, 1, p=3.5, epsilon=array()),
    "own, Bernstein": lambda: femops.form(
        own, femops.H1(mesh("curved"), 1, family="bernstein"), c=smooth
    ),
    "sum": lambda: femops.diffusion(space(), array(2, 2)) - 0.5 * femops.mass(space(), 3.0),
    "faces too": lambda: femops.diffusion(space(), smooth) + 2.0 * around(),
    "faces alone": around,
}

# The others with `make exhaustive`: here all that differs is their sample, see the next test.
FEW = ("diffusion, mixed", "divergence, transposed", "p-Laplacian", "faces too", "faces alone")
EACH = [n if n in FEW else pytest.param(n, marks=pytest.mark.exhaustive) for n in OPERATORS]


@pytest.mark.parametrize("name", EACH)
def test_whatever_is_chosen_is_the_same_operator(name, measured):
    plain = OPERATORS[name]()
    operator = plain.at_level("auto")
    assert operator.asked == "auto"
    assert operator.level in LEVELS
    assert measured == [operator.level]
    u, tolerance = random_vector(plain.space, plain.dtype), 1e-12
    if plain.dtype != np.float64:
        tolerance = 1e-5
    expected = plain.apply(u)
    atol = tolerance * abs(expected).max()
    np.testing.assert_allclose(operator.apply(u), expected, rtol=0, atol=atol)
    assert len(measured) == 1
    assert operator.cost() == plain.at_level(operator.level).cost()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [n for n in OPERATORS if "faces" not in n])
def test_the_sample_is_the_first_elements(name):
    """The same element matrices, and the same kernels as for the whole, at every level."""
    plain = OPERATORS[name]()
    for level in ("partial", "matrix-free"):
        whole = plain.at_level(level)._summands
        sample = first_terms(whole, 8)
        for (factor, term), (same, piece) in zip(whole, sample, strict=True):
            assert factor == same
            assert piece.trial.mesh.num_elements == 8
            expected = ElementAssembly(term).matrices(0, 8)
            got = ElementAssembly(piece).matrices(0, 8)
            tolerance = 1e-14 if term.dtype == np.float64 else 1e-6
            atol = tolerance * abs(expected).max()
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol)
            assert piece.qfunction == term.qfunction
            assert piece.dtype == term.dtype


def test_constants_of_a_sample():
    """An array of as many numbers as the sample has elements and points is one at no point."""
    V, K = femops.H1(femops.box((5,)), 1), np.arange(8.0).reshape(2, 4)
    whole = femops.form(lambda u, K: {"value": K[0, 1] * K[1, 3] * u}, V, K=K, quadrature=4)
    (_, term), (_, piece) = whole._summands[0], first_terms(whole._summands, 2)[0]
    expected = ElementAssembly(term).matrices(0, 2)
    np.testing.assert_allclose(ElementAssembly(piece).matrices(0, 2), expected, rtol=1e-14)
    assert piece.source is not None
    assert term.source is not None
    assert piece.source.known == term.source.known


def test_every_level_can_be_measured(monkeypatch):
    """All of them where no bound is in the way; with the caches emptied in between."""
    for name in ("_RATE", "_CACHE_BANDWIDTH", "_OPTIMISM"):
        monkeypatch.setattr(auto, name, 1e30)
    for cached in (2**40, 0):
        monkeypatch.setattr(auto, "_cached_bytes", lambda cached=cached: cached)
        monkeypatch.setattr(auto, "_FLUSH", 2**16)
        times = auto.measure_levels(femops.diffusion(space(), smooth)._summands)
        assert set(times) == set(LEVELS)
        assert min(times.values()) > 0.0


def test_the_size_of_the_caches(tmp_path):
    """The largest one of a core, as Linux tells; none where it does not."""
    assert machine.cache_bytes(tmp_path) == 0
    for k, size in enumerate(("32K", "", "1024K", "96M", "?")):
        (tmp_path / f"index{k}").mkdir()
        (tmp_path / f"index{k}" / "size").write_text(f"{size}\n")
    assert machine.cache_bytes(tmp_path) == 96 * 2**20
    assert auto._cached_bytes() >= 16 * 2**20


def test_it_is_measured_when_it_is_needed_and_once(measured):
    V = space()
    A = femops.diffusion(V, smooth, level="auto")
    B = (A + 2.0 * femops.mass(V, level="auto")).constrained(V.boundary_dofs())
    assert "auto" in repr(A)
    assert "auto" in repr(B)
    assert (A.shape, A.dtype, A.symmetric) == ((V.size, V.size), np.float64, True)
    assert A.at_level("auto") is A
    assert A.coefficients == {"kappa"}
    A.diagonal()
    A.at_level("partial").apply(random_vector(V, "float64"))
    assert measured == []
    B.apply(random_vector(V, "float64"))
    assert measured == [B.level]
    B.cost()
    assert B.T is B
    assert len(measured) == 1


def test_essential_conditions_share_the_choice(measured):
    V, u = space(), random_vector(space(), "float64")
    A = femops.diffusion(V, smooth, level="auto")
    A.apply(u)
    held, plain = (B.constrained(V.boundary_dofs()) for B in (A, femops.diffusion(V, smooth)))
    assert held.level == held.unconstrained.level == A.level == measured[0]
    np.testing.assert_allclose(held.apply(u), plain.apply(u), rtol=0, atol=1e-13)
    np.testing.assert_allclose(held.rhs(V.zeros(), u), plain.rhs(V.zeros(), u), rtol=0, atol=1e-13)
    assert abs(held.assemble() - plain.assemble()).max() < 1e-13
    assert len(measured) == 1


def test_an_update_keeps_the_choice(measured):
    A = femops.diffusion(space(), 2.0, level="auto")
    B = A.update(kappa=smooth)
    assert B.level == A.level == measured[0]
    assert len(measured) == 1
    u = random_vector(space(), "float64")
    expected = femops.diffusion(space(), smooth).apply(u)
    np.testing.assert_allclose(B.apply(u), expected, rtol=0, atol=1e-13)


def test_the_choice_is_logged(caplog):
    A = femops.mass(space(), level="auto")
    with caplog.at_level(logging.INFO, logger="femops"):
        level = A.level
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("femops", "INFO")
    assert record.getMessage().startswith(f"level 'auto': {level} chosen, one application")
    assert f"{level} " in record.getMessage().split("in ms:")[1]


def test_equal_operators_have_the_same_level(monkeypatch):
    """Whatever is measured later; other sizes, types and numbers of threads are asked anew."""
    calls = []

    def measured(_, levels, *__):
        calls.append(levels)
        return {level: float((k + len(calls)) % 3) for k, level in enumerate(levels)}

    monkeypatch.setattr(auto, "measure_levels", measured)
    first = femops.diffusion(space(), smooth, level="auto")
    assert {femops.diffusion(space(), smooth, level="auto").level for _ in range(4)} == {
        first.level
    }
    assert len(calls) == 1
    others = (
        femops.diffusion(space(order=2), smooth, level="auto"),
        femops.diffusion(space(), smooth, level="auto", dtype="float32"),
        femops.mass(space(), smooth, level="auto"),
    )
    for k, other in enumerate(others):
        assert other.level
        assert len(calls) == 2 + k
    monkeypatch.setattr(auto, "get_threads", lambda: 7)
    assert femops.diffusion(space(), smooth, level="auto").level
    assert len(calls) == 5


@pytest.mark.parametrize(("partial", "level"), [(0.97, "matrix-free"), (0.9, "partial")])
def test_of_levels_that_are_as_fast_the_one_of_least_memory_is_taken(partial, level, monkeypatch):
    times = {"partial": partial, "matrix-free": 1.0, "element": 2.0}
    monkeypatch.setattr(auto, "measure_levels", lambda *_: times)
    assert femops.diffusion(space(order=3), smooth, level="auto").level == level


def test_many_vectors_have_a_level_of_their_own(monkeypatch):
    """Measured on as many vectors; the single one's stays, and data of a level are made once."""
    asked = []
    fast = {1: "partial", 12: "element", 40: "element"}

    def measured(_, levels, panels):
        asked.append(panels)
        return {level: float(level != fast[panels.nvec]) for level in levels}

    monkeypatch.setattr(auto, "measure_levels", measured)
    V = space("curved", 2, 2)
    A = femops.diffusion(V, smooth, level="auto").constrained(V.boundary_dofs())
    plain = femops.diffusion(V, smooth).constrained(V.boundary_dofs())
    X = np.random.default_rng(3).standard_normal((V.size, 40))
    for nvec in (12, 40, 12):
        expected = plain @ X[:, :nvec]
        np.testing.assert_allclose(A @ X[:, :nvec], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(A @ X[:, 0], plain @ X[:, 0], rtol=0, atol=1e-12)
    assert A.level == "partial"
    assert asked == [Panels(12), Panels(40), ONE]
    data = A._level_data._chosen_for
    assert data[Panels(12)] is data[Panels(40)]
    assert data[Panels(12)].level == "element"


def test_levels_are_measured_on_many_vectors():
    panels = Panels(33)
    times = auto.measure_levels(femops.mass(space(), smooth)._summands, LEVELS, panels)
    assert times
    assert min(times.values()) > 0.0


def test_levels_that_do_not_fit_are_left_out(monkeypatch):
    V = space()
    needed = assembly.element_bytes(femops.diffusion(V)._summands[0][1])
    for name in ("_RATE", "_CACHE_BANDWIDTH"):
        monkeypatch.setattr(auto, name, 1e30)  # all are tried
    tried = []
    measure = auto.measure_levels

    def watched(*given):
        tried.append(set(measure(*given)))
        return measure(*given)

    monkeypatch.setattr(auto, "measure_levels", watched)
    expected = {needed * 10: set(LEVELS), needed: set(LEVELS) - {"full"}}
    expected[needed - 1] = {"partial", "matrix-free"}
    for free, levels in expected.items():
        monkeypatch.setattr(assembly, "available_memory", lambda free=free: free)
        A = femops.diffusion(V, smooth, level="auto")
        A.apply(random_vector(V, "float64"))
        assert tried[-1] == levels
        assert A.level in levels


def test_what_is_refused_is_not_measured(measured):
    for ask, words in (
        (lambda: femops.mass(space(), level="auto") + femops.mass(space()), r"at_level\('auto'\)"),
        (lambda: femops.mass(space(), np.nan, level="auto"), "finite"),
        (lambda: femops.mass(space(), np.ones(3), level="auto"), "shape"),
    ):
        with pytest.raises(femops.errors.OperatorError, match=words):
            ask()
    assert measured == []


def test_memory_that_runs_out_meanwhile(monkeypatch):
    """Levels that fitted when the choice began, and no longer do, are left out."""
    free = iter([2**40] * 2)  # asked of "full" and of "element"
    monkeypatch.setattr(assembly, "available_memory", lambda: next(free, 0))
    A = femops.mass(femops.H1(femops.box((8, 8), mapping=bend), 1), level="auto")
    assert A.level in ("partial", "matrix-free")
