"""Fields as VTU files with high-order cells, and series of them."""
