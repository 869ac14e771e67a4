"""The int64 table of merged conjugate gradients: the meaning of each entry.

"Per chunk" and "per batch" arrays have one entry each and one more at the end, as in ``table.py``.
"""

KERNEL = 0  # address of the operator's entry point ``sweep``
KERNEL_TABLE = 1  # address of its table, whose non-owned dofs are places in the tail of P
BUFFER = 2  # address: contributions of the sweep that are still to be combined
STATE = 3  # address, see ``cg_state.py``
X, R, P, V, M = 4, 5, 6, 7, 8  # addresses of the vectors, and of the diagonal preconditioner
SUMS = 9  # address: float64 (2, chunk, sum), first of the sweep, then of shared dofs
FIRST_BATCH = 10  # address, per chunk: first batch
BATCH_START = 11  # address, per batch: first dof that it meets first
SHARED_START = 12  # address, per chunk: first of its owned dofs that later chunks touch
SHARED_DOF = 13  # address: these dofs, ascending; their p is also the tail of p
SLOT_START = 14  # address, per shared dof: first entry of SLOT
SLOT = 15  # address: where in BUFFER contributions stand
NCOMP = 16  # components
TAIL = 17  # first number of the tail
CHUNKS = 18  # number of chunks
CONSTRAINED_START = 19  # address, per batch: first entry of CONSTRAINED
CONSTRAINED = 20  # address: ascending positions where the operator is KEEP times the identity
KEPT = 21  # address: entries of p at CONSTRAINED, while the operator reads zeros there
KEEP = 22  # address: one number
TAIL_CONSTRAINED_START = 23  # address, per chunk: first entry of TAIL_CONSTRAINED
TAIL_CONSTRAINED = 24  # address: constrained positions in the tail, per chunk ascending
