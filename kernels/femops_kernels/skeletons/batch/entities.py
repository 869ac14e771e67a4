"""Lists of the hanging entities of batches, or of single elements where lanes are vectors.

A list is given by seven addresses: prefix sums over the batches, and the entities, as ``slot + 2**8
code + 2**24 half``; nodes and codes; the prefix sums and entities of parts; runs.

For each code there are: the number of nodes along the second direction of the entity (one if it is
an edge), both directions, the first of its nodes, the first of its runs, and their number. For each
node there are: the place of its run among all slots' places, its place in the run, and its position
among the nodes, run by run. For each run: its place, and the position of its first node.

Faces of which an element has but a *part*, because the element behind is smaller, are in the second
list of entities. All layers of the element's nodes are interpolated to such a part, so the face has
a code for each layer, one after the other.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import word

# </defaults>

CODE_BYTES, NODE_BYTES, RUN_BYTES = 8 * 6, 8 * 3, 8 * 2
NEXT_LAYER = 256  # from the entity of a layer to the next


@inner
def code_of(info, entity):
    """Address of the numbers of an entity's code."""
    return word(info, 3) + (entity >> 8 & 65535) * CODE_BYTES


@inner
def nodes_of(info, entity, p):
    """Slot, first node, nodes across, and where the matrices of both directions begin."""
    code, half = code_of(info, entity), entity >> 24
    nodes = word(info, 2) + word(code, 3) * NODE_BYTES
    first, second = (half >> word(code, 1)) & 1, (half >> word(code, 2)) & 1
    return entity & 255, nodes, word(code, 0), first * (p * p), second * (p * p)


@inner
def entities_of(info, b):
    """Range of the entities of batch b."""
    return word(word(info, 0), b), word(word(info, 0), b + 1)


@inner
def parts_of(info, b):
    """Range of the faces of batch b of which elements have a part."""
    return word(word(info, 4), b), word(word(info, 4), b + 1)
