"""``python -m femops``: the command line."""

from femops.cli import main

if __name__ == "__main__":
    main()
