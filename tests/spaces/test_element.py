"""Elements that no space of the library has: they enter as an `Element` alone."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import femops
from femops.basis import Basis1D, gauss
from femops.element import TableElement, TensorElement, tensor_element
from femops.errors import FileError, OperatorError, SolverError, SpaceError
from femops.numbering import ternary_codes
from femops.spaces.base import Space
from femops.spaces.memory import DeviceMemory
from femops.spaces.restriction import ElementRestriction
from femops_kernels.cpu.machine import set_threads
from femops_meshes.coordinates.mapping import positions
from support.cases.meshes import bend, scrambled_box
from support.cases.rank_operators import close, piece
from support.cuda.paper import PaperDevice


def by_first_touch(names, shape, closed):
    """Number the nodes with equal names (ne, n) once, in the order in which elements touch them."""
    digits = [
        [0, *[1] * (n - 2), 2] if ends else [1] * n for n, ends in zip(shape, closed, strict=True)
    ]
    codes = [entity[::-1] for entity in itertools.product(*digits[::-1])]
    entities = [entity for _, entity in ternary_codes(len(shape))]
    order = [i for entity in entities for i, code in enumerate(codes) if code == entity]
    numbers, indices = {}, np.empty(names.shape, dtype=np.int64)
    for element, row in enumerate(names.tolist()):
        for i in order:
            indices[element, i] = numbers.setdefault(row[i], len(numbers))
    return ElementRestriction(indices, len(numbers))


class MixedOrders(Space):
    """H1 with an order for each direction, on elements that all lie alike."""

    continuous = True

    def __init__(self, mesh, orders, ncomp=1):
        self.orders = orders
        super().__init__(mesh, max(orders), ncomp, "gll")

    def _lowest_order(self, family):
        return 1

    def _element(self, family):
        return TensorElement(tuple(Basis1D(family, p) for p in self.orders), (True,) * self.dim)

    def _restrictions(self):
        x = positions(self.mesh.coordinates, self.element.nodes)
        places = np.rint(x.reshape(-1, self.dim) * 1e9).astype(np.int64)
        names = np.unique(places, axis=0, return_inverse=True)[1]
        return [by_first_touch(names.reshape(x.shape[:2]), self.element.shape, self.element.closed)]

    def _rank_numbering(self, mesh):
        raise NotImplementedError

    file_dofs = boundary_dofs = _rank_numbering


def lagrange(nodes, x):
    """Values and derivatives (points, nodes) of Lagrange polynomials, as products."""
    values, slopes = np.ones((2, len(x), len(nodes)))
    for j, node in enumerate(nodes):
        others = np.delete(nodes, j)
        values[:, j] = np.prod((x[:, None] - others) / (node - others), axis=1)
        terms = [
            np.prod((x[:, None] - np.delete(others, k)) / (node - np.delete(others, k)), axis=1)
            / (node - other)
            for k, other in enumerate(others)
        ]
        slopes[:, j] = np.sum(terms, axis=0)
    return values, slopes


def functions(grids, x):
    """Values (points, n) and derivatives (dim, points, n) of products, x fastest."""
    dim, lines = len(grids), [lagrange(nodes, x) for nodes in grids]

    def product(slope):
        result = np.ones((1, 1))
        for d in range(dim):
            result = np.kron(lines[d][int(d == slope)], result)
        return result

    return product(None), np.stack([product(d) for d in range(dim)])


def dense(space, q1d, kappa, reaction):
    """Matrix of the integral of kappa grad u . grad v + reaction u v, summed element by element."""
    mesh, dim, matrix = space.mesh, space.dim, np.zeros((space.ndofs,) * 2)
    x, w = np.polynomial.legendre.leggauss(q1d)
    x, weights = (x + 1) / 2, np.ones(1)
    for _ in range(dim):
        weights = np.kron(w / 2, weights)
    values, slopes = functions(space.element.nodes, x)
    mapped = functions([np.array(Basis1D("gll", mesh.order).nodes)] * dim, x)
    for dofs, nodes in zip(space.restriction.indices, mesh.coordinates, strict=True):
        place = mapped[0] @ nodes
        jacobian = np.einsum("dqn,ni->qid", mapped[1], nodes)
        gradients = np.einsum("qdi,dqn->qin", np.linalg.inv(jacobian), slopes)
        each = weights * np.linalg.det(jacobian)
        local = np.einsum("q,qin,qim->nm", each * kappa(place.T), gradients, gradients)
        local += np.einsum("q,qn,qm->nm", each * reaction, values, values)
        np.add.at(matrix, (dofs[:, None], dofs), local)
    return matrix


def kappa(x):
    return 1 + x[0] ** 2 + 0.5 * np.sin(x[-1])


CASES = [((3, 2, 1), 0.0), ((1, 4, 2), 0.03), ((3, 1), 0.03), ((2, 5), 0.0)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    """A space with an order for each direction, and the matrix of a form."""
    orders, bend = request.param
    counts = (3, 4, 2)[: len(orders)]
    mesh = femops.box(counts, mapping=lambda x: x + bend * np.sin(2 * np.pi * x[::-1]), order=2)
    V = MixedOrders(mesh, orders)
    assert V.ndofs == np.prod([n * p + 1 for n, p in zip(counts, orders, strict=True)])
    return V, dense(V, max(orders) + 2, kappa, 0.7)


def error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("level", ["full", "element", "partial", "matrix-free"])
def test_a_form_on_mixed_orders(case, level):
    V, matrix = case
    A = femops.diffusion(V, kappa=kappa, level=level) + femops.mass(V, 0.7, level=level)
    x = np.random.default_rng(1).standard_normal((V.size, 5))
    assert error(A @ x[:, 0], matrix @ x[:, 0]) < 1e-13
    assert error(A @ x, matrix @ x) < 1e-13
    assert error(A.diagonal(), matrix.diagonal()) < 1e-13
    assert error(A.assemble().toarray(), matrix) < 1e-13
    held = np.flatnonzero(V.dof_coordinates()[:, 0] < 0.1)
    C = A.constrained(held)
    matrix = matrix.copy()
    matrix[held], matrix[:, held] = 0.0, 0.0
    matrix[held, held] = 1.0
    assert error(C @ x[:, 1], matrix @ x[:, 1]) < 1e-13


def test_functions_on_mixed_orders(case):
    """Interpolation, values at points, norms, a solve by conjugate gradients."""
    V, matrix = case
    rule = gauss(max(V.orders) + 2)
    x = positions(V.mesh.coordinates, rule.points)
    u = V.interpolate(lambda x: np.sin(x[0]) + x[-1])
    at = functions(V.element.nodes, rule.points)[0] @ u[V.restriction.indices][..., np.newaxis]
    assert np.abs(V.values(u, rule) - at[..., 0]).max() < 1e-13
    assert np.abs(femops.Probe(V.mesh, x.reshape(-1, V.dim))(V, u) - at.ravel()).max() < 1e-9
    A = femops.diffusion(V, kappa=kappa) + femops.mass(V, 0.7)
    b = np.random.default_rng(3).standard_normal(V.size)
    x, info = femops.cg(A, b, rtol=1e-12, M=femops.jacobi(A))
    assert info.converged
    assert error(x, np.linalg.solve(matrix, b)) < 1e-9


def test_components_types_and_loads_on_mixed_orders(case):
    V, matrix = case
    W = MixedOrders(V.mesh, V.orders, ncomp=2)
    x = np.random.default_rng(4).standard_normal((V.ndofs, 2))
    A = femops.diffusion(W, kappa=kappa) + femops.mass(W, 0.7)
    assert error((A @ x.reshape(-1)).reshape(-1, 2), matrix @ x) < 1e-13
    single = femops.diffusion(V, kappa=kappa, dtype=np.float32)
    single += femops.mass(V, 0.7, dtype=np.float32)
    y = x[:, 0].astype(np.float32)
    assert error(single @ y, matrix @ y) < 1e-5
    field = femops.GridFunction(V, x[:, 0])
    rule = max(V.orders) + 2
    load = femops.load(V, field, quadrature=rule)
    assert error(load, femops.mass(V, quadrature=rule) @ x[:, 0]) < 1e-13


class EdgeComponent(Space):
    """One component of the lowest edge elements on boxes: constant along it, shared across it."""

    continuous = True

    def __init__(self, mesh, along):
        self.along = along
        super().__init__(mesh, 1, 1, "gll")

    def _lowest_order(self, family):
        return 1

    def _element(self, family):
        open_, closed = Basis1D("gauss", 0), Basis1D(family, 1)
        along = [d == self.along for d in range(self.dim)]
        return TensorElement(
            tuple(open_ if a else closed for a in along), tuple(not a for a in along)
        )

    _restrictions = MixedOrders._restrictions
    _rank_numbering = file_dofs = boundary_dofs = MixedOrders._rank_numbering


def edge_mass(product, epsilon):
    """Mass matrix with a tensor, of functions whose integral along one edge of a box is 1."""
    mesh, matrix = product.mesh, np.zeros((product.size,) * 2)
    x, w = np.polynomial.legendre.leggauss(2)
    grid = np.stack(np.meshgrid(*[(x + 1) / 2] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel() / 8
    for e, corners in enumerate(mesh.coordinates):
        h = corners[-1] - corners[0]
        functions, dofs = [], []
        for c, (name, space) in enumerate(product.spaces.items()):
            others = [d for d in range(3) if d != c]
            for k, dof in enumerate(space.restriction.indices[e]):
                ends = [k & 1, k >> 1]  # of the first and the second other direction
                hats = [
                    grid[:, d] if end else 1 - grid[:, d]
                    for d, end in zip(others, ends, strict=True)
                ]
                function = np.zeros((len(grid), 3))
                function[:, c] = hats[0] * hats[1] / h[c]
                functions.append(function)
                dofs.append(product.offsets[name] + dof)
        values = np.array(functions)
        local = np.einsum("q,nqi,ij,mqj->nm", weights * h.prod(), values, epsilon, values)
        np.add.at(matrix, (np.array(dofs)[:, np.newaxis], dofs), local)
    return matrix


@pytest.mark.parametrize("level", ["full", "element", "partial"])
def test_the_mass_matrix_of_edge_elements(level):
    """Three grids on one vector; a component is divided by the length of the element along it."""
    mesh = femops.box((3, 2, 4), mapping=lambda x: x**1.5 + x)
    product = femops.Product(**{f"e{c}": EdgeComponent(mesh, d) for d, c in enumerate("xyz")})
    assert [space.ndofs for space in product.spaces.values()] == [3 * 3 * 5, 4 * 2 * 5, 4 * 3 * 4]
    rng = np.random.default_rng(6)
    epsilon = rng.standard_normal((3, 3))
    epsilon = epsilon @ epsilon.T + np.eye(3)
    lengths = np.ptp(mesh.coordinates, axis=1)
    scale = femops.GridFunction(femops.L2(mesh, 0, ncomp=3), (1 / lengths).reshape(-1))

    def mass(ex, ey, ez, s, eps):
        covariant = [s[0] * ex, s[1] * ey, s[2] * ez]
        flux = [sum(eps[i, j] * covariant[j] for j in range(3)) for i in range(3)]
        return {name: {"value": s[i] * flux[i]} for i, name in enumerate(product.spaces)}

    A = femops.form(mass, product, s=scale, eps=epsilon, level=level)
    expected = edge_mass(product, epsilon)
    u = rng.standard_normal((product.size, 3))
    assert error(A @ u[:, 0], expected @ u[:, 0]) < 1e-13
    assert error(A @ u, expected @ u) < 1e-13
    assert error(A.diagonal(), expected.diagonal()) < 1e-13
    assert error(A.assemble().toarray(), expected) < 1e-13


class Tabulated(Space):
    """H1 of order 2, or combinations of the functions of L2, by tables."""

    def __init__(self, mesh, *, continuous, mix=None, ncomp=1):
        self.continuous, self.mix = continuous, mix
        super().__init__(mesh, 2, ncomp, "gll")

    def _lowest_order(self, family):
        return 1

    def _element(self, family):
        products = tensor_element(Basis1D(family, 2), self.dim, closed=self.continuous)
        return TableElement(products, np.eye(products.size) if self.mix is None else self.mix)

    def _restrictions(self):
        like = femops.H1 if self.continuous else femops.L2
        return [like(self.mesh, 2).restriction]

    _rank_numbering = file_dofs = boundary_dofs = MixedOrders._rank_numbering


def bent(dim):
    counts = (3, 4, 2)[:dim]
    return femops.box(counts, mapping=lambda x: x + 0.04 * np.sin(3 * x[::-1]), order=2)


@pytest.mark.parametrize("level", ["full", "element", "partial"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tables_of_products_equal_the_products(dim, level, dtype):
    mesh, bound = bent(dim), {"float64": 1e-13, "float32": 1e-5}[dtype]
    x = np.random.default_rng(7).standard_normal((femops.H1(mesh, 2).ndofs * 2, 5)).astype(dtype)
    given = {"level": level, "dtype": dtype}
    made = [
        femops.diffusion(V, kappa=kappa, **given) + femops.mass(V, 0.7, **given)
        for V in (femops.H1(mesh, 2, ncomp=2), Tabulated(mesh, continuous=True, ncomp=2))
    ]
    products, tables = made
    assert error(tables @ x[:, 0], products @ x[:, 0]) < bound
    assert error(tables @ x, products @ x) < bound
    assert error(tables.diagonal(), products.diagonal()) < bound
    assert error(tables.assemble().toarray(), products.assemble().toarray()) < bound


@pytest.mark.parametrize("level", ["full", "element", "partial"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_functions_that_are_no_products(dim, level):
    """Each element has combinations C of products, so a matrix becomes C^T A C."""
    mesh, size = bent(dim), 3**dim
    mix = np.random.default_rng(8).standard_normal((size, size)) + 2 * np.eye(size)
    W, V = Tabulated(mesh, continuous=False, mix=mix), femops.L2(mesh, 2, family="gll")

    def skew(u, x):
        return {"value": u + u.grad[0], "grad": (1 + x[0]) * u.grad + 0.3 * u * np.ones(dim)}

    change = np.kron(np.eye(mesh.num_elements), mix)
    expected = change.T @ femops.form(skew, V).assemble().toarray() @ change
    A = femops.form(skew, W, level=level)
    x = np.random.default_rng(9).standard_normal((W.size, 3))
    assert error(A @ x[:, 0], expected @ x[:, 0]) < 1e-12
    assert error(A @ x, expected @ x) < 1e-12
    assert error(A.T @ x[:, 0], expected.T @ x[:, 0]) < 1e-12
    assert error(A.diagonal(), expected.diagonal()) < 1e-12
    u = W.interpolate(lambda x: np.cos(x[0]))
    v = V.interpolate(lambda x: np.cos(x[0]))
    assert error(change @ u, v) < 1e-12
    assert error(W.values(u), V.values(v)) < 1e-12
    assert error(femops.load(W, lambda x: x[0]), change.T @ femops.load(V, lambda x: x[0])) < 1e-12


def hierarchical(p, dim):
    """Combinations of nodal functions: ends, and integrated Legendre polynomials between them."""
    x = np.array(Basis1D("gll", p).nodes)
    columns = [1 - x]
    for k in range(2, p + 1):
        one, two = np.eye(p + 2)[k], np.eye(p + 2)[k - 2]
        columns.append(np.polynomial.legendre.legval(2 * x - 1, one - two))
    along = np.stack([*columns, x], axis=1)
    whole = np.ones((1, 1))
    for _ in range(dim):
        whole = np.kron(along, whole)
    parity = (-1) ** np.arange(2, p + 1)
    return TableElement(tensor_element(Basis1D("gll", p), dim), whole, parity)


class Hierarchical(Space):
    """H1 with functions of edges that change sign when an edge is seen from its other end."""

    continuous = True

    def _lowest_order(self, family):
        return 1

    def _element(self, family):
        return hierarchical(self.order, self.dim)

    _restrictions = femops.H1._restrictions
    _rank_numbering = femops.H1._rank_numbering
    file_dofs = boundary_dofs = MixedOrders._rank_numbering


MESHES = {
    "disc": lambda: femops.read_mesh(femops.sample("disc.mesh")),
    "ball": lambda: femops.ball(1),
    "turned squares": lambda: scrambled_box((5, 7), 1, bend, order=2),
    "turned cubes": lambda: scrambled_box((3, 2, 2), 2, bend, order=2),
}


def nodal_values(W, V):
    """Matrix from vectors of W to values at the nodes of V, which must agree in all elements."""
    at_nodes = W.element.values(V.element.nodes, W.restriction.gather(np.eye(W.ndofs)))
    result = V.restriction.assigned(at_nodes)
    assert np.abs(result[V.restriction.indices] - at_nodes).max() < 1e-12
    assert np.linalg.matrix_rank(result) == W.ndofs == V.ndofs
    return result


def skew(u, x, k):
    return {"value": u + u.grad[0], "grad": (1 + k * x[0]) * u.grad + 0.3 * u * np.ones(len(x))}


def checked_with_signs(W, change, expected, level, dtype="float64"):
    """Compare a form on functions with signs with the one on nodal functions, changed."""
    bound = {"float64": 1e-12, "float32": 2e-5}[dtype]
    A = femops.form(skew, W, k=0.5, level=level, dtype=dtype)
    matrix = np.kron(change, np.eye(W.ncomp))
    matrix = matrix.T @ expected @ matrix
    x = np.random.default_rng(11).standard_normal((W.size, 5)).astype(dtype)
    assert error(A @ x[:, 0], matrix @ x[:, 0]) < bound
    assert error(A @ x, matrix @ x) < bound
    assert error(A.T @ x[:, 1], matrix.T @ x[:, 1]) < bound
    assert error(A.diagonal(), matrix.diagonal()) < bound
    assert error(A.assemble().toarray(), matrix) < bound
    held = np.arange(0, W.size, 3)
    matrix[held], matrix[:, held] = 0.0, 0.0
    matrix[held, held] = 1.0
    assert error(A.constrained(held) @ x[:, 2], matrix @ x[:, 2]) < bound


@pytest.mark.parametrize(
    ("name", "order"),
    [("disc", 5), ("turned squares", 4), ("ball", 3), ("turned cubes", 3), ("turned cubes", 4)],
)
def test_functions_with_signs(name, order):
    """Edges and faces are seen from other ends: functions are continuous, sums are right."""
    mesh = MESHES[name]()
    W, V = Hierarchical(mesh, order, 1, "gll"), femops.H1(mesh, order)
    change, expected = nodal_values(W, V), femops.form(skew, V, k=0.5).assemble().toarray()
    assert W.restriction.flipped.any()
    for level in ("full", "element", "partial"):
        checked_with_signs(W, change, expected, level)
    A = femops.diffusion(W) + femops.mass(W)
    b = np.random.default_rng(3).standard_normal(W.size)
    x, info = femops.cg(A, b, rtol=1e-12, M=femops.jacobi(A))
    assert info.converged
    assert error(x, np.linalg.solve(A.assemble().toarray(), b)) < 1e-6
    u = np.random.default_rng(4).standard_normal(W.size)
    assert error(W.values(u), V.values(change @ u)) < 1e-12
    assert error(W.gradient(u), V.gradient(change @ u)) < 1e-11
    loads = [femops.load(space, lambda x: np.exp(x[0]), quadrature=order + 2) for space in (V, W)]
    assert error(loads[1], change.T @ loads[0]) < 1e-12
    assert np.array_equal(W.multiplicity(), np.bincount(W.restriction.indices.ravel()))
    v = V.interpolate(lambda x: np.exp(x[0]) * x[-1])
    assert error(change @ W.interpolate(lambda x: np.exp(x[0]) * x[-1]), v) < 1e-11
    assert error(change @ W.interpolate((V, v)), v) < 1e-11
    fields = femops.GridFunction(W, u), femops.GridFunction(V, change @ u)
    goals = [femops.functional(lambda u, k: k**2 * u, V, k=k) for k in fields]
    slopes = [femops.gradient(goal, u=v, wrt=["k", "mesh"]) for goal in goals]
    assert error(slopes[0]["k"], change.T @ slopes[1]["k"]) < 1e-12
    assert error(slopes[0]["mesh"], slopes[1]["mesh"]) < 1e-12


@pytest.mark.parametrize("threads", [1, 3])
def test_many_chunks_with_signs(threads):
    """Components, float32, chunks that copy each other's dofs with and without signs."""
    mesh = scrambled_box((24, 31), 3, bend, order=2)
    W, V = Hierarchical(mesh, 3, 2, "gll"), femops.H1(mesh, 3, ncomp=2)
    A, B = (femops.form(skew, space, k=0.5, level="partial") for space in (W, V))
    set_threads(threads)
    u = np.random.default_rng(4).standard_normal((W.ndofs, 2))
    nodes, shares = V.element.nodes, V.restriction.shares(np.float64)[:, np.newaxis]
    at_nodes = V.restriction.assigned(W.element.values(nodes, W.restriction.gather(u)))
    product = (B @ at_nodes.reshape(-1)).reshape(-1, 2) * shares
    expected = W.restriction.scatter_add(W.element.sums(nodes, V.restriction.gather(product)))
    assert error((A @ u.reshape(-1)).reshape(-1, 2), expected) < 1e-12
    single = femops.form(skew, W, k=0.5, level="partial", dtype=np.float32)
    assert error((single @ u.reshape(-1).astype(np.float32)).reshape(-1, 2), expected) < 1e-5


