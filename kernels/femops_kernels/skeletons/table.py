"""The int64 table through which a chunk kernel finds its arrays: the meaning of each entry.

Addresses are byte addresses; "per chunk" arrays have one entry a chunk and one more at the end
(prefix sums).
"""

NCHUNKS = 0  # how many chunks
LOCAL_SIZE = 1  # slots of one component of a chunk-local vector
FIRST_BATCH = 2  # address, per chunk: first batch
OWNED_START = 3  # address, per chunk: first owned dof
FOREIGN_START = 4  # address, per chunk: first entry of FOREIGN_DOFS and of the buffer
FOREIGN_DOFS = 5  # address: dofs that a chunk touches and an earlier one owns
COMBINE_START = 6  # address, per chunk: first entry of COMBINE_DOF and COMBINE_SLOT
COMBINE_DOF = 7  # address: owned dof that takes a contribution
COMBINE_SLOT = 8  # address: where in the buffer it stands; ascending chunk number for each dof
INDICES = 9  # address: chunk-local dof of (batch, node, slot)
BUFFER = 10  # address: contributions to foreign dofs, components together
QDATA = 11  # address: (batch, point, number, slot)
CONSTRAINED_START = 12  # address, per chunk: first entry of CONSTRAINED
CONSTRAINED = 13  # address: constrained positions of the chunk-local vector
KEEP = 14  # address: what a constrained row multiplies its entry of x by, one number
WORDS = 15
