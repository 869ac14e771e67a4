"""The int64 table of a product by compressed rows: the meaning of each entry."""

FIRST_ROW = 0  # address, per chunk: first row, and the end
ROW_START = 1  # address: first entry of each row, and the end
COLUMNS = 2  # address: int32 column of each entry
VALUES = 3  # address: the entries
ROW_BYTES = 4  # with many vectors: from one row of x or y to the next
NVEC = 5  # number of vectors
