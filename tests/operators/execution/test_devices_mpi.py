"""Operators on many ranks with a device each, as one rank on the host has them."""

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.errors import RankError, SpaceError
from femops.hydro import Lagrangian, Simulation, built_in, problem
from femops_kernels.cuda.operators import DistributedDeviceOperator
from support.cases import rank_devices
from support.cases.kernels import bend, smooth
from support.cases.levels import FORMS, cover
from support.cases.products import stokes
from support.cases.rank_devices import WAYS
from support.cases.rank_operators import compare, here, piece, waves, whole_mesh
from support.cuda import host_values
from support.cuda.host_device import HostDevice
from support.simplex_meshes import graded

device, way = rank_devices.device, rank_devices.way
evaluated = host_values.evaluated


def first_of_each_form():
    """At the levels that a device has kernels of. Lanes are the host's."""
    levels = "partial", "matrix-free"
    cases = [replace(case, lanes=None) for case in cover() if case.level in levels]
    return [next(case for case in cases if case.form == form) for form in FORMS]


@pytest.mark.sample(2)
@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("case", "way"),
    [(case, WAYS[k % 3]) for k, case in enumerate(first_of_each_form())],
    ids=str,
    indirect=["way"],
)
def test_equal_to_serial(comm, device, case, way):
    mesh = whole_mesh(case)
    ranks = femops.distribute(mesh, comm)
    mine, _ = compare(case, comm, lambda: mesh, ranks, 10 * case.tolerance, device=device)
    assert (mine.level, mine.space.device) == (case.level, device)


@pytest.mark.parallel(1)
@pytest.mark.parametrize("case", first_of_each_form()[1:3], ids=str)
def test_equal_to_serial_on_one_rank(comm, device, case):
    mesh = whole_mesh(case)
    ranks = femops.distribute(mesh, comm)
    mine, _ = compare(case, comm, lambda: mesh, ranks, 10 * case.tolerance, device=device)
    assert not isinstance(mine.compiled, DistributedDeviceOperator)


# --- sums, products -------------------------------------------------------------------------------


def on_both(comm, build, device):
    """A thing on the devices of all ranks, and on the host of this rank alone."""
    mesh = femops.ball(2, order=2)
    return build(femops.distribute(mesh, comm), device), build(mesh, None)


def close(mine, whole, space, tolerance=1e-12):
    gap = np.abs(here(mine).reshape(-1) - whole.reshape(-1)[piece(space)]).max(initial=0.0)
    assert gap <= tolerance * np.abs(whole).max()


def check(A, B):
    """Applied twice: what the first application leaves behind does not matter."""
    w = np.random.default_rng(3).standard_normal(B.space.size)
    u = A.space.memory.put(w[piece(A.space)].copy())
    for _ in range(2):
        close(A @ u, B @ w, A.test_space)
    if A.space is A.test_space:
        close(A.diagonal(), B.diagonal(), A.space)
        g, h = (u, w) if B.constraints else (0.0, 0.0)
        close(A.rhs(0.3 * u, g), B.rhs(0.3 * w, h), A.space)


def robin(mesh, device):
    """Elements and boundary faces, two quadrature rules."""
    V = femops.H1(mesh, 3, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V, quadrature=6)
    return (2.0 * A + femops.boundary_mass(V, smooth)).constrained(V.boundary_dofs([1]))


def faces_alone(mesh, device):
    V = femops.H1(mesh, 2, device=device)
    return femops.boundary_mass(V).constrained(V.boundary_dofs())


def taylor_hood(mesh, device):
    W = femops.Product(
        u=femops.H1(mesh, 2, ncomp=mesh.dim, device=device), p=femops.H1(mesh, 1, device=device)
    )
    A = femops.form(stokes, W, mu=smooth)
    return A.constrained(W.positions(u=W.spaces["u"].boundary_dofs()))


def one_space_twice(mesh, device):
    V = femops.H1(mesh, 3, device=device)
    return femops.form(waves, femops.Product(real=V, imag=V), k=1.5).T


def of_two_spaces(mesh, device):
    return femops.divergence(
        femops.H1(mesh, 2, ncomp=mesh.dim, device=device), femops.L2(mesh, 1, device=device)
    )


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("make", "way"),
    [
        (robin, "staged"),
        (faces_alone, "direct"),
        (taylor_hood, "nccl"),
        (one_space_twice, "direct"),
        (of_two_spaces, "nccl"),
    ],
    indirect=["way"],
)
def test_sums_and_products(comm, device, make, way):
    check(*on_both(comm, make, device))


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(("p", "way"), [(3, "staged"), (5, "nccl")], indirect=["way"])
def test_simplices(comm, device, p, way):
    """With a thread or several for each element."""
    mesh = graded(3)
    V = femops.H1(femops.distribute(mesh, comm), p, device=device)
    W = femops.H1(mesh, p)
    A, B = (femops.diffusion(of, smooth).constrained(of.boundary_dofs([1])) for of in (V, W))
    check(A, B)


