"""The int64 table through which a kernel of many vectors finds its arrays.

Addresses are byte addresses; "per chunk" and "per element" arrays have one entry each and one more
at the end (prefix sums).  A row is what all vectors have of one component of one dof.
"""

NGROUPS = 0  # groups into which the vectors are cut: a task is one chunk for one group
NVEC = 1  # vectors: numbers of a row, no fewer than a lane has slots
ROW_BYTES = 2  # from one row to the next
FIRST_ELEMENT = 3  # address, per chunk: first element
QDATA = 4  # address: (batch, point, number, slot); here a slot is an element
ELEMENT = 5  # address: numbers that are constant in an element, (batch, number, slot)
CONSTANTS = 6  # address: numbers that are the same everywhere
BUFFER = 7  # address: contributions to non-owned rows of OUT
ZEROS = 8  # address: a row of zeros

IN_OWNED_START = 9  # address, per chunk: first owned dof
IN_NONOWNED_START = 10  # address, per chunk: first entry of IN_NONOWNED_DOFS
IN_NONOWNED_DOFS = 11  # address: dofs of a chunk that others own
IN_STARTS = 12  # address: chunk-local number of the dof of (element, node), int32
IN_GHOSTS_FROM = 13  # number of the first ghost: these are dofs of others
IN_GHOSTS = 14  # address: their rows
CLEARED = 15  # address: for each row of IN whether it is read as zero, bytes; or 0

OUT_OWNED_START = 16
OUT_NONOWNED_START = 17  # and the first entry of the chunk's piece of BUFFER
OUT_NONOWNED_DOFS = 18
OUT_STARTS = 19
OUT_GHOSTS_FROM = 20
OUT_ELEMENT_START = 21  # address, per element: first dof that it meets first
CONSTRAINED = 22  # address: for each row of OUT whether it is constrained, bytes; or 0
COMBINE_START = 23  # address, per chunk: first entry of COMBINE_DOF and COMBINE_SLOT
COMBINE_DOF = 24  # address: owned dof that takes a contribution
COMBINE_SLOT = 25  # address: where in the buffer it stands; ascending chunk number for each dof
KEPT_START = 26  # address, per chunk: first entry of KEPT
KEPT = 27  # address: constrained rows that the chunk owns
KEEP = 28  # address: what a constrained row multiplies its row of x by, one number