class Turned(MixedOrders):
    """Products whose signs the restriction alone has: any ones, but for the first of each dof."""

    def _restrictions(self):
        (plain,) = MixedOrders._restrictions(self)
        flipped = np.random.default_rng(5).random(plain.indices.shape) < 0.5
        flipped.reshape(-1)[plain.owner] = False
        return [ElementRestriction(plain.indices, plain.ndofs, flipped=flipped)]


@pytest.mark.parametrize("level", ["full", "element", "partial", "matrix-free"])
def test_signs_of_a_restriction_alone(level):
    V = Turned(bent(2), (2, 3))
    W = femops.L2(V.mesh, 3, family="gll")
    change = W.restriction.assigned(
        V.element.values(W.element.nodes, V.restriction.gather(np.eye(V.ndofs)))
    )
    expected = femops.form(skew, W, k=0.5).assemble().toarray()
    checked_with_signs(V, change, expected, level)
    A = femops.form(skew, V, k=0.5, level=level)
    many = np.random.default_rng(6).standard_normal((V.size, 16))
    assert error(A @ many, change.T @ (expected @ (change @ many))) < 1e-12
    u = np.random.default_rng(7).standard_normal(V.size)
    slopes = [
        femops.gradient(femops.functional(lambda u, k: k**2 * u, W, k=k), u=expected[0], wrt="k")
        for k in (femops.GridFunction(V, u), femops.GridFunction(W, change @ u))
    ]
    assert error(slopes[0]["k"], change.T @ slopes[1]["k"]) < 1e-12