@pytest.mark.parallel(3)
@pytest.mark.parametrize("way", ["staged", "nccl"], indirect=True)
def test_ranks_without_elements(comm, device, way):
    mesh = femops.box((2, 1), comm=comm)
    A, B = robin(mesh, device), robin(femops.box((2, 1)), None)
    assert comm.sum(int(A.space.size == 0)) == 1
    check(A, B)


@pytest.mark.parallel(2, 3)
def test_vectors(comm, device):
    def build(mesh, device):
        V = femops.H1(mesh, 3, family="bernstein", device=device)
        return V, V.interpolate(smooth), femops.load(V, smooth, flux=np.arange(3.0))

    (V, *mine), (W, *alone) = on_both(comm, build, device)
    for found, whole in zip(mine, alone, strict=True):
        close(found, whole, V)
    held = comm.sum(len(V.boundary_dofs()))
    assert held == len(W.boundary_dofs())


# --- how it is done -------------------------------------------------------------------------------


def one_sweep(comm, device):
    V = femops.H1(femops.box((12, 12), mapping=bend, comm=comm), 2, device=device)
    return femops.diffusion(V, smooth)


@pytest.mark.parallel(2)
@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_the_device_works_while_messages_are_on_their_way(comm, device, way):
    A = one_sweep(comm, device)
    u = A.space.interpolate(smooth)
    apart = A.apply(u)
    sweep = A.compiled.sweeps[0]
    order, ghosts = sweep.order, A.space.restriction.indices >= A.space.ndofs
    elements = np.maximum(order.elements, ~order.elements)
    assert set(elements) == set(range(len(ghosts)))
    assert not ghosts[elements[: order.plain * order.group]].any()
    # the lower rank owns what both have
    assert 1 < order.plain < order.blocks + (comm.rank == 0)
    log = follow(A.compiled, sweep, device)
    again = A.apply(u)
    half = order.plain // 2
    assert log == [
        ("departs", 0),
        ("blocks", 0, half),
        ("sent", 0),
        ("arrived", 0),
        *([("blocks", order.plain, order.blocks)] if comm.rank else []),
        ("departs", 1),
        ("blocks", half, order.plain),
        ("sent", 1),
        ("arrived", 1),
    ]
    A.compiled.overlap = False
    log.clear()
    gaps = again - apart, A.apply(u) - apart
    assert [entry for entry in log if entry[0] == "blocks"] == [("blocks", 0, order.blocks)]
    assert max(np.abs(here(gap)).max() for gap in gaps) < 1e-13


def follow(compiled, sweep, device):
    """What happens when an operator is applied; only what is said to is copied."""
    assert isinstance(compiled, DistributedDeviceOperator)
    log, some = [], sweep.some
    host = device.host
    moved = host.uploads, host.downloads, host.synchronizations

    def noted(begin, end, **arguments):
        if begin < end:
            log.append(("blocks", begin, end))
        assert (host.uploads, host.downloads, host.synchronizations) == moved
        some(begin, end, **arguments)

    sweep.some = noted
    posts = [compiled.forwards[0][0].post, compiled.reverses[0][0].post]
    for k, post in enumerate(posts):
        for name, method in (("departs", "ready"), ("sent", "start"), ("arrived", "finish")):
            before = getattr(post, method)
            setattr(post, method, lambda k=k, name=name, b=before: (log.append((name, k)), b()))
    return log


@pytest.mark.parallel(2)
@pytest.mark.parametrize("way", ["staged", "direct"], indirect=True)
def test_messages_are_staged_where_mpi_takes_no_memory_of_a_device(comm, device, way):
    A = one_sweep(comm, device)
    for post in (A.compiled.forwards[0][0].post, A.compiled.reverses[0][0].post):
        staged = post.channel.outgoing is not post.outgoing
        assert staged == (post.channel.incoming is not post.incoming) == (way == "staged")
        assert post.outgoing.size + post.incoming.size > 0


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parallel(2)
def test_reproducible_is_refused(comm, device):
    exact = femops.distribute(femops.box((8, 8)), comm, reproducible=True)
    for make in (
        lambda: femops.H1(exact, 2, device=device),
        lambda: femops.L2(exact, 2, device=device),
        lambda: femops.H1(femops.box((4, 4), comm=comm), 2, device=device, reproducible=True),
    ):
        with pytest.raises(SpaceError, match="reproducible=True is not for ranks with a"):
            make()


