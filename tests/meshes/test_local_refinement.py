"""Meshes whose elements are refined and coarsened one by one: what must hold on any tree."""

import pickle
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

import femops
import femops.adjoint
import femops.parallel
import femops_meshes
from femops_meshes import (
    Mesh,
    MeshArgumentError,
    MeshGeometryError,
    MeshTopologyError,
    scrambled,
)
from femops_meshes.coordinates.mapping import positions
from femops_meshes.parents import parents_of
from femops_meshes.topology.entities import entity_codes


def bent(x):
    return x + 0.07 * np.sin(2.0 * x[::-1])


def star(n=5):
    """Rhombi around a vertex."""
    angle = np.arange(2 * n) * np.pi / n
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points[::2] *= 2 * np.cos(np.pi / n)
    points = np.concatenate([np.zeros((1, 2)), points[1::2], points[::2]])
    k = np.arange(n)
    corners = np.stack([0 * k, 1 + k, 1 + (k + 1) % n, n + 1 + (k + 1) % n], axis=1)
    return Mesh.from_arrays(points, corners)


MESHES = {
    "interval": lambda: femops.box(4),
    "square": lambda: femops.box((3, 2)),
    "box": lambda: femops.box((2, 2, 2)),
    "star": star,
    "disc": lambda: femops.disc(2),
    "ball": lambda: femops.ball(1),
    "bent square": lambda: femops.box((2, 3)).mapped(bent, order=3),
    "bent box": lambda: femops.box((2, 1, 2)).mapped(bent, order=2),
    "refined": lambda: femops.box((2, 2)).refine(),
    "scrambled": lambda: scrambled(femops.box((2, 2, 2)), 3),
}
PERIODIC = {
    "ring": lambda: femops.box(3, periodic=True),
    "torus": lambda: femops.box((3, 3), periodic=True),
    "periodic box": lambda: femops.box((3, 3, 3), periodic=True),
}
ALL = {**MESHES, **PERIODIC}
trees = pytest.mark.parametrize(("name", "seed"), [*product(ALL, range(3))])


@lru_cache
def tree(name, seed):
    """A mesh that was refined, coarsened and reordered at random."""
    rng = np.random.default_rng(seed)
    mesh = ALL[name]()
    for step in range((4, 3, 2)[mesh.dim - 1]):
        mesh = mesh.refined(rng.random(mesh.num_elements) < (0.3 if mesh.dim < 3 else 0.1))
        if step % 2 and mesh.forest is not None:
            mesh = mesh.coarsened(rng.random(mesh.num_elements) < 0.7)
        mesh = mesh.reordered(rng.permutation(mesh.num_elements))
    return mesh if mesh.forest is not None else mesh.refined([0])


def keys(name, mesh, x):
    """Positions (..., dim) as tuples of whole numbers; those of periodic boxes modulo one."""
    if name in PERIODIC:
        x = x - np.floor(x + 1e-7)
    return [tuple(row) for row in np.round(x * 2**24).astype(int).reshape(-1, mesh.dim).tolist()]


@trees
def test_volume_elements_and_vertices(name, seed):
    mesh = tree(name, seed)
    assert np.isclose(mesh.volume(), ALL[name]().volume(), rtol=1e-13)
    mesh.validate()
    assert np.array_equal(np.sort(mesh.file_elements), np.arange(mesh.num_elements))
    assert np.array_equal(np.unique(mesh.elements), np.arange(mesh.num_vertices))


@trees
def test_neighbours_are_one_level_apart_at_most(name, seed):
    mesh = tree(name, seed)
    level, depth = mesh.forest.level, mesh.forest.depth
    touching = {}
    for one in np.unique(level).tolist():
        m, some = 2 ** (depth - one), np.flatnonzero(level == one)
        at = np.array([*product(range(m + 1), repeat=mesh.dim)])
        surface = ((at == 0) | (at == m)).any(axis=1)
        x = positions(mesh.coordinates[some], np.linspace(0, 1, m + 1))[:, surface]
        for point in keys(name, mesh, x):
            touching.setdefault(point, set()).add(one)
    assert all(max(levels) - min(levels) <= 1 for levels in touching.values())
    assert not mesh.forest.unbalanced().any()


