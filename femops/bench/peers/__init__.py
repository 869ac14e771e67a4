"""Other libraries to compare with, if they are installed, each in its own process."""
