"""The int64 table through which a chunk kernel finds its arrays: the meaning of each entry.

Addresses are byte addresses; "per chunk" and "per batch" arrays have one entry each and one more at
the end (prefix sums).  IN belongs to the field that is read, OUT to the test function.

A kernel of several fields and test functions has several blocks of WORDS entries, one behind the
other.  Block k has IN of field k and OUT of the test function of number k, or empty arrays where
there is none.  Entries that do not depend on the field are read from the first block.
"""

NCHUNKS = 0  # number of chunks
FIRST_BATCH = 1  # address, per chunk: first batch
QDATA = 2  # address: (batch, point, number, slot)
BUFFER = 3  # address: contributions to non-owned dofs of OUT, components together

IN_LOCAL_SIZE = 4  # dofs of a chunk's copy of a vector
IN_OWNED_START = 5  # address, per chunk: first owned dof
IN_NONOWNED_START = 6  # address, per chunk: first entry of IN_NONOWNED_DOFS
IN_NONOWNED_DOFS = 7  # address: dofs that a chunk copies
IN_STARTS = 8  # address: chunk-local number of the first dof of (batch, run, slot)
CLEARED_START = 9  # address, per chunk: first entry of CLEARED
CLEARED = 10  # address: positions in the chunk's copy of IN that are read as zero

OUT_LOCAL_SIZE = 11
OUT_OWNED_START = 12
OUT_NONOWNED_START = 13  # and the first entry of the chunk's piece of BUFFER
OUT_STARTS = 14
COMBINE_START = 15  # address, per chunk: first entry of COMBINE_DOF and COMBINE_SLOT
COMBINE_DOF = 16  # address: owned dof that takes a contribution
COMBINE_SLOT = 17  # address: where in the buffer it stands; ascending chunk number for each dof
CONSTRAINED_START = 18  # address, per chunk: first entry of CONSTRAINED
CONSTRAINED = 19  # address: constrained positions of OUT, counted as in a copy
KEEP = 20  # address: factor of x in constrained rows, one number
FILLED_AT = 21  # address: numbers at points that a kernel stores, (batch, point, number, slot)
MODES = 22  # address: modes of the geometry, (batch, component, mode, slot)
ELEMENT = 23  # address: numbers that are constant in an element, (batch, number, slot)
CONSTANTS = 24  # address: numbers that are the same everywhere
BATCHES = 25  # address of the kernel of a chunk's batches
IN_BATCH_START = 26  # address, per batch: first dof that it meets first
OUT_BATCH_START = 27
IN_PAD = 28  # dofs behind those of the last chunk's copy that padding elements read
BEFORE = 29  # address of an entry point that is called before batches, or 0 (see ``batches.py``)
BEFORE_TABLE = 30  # address of its table
BEFORE_READS = 31  # address of a vector that it reads and these do not, or 0
IN_NONOWNED_END = 32  # address, per chunk: first entry of IN_NONOWNED_DOFS that is a ghost's
IN_GHOSTS_FROM = 33  # number of the first ghost: other ranks own the dofs from here on
IN_GHOSTS = 34  # address: their values
IN_ORIGIN = 35  # where in x the field begins, bytes
OUT_ORIGIN = 36  # where in y the test function begins
IN_COMPONENTS = 37  # of the field
OUT_COMPONENTS = 38  # of the test function
BLOCKS = 39  # number of blocks of the table
FUNCTIONALS = 40  # address: functionals of elements, (batch, functional, slot)
IN_TURNS = 41  # address: how elements lie behind their faces, see ``batch/face_nodes.py``
OUT_TURNS = 42
IN_HANGING = 43  # address: hanging entities, see ``batch/hanging.py``
OUT_HANGING = 44
WORDS = 45
BLOCK_BYTES = 8 * WORDS

CACHE_LINE = 64  # bytes