@trees
def test_each_place_has_one_vertex(name, seed):
    mesh = tree(name, seed)
    corners = keys(name, mesh, positions(mesh.coordinates, [0.0, 1.0]))
    number = dict(zip(corners, mesh.elements.ravel().tolist(), strict=True))
    assert [number[key] for key in corners] == mesh.elements.ravel().tolist()
    assert len(number) == mesh.num_vertices


def faces_by_position(name, mesh):
    """Pairs of sides (element, code), and sides alone, found by the middles of faces."""
    dim, whole, quarters = mesh.dim, {}, {}
    points = np.reshape(
        keys(name, mesh, positions(mesh.coordinates, np.linspace(0, 1, 5))),
        (mesh.num_elements, -1, dim),
    )
    for code in entity_codes(dim, dim - 1):
        digits = [code // 3**d % 3 for d in range(dim)]
        along = [d for d in range(dim) if digits[d] == 1]
        for parts in dict.fromkeys([(2,) * (dim - 1), *product((1, 3), repeat=dim - 1)]):
            at = [2 * digit for digit in digits]
            for d, part in zip(along, parts, strict=True):
                at[d] = part
            table = whole if 2 in parts or dim == 1 else quarters
            node = sum(a * 5**d for d, a in enumerate(at))
            for element, key in enumerate(map(tuple, points[:, node].tolist())):
                table.setdefault(key, []).append((element, code))
    pairs, alone = [], set()
    for key, sides in whole.items():
        both = sides + quarters.get(key, [])
        if len(both) == 1:
            alone |= {*both}
        else:
            pairs.append(tuple(sorted(both)))
    return sorted(pairs), alone.difference(*pairs)


@trees
def test_faces_are_those_found_by_position(name, seed):
    mesh, topology = tree(name, seed), tree(name, seed).topology
    pairs, alone = faces_by_position(name, mesh)
    sides = np.stack([topology.faces, topology.face_codes], axis=2).tolist()
    assert sorted(tuple(map(tuple, sides[face])) for face in topology.pairs) == pairs
    outer = np.flatnonzero(topology.faces[:, 1] < 0)
    assert {tuple(sides[face][0]) for face in outer} == alone
    assert {tuple(face) for face in topology.boundary_faces.tolist()} == alone
    assert len(topology.boundary_faces) == len(outer) == len(alone)
    for face in topology.divided.tolist():  # the larger side and its first smaller one
        assert tuple(map(tuple, sides[face])) in pairs
        assert any(topology.entity[element, code] == face for element, code in sides[face])
    assert len(topology.faces) == len(topology.pairs) + len(outer) + len(topology.divided)


def levels_undone(mesh):
    """Coarsen all, again and again, to the roots."""
    while mesh.forest.depth:
        shorter = mesh.coarsened()
        assert shorter.num_elements < mesh.num_elements
        mesh = shorter
    return mesh


@pytest.mark.parametrize("name", [name for name in ALL if name != "refined"])
def test_coarsening_undoes_refinement(name):
    start, rng = ALL[name](), np.random.default_rng(5)
    mesh = start
    for _ in range(3 if start.dim < 3 else 2):
        mesh = mesh.refined([0, *np.flatnonzero(rng.random(mesh.num_elements) < 0.2)])
    back = levels_undone(mesh)
    assert back.num_elements == start.num_elements
    assert np.allclose(back.coordinates, start.coordinates, atol=1e-13)
    assert np.array_equal(back.element_attributes, start.element_attributes)
    assert np.array_equal(back.boundary_attributes, start.boundary_attributes)
    assert np.array_equal(back.topology.boundary_faces, start.topology.boundary_faces)
    assert np.array_equal(np.argsort(back.file_elements), np.argsort(start.file_elements))
    # the same vertices are joined
    places = {*zip(back.elements.ravel().tolist(), start.elements.ravel().tolist(), strict=True)}
    assert len(places) == start.num_vertices == back.num_vertices


@pytest.mark.parametrize("name", ["square", "box", "disc", "torus", "scrambled"])
def test_coarsening_undoes_refinement_of_all_elements(name):
    start = ALL[name]()
    rng = np.random.default_rng(2)
    fine = start.refine(2 if start.dim == 2 else 1)
    fine = fine.reordered(rng.permutation(fine.num_elements))
    back = levels_undone(fine.refined(rng.random(fine.num_elements) < 0.1))
    order = back.forest.root
    assert np.allclose(back.volume(), start.volume())
    order = np.argsort(back.file_elements), np.argsort(start.file_elements)
    assert np.allclose(back.coordinates[order[0]], start.coordinates[order[1]], atol=1e-13)
    step = fine.coarsened()
    assert step.num_elements == fine.num_elements >> start.dim


def marked():
    """A box with attributes, names, and a plane inside that is listed."""
    points = np.array([[x, y, z] for z in range(2) for y in range(3) for x in range(4)], float)
    number = np.arange(24).reshape(2, 3, 4)
    cells = [
        number[z : z + 2, y : y + 2, x : x + 2].ravel()
        for z, y, x in product(range(1), range(2), range(3))
    ]
    outer = Mesh.from_arrays(points, cells)
    plane = [[1, 5, 13, 17], [1 + 4, 5 + 4, 13 + 4, 17 + 4]]  # x = 1, seen from the low side
    boundary = np.concatenate([outer.boundary, plane])
    mesh = Mesh.from_arrays(
        points, cells, np.arange(6) % 3 + 1, boundary, [1] * len(outer.boundary) + [7, 7]
    )
    return mesh.with_names({"left": 1, "rest": (2, 3)}, {"inside": 7, "outside": 1})


def test_attributes_names_and_faces_inside_are_kept():
    mesh = marked()
    fine = mesh.refined(attributes="left")
    assert fine.num_elements == 4 + 2 * 8
    assert fine.element_names == mesh.element_names
    assert fine.boundary_names == mesh.boundary_names
    inside = fine.boundary_attributes == 7
    # elements with attribute 1 are on the low side of the plane, and the entries are theirs
    assert inside.sum() == 8
    element, code = fine.topology.boundary_faces[inside].T
    assert (fine.forest.level[element] == 1).all()
    assert (code == 14).all()
    x = fine.coordinates[element][:, :, 0]
    assert (x.max(axis=1) == 1.0).all()
    assert (fine.boundary_attributes == 1).sum() > (mesh.boundary_attributes == 1).sum()
    assert np.isclose(fine.volume(), mesh.volume())
    for x, y in ((fine, fine.element_attributes == 1), (mesh, mesh.element_attributes == 1)):
        assert np.isclose(volumes(x)[y].sum(), 2.0)
    # the high side refined: the entries stay those of the larger elements
    other = mesh.refined(lambda x: (x[0] > 1) & (x[0] < 2))
    inside = other.boundary_attributes == 7
    assert inside.sum() == 2
    assert (other.forest.level[other.topology.boundary_faces[inside, 0]] == 0).all()
    assert (other.topology.faces[other.topology.entity[0, 14]] >= 0).all()
    both = levels_undone(other.refined(attributes="left"))
    assert np.array_equal(both.boundary_attributes, mesh.boundary_attributes)
    assert np.array_equal(both.topology.boundary_faces, mesh.topology.boundary_faces)


def volumes(mesh):
    return np.array([femops.box(1).volume() * np.prod(np.ptp(x, axis=0)) for x in mesh.coordinates])


def test_choices_of_elements_agree():
    mesh = femops.box((4, 4)).with_attributes(np.arange(16) % 4 + 1).with_names({"a": 2, "b": 3})
    by_number = mesh.refined([0, 5])
    mask = np.zeros(16, bool)
    mask[[0, 5]] = True
    middles = mesh.element_centers()[[0, 5]]

    def there(x):
        return (np.abs(x.T[:, None] - middles).max(axis=2) < 1e-9).any(axis=1)

    for same in (mesh.refined(mask), mesh.refined(there), mesh.refined(np.array([5, 0, 5]))):
        assert np.array_equal(same.coordinates, by_number.coordinates)
        assert np.array_equal(same.elements, by_number.elements)
    named, numbered = mesh.refined(attributes="a"), mesh.refined(attributes=2)
    assert np.array_equal(named.elements, numbered.elements)
    joined = mesh.refined([0], attributes=["a", 3])
    assert joined.num_elements == 16 + 3 * 9
    assert mesh.refined().num_elements == 64
    assert mesh.refined().coarser is not None  # the levels of `refine`


def test_an_empty_choice_returns_the_mesh():
    mesh = femops.box((3, 3)).refined([4])
    for nothing in ([], np.zeros(mesh.num_elements, bool), lambda x: x[0] > 2):
        assert mesh.refined(nothing) is mesh
        assert mesh.coarsened(nothing) is mesh
    # no family is whole, or a neighbour is finer: nothing to do
    assert mesh.coarsened([4, 5, 6]) is mesh
    fine = mesh.refined([4])
    families = np.flatnonzero(fine.forest.level == 1)
    assert fine.coarsened(families) is fine


def test_refine_halves_the_leaves_of_trees():
    mesh = femops.disc(2).refined([0, 3])
    fine = mesh.refine(2)
    assert fine.num_elements == 16 * mesh.num_elements
    assert np.array_equal(fine.forest.level, np.repeat(mesh.forest.level, 16) + 2)
    assert np.isclose(fine.volume(), mesh.volume())


BAD = {
    "number too large": (lambda m: m.refined([7]), "elements run from 7 to 7"),
    "negative": (lambda m: m.refined([-1]), "elements 0 to 6"),
    "mask too short": (lambda m: m.refined([True, False]), "one flag for each of 7 elements"),
    "floats": (lambda m: m.refined([1.0]), "give numbers (n,), a mask (7,) or a predicate"),
    "text": (lambda m: m.refined("all"), "give numbers (n,), a mask (7,) or a predicate"),
    "ragged": (lambda m: m.refined([[1], [2, 3]]), "elements"),
    "two axes": (lambda m: m.refined([[1, 2]]), "elements have shape (1, 2)"),
    "one number": (lambda m: m.refined(3), "elements have shape ()"),
    "predicate of a point": (lambda m: m.refined(lambda x: bool(x[0] > 0)), "all positions"),
    "predicate of floats": (lambda m: m.refined(lambda x: x[0]), "booleans"),
    "unknown attribute": (lambda m: m.refined(attributes=4), "no element attribute 4"),
    "unknown name": (lambda m: m.refined(attributes="a"), "no element attribute 'a'"),
    "bad attribute": (lambda m: m.refined(attributes=1.5), "attributes is 1.5"),
    "coarsened number": (lambda m: m.coarsened([9]), "elements run from 9 to 9"),
    "never refined": (lambda _: femops.box((2, 2)).coarsened(), "never refined"),
    "read from a file": (
        lambda _: femops.read_mesh(femops.sample("disc.mesh")).coarsened([0]),
        "never refined",
    ),
    "too many times": (lambda m: m.refine(40), "memory"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error(name):
    call, text = BAD[name]
    with pytest.raises(MeshArgumentError) as error:
        call(femops.box((2, 2)).refined([0]))
    assert text in str(error.value)


@pytest.mark.parametrize("step", [lambda m: m.refined([0]), lambda m: m.refine(1)])
def test_a_mesh_that_is_coarse_again_stays(step):
    """As in a loop that refines in front of a wave and coarsens behind it."""
    mesh = step(femops.box((2, 2))).coarsened()
    assert mesh.num_elements == 4
    assert mesh.coarsened() is mesh


def test_a_tree_has_a_last_level():
    mesh = femops.box(2)
    for _ in range(62):
        mesh = mesh.refined([0])
    with pytest.raises(MeshArgumentError, match="at most 62 levels"):
        mesh.refined([0])
    square = femops.box((1, 1))
    for _ in range(31):
        square = square.refined([0])
    with pytest.raises(MeshArgumentError, match="at most 31 levels"):
        square.refined([0])


def test_pickled_meshes_can_be_coarsened():
    mesh = femops.disc(2).refined([1]).refined([3])
    again = pickle.loads(pickle.dumps(mesh))
    assert np.array_equal(again.elements, mesh.elements)
    assert np.array_equal(levels_undone(again).elements, levels_undone(mesh).elements)
    assert repr(again) == repr(mesh)


def test_one_hexahedron_inside_a_box():
    mesh = femops.box((3, 3, 3))
    fine = mesh.refined(lambda x: (np.abs(x - 0.5) < 0.1).all(axis=0))
    assert fine.num_elements == 26 + 8
    # 64 corners of the box, and 27 nodes of the halves without the eight they share
    assert fine.num_vertices == 64 + 19
    V = femops.H1(fine, order=1)
    assert V.ndofs == 64 + 1  # 12 at edges and 6 at faces hang, the middle does not: 18 of 19
    topology = fine.topology
    assert len(topology.divided) == 6
    assert len(topology.pairs) == 54 - 6 + 24 + 12
    assert len(np.unique(topology.carriers.hanging[:, 0])) == 8


@trees
def test_polynomials_are_reproduced(name, seed):
    if name in PERIODIC:
        return
    mesh = tree(name, seed)
    for p in (1, 2, 3, 5) if mesh.dim < 3 else (1, 2, 3):
        V = femops.H1(mesh, order=p)
        if mesh.order > 1:  # isoparametric: positions alone are in the space
            if p < mesh.order:
                continue
            degree = p // mesh.order
        else:
            degree = p if name != "disc" else 1

        def polynomial(x, degree=degree):
            return sum((k + 1.0) * (x[k] - 0.3 * x[0]) ** degree for k in range(len(x))) + 0.5

        u = V.interpolate(polynomial)
        points = V.quadrature().points
        x = positions(mesh.coordinates, points)
        exact = polynomial(x.reshape(-1, mesh.dim).T).reshape(x.shape[:2])
        assert np.allclose(V.values(u), exact, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", PERIODIC)
def test_periodic_spaces_have_no_dofs_at_the_seam(name):
    mesh = tree(name, 1)
    V = femops.H1(mesh, order=2)
    one = V.values(np.ones(V.size))
    assert np.allclose(one, 1.0)
    u = V.interpolate(lambda x: np.sin(2 * np.pi * x[0]))
    corners = V.restriction.gather(u)[:, [0, 2]]
    assert np.isfinite(corners).all()


@trees
def test_refined_meshes_are_continuous_unless_periodic(name, seed):
    assert tree(name, seed).continuous == (name not in PERIODIC)
    assert tree(name, seed).curved(4).continuous == (name not in PERIODIC)


def wavy(x):
    return x + 0.03 * np.sin(2.0 * np.pi * x[::-1] + 1.0)  # of period one


def on_faces(mesh, elements, codes, points):
    """Positions (n, points**(dim - 1), dim) of points on faces, lexicographic."""
    result = np.empty((len(elements), len(points) ** (mesh.dim - 1), mesh.dim))
    for code in np.unique(codes):
        mine = codes == code
        digits = [int(code) // 3**d % 3 for d in range(mesh.dim)]
        grid = [points if t == 1 else np.array([t / 2]) for t in digits]
        result[mine] = positions(mesh.coordinates[elements[mine]], grid)
    return result


def gap(mesh, periodic):
    """Largest distance of points on a face as its two sides have them."""
    topology, level, faces = mesh.topology, mesh.forest.level, mesh.topology.pairs
    elements, codes = topology.faces[faces], topology.face_codes[faces].astype(int)
    order = np.argsort(level[elements], axis=1, kind="stable")
    (large, small), (large_code, small_code) = (
        np.take_along_axis(a, order, axis=1).T for a in (elements, codes)
    )
    k, m, divided = mesh.dim - 1, len(faces), level[small] > level[large]
    points = on_faces(mesh, small, small_code, np.linspace(0, 1, 5)).reshape(m, *(5,) * k, -1)
    larger = on_faces(mesh, large, large_code, np.linspace(0, 1, 9)).reshape(m, *(9,) * k, -1)
    slices = [(slice(0, 9, 2),) * k, *product((slice(0, 5), slice(4, 9)), repeat=k)]
    least = np.full(m, np.inf)
    for part, at in enumerate(slices):
        for flips, swap in product(product((1, -1), repeat=k), range(k)):
            turned = larger[(slice(None), *at)]
            turned = turned[(slice(None), *(slice(None, None, flip) for flip in flips))]
            away = (np.swapaxes(turned, 1, k) if swap else turned) - points
            away = away.reshape(m, -1, mesh.dim)
            if periodic:  # sides are a shift apart
                away -= away[:, :1]
            away = np.abs(away).max(axis=(1, 2))
            least = np.where(divided == (part > 0), np.minimum(least, away), least)
    return least.max()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@trees
def test_moved_meshes_have_no_gaps(name, seed, order):
    mesh = tree(name, seed)
    if order < mesh.order or (mesh.dim == 3 and seed) or mesh.dim == 1:
        return
    moved = mesh.mapped(wavy, order)
    assert moved.continuous == (name not in PERIODIC)
    assert gap(moved, name in PERIODIC) < 1e-14
    nodes, raised = moved.coordinates, mesh.curved(order).coordinates
    whole = ~np.isin(np.arange(len(nodes)), mesh.topology.carriers.hanging[:, 0])
    expected = wavy(raised[whole].reshape(-1, mesh.dim).T).T.reshape(raised[whole].shape)
    assert np.allclose(nodes[whole], expected, atol=1e-14)


def test_refinement_and_coarsening_after_a_move_leave_no_gaps():
    rng = np.random.default_rng(4)
    for make in (lambda: femops.box((3, 3)), lambda: femops.box((2, 2, 2)), star):
        mesh = make().refined([0]).mapped(wavy, 2)
        for step in range(4):
            chosen = rng.random(mesh.num_elements) < 0.2
            mesh = mesh.refined(chosen) if step % 2 == 0 else mesh.coarsened(~chosen)
            assert mesh.continuous
            assert gap(mesh, periodic=False) < 1e-14
            mesh = mesh.mapped(lambda x: x + 0.01 * np.cos(4 * x[::-1]))
            assert gap(mesh, periodic=False) < 1e-14
        assert gap(mesh.coarsened(), periodic=False) < 1e-14


def test_a_mesh_with_a_gap_is_not_continuous():
    mesh = femops.box((2, 2)).refined([0])
    hangs, code, _ = mesh.topology.carriers.hanging[0]
    moved = mesh.coordinates.copy()
    moved[hangs] += 0.001
    assert code in (3, 5)
    assert mesh.continuous
    assert not mesh._replaced(coordinates=moved).continuous


def test_coarsening_refuses_elements_that_it_would_invert():
    """The halves are proper, but the corners of their parent are those of no convex element."""
    mesh = femops.box((1, 1)).refined([0]).refined([3])
    to = {
        (0, 0): (0.61,) * 2,
        (0.5, 0): (0.85, 0.4),
        (0, 0.5): (0.4, 0.85),
        (0.5, 0.5): (0.74,) * 2,
    }

    def function(x):
        return np.array([to.get((a, b), (a, b)) for a, b in x.T.tolist()]).T

    bent = mesh.coarsened().mapped(function)
    with pytest.raises(MeshGeometryError, match="coarsening moved them"):
        bent.coarsened()


def test_validate_finds_elements_of_other_trees():
    mesh = femops.box((2, 2)).refined([0])
    other = femops.box((2, 2)).refined([1])
    with pytest.raises(MeshTopologyError, match="leaves of the mesh's trees"):
        replace(mesh, forest=other.forest).validate()
    far = mesh.forest.split(np.arange(7) == 3)
    coordinates = np.concatenate([mesh.coordinates, mesh.coordinates[:3]])
    unbalanced = mesh._on_trees(
        far,
        mesh.topology.boundary_faces,
        coordinates=coordinates,
        element_attributes=np.ones(10, np.int32),
    )
    with pytest.raises(MeshTopologyError, match="more than one level"):
        unbalanced.validate()


def test_the_mesh_tells_its_levels():
    assert "levels    0 to 1, with hanging nodes" in repr(femops.box((2, 2)).refined([0]))
    assert "levels    0 to 1\n" in repr(femops.box(2).refined([0]))
    assert "levels    all refined 1 times" in repr(femops.box(2).refined([0]).refined([2]))
    assert "levels" not in repr(femops.box((2, 2)).refine())
    assert "hanging nodes" in femops.box((2, 2)).refined([0])._repr_html_()


@pytest.mark.parametrize("name", [name for name in ALL if name != "refined"])
def test_finer_trees_know_their_parents(name):
    rng = np.random.default_rng(8)
    start = ALL[name]()
    coarse = start.refined(rng.random(start.num_elements) < 0.3).refined([0])
    coarse = coarse.reordered(rng.permutation(coarse.num_elements))
    fine = coarse.refined(rng.random(coarse.num_elements) < 0.3).refined([1])
    fine = fine.reordered(rng.permutation(fine.num_elements))
    for mesh in (coarse, start):
        parents = parents_of(fine, mesh)
        grid = positions(fine.coordinates, np.array([0.0, 1.0]))
        for element in range(fine.num_elements):
            low, width = parents.low[element], parents.width[element]
            of = mesh.coordinates[[parents.elements[element]]]
            inside = [at + width * np.array([0.0, 1.0]) for at in low]
            assert np.allclose(positions(of, inside)[0], grid[element], atol=1e-13)
    assert parents_of(coarse, fine) is None
    # moved meshes have other positions
    assert parents_of(fine, coarse.mapped(lambda x: 1.001 * x)) is None


def test_fields_of_coarser_trees_are_exact_on_finer_ones():
    coarse = femops.box((3, 3), periodic=True).refined([0, 4])
    fine = coarse.refined([2, 5]).refined([9])
    W, V = femops.H1(coarse, 3), femops.H1(fine, 3)
    u = np.random.default_rng(1).standard_normal(W.size)
    v = V.interpolate((W, u))
    parents = parents_of(fine, coarse)
    e_vec = W.restriction.gather(u)[parents.elements]
    points = V.quadrature().points
    for element in range(fine.num_elements):
        at = [low + parents.width[element] * points for low in parents.low[element]]
        exact = W.element.values(at, e_vec[[element]])
        assert np.allclose(V.values(v)[element], exact, atol=1e-12)


def test_fields_go_to_meshes_that_are_finer_here_and_coarser_there():
    mesh = femops.box((4, 4)).refined(lambda x: np.abs(x.sum(axis=0) - 1) > 0.7)
    there = mesh.refined([1]).coarsened(lambda x: x.sum(axis=0) > 1.5)
    assert mesh.num_elements == 22
    assert there.num_elements == 22 + 3 + 3 - 3
    assert parents_of(there, mesh) is None
    W, V = femops.H1(mesh, 2), femops.H1(there, 2)
    u = W.interpolate(lambda x: x[0] ** 2 - x[0] * x[1])
    assert np.allclose(V.interpolate((W, u)), V.interpolate(lambda x: x[0] ** 2 - x[0] * x[1]))


def test_what_needs_conforming_meshes_refuses_by_name():
    mesh = femops.box((4, 4)).refined([0])
    assert not mesh.conforming
    assert mesh.coarsened().conforming
    assert femops.box(3).refined([0]).conforming
    piece = femops_meshes.part_of(mesh, femops.partition(mesh, 2), 0).mesh
    for call in (
        piece.refine,
        lambda: piece.refined([0]),
        piece.coarsened,
        lambda: piece.reordered(np.arange(piece.num_elements)),
        lambda: piece.mapped(lambda x: 2 * x),
    ):
        with pytest.raises(MeshArgumentError, match="no whole trees: change the mesh of all ranks"):
            call()
    with pytest.raises(MeshArgumentError, match="belong to no trees"):
        scrambled(mesh, 1)


def test_points_on_hanging_faces_are_found():
    mesh = femops.box((2, 2, 2)).refined([0])
    rng = np.random.default_rng(3)
    x = rng.random((40, 3)) * 0.5
    x[:, 0] = 0.5  # the face between the small elements and a larger one
    x[:10, 1] = 0.25
    x[:5, 2] = 0.25
    V = femops.H1(mesh, 2)
    u = V.interpolate(lambda x: x[0] * x[1] - x[2] ** 2)
    assert np.allclose(femops.Probe(mesh, x)(V, u), x[:, 0] * x[:, 1] - x[:, 2] ** 2)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_fields_move_meshes_without_gaps(order):
    for mesh in (femops.box((3, 2)).refined([0, 1]), femops.box((2, 2, 1)).refined([0])):
        X = femops.H1(mesh, order, ncomp=mesh.dim)
        rng = np.random.default_rng(0)
        moved = femops.adjoint.moved(X, 0.02 / order**2 * rng.standard_normal(X.size))
        assert moved.continuous
        assert gap(moved, periodic=False) < 1e-14
        linear = femops.adjoint.moved(X, X.interpolate(lambda x: 0.5 * x))
        assert np.allclose(linear.coordinates, 1.5 * mesh.curved(order).coordinates)
        broken = femops.L2(mesh, order, ncomp=mesh.dim)
        with pytest.raises(MeshGeometryError, match="smaller elements do not lie on the faces"):
            femops.adjoint.moved(broken, 1e-3 * rng.standard_normal(broken.size))


def with_boundary(mesh, boundary):
    attributes = np.ones(len(boundary), np.int32)
    return replace(mesh, boundary=boundary, boundary_attributes=attributes)


def test_a_twisted_entry_of_the_boundary_is_refused():
    mesh = femops.box((2, 2, 1)).refined([0])
    boundary = mesh.boundary.copy()
    boundary[3, [0, 1]] = boundary[3, [1, 0]]
    with pytest.raises(MeshTopologyError, match="boundary element"):
        assert with_boundary(mesh, boundary).topology is None
    boundary = np.concatenate([boundary, [[0, 1, 2, 3]]])
    with pytest.raises(MeshTopologyError, match="not faces of any element"):
        assert with_boundary(mesh, boundary).topology is None


def test_trees_say_what_they_are():
    mesh = femops.box((2, 2)).refined([0])
    assert repr(mesh.forest) == "Forest(7 leaves of levels 0 to 1 on 4 roots)"
    assert repr(femops.box((2, 2)).refine().trees) == "Forest(16 leaves of level 1 on 4 roots)"
