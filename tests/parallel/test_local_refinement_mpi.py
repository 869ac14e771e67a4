"""Locally refined meshes of many ranks, against the same in one process."""

from importlib.util import find_spec

import numpy as np
import pytest

import femops
from femops.errors import CommunicatorError, OperatorError, RankError, SpaceError, VectorError
from femops.parallel import Serial
from femops.parallel.comm import gathered
from femops.parallel.mesh import checksum
from femops_meshes import MeshArgumentError
from support.cases.kernels import bend
from support.cases.levels import LEVELS
from support.fixtures import shared_folder
from support.refined import penalised, shared, slopes, through, transport, tree
from support.vtk import read_vtk

pytestmark = pytest.mark.filterwarnings("ignore:.*ranks have no elements")
folder = shared_folder
FAILED = (MeshArgumentError, RankError)
TREES = ("squares", "bent squares", "disc", "periodic", "line", "cubes", "random cubes")


def whole_dofs(V, W):
    """Number in the space V of each dof of this rank's space W."""
    part = W.distributed.part
    found = np.empty(W.restriction.ndofs, dtype=np.int64)
    found[W.restriction.indices] = V.restriction.indices[part.elements]
    return found[: W.ndofs]


def agrees(found, expected, most):
    assert abs(found - expected).max(initial=0.0) < 2e-14 * most


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", TREES)
def test_operators(comm, name):
    mesh = tree(name)
    for p in (1, 2, 3) if name != "random cubes" else (2,):
        V = femops.H1(mesh, p)
        x = np.random.default_rng(p).standard_normal((V.size, 3))
        makes = [lambda V, **given: femops.form(transport, V, **given)]
        if mesh.num_boundary:
            makes.append(lambda V, **given: femops.form(through, V, boundary="all", **given))
        for make in makes:
            matrix = make(V).assemble()
            rows, most = abs(matrix).sum(axis=1).max() * abs(x).max(), abs(matrix).max()
            y, diagonal = matrix @ x, matrix.diagonal()
            for cut in shared(mesh, comm):
                W = femops.H1(cut, p)
                mine = whole_dofs(V, W)
                for level in LEVELS:
                    B = make(W, level=level)
                    agrees(B @ x[mine, 0], y[mine, 0], rows)
                    agrees(B @ x[mine], y[mine], rows)
                    agrees(B.diagonal(), diagonal[mine], most)
                sent = comm.exchange(dict.fromkeys(range(comm.size), mine))
                order = np.concatenate([np.zeros(0, np.int64), *sent.values()])
                assert np.array_equal(np.sort(order), np.arange(V.size))
                agrees(B.assemble().toarray(), matrix[mine][:, order].toarray(), most)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", TREES)
def test_functions(comm, name):
    """Positions, interpolation of functions and of fields, sums and boundary dofs."""
    mesh = tree(name)

    def f(x):
        return np.ones(x.shape[1]) if name == "periodic" else x[0] - 2 * x[-1] ** 2

    for p, family in ((2, "gll"), (3, "bernstein")):
        V = femops.H1(mesh, p, family=family)
        u, x, many = V.interpolate(f), V.dof_coordinates(), V.multiplicity()
        Q = femops.H1(mesh, 4)
        again = V.interpolate((Q, Q.interpolate(f)))
        for cut in shared(mesh, comm):
            W = femops.H1(cut, p, family=family)
            mine = whole_dofs(V, W)
            gap = abs(W.dof_coordinates() - x[mine])  # nodes on glued sides have two positions
            assert (gap * (1 - gap) if name == "periodic" else gap).max(initial=0.0) < 1e-15
            np.testing.assert_array_equal(W.multiplicity(), many[mine])
            agrees(W.interpolate(f), u[mine], abs(u).max())
            Q = femops.H1(cut, 4)
            agrees(W.interpolate((Q, Q.interpolate(f))), again[mine], abs(u).max())
            agrees(
                W.sum_elements(np.ones(W.restriction.indices.shape)),
                V.sum_elements(np.ones(V.restriction.indices.shape))[mine],
                10,
            )
            if mesh.num_boundary:
                held = np.isin(mine, V.boundary_dofs())
                np.testing.assert_array_equal(W.boundary_dofs(), np.flatnonzero(held))


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", [name for name in TREES if name != "line"])
def test_faces_between_elements(comm, name):
    mesh = tree(name)
    for kind, function in ((femops.L2, penalised), (femops.H1, slopes)):
        V = kind(mesh, 2)
        x = np.random.default_rng(1).standard_normal((V.size, 2))
        matrix = femops.form(function, V, faces="interior").assemble()
        most, y = abs(matrix).sum(axis=1).max() * abs(x).max(), matrix @ x
        for cut in shared(mesh, comm):
            W = kind(cut, 2)
            mine = whole_dofs(V, W)
            for level in LEVELS:
                B = femops.form(function, W, faces="interior", level=level)
                agrees(B @ x[mine, 0], y[mine, 0], most)
                agrees(B @ x[mine], y[mine], most)


