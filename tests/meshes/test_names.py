"""Names of attributes, and what keeps them."""

import pickle
from unicodedata import category

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from femops_meshes import (
    Mesh,
    MeshArgumentError,
    MeshFormatError,
    box,
    read_mfem,
    scrambled,
    write_mfem,
)
from femops_meshes.names import with_numbers


def named():
    mesh = box((2, 2))
    return mesh.with_names({"all": 1}, {"left": [1], "sides": (2, 1, 2)})


def test_names_are_kept():
    mesh = named()
    assert mesh.element_names == {"all": (1,)}
    assert mesh.boundary_names == {"left": (1,), "sides": (1, 2)}
    assert "left = 1, sides = 1 + 2" in repr(mesh)
    for other in (
        mesh.refine(2),
        mesh.reordered([3, 1, 0, 2]),
        mesh.curved(2),
        mesh.mapped(lambda x: 2 * x),
        pickle.loads(pickle.dumps(mesh)),
        mesh.with_attributes(),
    ):
        assert other.element_names == mesh.element_names
        assert other.boundary_names == mesh.boundary_names


def test_new_attributes_and_new_meshes_have_no_names():
    mesh = named().with_attributes(elements=[5, 5, 6, 6])
    assert mesh.element_names == {}
    assert mesh.boundary_names == named().boundary_names
    assert named().with_names({}, {}).boundary_names == {}
    assert box((2,)).element_names == box((2,)).boundary_names == {}


def test_names_that_are_not_given_stay():
    """Names of the other kind, whose numbers a predicate does not change."""
    mesh = named().with_names({"low": lambda x: x[0] < 0.5})
    assert mesh.boundary_names == named().boundary_names
    assert mesh.with_names(boundary={"a": 1}).element_names == mesh.element_names
    assert mesh.with_names(boundary={}).boundary_names == {}


def test_bad_names():
    for names in ({"a": 9}, {"a": ()}, {"": 1}, {3: 1}, {"a": [1, 9]}):
        with pytest.raises(MeshArgumentError, match="stands for"):
            named().with_names(names)


def test_names_become_numbers():
    names = {"a": (1, 4), "b": (4,)}
    assert with_numbers(None, names) is None
    assert with_numbers(3, names) == [3]
    assert with_numbers("a", names) == [1, 4]
    assert with_numbers(["a", 7, "c"], names) == [1, 4, 7, "c"]


PLAIN = [
    box(3),
    box((2, 2)),
    box((2, 2), order=2),
    scrambled(box((3, 3), periodic=True, order=2), 1),
]
TEXT = st.text(min_size=1, max_size=8)


@settings(max_examples=60)
@given(
    mesh=st.sampled_from(PLAIN),
    inside=st.sets(TEXT, max_size=2),
    outside=st.lists(TEXT, max_size=2, unique=True),
)
@example(mesh=PLAIN[1], inside={"1"}, outside=[" a b ", "ö # x"])
@example(mesh=PLAIN[1], inside=set(), outside=[])
def test_any_name_is_kept_or_refused(tmp_path_factory, mesh, inside, outside):
    groups = {name: (1, 1 + k) for k, name in enumerate(outside)} if mesh.num_boundary else {}
    named = mesh.with_names(dict.fromkeys(inside, 1), groups)
    path = tmp_path_factory.getbasetemp() / "named.mesh"
    letters = set("".join([*inside, *groups]))
    if any(c == '"' or not (c.isprintable() or category(c) == "Zs") for c in letters):
        with pytest.raises(MeshArgumentError, match="cannot be written to MFEM's format"):
            write_mfem(named, path)
        return
    write_mfem(named, path)
    version, end = ("1.3", "\nmfem_mesh_end\n") if inside or groups else ("1.0", "")
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"MFEM mesh v{version}\n")  # without names, for older readers
    assert text.endswith(end)
    read = read_mfem(path)
    assert (read.element_names, read.boundary_names) == (named.element_names, named.boundary_names)
    assert np.array_equal(read.coordinates, mesh.coordinates)
    assert np.array_equal(read.boundary_attributes, mesh.boundary_attributes)


MFEM_SETS = """MFEM mesh v1.3
dimension
1
elements
2
10 1 0 1
11 1 1 2

attribute_sets
4
"Base" 1 10
"Rose"
2
10
11
South 2
11
10
"elsewhere" 2 99 98
boundary
2
1 0 0
2 0 2
bdr_attribute_sets
1
"ends" 3 1 2
7
vertices
3
1
0
1
2

mfem_mesh_end
"""


def test_sets_as_mfem_writes_them():
    """On one line or several, names without quotes; what the mesh has not is left out."""
    mesh = read_mfem(MFEM_SETS)
    assert mesh.element_names == {"Base": (10,), "Rose": (10, 11), "South": (10, 11)}
    assert mesh.boundary_names == {"ends": (1, 2)}
    before, after = MFEM_SETS.split("attribute_sets", 1)
    without = before + "boundary" + after.split("\nboundary", 1)[1]
    assert read_mfem(without).element_names == {}


