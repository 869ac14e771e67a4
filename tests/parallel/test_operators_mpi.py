"""Operators on many ranks: what all ranks compute is what one does, every form at every level."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from kernel_cases import bend, make_mesh, random_vector, smooth
from level_cases import FORMS, bulge, cover, make_spaces


def whole_mesh(case):
    return make_mesh(case.mesh, case.dim, "many" if case.mesh == "unstructured" else case.size)


def coefficient(case, mesh):
    """Numbers, functions and fields; arrays are those of one rank anyway."""
    function = FORMS[case.form].shape
    if case.coefficient == "number":
        return function(np.linspace(0.3, 0.7, case.dim))
    if case.coefficient in ("function", "array"):
        return function
    ncomp = case.dim if np.ndim(function(np.linspace(0.3, 0.7, case.dim))) else 1
    constant = case.coefficient == "elements"
    space = femops.L2(mesh, 0, ncomp=ncomp) if constant else femops.H1(mesh, 2, ncomp=ncomp)
    return femops.GridFunction(space, space.interpolate(function))


def build(case, mesh):
    """The operator of a case, with every fifth dof of the whole held."""
    form, (trial, test) = FORMS[case.form], make_spaces(case, mesh)
    options = {"quadrature": case.p + case.more, "dtype": case.dtype, **dict(form.rest)}
    if form.shape is not None:
        options[form.name] = coefficient(case, mesh)
    if form.nonlinear:
        state = trial.interpolate(bulge(trial.ncomp)).astype(case.dtype)
        operator = form.make(trial, **options).jacobian(state).at_level(case.level)
    else:
        spaces = (trial,) if trial is test else (trial, test)
        operator = form.make(*spaces, **options, level=case.level)
    if case.held and trial is test:
        operator = operator.constrained(every_fifth(trial))
    elif case.held:
        operator = operator.eliminated(every_fifth(test), every_fifth(trial))
    return operator.T if case.transposed else operator


def every_fifth(space):
    first = space.first_dof * space.ncomp
    return np.flatnonzero((first + np.arange(space.size)) % 5 == 2)


def own_piece(space):
    """Where a rank's vector stands in that of the whole."""
    first = space.first_dof * space.ncomp
    return slice(first, first + space.size)


def results(operator, u, held):
    """Everything that is asked of an operator, as flat vectors of its test space."""
    found = {"apply": operator.apply(u)}
    if operator.space is operator.test_space:
        found["diagonal"] = operator.diagonal().reshape(-1)
        if held:
            found["rhs"] = operator.rhs(0.3 * u, u)
    return found


def check(case, comm, alone, ranks, tolerance):
    """What ranks have against what one has alone."""
    whole, mine = build(case, alone), build(case, ranks)
    u = random_vector(whole.space, case.dtype).reshape(-1)
    at, out = own_piece(mine.space), own_piece(mine.test_space)
    assert comm.sum(mine.test_space.size) == whole.test_space.size
    serial, found = results(whole, u, case.held), results(mine, u[at].copy(), case.held)
    for name, values in serial.items():
        assert found[name].dtype == case.dtype
        gap = np.abs(found[name] - values[out]).max(initial=0.0)
        assert gap <= tolerance * np.abs(values).max(), f"{name}: {gap}"
    rows, matrix = mine.assemble(), whole.assemble()
    assert rows.shape == (mine.test_space.size, whole.space.size)
    most = abs(matrix).max()
    assert abs(rows - matrix[out]).max() <= tolerance * most if rows.shape[0] else True


def check_equal(comm, case):
    mesh = whole_mesh(case)
    check(case, comm, mesh, femops.distribute(mesh, comm), 10 * case.tolerance)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("case", cover(), ids=str)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_equal_to_serial(comm, case):
    check_equal(comm, case)


@pytest.mark.parallel(1, 4, 8)
@pytest.mark.parametrize("case", cover()[::8], ids=str)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_equal_to_serial_on_more(comm, case):
    check_equal(comm, case)


def check_reproducible(comm, case):
    mesh = make_mesh(case.mesh, case.dim, "blocks")
    alone = femops.distribute(mesh, Serial(), reproducible=True)
    ranks = femops.distribute(mesh, comm, reproducible=True)
    assert comm.max(int(ranks.num_elements == 0)) == 0
    check(case, comm, alone, ranks, 0.0)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("case", cover(), ids=str)
def test_reproducible(comm, case):
    """The same bits on any number of ranks."""
    check_reproducible(comm, case)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("level", ["full", "element", "partial", "none"])
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_reproducible_where_a_rank_has_little(comm, dim, level):
    """One element, or one face: libraries compute a single row in another way than many."""

    def results_of(ranks):
        V = femops.H1(femops.box((17,) * dim, mapping=bend, comm=ranks, reproducible=True), 3)
        A = femops.diffusion(V, smooth, level=level) + femops.mass(V, level=level)
        if dim > 1:
            A = A + femops.boundary_mass(V, smooth, level=level)
        u = V.interpolate(smooth)
        found = {"load": femops.load(V, smooth), **results(A.constrained(every_fifth(V)), u, True)}
        return V, found, A.assemble(), [femops.l2_norm(V, u), V.integrate(smooth)]

    V, found, rows, norms = results_of(comm)
    _, serial, matrix, expected = results_of(Serial())
    out = own_piece(V)
    assert norms == expected
    assert all(np.array_equal(found[name], values[out]) for name, values in serial.items())
    assert abs(rows - matrix[out]).max() == 0.0 if rows.shape[0] else True


@pytest.mark.parallel(4, 8)
@pytest.mark.parametrize("case", cover()[1::8], ids=str)
def test_reproducible_on_more(comm, case):
    check_reproducible(comm, case)
