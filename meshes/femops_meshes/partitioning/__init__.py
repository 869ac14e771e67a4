"""Which rank owns an element, and the part of a mesh that a rank holds."""
