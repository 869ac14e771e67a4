"""Entries of a table that kernels of several fields have besides those of ``chunk/table.py``.

Results of elements are lanes: of each test function (batch, component, node, slot).  Functionals
are (batch, functional, slot).
"""

RESULTS = 36  # address: results of elements, one test function after the other
FUNCTIONALS = 37  # address
ENTRY_CHUNK = 38  # address, per chunk: first entry of y that it sums
ENTRY_START = 39  # address, per entry of y: first of its contributions
ENTRY_SLOT = 40  # address: where these stand in RESULTS; by ascending element
NODES = 41  # first of the addresses of entries of x, one for each field: (batch, node, slot) int32
MOST_FIELDS = 16
FIELD_WORDS = NODES + MOST_FIELDS
