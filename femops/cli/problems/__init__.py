"""Problems with known solutions, one file each. `base` has the common parts."""
