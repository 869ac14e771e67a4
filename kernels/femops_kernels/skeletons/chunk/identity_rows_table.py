"""Entries of the int64 table of the launch that sets a result to zero, but for constrained dofs."""

FIRST_ENTRY = 0  # address, per chunk: first entry of y, and the end
CONSTRAINED_START = 1  # address, per chunk: first entry of CONSTRAINED, and the end
CONSTRAINED = 2  # address: flat positions that are a multiple of x
KEEP = 3  # address: that multiple, one number
