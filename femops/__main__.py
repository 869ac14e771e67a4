"""``python -m femops``: the command line."""

from femops.cli import main

main()