def same_mesh(shared, whole):
    """Whether ranks share a mesh, up to the order of boundary entries."""
    own = shared.part.elements
    np.testing.assert_array_equal(shared.mesh.coordinates, whole.coordinates[own])
    np.testing.assert_array_equal(shared.mesh.file_elements, whole.file_elements[own])
    numbers = np.arange(whole.num_elements), np.arange(whole.num_vertices)
    assert shared.checksum == checksum(whole, *numbers)
    assert shared.element_names == whole.element_names
    assert shared.boundary_names == whole.boundary_names


@pytest.mark.parallel(1, 2, 3)
@pytest.mark.parametrize("name", TREES)
def test_meshes_are_refined_together(comm, name):
    mesh = tree(name)
    rng = np.random.default_rng(4)
    flags, less = (rng.random(mesh.num_elements) < part for part in (0.2, 0.6))
    for cut in shared(mesh, comm):
        own = cut.part.elements
        same_mesh(cut.changed(lambda whole: whole), mesh)
        same_mesh(cut.refined(flags[own]), mesh.refined(flags))
        same_mesh(cut.coarsened(np.flatnonzero(less[own])), mesh.coarsened(less))
        same_mesh(cut.refine(), mesh.refine())
        again = femops.adapt.change(cut, flags[own], less[own])
        same_mesh(again, femops.adapt.change(mesh, flags, less))


