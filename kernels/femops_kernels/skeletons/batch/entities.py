"""Lists of the hanging entities of batches, or of single elements where lanes are vectors.

A list is given by six addresses. The first two are prefix sums over the batches, and the entities:
``slot + 2**8 code + 2**24 half``. For each node there are its run, its place in the run, and its
position among the nodes, run by run. For each code there are six numbers: nodes along the second
direction of the entity (one if it is an edge), its first node, the steps along both directions, and
these directions.

Faces of which an element has but a *part*, because the element behind is smaller, are in a second
list, to which the last two addresses belong. All layers of the element's nodes are interpolated to
such a part, so the face has a code for each layer, one after the other. Entities come before.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import word

# </defaults>

CODE_BYTES = 8 * 6


@inner
def code_of(info, entity):
    """Address of the numbers of an entity's code."""
    return word(info, 3) + (entity // 256 % 65536) * CODE_BYTES


@inner
def across(info, entity):
    """Number of nodes along the second direction of an entity."""
    return word(code_of(info, entity), 0)


@inner
def node_at(info, entity, a, b):
    """Number of a node of an entity, from its places along both directions."""
    code = code_of(info, entity)
    return word(code, 1) + a * word(code, 2) + b * word(code, 3)


@inner
def half_along(info, entity, direction):
    """The half, 0 or 1, of the entity's first (4) or second (5) direction."""
    return (entity // 16777216 >> word(code_of(info, entity), direction)) & 1


@inner
def entities_of(info, b):
    """Range of the entities of batch b."""
    return word(word(info, 0), b), word(word(info, 0), b + 1)


@inner
def parts_of(info, b):
    """Range of the faces of batch b of which elements have a part."""
    return word(word(info, 4), b), word(word(info, 4), b + 1)