@pytest.mark.parallel(2)
def test_a_device_that_one_rank_lacks_is_an_error_on_all(comm, monkeypatch):
    from femops_kernels.cuda.device import cupy_device
    from femops_kernels.errors import DeviceError

    def take(place):
        if comm.rank == 1:
            raise DeviceError("there is no GPU that CUDA can use")
        return HostDevice()

    monkeypatch.setattr(cupy_device, "take_device", take)
    expected = DeviceError if comm.rank == 1 else RankError
    with pytest.raises(expected, match="there is no GPU that CUDA can use"):
        femops.H1(femops.box((4, 4), comm=comm), 2, device="cuda")


@pytest.mark.parallel(1, 3)
@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_forms_on_several_fields(comm, device, way, evaluated):
    """Two fields of one space, whose ghosts go each its own way; one without ghosts."""

    def flow(v, w, e):
        return {
            "v": {"grad": e * w.grad, "value": v.value * w[0]},
            "e": {"value": v.div},
            "least": e + v[0],
            "all": e * e,
        }

    def build(mesh, device):
        V = femops.H1(mesh, 2, ncomp=3, device=device)
        W = femops.Product(v=V, w=V, e=femops.L2(mesh, 1, device=device))
        F = femops.residual(flow, W, minima=["least"], integrals=["all"])
        return F.constrained(W.positions(v=V.boundary_dofs()))

    mine, whole = on_both(comm, build, device)
    u = np.random.default_rng(5).standard_normal(whole.space.size)
    expected, functionals = whole.evaluate(u)
    there = shared_out(mine.space, u)
    for _ in range(2):
        result, found = mine.evaluate(there)
        assert found == pytest.approx(functionals, rel=1e-12)
        close(result, expected, mine.space)
    x = np.random.default_rng(6).standard_normal(whole.space.size)
    assert not evaluated
    J, before = mine.jacobian(there), device.host.downloads
    there[:] = 0.0  # what ranks exchange of the state was exchanged already
    result, expected = J @ shared_out(mine.space, x), whole.jacobian(u) @ x
    assert device.host.downloads == before
    close(result, expected, mine.space)


def shared_out(W, x):
    """What this rank has of a vector of a product, where its vectors are."""
    return W.memory.put(x[piece(W)])


@pytest.mark.parallel(3)
@pytest.mark.parametrize("there", [False, True])
def test_coupled_jacobians_where_ranks_have_nothing(comm, device, there):
    """No elements, or no dofs that are constrained."""

    def build(mesh, device):
        V, E = femops.H1(mesh, 2, device=device), femops.L2(mesh, 1, device=device)
        W = femops.Product(v=V, e=E)

        def warm(v, e):
            return {"v": {"grad": e * e * v.grad}, "e": {"value": v * e}}

        return femops.residual(warm, W).constrained(V.boundary_dofs(where=lambda x: x[0] == 0))

    mesh = femops.box((2, 1))
    whole = build(mesh, None)
    mine = build(femops.box((2, 1), comm=comm), device if there else None)
    assert comm.sum(int(len(mine.constrained_dofs) == 0)) > 0
    u, x = np.random.default_rng(5).standard_normal((2, whole.space.size))
    J = mine.jacobian(shared_out(mine.space, u))
    result, expected = J @ shared_out(mine.space, x), whole.jacobian(u) @ x
    close(result, expected, mine.space)


@pytest.mark.parallel(2)
def test_gas_dynamics(comm, device):
    """States of the ranks' devices are those of one process on the host."""

    def run(mesh, place):
        equations = Lagrangian(problem("sedov"), mesh, cg_tol=1e-13, device=place)
        simulation = Simulation.begin(equations, "rk2avg")
        simulation.run(1.0, max_steps=2)
        return simulation

    mesh = built_in("square01_quad").refine(1)
    mine, whole = run(femops.distribute(mesh, comm), device), run(mesh, None)
    assert mine.equations.space.device is device
    assert (mine.t, mine.dt) == pytest.approx((whole.t, whole.dt), rel=1e-11)
    parts, expected = mine.equations.parts(mine.state), whole.equations.parts(whole.state)
    for name, space in mine.equations.on_host.spaces.items():
        close(parts[name], expected[name], space, 1e-10)
    assert mine.e_norm == pytest.approx(whole.e_norm, rel=1e-11)
