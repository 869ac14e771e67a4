"""Other libraries to run beside femops, each in a process of its own, if they are installed."""
