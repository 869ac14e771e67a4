"""Specifications of kernels."""

import femops
from femops.operators.execution.specs import point_spec
from support.simulated_ranks import on_ranks


def test_sides_of_faces_between_ranks_have_ghosts():
    """An L2 space shares no dof with other ranks, but its faces read those of neighbours."""
    mesh, found = femops.box((4, 4)), {}

    def program(comm):
        V = femops.L2(femops.distribute(mesh, comm), 2)
        terms = [term for _, term in femops.interior_penalty(V).summands]
        found[comm.rank] = {
            term.domain.two_sided: {side.ghosts for side in point_spec(term).sources}
            for term in terms
        }

    on_ranks(2, program)
    # the element behind a face on the plus side may be of another rank
    assert found[0] == found[1] == {False: {False}, True: {False, True}}
