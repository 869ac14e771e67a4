"""Small tensors, measured beside the machine's limits and other libraries."""