@pytest.mark.parallel(2, 4)
@pytest.mark.parametrize("reproducible", [False, True])
def test_ranks_share_dofs_with_signs(comm, reproducible):
    whole = scrambled_box((5, 4, 3), 2, bend, order=2)
    mesh = femops.distribute(whole, comm, reproducible=reproducible)
    V, W = (Hierarchical(m, 3, 3, "gll") for m in (mesh, whole))
    u = np.random.default_rng(4).standard_normal((W.size, 3))
    held, own = np.arange(0, W.size, 3), piece(V)
    mine = np.flatnonzero(np.isin(own, held))
    for level in ("full", "element", "partial"):
        A, B = (
            femops.form(skew, space, k=0.5, level=level).constrained(dofs)
            for space, dofs in ((V, mine), (W, held))
        )
        close(A @ u[own, 0], B @ u[:, 0], V)
        assert error(A @ u[own], (B @ u)[own]) < 1e-12
        close(A.diagonal(), B.diagonal(), V)
    close(femops.load(V, np.exp), femops.load(W, np.exp), V)
    assert np.abs(V.values(u[own, 1]) - W.values(u[:, 1])[mesh.part.elements]).max() < 1e-12
    spaces = [Hierarchical(m, 3, 1, "gll") for m in (mesh, whole)]
    fields = [
        femops.GridFunction(space, space.interpolate(lambda x: 1 + np.prod(x, axis=0) ** 3))
        for space in spaces
    ]
    close(fields[0].vector, fields[1].vector, spaces[0])
    L, M = femops.L2(mesh, 1), femops.L2(whole, 1)
    x = np.random.default_rng(4).standard_normal(M.size)
    between = femops.interior_penalty(L, fields[0]) @ x[piece(L)]
    close(between, femops.interior_penalty(M, fields[1]) @ x, L)


