"""The outer boundary, beside faces inside a mesh that are listed and outer faces that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import SpaceError
from femops.geometry.boundary import has_outer, outer_attributes
from support.simulated_ranks import on_ranks

BOX = femops.box((2, 1))


def listed(attribute: int, leave_out: int = 0) -> femops.Mesh:
    """Two elements, with the face in the middle as a boundary face."""
    return femops.Mesh.from_arrays(
        None,
        BOX.elements,
        coordinates=BOX.coordinates,
        boundary=np.vstack([BOX.boundary[leave_out:], [[1, 4]]]),
        boundary_attributes=[*BOX.boundary_attributes[leave_out:], attribute],
    )


@pytest.mark.parametrize("mesh", [listed(7), listed(1), listed(7, leave_out=3)])
def test_by_default_the_boundary_is_all_faces_of_one_element(mesh: femops.Mesh) -> None:
    """Forms, loads, integrals and conditions are those of the mesh that lists outer faces only."""
    V, W = femops.H1(mesh, 3), femops.H1(BOX, 3)
    np.testing.assert_array_equal(V.boundary_dofs(), W.boundary_dofs())
    np.testing.assert_array_equal(femops.boundary_load(V, 2.0), femops.boundary_load(W, 2.0))
    assert femops.integrate(V, 1.0, boundary="all") == pytest.approx(4.0)
    u = np.random.default_rng(0).standard_normal(V.size)
    np.testing.assert_array_equal(femops.boundary_mass(V) @ u, femops.boundary_mass(W) @ u)
    for space in (femops.L2(mesh, 2), femops.L2(BOX, 2)):
        A = femops.interior_penalty(space, boundary="all")
        assert A @ np.ones(space.size) @ np.ones(space.size) > 1.0
    asked = mesh.boundary_attributes[-1]
    assert set(V.boundary_dofs(asked)) - set(V.boundary_dofs())  # the face inside was asked for


def test_meshes_without_a_boundary() -> None:
    assert has_outer(BOX)
    closed = femops.box((3, 3), periodic=True)
    assert not has_outer(closed)
    V = femops.H1(closed, 2)
    assert not len(V.boundary_dofs())
    with pytest.raises(SpaceError, match="the mesh has no boundary: every face is between two"):
        femops.boundary_load(V, 1.0)


def test_attributes_of_faces_inside_are_refused() -> None:
    named = listed(7).with_names(boundary={"wall": (4, 1), "crack": 7})
    assert outer_attributes(named, 2) == [2]
    assert outer_attributes(named, ["wall", 1]) == [1, 4]
    with pytest.raises(SpaceError, match=r"attribute 7 has faces between .*: leave it out"):
        outer_attributes(named, ["wall", "crack"])
    with pytest.raises(SpaceError, match=r"attribute 1 has .*: give its faces of one element"):
        outer_attributes(listed(1), [1, 2])
    with pytest.raises(SpaceError, match="no boundary attribute 9"):
        outer_attributes(named, 9)


@pytest.mark.filterwarnings("ignore:1 of 5 ranks")
@pytest.mark.parametrize("size", [1, 2, 5])
def test_faces_that_ranks_share_are_inside(size: int) -> None:
    """Some ranks have no outer face, one has no element."""
    column = femops.box((1, 4), lower=(0.0, 0.0), upper=(1.0, 4.0))
    few = femops.Mesh.from_arrays(
        None, column.elements, coordinates=column.coordinates, boundary=column.boundary[:1]
    )
    wrapped = femops.box((4, 4), periodic=True)

    def program(comm: Any) -> tuple[float, int, bool]:
        V = femops.H1(femops.distribute(few, comm), 2)
        length = femops.integrate(V, 1.0, boundary="all")
        return length, len(V.boundary_dofs()), has_outer(femops.distribute(wrapped, comm))

    found, _ = on_ranks(size, program)
    assert [length for length, _, _ in found] == pytest.approx([10.0] * size)
    assert sum(dofs for _, dofs, _ in found) == 20
    assert not any(closed for _, _, closed in found)
