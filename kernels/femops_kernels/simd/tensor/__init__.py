"""Products of small matrices of a batch, where the offset of each entry is known beforehand."""