def test_what_tables_cannot_do_is_refused():
    W = Tabulated(bent(2), continuous=True)
    with pytest.raises(OperatorError, match="partial"):
        femops.diffusion(W, level="matrix-free") @ W.zeros()
    with pytest.raises(SpaceError, match="products"):
        W.basis  # noqa: B018


def test_what_other_elements_cannot_do_is_refused(monkeypatch, tmp_path):
    """By errors that name the space, whose description needs no basis of all directions."""
    monkeypatch.setattr("femops.operators.levels.auto._SAMPLE", 1)
    for space, family in (
        (Tabulated(bent(2), continuous=True), "tables"),
        (MixedOrders(bent(2), (2, 3)), "gll"),
        (Turned(bent(2), (2, 2)), "gll"),
    ):
        assert f"family={family!r}" in repr(space)
        assert family in space._repr_html_()
        femops.plot(space, space.zeros())
        with pytest.raises(FileError, match=f"MFEM has for {type(space).__name__} no basis"):
            femops.save(tmp_path / "u.gf", space, u=space.zeros())
        with pytest.raises(SolverError, match=r"takes operators on H1 and L2, .*family.*jacobi"):
            femops.multigrid(femops.mass(space))
        with pytest.raises(SpaceError, match="a field of 2 component"):
            space.interpolate((femops.H1(space.mesh, 1, ncomp=2), np.zeros(40)))
        if family == "gll":
            with pytest.raises(OperatorError, match="'auto' samples H1 and L2"):
                femops.diffusion(space, level="auto") @ space.zeros()
    for flipped in (np.zeros((2, 1), bool), [[False, True], [True, False]]):
        with pytest.raises(SpaceError, match="False where an element is the first"):
            ElementRestriction([[0, 1], [1, 2]], 3, flipped=np.array(flipped))
    memory = SimpleNamespace(device="a device")
    monkeypatch.setattr("femops.spaces.base.find_memory", lambda *_: memory)
    with pytest.raises(SpaceError, match="signs have no kernels on a device"):
        Turned(bent(2), (2, 2))


