"""Problems with known solutions: one file each, and what they share in `base`."""
