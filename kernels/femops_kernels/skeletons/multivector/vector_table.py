"""The int64 table through which a kernel of many vectors finds its arrays.

It has a block for each field. Entries that are common to all are read in the first block; those of
a field, and of the test function of its block, in its own.

Addresses are byte addresses; "per chunk" and "per element" arrays have one entry each and one more
at the end (prefix sums).  A row has the values of all vectors of a panel for one component of one
dof. Panels follow each other.
"""

NGROUPS = 0  # groups into which the vectors of all panels are cut: a task is a chunk for a group
PANEL_GROUPS = 1  # number of groups of a panel
NVEC = 2  # numbers of a row, no fewer than a lane has slots
ROW_BYTES = 3  # from one row to the next
IN_PANEL_BYTES = 4  # from one panel to the next, of the vectors read
OUT_PANEL_BYTES = 5
BUFFER_PANEL_BYTES = 6
FIRST_ELEMENT = 7  # address, per chunk: first element
QDATA = 8  # address: (batch, point, number, slot), a slot is an element; or matrices by element
ELEMENT = 9  # address: numbers that are constant in an element, (batch, number, slot)
CONSTANTS = 10  # address: numbers that are the same everywhere
GEMM = 11  # address of BLAS's product of matrices, where a kernel calls it
BUFFER = 12  # address: contributions to non-owned rows of OUT
ZEROS = 13  # address: a row of zeros

IN_OWNED_START = 14  # address, per chunk: first owned dof
IN_NONOWNED_START = 15  # address, per chunk: first entry of IN_NONOWNED_DOFS
IN_NONOWNED_DOFS = 16  # address: dofs of a chunk that other chunks own
IN_STARTS = 17  # address: chunk-local number of the dof of (element, node), int32
IN_GHOSTS_FROM = 18  # number of the first ghost: other ranks own the dofs from here on
IN_GHOSTS = 19  # address: their rows
CLEARED = 20  # address: for each row of IN whether it is read as zero, bytes; or 0

OUT_OWNED_START = 21
OUT_NONOWNED_START = 22  # and the first entry of the chunk's piece of BUFFER
OUT_NONOWNED_DOFS = 23
OUT_STARTS = 24
OUT_GHOSTS_FROM = 25
OUT_ELEMENT_START = 26  # address, per element: first dof that it meets first
CONSTRAINED = 27  # address: for each row of OUT whether it is constrained, bytes; or 0
COMBINE_START = 28  # address, per chunk: first entry of COMBINE_DOF and COMBINE_SLOT
COMBINE_DOF = 29  # address: owned dof that takes a contribution
COMBINE_SLOT = 30  # address: where in the buffer it stands; ascending chunk number for each dof
KEPT_START = 31  # address, per chunk: first entry of KEPT
KEPT = 32  # address: constrained rows that the chunk owns
KEEP = 33  # address: factor of x in constrained rows, one number
BLOCKS = 34
IN_ORIGIN = 35  # bytes from the begin of a panel to the first row of the field
OUT_ORIGIN = 36  # and of the test function
OUT_COMPONENTS = 37  # of the test function; 0 if the block has none
IN_HANGING = 38  # address: hanging entities, see ``batch/entities.py``
OUT_HANGING = 39
WORDS = 40
BLOCK_BYTES = WORDS * 8