def test_a_device_refuses_them(monkeypatch):
    memory = DeviceMemory(PaperDevice("sm_90"))
    monkeypatch.setattr("femops.spaces.base.find_memory", lambda *_: memory)
    mesh = bent(2)
    mixed, tables = MixedOrders(mesh, (3, 2)), Tabulated(mesh, continuous=True)
    for space, message in ((mixed, "directions of an element have"), (tables, "are no products")):
        with pytest.raises(SpaceError, match=message):
            femops.diffusion(space).apply(space.zeros())
    assert not memory.device.functions


def test_multigrid_beside_a_state_on_other_elements():
    """Its coarse spaces have the state's values in functions that they know."""
    mesh = bent(2)
    for space in (Turned(mesh, (2, 2)), Hierarchical(mesh, 4, 1, "gll"), MixedOrders(mesh, (3, 2))):
        both = femops.Product(u=femops.H1(mesh, 3), k=space)

        def flow(u, k):
            return {"u": {"grad": (1 + k**2) * u.grad, "value": u}, "k": {"value": k}}

        state = np.random.default_rng(2).standard_normal(both.size)
        A = femops.residual(flow, both).jacobian(state)["u", "u"]
        b = np.ones(A.shape[0])
        x, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-10)
        assert info.converged
        assert info.iterations < 40
        assert error(x, np.linalg.solve(A.assemble().toarray(), b)) < 1e-8


def test_locally_refined_meshes_are_refused():
    """Their hanging nodes need products of the same functions in each direction."""
    mesh = femops.box((2, 2)).refined([0])
    with pytest.raises(SpaceError, match="cannot be interpolated to hanging nodes"):
        Hierarchical(mesh, 3, 1, "gll")
    with pytest.raises(SpaceError, match="MixedOrders would jump at the hanging nodes"):
        MixedOrders(mesh, (2, 3))