@pytest.mark.parallel(1, 2, 3)
def test_meshes_that_conform_are_refined_together(comm):
    for make in (
        lambda **given: femops.box((5, 4), periodic=(True, False), **given),
        lambda **given: femops.box((4, 2, 2), mapping=bend, order=2, **given),
        lambda **given: femops.read_mesh(femops.sample("disc.mesh"), refine=2, **given),
    ):
        whole, cut = make(), make(comm=comm)
        for _ in range(2):
            middle = lambda x: x[0] < x.mean()  # noqa: E731
            flags = middle(whole.element_centers().T)
            cut = cut.refined(flags[cut.part.elements])
            whole = whole.refined(flags)
            same_mesh(cut, whole)
        most = comm.max(int(cut.mesh.num_elements))
        assert most <= whole.num_elements // comm.size + 1
    named = femops.box((4, 4)).with_names({"left": lambda x: x[0] < 0.3}, {"floor": 3})
    cut = femops.distribute(named, comm)
    same_mesh(cut.refined(attributes="left"), named.refined(attributes="left"))
    same_mesh(
        cut.refined([], attributes="left").coarsened(), named.refined(attributes="left").coarsened()
    )
    heavy = cut.changed(
        lambda whole: whole, weights=lambda whole: 1 + 9 * (whole.element_centers()[:, 0] < 0.5)
    )
    load = heavy.mesh.num_elements + 9 * (heavy.mesh.element_centers()[:, 0] < 0.5).sum()
    assert comm.max(int(load)) <= 16 * 5.5 / comm.size + 10
    steady = femops.distribute(named.refine(2), comm, reproducible=True).refined(attributes="left")
    assert steady.reproducible
    with pytest.raises(FAILED, match=r"no element attribute 'right'|rank 0 of"):
        cut.refined(attributes="right")
    with pytest.raises(FAILED, match=r"the mesh has elements|rank . of"):
        cut.refined([cut.mesh.num_elements] if comm.rank == comm.size - 1 else [])
    with pytest.raises(FAILED, match=r"never refined|rank 0 of"):
        cut.coarsened()


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", ["squares", "bent squares", "cubes", "line", "disc"])
def test_fields_move_along(comm, name):
    mesh = tree(name)
    rng = np.random.default_rng(4)
    flags, less = (rng.random(mesh.num_elements) < part for part in (0.2, 0.6))
    there = femops.adapt.change(mesh, flags, less)
    for cut in shared(mesh, comm):
        own = cut.part.elements
        other = femops.adapt.change(cut, flags[own], less[own])
        for kind, p, to, q in (
            (femops.H1, 2, femops.H1, 2),
            (femops.H1, 2, femops.L2, 1),
            (femops.L2, 1, femops.H1, 3),
        ):
            V, W = kind(mesh, p, ncomp=2), to(there, q, ncomp=2)
            u = np.random.default_rng(1).standard_normal(V.size)
            mine, theirs = kind(cut, p, ncomp=2), to(other, q, ncomp=2)
            of = V.components(u)[whole_dofs(V, mine)].reshape(-1)
            for how in ("projection", "nodal"):
                if how == "nodal" and kind is femops.L2:
                    continue  # it jumps: any element may give the value
                w = femops.adapt.transfer(u, V, W, how=how)
                found = femops.adapt.transfer(of, mine, theirs, how=how)
                expected = W.components(w)[whole_dofs(W, theirs)].reshape(-1)
                assert abs(found - expected).max(initial=0.0) < 1e-10 * abs(u).max()
    with pytest.raises(SpaceError, match="share both"):
        femops.adapt.transfer(of, mine, W)
    if comm.size > 1:
        with pytest.raises(CommunicatorError, match=r"ranks disagree about .* how is"):
            femops.adapt.transfer(of, mine, theirs, how="nodal" if comm.rank else "projection")


# --- programs -------------------------------------------------------------------------------------


def smooth(x):
    return np.sin(3 * x[0]) + x[-1] ** 2


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", ["squares", "bent squares", "cubes"])
def test_solvers(comm, name):
    mesh = tree(name)
    V = femops.H1(mesh, 2)

    def solved(V):
        A = femops.diffusion(V, lambda x: 1 + x[0] ** 2).constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, smooth), V.interpolate(smooth))
        u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-12)
        found = femops.eigen.lobpcg(
            A, femops.mass(V), k=2, tol=1e-8, preconditioner=femops.jacobi(A)
        )
        norms = femops.l2_error(V, u, smooth), femops.h1_seminorm_error(V, u, lambda x: 0 * x)
        points = np.array([[0.3, 0.4, 0.2], [0.61, 0.1, 0.9]])[:, : V.dim]
        values = femops.Probe(V.distributed or V.mesh, points)(V, u)
        shrunk = femops.functional(lambda u: u**3, V)(u)
        return u, info.iterations, [*norms, *found.values, *values, shrunk]

    u, iterations, facts = solved(V)
    for cut in shared(mesh, comm):
        W = femops.H1(cut, 2)
        v, again, others = solved(W)
        assert abs(v - u[whole_dofs(V, W)]).max(initial=0.0) < 1e-10
        assert abs(again - iterations) <= 1
        assert np.allclose(others, facts, rtol=1e-9)