DAMAGES = [
    ("sets\n4", "sets\n5", 'the set "boundary" has more attributes'),
    ("sets\n4", "sets\n3", '"boundary" should come here'),
    ("sets\n4", "sets\n-1", "must be >= 0"),
    ("sets\n4", "sets\n99999999999", "characters are left"),
    ('"Base" 1 10', '"Base" 1 10 11', "more attributes than the 1"),
    ('"Base" 1 10', '"Base 1 10', "double quotes"),
    ('"Base" 1 10', '"" 1 10', "names two sets, or none"),
    ('"Base" 1 10', '"Rose" 1 10', 'line 12: "Rose" names two sets'),
    ('"Base" 1 10', '"Base" 88888888888 10', "characters are left"),
    ('"Base" 1 10', '"Base" 1 x', "must be a whole number"),
    ('"Base" 1 10', '"Base" 1 0', "must be >= 1"),
    ("MFEM mesh v1.3", "MFEM mesh v1.0", '"boundary" should come here'),
]


def test_damaged_sets():
    for old, new, message in DAMAGES:
        assert old in MFEM_SETS
        with pytest.raises(MeshFormatError, match=message):
            read_mfem(MFEM_SETS.replace(old, new, 1))


def test_predicates_choose_parts():
    mesh = box((4, 4)).with_names(
        {"core": lambda x: np.abs(x - 0.5).max(axis=0) < 0.3, "all": 1},
        {
            "left": lambda x: x[0] < 1e-9,
            "heater": lambda x: (x[1] < 1e-9) & (x[0] < 0.5),
            "low": 3,
            "corner": lambda x: x.sum(axis=0) < 0.3,
        },
    )
    assert np.count_nonzero(mesh.element_attributes == 2) == 4
    assert mesh.element_names == {"core": (2,), "all": (1, 2)}
    before, after = box((4, 4)).boundary_attributes, mesh.boundary_attributes
    numbers = mesh.boundary_names
    counts = [np.count_nonzero(np.isin(after, numbers[name])) for name in numbers]
    assert list(numbers) == ["left", "heater", "low", "corner"]  # the given order
    assert counts == [4, 2, 4, 2]
    assert np.array_equal(np.isin(after, numbers["low"]), before == 3)
    others = (before == 2) | (before == 4)
    assert np.array_equal(after[others], before[others])
    assert mesh.refine().boundary_names == numbers


def test_a_predicate_that_divides_nothing_changes_no_number():
    for dim in (1, 2, 3):
        mesh = box((3,) * dim)
        named = mesh.with_names({"all": lambda x: x[0] < 9}, {"high": lambda x: x[0] > 1 - 1e-9})
        assert named.boundary_names == {"high": (2,)}
        assert named.element_names == {"all": (1,)}
        assert np.array_equal(named.boundary_attributes, mesh.boundary_attributes)


def test_middles_of_curved_faces():
    def bend(x):
        return np.stack([x[0], x[1] + 0.3 * x[0] * (1 - x[0])])

    mesh = box((1, 1), order=2, mapping=bend)
    seen = []
    mesh.with_names(boundary={"all": lambda x: seen.append(x) or x[0] < 9})
    middles = {tuple(point) for point in seen[0].T.round(12)}
    assert middles == {(0.0, 0.5), (1.0, 0.5), (0.5, 0.075), (0.5, 1.075)}


def test_refused_predicates():
    for rule, text in (
        (lambda x: x[0] < -1, "true at the middle of no element or face"),
        (lambda x: x[0], "returned shape .* type float64 .* return 16 booleans"),
        (lambda x: True, "return 16 booleans"),
        (lambda x: x[0] < 1 and x[1] < 1, "write & and |"),
        (lambda x, y: x < y, "takes x: missing a required argument"),
    ):
        with pytest.raises(MeshArgumentError, match=text):
            box((4, 4)).with_names(boundary={"a": rule})


def test_predicates_of_outer_faces_that_are_not_listed_are_refused():
    """A condition would hold on the listed faces alone. Other faces may be left out."""
    whole = box((2, 2))
    (left,) = whole.with_names(boundary={"left": lambda x: x[0] == 0.0}).boundary_names["left"]
    some = np.flatnonzero(whole.boundary_attributes != left)
    some = np.append(some, np.flatnonzero(whole.boundary_attributes == left)[0])
    coordinates, boundary = whole.coordinates, whole.boundary[some]
    mesh = Mesh.from_arrays(None, whole.elements, coordinates=coordinates, boundary=boundary)
    with pytest.raises(MeshArgumentError, match="'left' is true at the middle of 1 outer faces"):
        mesh.with_names(boundary={"left": lambda x: x[0] == 0.0})
    assert mesh.with_names(boundary={"right": lambda x: x[0] == 1.0}).boundary_names["right"]


def test_the_largest_attribute_cannot_be_divided():
    """A part would get a negative attribute."""
    mesh = box((2, 1), upper=(2.0, 1.0)).with_attributes(elements=[2**31 - 1] * 2)
    assert mesh.with_names({"all": lambda x: x[0] > 0.0}).element_attributes[0] == 2**31 - 1
    with pytest.raises(MeshArgumentError, match="give the mesh smaller attributes"):
        mesh.with_names({"left": lambda x: x[0] < 1.0})


def test_names_of_attributes_that_were_coarsened_away_stay():
    mesh = box((2, 2)).refined([0])
    mesh = mesh.with_attributes(1 + (np.arange(mesh.num_elements) == 1).astype(int))
    mesh = mesh.with_names({"a": 1, "b": 2}).coarsened()
    assert mesh.with_names(boundary={"c": 1}).element_names == {"a": (1,), "b": (2,)}
