"""Command line of ``python -m femops``."""

from femops.cli import main

if __name__ == "__main__":
    main()