def problem(mesh):
    V = femops.H1(mesh, order=2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    return A, lambda V: femops.load(V, 1.0)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("how", ["recovered", "residual", "goal"])
def test_the_loop(comm, how):
    """The same elements, iterations and estimates as in one process."""

    def cycles(first):
        given = {"goal": lambda V: femops.functional(lambda u: u, V)} if how == "goal" else {}
        given |= {} if how == "goal" else {"estimate": how}
        for mesh, u, estimate in femops.adapt.loop(
            problem, first, max_cycles=4, coarsen=0.02, **given
        ):
            V = estimate.space
            value = femops.functional(lambda u: u * u, V)(u)
            yield mesh.num_elements, V.global_size, estimate.iterations, estimate.total, value

    expected = [*cycles(femops.l_shape())]
    found = [*cycles(femops.distribute(femops.l_shape(), comm))]
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    for mine, whole in zip(found, expected, strict=True):
        assert abs(mine[2] - whole[2]) <= 1
        assert np.allclose(mine[3:], whole[3:], rtol=1e-8)


@pytest.mark.parallel(1, 2, 3)
def test_bits_are_the_same_on_any_number_of_ranks(comm, folder):
    cut = femops.box((8, 6), comm=comm, reproducible=True).refined(lambda x: x[0] + x[1] < 0.8)
    cut = cut.refined(lambda x: x[0] ** 2 + x[1] ** 2 < 0.1)
    V = femops.H1(cut, 3)
    A = femops.diffusion(V, lambda x: 1 + x[0]).constrained(V.boundary_dofs())
    u, _ = femops.cg(A, A.rhs(femops.load(V, smooth)), M=femops.multigrid(A))
    whole = gathered(comm, u)
    alone = femops.box((8, 6), comm=Serial(), reproducible=True)
    alone = alone.refined(lambda x: x[0] + x[1] < 0.8).refined(
        lambda x: x[0] ** 2 + x[1] ** 2 < 0.1
    )
    W = femops.H1(alone, 3)
    B = femops.diffusion(W, lambda x: 1 + x[0]).constrained(W.boundary_dofs())
    w, _ = femops.cg(B, B.rhs(femops.load(W, smooth)), M=femops.multigrid(B))
    np.testing.assert_array_equal(whole, w)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", ["bent squares", "cubes"])
def test_files(comm, folder, name):
    """States go to another number of ranks; VTU and pictures show all elements."""
    mesh = tree(name)
    V = femops.H1(mesh, 2)
    u = V.interpolate(smooth)
    for k, cut in enumerate(shared(mesh, comm)):
        W = femops.H1(cut, 2)
        path = femops.io.save_state(folder / f"{k}.state", {"u": (W, W.interpolate(smooth))})
        back = femops.io.load_state(path, {"u": V}).vectors["u"]
        assert abs(back - u).max() < 1e-14
        femops.io.load_state(path, {"u": W})
        shown = read_piece(femops.save(folder / f"{k}.vtu", W, u=W.interpolate(smooth)))
        assert shown is None or shown == mesh.num_elements
        if name == "cubes" and find_spec("matplotlib"):
            femops.io.picture(folder / f"{k}.png", W, W.interpolate(smooth))


def read_piece(path):
    """Number of cells of a VTU file; None without VTK."""
    return None if find_spec("vtk") is None else read_vtk(path).n_cells


def of_ranks(comm, good, bad):
    """A value for this rank: the last one has the bad one."""
    return bad if comm.rank == comm.size - 1 else good


BAD_CALLS = {
    "number of tables": lambda mesh, n: mesh.changed(
        lambda whole, *_: whole, *of_ranks(mesh.comm, [np.zeros(n)], [])
    ),
    "shapes of tables": lambda mesh, n: mesh.changed(
        lambda whole, *_: whole, of_ranks(mesh.comm, np.zeros(n), np.zeros((n, 2)))
    ),
    "type of a table": lambda mesh, n: mesh.changed(
        lambda whole, *_: whole, of_ranks(mesh.comm, np.zeros(n), np.array([{}] * n))
    ),
    "number of estimates": lambda mesh, n: femops.adapt.mark(
        *of_ranks(mesh.comm, [np.ones(n)], [np.ones(n)] * 2), mesh=mesh
    ),
    "fractions": lambda mesh, n: femops.adapt.mark(
        np.ones(n), fraction=of_ranks(mesh.comm, 0.5, 0.4), mesh=mesh
    ),
    "ends of the loop": lambda mesh, _: [
        *femops.adapt.loop(poisson, mesh, max_cycles=of_ranks(mesh.comm, 3, 1))
    ],
    "tolerances": lambda mesh, _: [
        *femops.adapt.loop(poisson, mesh, of_ranks(mesh.comm, 1e-9, 1.0), max_cycles=3)
    ],
    "elements to change": lambda mesh, _: femops.adapt.change(
        mesh, of_ranks(mesh.comm, [0], [[1], [2, 3]])
    ),
    "elements marked": lambda mesh, _: [
        *femops.adapt.loop(
            poisson, mesh, mark=lambda _: of_ranks(mesh.comm, [0], [10**6]), max_cycles=2
        )
    ],
    "mask of marked elements": lambda mesh, n: [
        *femops.adapt.loop(
            poisson,
            mesh,
            mark=lambda _: of_ranks(mesh.comm, [0], np.ones(n - 1, dtype=np.bool_)),
            max_cycles=2,
        )
    ],
    "estimates": lambda mesh, n: [
        *femops.adapt.loop(
            poisson,
            mesh,
            estimate=lambda *_: np.ones(of_ranks(mesh.comm, (n,), (n, 2))),
            max_cycles=2,
        )
    ],
    "vector to transfer": lambda mesh, _: femops.adapt.transfer(
        vector(mesh), femops.H1(mesh, 1), femops.H1(mesh, 2)
    ),
    "vector to recover": lambda mesh, _: femops.adapt.recovered(femops.H1(mesh, 1), vector(mesh)),
    "vector of a residual": lambda mesh, _: femops.adapt.residual(poisson(mesh), vector(mesh)),
    "vector of a goal": lambda mesh, _: femops.adapt.goal(
        poisson(mesh), vector(mesh), femops.load(femops.H1(mesh, 1), 1.0)
    ),
}


def vector(mesh):
    u = femops.H1(mesh, 1).zeros()
    return of_ranks(mesh.comm, u, np.zeros(u.size + 1))


def poisson(mesh):
    V = femops.H1(mesh, 1)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, 1.0))


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", BAD_CALLS)
def test_no_rank_waits_for_one_with_bad_arguments(comm, name):
    mesh = femops.box((4, 4), comm=comm)
    with pytest.raises((*FAILED, OperatorError, VectorError)):
        BAD_CALLS[name](mesh, mesh.mesh.num_elements)
    assert comm.sum(1) == comm.size


@pytest.mark.parallel(2)
def test_ranks_refine_as_often(comm):
    cut = femops.box((4, 4), comm=comm)
    with pytest.raises(MeshArgumentError, match="ranks disagree about the mesh: times is 1"):
        cut.refine(1 + comm.rank)


@pytest.mark.parallel(1, 2, 3)
def test_a_field_that_jumps_has_one_value_at_a_node_whoever_shares_the_mesh(comm):
    found = []
    for mesh in (femops.box((5, 4)), femops.box((5, 4), comm=comm)):
        fine = mesh.refined(lambda x: ((x - 0.3) ** 2).sum(0) < 0.05)
        L = femops.L2(mesh, 1)
        u = L.interpolate(lambda x: np.floor(5 * x[0]) + 10 * np.floor(4 * x[1]))
        for grid in (mesh, fine):
            V = femops.H1(grid, 2)
            w = femops.adapt.transfer(u, L, V, how="nodal")
            at = femops.Probe(grid, [0.2, 0.25])(V, w)
            assert np.allclose(at, 5.5)
            found.append(femops.integrate(V, w))
    assert np.allclose(found[:2], found[2:])
