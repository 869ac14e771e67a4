"""Operators of the cover on many ranks, beside those of one."""

from collections.abc import Callable
from typing import Any

import numpy as np

import femops
from support.cases.kernels import make_mesh, random_vector
from support.cases.levels import FORMS, bulge, make_spaces


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


def build(case, mesh, **where):
    """The operator of a case, with every fifth dof of the whole held; ``where`` is the device."""
    form, (trial, test) = FORMS[case.form], make_spaces(case, mesh, **where)
    options = case.options | dict(form.rest)
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


def of_rank_0(comm: Any, compute: Callable[[], Any]) -> Any:
    """What rank 0 computes, on all ranks. The others sleep meanwhile, and leave it the core."""
    found = compute() if comm.rank == 0 else None
    comm.barrier(nap=1e-3)
    return comm.broadcast(found)


def here(array):
    """A vector of the host, or a copy of one of a device."""
    return array.get() if hasattr(array, "get") else array


def compare(case, comm, alone, ranks, tolerance, **where):
    """What ranks have against what one has alone, on the host.

    ``alone`` gives the mesh of one, and is asked on rank 0 alone.

    Returns
    -------
    (operator of the ranks, matrix of one)
    """
    mine = build(case, ranks, **where)
    serial, matrix, u = of_rank_0(comm, lambda: of_one(case, alone()))
    at, out = own_piece(mine.space), own_piece(mine.test_space)
    assert comm.sum(mine.test_space.size) == matrix.shape[0]
    found = results(mine, mine.space.memory.put(u[at].copy()), case.held)
    for name, values in serial.items():
        assert found[name].dtype == case.dtype
        gap = np.abs(here(found[name]) - values[out]).max(initial=0.0)
        assert gap <= tolerance * np.abs(values).max(), f"{name}: {gap}"
    return mine, matrix


def of_one(case, mesh):
    """Results, matrix, and the vector that they are results for."""
    whole = build(case, mesh)
    u = random_vector(whole.space, case.dtype).reshape(-1)
    return results(whole, u, case.held), whole.assemble(), u


def waves(real, imag, k):
    """Helmholtz' equation with an absorbing term, real and imaginary part."""
    return {
        "real": {"grad": real.grad, "value": -k * k * real - k * imag},
        "imag": {"grad": imag.grad, "value": -k * k * imag + k * real},
    }


def sines(ncomp):
    """A function of so many components."""
    return lambda x: np.sin(x[0]) if ncomp == 1 else [np.sin(x[0] + k) for k in range(ncomp)]


def piece(space):
    """Where a rank's vector stands in that of the whole, of a space or of each of a product."""
    places, first = [], 0
    for one in space.spaces.values() if isinstance(space, femops.Product) else [space]:
        begin = first + one.first_dof * one.ncomp
        places.append(np.arange(begin, begin + one.size))
        first += one.global_size
    return np.concatenate(places)


def close(mine, whole, space, tolerance=1e-12):
    """A rank's part of a vector is that of the whole."""
    expected = np.asarray(whole).reshape(-1)[piece(space)]
    gap = np.abs(np.asarray(mine).reshape(-1) - expected).max(initial=0.0)
    assert gap <= tolerance * np.abs(whole).max()
